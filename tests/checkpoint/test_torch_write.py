# SPDX-License-Identifier: Apache-2.0
"""torch.save files as we write them, one or one for each rank: read by Python's own unpickler (torch_files.py), every name,
value and tensor, and every CRC. PyTorch itself loads such files in tests/oracle/pytorch."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))
import files
import support
import torch_files
from torch_files import Call, Global, Loaded
from test_convert import CONFIG, SEED, llama, tensor
from test_torch_read import PLAIN, TorchTest


class Written(TorchTest):
    def check(self, path, expected):
        """Same nesting, same values; tensors are (dtype, shape, bytes)."""
        def compare(found, wanted, where):
            if isinstance(found, Loaded):
                self.assertEqual(found.whole(), wanted, where)
            elif isinstance(found, dict):
                self.assertEqual(set(found), set(wanted), where)
                for key in found:
                    compare(found[key], wanted[key], where + [key])
            elif isinstance(found, list):
                self.assertEqual(len(found), len(wanted), where)
                for i, part in enumerate(found):
                    compare(part, wanted[i], where + [i])
            else:
                self.assertEqual((type(found), found), (type(wanted), wanted), where)
        loaded = torch_files.load(path)
        compare(loaded, expected, [])
        return loaded

    def test_flat(self):
        """From safetensors: one dict by name, in every dtype that PyTorch has."""
        rnd = random.Random(SEED)
        model = {f"layer.{dtype}": tensor(rnd, dtype, 3, 2) for dtype in PLAIN}
        model.update({"scalar": tensor(rnd, "F32"), "empty": ("F16", (0, 4), b""), "deep": tensor(rnd, "U8", *[1] * 10)})
        self.write_hf("m", model)
        done = self.convert("m", "pt", "--format", "torch", "--verify")
        self.assertEqual(os.listdir(self.at("pt")), ["model.pt"])
        self.check(self.at("pt/model.pt"), model)
        self.assertEqual(done["notes"], [])
        self.compare("pt", model)
        self.write_hf("odd", {"w": tensor(rnd, "F6_E2M3", 4)})
        self.fails("odd", "x", "--format", "torch", words='tensor "w": PyTorch\'s files cannot hold elements of f6_e2m3')

    def test_nested(self):
        rnd = random.Random(SEED)
        w, m, s = tensor(rnd, "BF16", 4, 3), tensor(rnd, "F32", 4, 3), tensor(rnd, "F32")
        shared = torch_files.tensor(w)
        value = {"model": torch_files.ordered({"a.weight": shared, "b.weight": shared}),
                 "optimizer": {"state": {0: {"exp_avg": torch_files.tensor(m), "step": torch_files.tensor(s)}, 1: {"step": 3}},
                               "param_groups": [{"lr": 0.25, "betas": (0.9, 0.5), "params": [0, 1], "amsgrad": False, "x": None}]},
                 "list": [torch_files.tensor(s), [7, torch_files.tensor(m)]], "shape": torch_files.size((2, 3)), "name": "é",
                 "args": Call(Global("argparse", "Namespace"), new=True, state={"n": 1}), "big": 2**40, "half": Global("torch", "float16")}
        expected = {"model": {"a.weight": w, "b.weight": w},
                    "optimizer": {"state": {0: {"exp_avg": m, "step": s}, 1: {"step": 3}},
                                  "param_groups": [{"lr": 0.25, "betas": (0.9, 0.5), "params": [0, 1], "amsgrad": False, "x": None}]},
                    "list": [s, [7, m]], "shape": (2, 3), "name": "é", "big": 2**40, "half": "float16"}
        torch_files.write(self.at("a.pt"), value)
        done = self.convert("a.pt", "b", "--format", "torch")
        self.assertEqual(done["notes"], ["the format torch cannot hold 1 value, which stays behind: args"])
        loaded = self.check(self.at("b/model.pt"), expected)
        self.assertEqual(loaded["model"]["a.weight"].key, loaded["model"]["b.weight"].key)
        self.assertEqual(self.convert("b", "c", "--format", "torch")["notes"], [])
        with open(self.at("b/model.pt"), "rb") as one, open(self.at("c/model.pt"), "rb") as two:
            self.assertEqual(one.read(), two.read())
        self.assertEqual(done["digest"], done["source_digest"])
        # New names: the common beginning stays nested, and so does the common end.
        self.convert("a.pt", "d", "--format", "torch", "--only", "optimizer")
        self.check(self.at("d/model.pt"), expected["optimizer"])
        self.convert("a.pt", "e", "--format", "torch", "--include", "model.*", "--rename", "model.{a,b}.weight=model.new.{1}")
        found = torch_files.load(self.at("e/model.pt"))["model"]
        self.assertEqual({name: part.whole() for name, part in found.items()}, {"new.a": w, "new.b": w})

    def test_model_alone(self):
        """hf takes the model and says what stays behind."""
        rnd = random.Random(SEED)
        w, m = tensor(rnd, "F32", 2), tensor(rnd, "F32", 3)
        value = {"state_dict": {"w": torch_files.tensor(w)}, "optimizer": {"m": torch_files.tensor(m)}, "epoch": 3}
        torch_files.write(self.at("a.ckpt"), value)
        done = self.convert("a.ckpt", "hf")
        self.assertEqual(files.read_hf(self.at("hf")), {"w": w})
        self.assertEqual(done["notes"], ['only "state_dict" is taken: 1 tensors (12 bytes) and 1 other values stay behind'])
        done = self.convert("a.ckpt", "all", "--all")
        self.assertEqual(files.read_hf(self.at("all")), {"state_dict.w": w, "optimizer.m": m})
        self.assertEqual(done["notes"], ["the format hf cannot hold 1 value, which stays behind: epoch"])
        self.convert("a.ckpt", "opt", "--only", "optimizer")
        self.assertEqual(files.read_hf(self.at("opt")), {"m": m})
        self.fails("a.ckpt", "none", "--only", "nothing", words='only "nothing": no tensor is under that name')
        done = self.convert("a.ckpt", "dcp", "--to", "fsdp=2")
        self.assertEqual(sorted(files.read_dcp(self.at("dcp"))), ["optimizer.m", "state_dict.w"])

    def test_ranks(self):
        """One file a rank, with plain local tensors and all values."""
        rnd = random.Random(SEED)
        w, v = tensor(rnd, "F32", 5, 2), tensor(rnd, "F32", 1)
        torch_files.write(self.at("a.pt"), {"model": {"w": torch_files.tensor(w), "v": torch_files.tensor(v)}, "step": 4})
        self.convert("a.pt", "r", "--format", "torch", "--to", "fsdp=3", "--verify")
        for rank in range(3):
            begin, end = torch_files.chunk(5, 3, rank)
            first, last = torch_files.chunk(1, 3, rank)
            self.check(self.at(f"r/model_world_size_3_rank_{rank}.pt"),
                       {"model": {"w": ("F32", (end - begin, 2), files.cut(w, [begin, 0], [end - begin, 2])),
                                  "v": ("F32", (last - first,), v[2][4 * first:4 * last])}, "step": 4})

    def test_interrupted(self):
        """CRCs are right when some blocks were written by an earlier run, in small blocks by several threads."""
        rnd = random.Random(SEED)
        model = {f"w{i}": tensor(rnd, "F32", 512, 700) for i in range(16)}
        self.write_hf("m", model)
        options = ["convert", self.at("m"), self.at("out"), "--format", "torch", "--max-memory", "1M", "--journal-bytes", "1M",
                   "--threads", "2"]
        self.kill_after_a_record(*options, target=self.at("out"))
        self.assertGreater(self.read_json(*options, "--resume")["bytes_resumed"], 0)
        self.check(self.at("out/model.pt"), model)


if __name__ == "__main__":
    support.main()
