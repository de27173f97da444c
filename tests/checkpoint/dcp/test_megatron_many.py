# SPDX-License-Identifier: Apache-2.0
"""Conversions between Hugging Face and Megatron-Core of the largest published models, planned in both directions from headers; and a
model larger than memory carried out in both directions."""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "rules"), os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import megatron_many
import support
from families import BY_NAME
from families.written import write_sparse


class ManyTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def check(self, name, layers):
        """RESHARD_TEST_SCALE=50 takes all layers (make dcp-many)."""
        row = BY_NAME[name]
        mtp = row.given["num_nextn_predict_layers"]
        given = {**row.given, "num_hidden_layers": layers}
        tensors = [tensor[:3] for tensor in row.build(list(range(layers)), given).tensors]
        number = row.layers
        tensors = [(tensor[0].replace(f"model.layers.{number}.", f"model.layers.{layers}."), *tensor[1:]) for tensor in tensors] if mtp else tensors
        shapes = megatron_many.shapes_of(tensors, layers, given["n_routed_experts"])
        hf, megatron = f"{self.folder}/{name}", f"{self.folder}/{name}-megatron"
        write_sparse(hf, [(*tensor, None) for tensor in tensors], given)
        chunks = megatron_many.write(megatron, shapes, 8)
        shutil.copy(f"{hf}/config.json", megatron)
        mesh = f"tp=8,pp={layers},ep=8"
        found = self.read_json("plan", hf, "--as", "megatron", "--to", mesh, "--tensors")
        self.assertEqual({entry["name"]: entry["shape"] for entry in found["tensor_list"]}, {key: list(shape) for key, (_, shape) in shapes.items()})
        back = self.read_json("plan", megatron, "--as", "hf", "--tensors")
        self.assertEqual({entry["name"]: entry["shape"] for entry in back["tensor_list"]}, {key: list(shape) for key, _, shape in tensors})
        for what, count, command in (("hf -> megatron " + mesh, f"{len(tensors)} tensors", (hf, "--as", "megatron", "--to", mesh)),
                                     ("megatron -> hf", f"{chunks} chunks", (megatron, "--as", "hf"))):
            spent, held = support.measure(("plan", *command))
            print(f"{name}, {layers} layers, {what}: {count}, {spent:.2f} s of processor time, {held:.0f} MiB")
            self.assertLess(held, 1000)

    def test_planned(self):
        whole = float(os.environ.get("RESHARD_TEST_SCALE", "1")) >= 50
        for name in ("DeepSeek-V3", "Kimi-K2"):
            self.check(name, BY_NAME[name].layers if whole else 5)


MEASURE = """import json, resource, subprocess, sys, time
begin = time.monotonic()
done = json.loads(subprocess.run(sys.argv[1:], check=True, stdout=subprocess.PIPE).stdout)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done, time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))"""


class LargeTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-", dir=os.environ.get("RESHARD_TEST_FOLDER"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_measured(self, *arguments):
        found = subprocess.run([sys.executable, "-c", MEASURE, support.COMMAND, *arguments, "--json", "--quiet"], check=True, stdout=subprocess.PIPE)
        done, seconds, spent, held = json.loads(found.stdout)
        print(f"{' '.join(arguments[3:])}: {done['bytes_written'] / 1e9:.2f} GB in {seconds:.1f} s, {spent:.1f} s of processor time, {held:.0f} MiB")
        self.assertLess(held, 160)  # 64 for the bytes, the rest for names and places
        return done

    def test_there_and_back(self):
        """A model of 20 GB (make convert-large; here a small one) that is a hole but for the ends of its tensors, within 64 MB of memory."""
        large = float(os.environ.get("RESHARD_TEST_SCALE", "1")) >= 50
        row, layers, experts = BY_NAME["DeepSeek-V2-Lite"], 17 if large else 3, 64 if large else 4
        given = {**row.given, "num_hidden_layers": layers, "n_routed_experts": experts}
        if not large:
            given.update(hidden_size=256, moe_intermediate_size=96, intermediate_size=256, vocab_size=1000)
        hf, there, back = (f"{self.folder}/{name}" for name in ("hf", "megatron", "back"))
        write_sparse(hf, row.build(range(layers), given).tensors, given)
        rnd = random.Random(7)
        with open(f"{hf}/model.safetensors", "r+b") as file:
            length, = struct.unpack("<Q", file.read(8))
            for entry in json.loads(file.read(length)).values():
                for at in (entry["data_offsets"][0], entry["data_offsets"][1] - 32):
                    file.seek(8 + length + at)
                    file.write(rnd.randbytes(32))
        first = self.run_measured("convert", hf, there, "--as", "megatron", "--to", "tp=2,pp=1,ep=2", "--max-memory", "64M")
        second = self.run_measured("convert", there, back, "--as", "hf", "--max-memory", "64M")
        self.assertEqual(first["bytes_written"], second["bytes_written"])
        shutil.rmtree(there)
        self.assertEqual(self.read_json("digest", back), self.read_json("digest", hf))


if __name__ == "__main__":
    support.main()
