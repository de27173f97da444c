# SPDX-License-Identifier: Apache-2.0
"""torch.save files as we write them, one or one for each rank: read by Python's own unpickler (torch_files.py), every name,
value and tensor, and every CRC. PyTorch itself loads such files in tests/oracle/pytorch."""
import json
import os
import random
import struct
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import item_files
import support
import torch_files
from convert_case import CONFIG, SEED, llama, tensor
from torch_files import Call, Global, Loaded
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

    def test_lists_that_lose_something(self):
        """What is left keeps its numbers, as keys of a dict; a list that only loses its end stays one."""
        rnd = random.Random(SEED)
        arrays = [tensor(rnd, "F32", 2) for _ in range(3)]
        torch_files.write(self.at("a.pt"), {"l": [torch_files.tensor(array) for array in arrays]})
        for i, wanted in enumerate([{1: arrays[1], 2: arrays[2]}, {0: arrays[0], 2: arrays[2]}, arrays[:2]]):
            self.convert("a.pt", f"less{i}", "--format", "torch", "--exclude", f"l.{i}")
            self.check(self.at(f"less{i}/model.pt"), {"l": wanted})

    def test_pairs_as_arguments(self):
        """Python 2 pickled an OrderedDict as a call with its pairs. What else is called with them stays behind."""
        pairs = Call(Global("collections", "OrderedDict"), ([["lr", 0.5], ["steps", 7]],))
        w = torch_files.tensor(("U8", (1,), b"w"))
        other = Call(Global("collections", "OrderedDict"), ([["lr", 0.5, 1]],))
        torch_files.write(self.at("old.pt"), {"w": w, "hyper": pairs, "other": other, "new": torch_files.ordered({"lr": 0.5})})
        for format, options in (("torch", []), ("torch-ranks", ["--to", "fsdp=2", "--rules", "fsdp"]), ("dcp", ["--to", "fsdp=2", "--rules", "fsdp"])):
            done = self.convert("old.pt", format, "--format", "torch" if format == "torch-ranks" else format, *options)
            self.assertEqual(done["notes"][:1], [f"the format {format} cannot hold 1 value, which stays behind: other"])
        self.check(self.at("torch/model.pt"), {"w": ("U8", (1,), b"w"), "hyper": {"lr": 0.5, "steps": 7}, "new": {"lr": 0.5}})

    def test_values_alone(self):
        """A file without tensors: what it holds is carried, and named where it cannot be."""
        value = {"step": 3, "groups": [{"lr": 0.5}]}
        for name, held, expected in [("dict", value, value), ("ordered", torch_files.ordered(value), value), ("five", 5, {"five": 5}),
                                     ("list", [1, "a"], [1, "a"])]:
            with self.subTest(name):
                torch_files.write(self.at(f"{name}.pt"), held)
                self.assertEqual(self.convert(f"{name}.pt", f"{name}-torch", "--format", "torch")["notes"], [])
                self.check(self.at(f"{name}-torch/model.pt"), expected)
                self.assertEqual(self.convert(f"{name}.pt", f"{name}-dcp", "--format", "dcp", "--to", "fsdp=2")["notes"], [])
        self.convert("dict-dcp", "back", "--format", "torch")
        self.check(self.at("back/model.pt"), value)
        self.fails("dict.pt", "hf", words="dict.pt: holds no tensor, so there is nothing to convert; the formats torch and dcp keep other values")
        self.fails("dict.pt", "placed", "--format", "torch", "--to", "fsdp=2", "--dtensor", words="dict.pt: holds no tensor, so there is none to write as a DTensor")

    def test_one_value_alone_in_a_folder(self):
        """A value that is all that the file holds has a name in every format, so it is not lost."""
        for file, name in (("pytorch_model.bin", "pytorch_model"), ("rank0.pt", "model")):
            with self.subTest(file):
                os.makedirs(self.at(f"{name}-in"))
                torch_files.write(self.at(f"{name}-in/{file}"), 5)
                if name == "model":
                    torch_files.write(self.at(f"{name}-in/rank1.pt"), 5)
                options = ["--from", "fsdp=2"] if name == "model" else []
                self.convert(f"{name}-in", f"{name}-out", "--format", "torch", *options)
                self.check(self.at(f"{name}-out/model.pt"), {name: 5})
        torch_files.write(self.at("nameless.pt"), {"": 5, "a": {"": 7}})
        self.convert("nameless.pt", "nameless-dcp", "--format", "dcp", "--to", "fsdp=2")
        for source in ("nameless.pt", "nameless-dcp"):
            self.convert(source, f"{source}-out", "--format", "torch")
            self.check(self.at(f"{source}-out/model.pt"), {"": 5, "a": {"": 7}})

    def test_what_is_tied_and_what_is_not(self):
        """Only the same elements in the same order, written in the same dtype, share their bytes."""
        rnd = random.Random(SEED)
        square = tensor(rnd, "F32", 3, 3)
        turned = ("F32", (3, 3), b"".join(square[2][4 * (3 * j + i):][:4] for i in range(3) for j in range(3)))
        storage = torch_files.Storage("F32", square[2])
        views = {name: torch_files.View(storage, 0, (3, 3), strides)
                 for name, strides in (("a", (3, 1)), ("b", (3, 1)), ("t", (1, 3)))}
        torch_files.write(self.at("square.pt"), views)
        self.convert("square.pt", "same", "--format", "torch")
        self.check(self.at("same/model.pt"), {"a": square, "b": square, "t": turned})
        found = torch_files.load(self.at("same/model.pt"))
        self.assertEqual(found["a"].key, found["b"].key)
        self.convert("square.pt", "cast", "--format", "torch", "--dtype", "b=f64")
        wide = ("F64", (3, 3), struct.pack("<9d", *struct.unpack("<9f", square[2])))
        self.check(self.at("cast/model.pt"), {"a": square, "b": wide, "t": turned})

    def test_model_alone(self):
        """hf takes the model and says what stays behind."""
        rnd = random.Random(SEED)
        w, m = tensor(rnd, "F32", 2), tensor(rnd, "F32", 3)
        value = {"state_dict": {"w": torch_files.tensor(w)}, "optimizer": {"m": torch_files.tensor(m)}, "epoch": 3}
        torch_files.write(self.at("a.ckpt"), value)
        done = self.convert("a.ckpt", "hf")
        self.assertEqual(files.read_hf(self.at("hf")), {"w": w})
        self.assertEqual(done["notes"], ['only "state_dict" is taken: 1 tensor (12 bytes) and 1 other value stay behind'])
        self.read_text("verify", self.at("a.ckpt"), self.at("hf"), "--only", "state_dict")
        self.check_fails(["verify", self.at("a.ckpt"), "--only", "state_dict"], 2, "--only is for a second checkpoint")
        done = self.convert("a.ckpt", "all", "--all")
        self.assertEqual(files.read_hf(self.at("all")), {"state_dict.w": w, "optimizer.m": m})
        self.assertEqual(done["notes"], ["the format hf cannot hold 1 value, which stays behind: epoch"])
        self.convert("a.ckpt", "opt", "--only", "optimizer")
        self.assertEqual(files.read_hf(self.at("opt")), {"m": m})
        self.fails("a.ckpt", "none", "--only", "nothing", words='only "nothing": no tensor')
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

    def test_ranks_are_read_back(self):
        """Our rank files say how they were split: padded, packed, flat, replicated, empty, 0-d, of many dims, nested and beside values."""
        rnd = random.Random(SEED)
        model = {"a.weight": tensor(rnd, "F32", 7, 6), "b.qkv": tensor(rnd, "BF16", 12, 3), "c.flat": tensor(rnd, "F16", 5, 3),
                 "d.vocab": tensor(rnd, "U8", 5, 2), "e.step": tensor(rnd, "I64"), "f.none": ("F32", (0, 3), b""),
                 "g.deep": tensor(rnd, "U8", *[1] * 9, 2), "h.block": tensor(rnd, "C64", 9, 2)}
        nested = {}
        for name, array in model.items():
            first, last = name.split(".")
            nested.setdefault("model", {}).setdefault(first, {})[last] = torch_files.tensor(array)
        torch_files.write(self.at("a.pt"), {**nested, "lr": 0.5})
        self.write_text("r.rules", """*.weight S(1)@tp
*.qkv S(0;4,4,4)@tp
*.flat S(flat)@tp
*.vocab S(0)@tp pad(0,4)
*.block S(0/2)@tp
* R
""")
        for name, mesh in (("one", "tp=4"), ("two", "dp=2,tp=2"), ("far", "tp=2[5,3]")):
            self.convert("a.pt", name, "--format", "torch", "--to", mesh, "--rules", self.at("r.rules"), "--verify")
            found = self.read_json("inspect", self.at(name))
            self.assertEqual(found["format"], "torch-ranks")
            self.convert(name, name + "-pt", "--format", "torch", "--verify")
            loaded = self.check(self.at(name + "-pt/model.pt"), {"model": {key: {inner: model[f"{key}.{inner}"] for inner in part} for key, part in nested["model"].items()}, "lr": 0.5})
            self.assertEqual(sorted(loaded), ["lr", "model"])
        self.assertEqual(self.read_json("digest", self.at("one"))["checkpoint"], self.read_json("digest", self.at("a.pt"))["checkpoint"])
        # They go together: a missing one, one of another conversion and another mesh are refused.
        self.check_fails(["inspect", self.at("one"), "--from", "tp=2,dp=2"], 1, "its files say that they were split over tp=4, not over tp=2,dp=2")
        self.read_json("inspect", self.at("one"), "--from", "tp=4")
        os.rename(self.at("one/model_world_size_4_rank_2.pt"), self.at("hidden"))
        self.check_fails(["inspect", self.at("one")], 1, "the file of rank 2 is missing")
        self.convert("a.pt", "other", "--format", "torch", "--to", "tp=4", "--rules", self.at("r.rules"), "--exclude", "*.qkv")
        os.rename(self.at("other/model_world_size_4_rank_2.pt"), self.at("one/model_world_size_4_rank_2.pt"))
        self.check_fails(["inspect", self.at("one")], 1, "were written by different conversions")

    def test_record(self):
        """What a rank file says of the split comes from a stranger, like everything else in it."""
        self.write_hf("m", {"w": tensor(random.Random(SEED), "F32", 4)})
        self.convert("m", "r", "--format", "torch", "--to", "tp=2", "--rules", self.write_text("r.rules", "* S(0)@tp\n"))
        path = self.at("r/model_world_size_2_rank_0.pt")
        with zipfile.ZipFile(path) as file:
            members = {info.filename: file.read(info) for info in file.infolist()}
        record = members["archive/RESHARD_LAYOUT"]
        self.assertEqual(files.told_tensors(json.loads(record)), {"w": {"shape": [4], "cuts": "S(0)"}})
        for changed, words in ((record[:-1], "RESHARD_LAYOUT"), (record.replace(b'"version":2', b'"version":3'), "has version 3"),
                               (record.replace(b'"rank":0', b'"rank":7'), "belongs to rank 7, which tp=2 does not have"), (record.replace(b"[4]", b"[5]"), "do not agree on how tensors are split"),
                               (None, "does not say how it was split"), (b" " * 100000001, "larger than allowed")):
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if changed and len(changed) > 10**6 else zipfile.ZIP_STORED) as file:
                for name, content in {**members, "archive/RESHARD_LAYOUT": changed}.items():
                    if content is not None:
                        file.writestr(name, content)
            self.check_fails(["inspect", self.at("r")], 1, words)

    def test_dtensors(self):
        """One file a rank with DTensors of the mesh: the graph as Python's unpickler sees it, and the same tensors when read back."""
        rnd = random.Random(SEED)
        model = {"a.weight": tensor(rnd, "F32", 7, 6), "b.weight": tensor(rnd, "BF16", 12, 3), "c.bias": tensor(rnd, "F16", 5),
                 "d.step": tensor(rnd, "I64"), "e.none": ("F32", (0, 3), b""), "f.fp8": tensor(rnd, "F8_E4M3", 4, 4), "g.deep": tensor(rnd, "U8", *[1] * 9, 2)}
        torch_files.write(self.at("a.pt"), {"model": {name: torch_files.tensor(array) for name, array in model.items()}, "lr": 0.5})
        self.write_text("r.rules", "every: S(0)@fsdp\n*.a.weight S(0)@tp\n*.b.weight S(1)@tp\n*.d.step R\n* R\n")
        cases = [("fsdp=3", "fsdp", {"a.weight": ["S0"], "d.step": ["R"]}), ("fsdp=2,tp=3", self.at("r.rules"), {"a.weight": ["S0*3", "S0"], "b.weight": ["S0", "S1"], "c.bias": ["S0", "R"]}),
                 ("dp=2,fsdp=2", "fsdp", {"a.weight": ["R", "S0"]}), ("dp=2,fsdp=3[5,4,3,2,1,0]", "fsdp", {"a.weight": ["R", "S0"], "f.fp8": ["R", "S0"]})]
        for i, (mesh, rules, wanted) in enumerate(cases):
            self.convert("a.pt", f"d{i}", "--format", "torch", "--to", mesh, "--rules", rules, "--dtensor", "--verify")
            sizes = [int(part.split("=")[-1]) for part in mesh.split("[")[0].split(",")]
            ranks = list(range(files.volume(sizes))) if "[" not in mesh else [5, 4, 3, 2, 1, 0]
            names = tuple(part.split("=")[0] for part in mesh.split("[")[0].split(","))
            for position, rank in enumerate(ranks):
                loaded = torch_files.load_dtensors(self.at(f"d{i}/model_world_size_{len(ranks)}_rank_{rank}.pt"))
                self.assertEqual(loaded["lr"], 0.5)
                self.assertEqual(loaded["model"]["g.deep"].whole(), model["g.deep"])
                coordinate = [position // step % n for step, n in zip(torch_files.dense(sizes), sizes)]
                for name, texts in wanted.items():
                    local, shape, seen, found = loaded["model"][name]
                    self.assertEqual((shape, found), (model[name][1], texts), name)
                    cuts = [(axis, int(text[1])) for axis, text in enumerate(texts) if text != "R"]
                    cuts.sort(key=lambda cut: "*" in texts[cut[0]])
                    self.assertEqual(local.whole(), item_files.local_part(model[name], sizes, position, cuts), name)
                    self.assertEqual((seen["mesh"].shape, struct.unpack("<%di" % len(ranks), seen["mesh"].data)), (tuple(sizes), tuple(ranks)))
                    self.assertEqual((seen["mesh_dim_names"], seen["_coordinate_on_dim"], seen["device_type"]), (names, coordinate, "cpu"))
            self.convert(f"d{i}", f"d{i}-back", "--verify")
            self.assertEqual(files.read_hf(self.at(f"d{i}-back")), model)
        self.write_text("pad.rules", "*.a.weight S(0)@tp pad(0,4)\n* R\n")
        self.write_text("flat.rules", "*.a.weight S(flat)@tp\n* R\n")
        for rules, words in (("pad", "tp=2: S(0) cuts it, with padding"), ("flat", "tp=2: S(flat) cuts it\n")):
            self.fails("a.pt", "out", "--format", "torch", "--to", "tp=2", "--rules", self.at(rules + ".rules"), "--dtensor",
                       words='tensor "model.a.weight": placements of a DTensor cannot express how ' + words)
        self.fails("a.pt", "out", "--format", "torch", "--dtensor", words="over a mesh of several ranks")
        self.fails("a.pt", "out", "--format", "dcp", "--to", "fsdp=2", "--dtensor", words="the format dcp cannot hold DTensors")

    def test_ranks_of_others(self):
        """Plain tensors of each rank, and nothing that says how they were split: a mesh and rules do. Strides are followed."""
        rnd = random.Random(SEED)
        w, v, n = tensor(rnd, "F32", 6, 5), tensor(rnd, "F16", 4, 4), tensor(rnd, "F32", 3)
        self.write_text("r.rules", "w S(0)@tp\nv S(1)@tp\nn R\n")
        def turned(array):
            """The same tensor, stored column by column."""
            dtype, (rows, columns), data = array
            width = len(data) // (rows * columns)
            stored = b"".join(data[(i * columns + j) * width:(i * columns + j + 1) * width] for j in range(columns) for i in range(rows))
            return torch_files.View(torch_files.Storage(dtype, stored), 0, (rows, columns), (1, rows))
        for folder, name in (("llama", "consolidated.{:02d}.pth"), ("ranks", "rank_{}.pt")):
            for rank in range(12):
                begin, end = torch_files.chunk(6, 12, rank)
                first, last = torch_files.chunk(4, 12, rank)
                state = {"w": turned(("F32", (end - begin, 5), files.cut(w, [begin, 0], [end - begin, 5]))) if end > begin else torch_files.tensor(("F32", (0, 5), b"")),
                         "v": torch_files.tensor(("F16", (4, last - first), files.cut(v, [0, first], [4, last - first]))),
                         "n": torch_files.tensor(n), "step": 7 if rank else 8}
                torch_files.write(self.at(f"{folder}/{name.format(rank)}"), state)
            self.convert(folder, folder + "-hf", "--from", "tp=12", "--from-rules", self.at("r.rules"))
            self.assertEqual(files.read_hf(self.at(folder + "-hf")), {"w": w, "v": v, "n": n})
            self.assertIn("values that differ between ranks: 11; the first of each is kept", self.read_json("inspect", self.at(folder), "--from", "tp=12", "--rules", self.at("r.rules"))["notes"])
            self.check_fails(["inspect", self.at(folder), "--from", "tp=3", "--rules", self.at("r.rules")], 1, "holds 12 files, but the mesh tp=3 has 3 ranks")
            torch_files.write(self.at(f"{folder}/{name.format(3)}"), {"w": torch_files.dtensor(("F32", (1,), bytes(4)), (2,), torch_files.mesh([0, 1]), ["S0"])})
            self.check_fails(["inspect", self.at(folder), "--from", "tp=12", "--rules", self.at("r.rules")], 1, "is a DTensor, which records how it is split")

    def test_columns_of_plain_ranks(self):
        """A rank has columns of several parts, in a tensor that is stored column by column."""
        rnd = random.Random(SEED)
        w = tensor(rnd, "F32", 3, 10)
        self.write_text("r.rules", "w S(1; 4,6)@tp\n")
        for rank in range(2):
            columns = [*range(2 * rank, 2 * rank + 2), *range(4 + 3 * rank, 7 + 3 * rank)]
            stored = b"".join(w[2][4 * (10 * i + j):][:4] for j in columns for i in range(3))
            torch_files.write(self.at(f"ranks/rank_{rank}.pt"), {"w": torch_files.View(torch_files.Storage("F32", stored), 0, (3, 5), (1, 3))})
        self.convert("ranks", "hf", "--from", "tp=2", "--from-rules", self.at("r.rules"))
        self.assertEqual(files.read_hf(self.at("hf")), {"w": w})

    def test_interrupted(self):
        """CRCs are right when some blocks were written by an earlier run, in small blocks by several threads."""
        rnd = random.Random(SEED)
        model = {f"w{i}": tensor(rnd, "F32", 512, 700) for i in range(16)}
        self.write_hf("m", model)
        options = ["convert", self.at("m"), self.at("out"), "--format", "torch", "--max-memory", "2M", "--journal-bytes", "1M",
                   "--threads", "2"]
        self.kill_after_a_record(*options, target=self.at("out"))
        self.assertGreater(self.read_json(*options, "--resume")["bytes_resumed"], 0)
        self.check(self.at("out/model.pt"), model)


if __name__ == "__main__":
    support.main()
