# SPDX-License-Identifier: Apache-2.0
"""Conversions between Hugging Face and Megatron-Core of the largest published models, planned in both directions from headers."""
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))
import megatron_many
import support
from families import BY_NAME
from families.written import write_sparse
from test_dcp_many import measure


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
            spent, held = measure(("plan", *command))
            print(f"{name}, {layers} layers, {what}: {count}, {spent:.2f} s of processor time, {held:.0f} MiB")
            self.assertLess(held, 1000)

    def test_planned(self):
        whole = float(os.environ.get("RESHARD_TEST_SCALE", "1")) >= 50
        for name in ("DeepSeek-V3", "Kimi-K2"):
            self.check(name, BY_NAME[name].layers if whole else 5)


if __name__ == "__main__":
    support.main()
