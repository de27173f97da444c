# SPDX-License-Identifier: Apache-2.0
"""`reshard bench model` and `reshard bench convert`: what they write and print. How fast conversion is, the benchmarks
tell."""
import glob
import json
import math
import os
import resource
import signal
import struct
import subprocess
import tempfile
import time

import support
from support import CommandTest, main, run

MASK = (1 << 64) - 1


def mix(counter):
    """splitmix64, as its authors publish it, at a given position."""
    x = counter * 0x9e3779b97f4a7c15 & MASK
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


def read_header(path):
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), file.read()


class BenchConvertTest(CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reshard-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def at(self, name):
        return os.path.join(self.folder, name)

    def check_model(self, name, dtype, size):
        header, data = read_header(self.at(name) + "/model.safetensors")
        with open(self.at(name) + "/config.json", encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
        end = 0
        for tensor, entry in header.items():
            self.assertEqual(entry["dtype"], dtype, tensor)
            self.assertEqual(entry["data_offsets"], [end, end + size * math.prod(entry["shape"])], tensor)
            end = entry["data_offsets"][1]
        self.assertEqual(end, len(data))
        hidden, heads, head = (config[key] for key in ["hidden_size", "num_attention_heads", "head_dim"])
        for layer in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            for tensor, shape in [
                    ("self_attn.q_proj.weight", [heads * head, hidden]),
                    ("self_attn.k_proj.weight", [config["num_key_value_heads"] * head, hidden]),
                    ("self_attn.v_proj.weight", [config["num_key_value_heads"] * head, hidden]),
                    ("self_attn.o_proj.weight", [hidden, heads * head]),
                    ("mlp.gate_proj.weight", [config["intermediate_size"], hidden]),
                    ("mlp.up_proj.weight", [config["intermediate_size"], hidden]),
                    ("mlp.down_proj.weight", [hidden, config["intermediate_size"]]),
                    ("input_layernorm.weight", [hidden]), ("post_attention_layernorm.weight", [hidden])]:
                self.assertEqual(header.pop(prefix + tensor)["shape"], shape)
        self.assertEqual(header.pop("model.embed_tokens.weight")["shape"], [config["vocab_size"], hidden])
        header.pop("model.norm.weight")
        self.assertEqual(list(header), [] if config["tie_word_embeddings"] else ["lm_head.weight"])
        return data

    def test_model(self):
        told = self.read_json("bench", "model", self.at("a"), "--bytes", "3M")
        data = self.check_model("a", "BF16", 2)
        self.assertEqual(told["bytes"], len(data))
        self.assertLess(abs(len(data) - (3 << 20)), 1 << 20)
        for i in [0, 1, 131071, 131072, len(data) // 8 - 1]:
            wanted = mix(i + 1) & 0x83ff83ff83ff83ff | 0x3c003c003c003c00
            self.assertEqual(struct.unpack_from("<Q", data, 8 * i)[0], wanted, i)

    def test_model_of_f32(self):
        self.read_text("bench", "model", self.at("a"), "--bytes", "1M", "--dtype", "f32")
        data = self.check_model("a", "F32", 4)
        values = struct.unpack_from("<4096f", data)
        self.assertTrue(all(2 ** -7 <= abs(value) < 2 for value in values))
        self.assertGreater(len(set(values)), 4000)

    def test_small_and_large_models_are_near_their_size(self):
        for size in [1, 200_000, 5_000_000, 40_000_000]:
            told = self.read_json("bench", "model", self.at(f"m{size}"), "--bytes", str(size))
            self.assertLess(abs(told["bytes"] - size), max(0.3 * size, 300_000), size)

    def test_model_that_is_split(self):
        self.read_text("bench", "model", self.at("whole"), "--bytes", "3M")
        self.read_text("bench", "model", self.at("split"), "--bytes", "3M", "--to", "fsdp=8")
        files = [name for name in os.listdir(self.at("split")) if name.endswith(".safetensors")]
        self.assertEqual(len(files), 8)
        self.assertIn("the same tensors", self.read_text("verify", self.at("whole"), self.at("split")))
        self.assertEqual(sorted(os.listdir(self.folder)), ["split", "whole"])

    def test_model_where_something_is(self):
        os.mkdir(self.at("a"))
        self.check_fails(["bench", "model", self.at("a")], code=1, words="cannot be made")
        self.check_fails(["bench", "model", self.at("b"), "--bytes", "2T"], words="up to 1T")
        self.check_fails(["bench", "model", self.at("b"), "--bytes", "1M", "--to", "tp=3"], words="cannot be divided evenly by tp=3")
        self.assertEqual(os.listdir(self.folder), ["a"])

    def test_convert(self):
        told = self.read_json("bench", "convert", "--bytes", "3M", "--runs", "2", "--tensors", "500",
                              "--folder", self.folder)
        self.assertEqual([case["case"] for case in told["cases"]],
                         ["fsdp-hf", "hf-tp", "tp-tp", "cast", "dcp-hf", "hf-dcp", "pt-hf", "hf-pt", "ranks-hf", "ranks-ranks", "zero-hf",
                          "hf-vllm", "vllm-hf", "hf-meta", "hf-hf5", "hf-megatron", "megatron-hf", "gguf-hf", "hf-gguf"])
        for case in told["cases"]:
            self.assertAlmostEqual(case["ratio"], case["cp_seconds"] / case["seconds"], delta=0.01 * case["ratio"])
            share = case["bytes_target"] / case["bytes_source"]
            # Every box of a distributed checkpoint is an archive of its own, and every rank file describes each of its
            # DTensors, which small models feel.
            room = 0.45 if "dcp" in case["case"] or "ranks" in case["case"] else 0.15
            # 4.5 bits for each weight, and 8.5.
            wanted = {"cast": 0.5, "gguf-hf": 16 / 4.5, "hf-gguf": 8.5 / 16}.get(case["case"], 1)
            self.assertLess(abs(share - wanted), room, case)
            self.assertEqual([entry["limit_bytes"] >> 20 for entry in case["memory"]], [16, 64, 512])
            for entry in case["memory"]:
                self.assertGreater(entry["peak_bytes"], 1 << 20)
                if "san" not in os.path.basename(os.path.dirname(support.COMMAND)):
                    self.assertLessEqual(entry["peak_bytes"], entry["allowed_bytes"])
                self.assertLess(entry["allowed_bytes"] - entry["limit_bytes"] - (32 << 20), 1 << 20)
        self.assertEqual((told["tensors"]["count"], told["tensors"]["files"]), (500, 64))
        self.assertEqual(os.listdir(self.folder), [])

    def test_one_case_as_a_table(self):
        lines = self.read_text("bench", "convert", "--bytes", "1M", "--runs", "1", "--case", "hf-tp", "--sync",
                               "--folder", self.folder).splitlines()
        self.assertRegex(lines[0], "medians of 1 runs, page cache warm, synced to disk")
        self.assertEqual(lines[3].split()[:3], ["hf", "->", "tp=4"])
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_is_wrong_is_said(self):
        for arguments, code, words in [
                (["--runs", "0"], 2, "from 1 to 101"), (["--bytes", "2T"], 2, "up to 1T"),
                (["--tensors", "63"], 2, "from 64 to"), (["--case", "all-of-it"], 2, "all-of-it"),
                (["--folder", self.at("nowhere")], 1, "no folder can be made there")]:
            self.check_fails(["bench", "convert", *arguments], code=code, words=words)

    def test_a_full_disk_leaves_nothing(self):
        done = run("bench", "convert", "--bytes", "3M", "--runs", "1", "--case", "hf-tp", "--folder", self.folder,
                   preexec_fn=limit_files)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot be", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_interrupt_leaves_nothing(self):
        with subprocess.Popen([support.COMMAND, "bench", "convert", "--bytes", "20M", "--runs", "101", "--folder",
                               self.folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            for _ in range(5000):
                if glob.glob(self.at("*/source")):
                    break
                time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            output, errors = running.communicate(timeout=200)
        self.assertEqual((running.returncode, output, errors), (128 + signal.SIGINT, b"", b"reshard: cancelled\n"))
        self.assertEqual(os.listdir(self.folder), [])


def limit_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


if __name__ == "__main__":
    main()
