# SPDX-License-Identifier: Apache-2.0
"""torch.save files and FSDP's rank files, made byte by byte (torch_files.py), read by the command and compared with the
tensors they were made of. Files that PyTorch itself made are in tests/oracle/pytorch."""
import itertools
import json
import os
import random
import shutil
import struct
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support
import torch_files
from convert_case import SEED, ConvertTest, tensor
from torch_files import Call, Global, Storage, View

SCALE = float(os.environ.get("RESHARD_TEST_SCALE", "1"))
PLAIN = ["F32", "F64", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL", "C64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "U16", "U32",
         "U64"]


def pick(view):
    """The bytes of a view, element by element."""
    width, data = view.storage.width, b""
    for index in itertools.product(*(range(n) for n in view.size)):
        at = view.offset + sum(i * s for i, s in zip(index, view.strides))
        data += view.storage.data[at * width:(at + 1) * width]
    return (view.dtype, view.size, data)


class TorchTest(ConvertTest):
    def compare(self, source, model, *options):
        """All tensors of the source, as converted to safetensors."""
        target = source.replace("/", "-") + "-hf"
        self.convert(source, target, "--all", *options)
        found = files.read_hf(self.at(target))
        self.assertEqual(sorted(found), sorted(model))
        for name, (dtype, shape, values) in model.items():
            self.assertEqual(found[name], (dtype, tuple(shape), values), name)
        return found


class Files(TorchTest):
    def draw_view(self, rnd):
        dtype = rnd.choice(PLAIN)
        count = rnd.randint(1, 60)
        storage = Storage(dtype, rnd.randbytes(count * torch_files.DTYPES[dtype][2]))
        while True:
            size = [rnd.randint(0 if rnd.random() < 0.1 else 1, 4) for _ in range(rnd.randint(0, 4))]
            strides = [rnd.randint(0, 12) for _ in size]
            offset = rnd.randint(0, count - 1)
            if 0 in size or offset + sum((n - 1) * s for n, s in zip(size, strides)) < count:
                return View(storage, offset, size, strides)

    def test_views(self):
        """Any offsets and strides, 0 among them, of any dtype; both containers give the same bytes."""
        rnd = random.Random(SEED)
        for case in range(max(2, int(12 * SCALE))):
            views = {f"v{i}": self.draw_view(rnd) for i in range(25)}
            model = {name: pick(view) for name, view in views.items()}
            torch_files.write(self.at(f"zip{case}.pt"), views)
            torch_files.write(self.at(f"old{case}.pt"), views, legacy=True)
            self.compare(f"zip{case}.pt", model)
            self.compare(f"old{case}.pt", model)

    def test_large_views(self):
        """Transposed and repeated rows that are larger than what is read at once."""
        rnd = random.Random(SEED)
        storage = Storage("F32", rnd.randbytes(4 * 700 * 900))
        rows = [storage.data[4 * 900 * i:4 * 900 * (i + 1)] for i in range(700)]
        flipped = b"".join(b"".join(row[4 * j:4 * j + 4] for row in rows) for j in range(900))
        torch_files.write(self.at("large.pt"), {"t": View(storage, 0, (900, 700), (1, 900)),
                                                "r": View(storage, 900, (500, 900), (0, 1))})
        self.compare("large.pt", {"t": ("F32", (900, 700), flipped), "r": ("F32", (500, 900), rows[1] * 500)},
                     "--max-memory", "1M", "--threads", "1")

    def test_attributes_of_containers_are_mentioned(self):
        """state_dict() sets _metadata on its OrderedDict. One line says that it is left out, however many files have it."""
        w = torch_files.tensor(tensor(random.Random(SEED), "F32", 3, 2))

        def container(state, **items):
            return Call(Global("collections", "OrderedDict"), pairs={"w": w, **items}, state=state)

        def notes(name):
            return self.read_json("inspect", self.at(name))["notes"]

        versions = torch_files.ordered({"": {"version": 1}})
        line = "left out: attributes of containers of tensors: %s"
        shared = container({"_metadata": versions})
        cases = [(shared, '"_metadata" (versions of modules)'),
                 ({"model": shared, "ema": shared, "other": container({"_metadata": versions, "tag": 1})},
                  '"_metadata" (versions of modules), "tag"'),
                 (container((None, {"slot": 1})), '"slot"'),
                 (container(5), '"__getstate__()"'),
                 (container({f"a{i}": i for i in range(10)}), ", ".join(f'"a{i}"' for i in range(8)) + ", .."),
                 (container({"t": w, "n": 1}), None), (container({}), None), (container((None, None)), None)]
        for number, (value, wanted) in enumerate(cases):
            torch_files.write(self.at(f"{number}.pt"), value)
            self.assertEqual(notes(f"{number}.pt"), [line % wanted] if wanted else [], number)
        self.assertIn(f"note: {line % cases[0][1]}\n", self.read_text("convert", self.at("0.pt"), self.at("out")))
        for i in (1, 2):
            torch_files.write(self.at(f"bin/pytorch_model-0000{i}-of-00002.bin"), container({"_metadata": versions}, **{f"t{i}": w}))
        self.assertEqual([note for note in notes("bin") if "attributes" in note], [line % cases[0][1]])

    def test_nested(self):
        rnd = random.Random(SEED)
        w, v, u = (tensor(rnd, "F32", 3, 2) for _ in range(3))
        shared, inner = torch_files.tensor(w), {"x": torch_files.tensor(v)}
        value = {"model": torch_files.ordered({"a.b": shared, "tied": shared}), "list": [inner, (inner, 3)],
                 5: {"y": torch_files.tensor(u)}, "args": Call(Global("some.module", "Args"), new=True, state={"t": shared, "n": 1}),
                 "step": 7, "hyper": {"lr": 0.5, "betas": (0.9, 0.999)}}
        value["self"] = value
        model = {"model.a.b": w, "model.tied": w, "list.0.x": v, "list.1.0.x": v, "5.y": u, "args.t": w}
        for name, legacy in (("new.pt", False), ("old.pth", True)):
            torch_files.write(self.at(name), value, legacy=legacy)
            self.compare(name, model)
        notes = self.read_json("inspect", self.at("new.pt"))["notes"]
        self.assertTrue(any("some.module.Args" in note for note in notes), notes)
        shown = {value["name"]: value["value"] for value in self.read_json("inspect", self.at("new.pt"))["values"]}
        self.assertEqual(shown, {"list.1.1": "3", "args.n": "1", "step": "7", "hyper": "{'lr': 0.5, 'betas': (0.9, 0.999)}",
                                 "self": shown.get("self")})
        self.assertIn("\n  hyper = {'lr': 0.5, 'betas': (0.9, 0.999)}\n", self.read_text("inspect", self.at("new.pt")))
        torch_files.write(self.at("one.bin"), torch_files.tensor(w))
        self.compare("one.bin", {"one": w})

    def test_python_2(self):
        """An OrderedDict was a call with its pairs, in lists of two; attributes followed. Of equal keys, the last counts."""
        rnd = random.Random(SEED)
        w, v, u = (tensor(rnd, "F32", 3, 2) for _ in range(3))
        def old(listed, **how):
            return Call(Global("collections", "OrderedDict"), ([[key, value] for key, value in listed],), **how)
        def some(array):
            return torch_files.tensor(array)
        inner = old([("x", some(v)), ("n", 3)])
        root = old([("a.w", some(u)), ("in", inner), ("a.w", some(w)), ("again", inner)], state={"_metadata": old([("", 1)])}, pairs={"late": some(u)})
        model = {"a.w": w, "in.x": v, "again.x": v, "late": u}
        for name, legacy in (("new.pt", False), ("old.pth", True)):
            torch_files.write(self.at(name), root, legacy=legacy)
            self.compare(name, model)
        self.assertEqual(self.read_json("inspect", self.at("new.pt"))["notes"], ['left out: attributes of containers of tensors: "_metadata" (versions of modules)'])
        torch_files.write(self.at("three.pt"), {"odd": Call(Global("collections", "OrderedDict"), ([["a", some(w), 1]],))})
        self.compare("three.pt", {"odd.arguments.0.0.1": w})

    def test_folder(self):
        """Several files: the first step is the file."""
        rnd = random.Random(SEED)
        w, v = tensor(rnd, "BF16", 4), tensor(rnd, "U8", 2, 2)
        torch_files.write(self.at("f/model.pt"), {"w": torch_files.tensor(w)})
        self.compare("f", {"w": w})
        torch_files.write(self.at("f/optimizer.pt"), {"state": {0: torch_files.tensor(v)}})
        with open(self.at("f/other.bin"), "wb") as file:
            file.write(b"something else")
        os.rename(self.at("f"), self.at("g"))
        self.compare("g", {"model.w": w, "optimizer.state.0": v})
        notes = self.read_json("inspect", self.at("g"))["notes"]
        self.assertEqual(notes, ["other.bin was not written by torch.save, and is left out"])

    def test_bin(self):
        """A folder of transformers: the index decides, and what is not the model's is said."""
        rnd = random.Random(SEED)
        w, v, u = tensor(rnd, "F16", 4, 2), tensor(rnd, "F16", 3), tensor(rnd, "F16", 1)
        first, second = ("pytorch_model-0000%d-of-00002.bin" % i for i in (1, 2))
        torch_files.write(self.at("b/" + first), torch_files.ordered({"a.w": torch_files.tensor(w), "old": torch_files.tensor(u)}))
        torch_files.write(self.at("b/" + second), torch_files.ordered({"a.v": torch_files.tensor(v)}), legacy=True)
        torch_files.write(self.at("b/optimizer.pt"), {"x": torch_files.tensor(u)})
        index = "b/pytorch_model.bin.index.json"
        self.write_text(index, json.dumps({"metadata": {}, "weight_map": {"a.w": first, "a.v": second}}))
        self.write_text("b/config.json", "{}")
        self.compare("b", {"a.w": w, "a.v": v})
        self.assertEqual(sorted(os.listdir(self.at("b-hf"))), ["config.json", "model.safetensors"])
        shown = self.read_json("inspect", self.at("b"))
        self.assertEqual(shown["format"], "torch-bin")
        self.assertEqual(shown["notes"], ["optimizer.pt is not part of the model, and is left out",
                                          'left out: 1 tensor that the index does not name ("old")'])
        self.write_text(index, json.dumps({"weight_map": {"a.w": second}}))
        self.check_fails(["inspect", self.at("b")], 1, 'holds tensor "a.w", but it does not')
        os.unlink(self.at("b/" + second))
        self.check_fails(["inspect", self.at("b")], 1, second)
        torch_files.write(self.at("s/pytorch_model.bin"), {"a.w": torch_files.tensor(w)})
        torch_files.write(self.at("s/training_args.bin"), Call(Global("transformers.training_args", "TrainingArguments"), new=True, state={"lr": 1}))
        self.compare("s", {"a.w": w})

    def test_compressed(self):
        """Other zip writers deflate storages, and torch loads them: views, shared storages, meshes; within the memory cap."""
        rnd = random.Random(SEED)
        shared = Storage("F32", rnd.randbytes(4 * 30))
        big = tensor(rnd, "U8", 3000, 1000)
        value = {"a": View(shared, 0, (5, 6), (6, 1)), "b": View(shared, 3, (4, 2), (1, 5)), "c": torch_files.tensor(("F16", (0, 2), b"")), "big": torch_files.tensor(big)}
        model = {"a": pick(value["a"]), "b": pick(value["b"]), "c": ("F16", (0, 2), b""), "big": big}
        torch_files.write(self.at("z.pt"), value, compress=True)
        self.compare("z.pt", model, "--max-memory", "2M", "--verify")
        torch_files.write(self.at("two/z.pt"), value, compress=True)
        torch_files.write(self.at("two/y.pt"), {"a": value["b"]}, compress=True)
        self.compare("two", {"y.a": model["b"], **{"z." + name: array for name, array in model.items()}})
        w = tensor(rnd, "F32", 7, 3)
        for rank in range(3):
            begin, end = torch_files.chunk(7, 3, rank)
            local = ("F32", (end - begin, 3), files.cut(w, [begin, 0], [end - begin, 3]))
            torch_files.write(self.at(f"zr/rank{rank}.pt"), {"w": torch_files.dtensor(local, (7, 3), torch_files.mesh([0, 1, 2]), ["S0"])}, compress=True)
            torch_files.write(self.at(f"zp/rank{rank}.pt"), {"w": torch_files.tensor(local)}, compress=True)
        self.compare("zr", {"w": w})
        self.check_fails(["inspect", self.at("zp"), "--from", "fsdp=3", "--rules", "fsdp"], 1, 'tensor "w": its storage is compressed')
        with open(self.at("z.pt"), "rb") as file:
            damaged = bytearray(file.read())
        damaged[len(damaged) // 2] ^= 1
        with open(self.at("z.pt"), "wb") as file:
            file.write(damaged)
        self.fails("z.pt", "out", words="z.pt", left=["out.partial"])

    def damage(self, name, data, at):
        damaged = bytearray(data)
        damaged[at] ^= 4
        torch_files.write_bytes(self.at(name), bytes(damaged))
        return bytes(damaged)

    def test_crcs(self):
        """torch itself does not look at them. verify and digest look at all, and conversions at those of what they read whole. 0 means that there is
        none."""
        rnd = random.Random(SEED)
        model = {"w": tensor(rnd, "F32", 400, 300), "v": tensor(rnd, "F32", 4)}
        whole = torch_files.pack({name: torch_files.tensor(array) for name, array in model.items()})
        at = whole.index(model["w"][2])
        torch_files.write_bytes(self.at("good.pt"), whole)
        damaged = self.damage("bad.pt", whole, at + 17)
        words = f"bad.pt: the CRC of 480000 bytes from byte {at} on is wrong: the data is damaged"
        self.assertEqual(self.convert("good.pt", "good", "--verify")["crcs_unchecked"], 0)
        self.assertEqual(self.convert("good.pt", "passed")["crcs_unchecked"], 0)
        self.assertIn("whole", self.read_text("verify", self.at("good.pt")))
        self.fails("bad.pt", "out", "--verify", words=words)
        self.fails("bad.pt", "late", words=words, left=["late.partial"])
        self.fails("bad.pt", "late", "--resume", words=words)
        self.fails("bad.pt", "parts", "--to", "fsdp=3", "--rules", "fsdp", "--max-memory", "1M", "--threads", "1", words=words, left=["parts.partial"])
        for command in (["verify", self.at("bad.pt")], ["digest", self.at("bad.pt")], ["digest", self.at("bad.pt"), "--sha256"],
                        ["verify", self.at("good.pt"), self.at("bad.pt")],
                        ["verify", self.at("bad.pt"), self.at("good.pt"), "--digest"]):
            self.check_fails(command, 1, words)
        torch_files.write_bytes(self.at("bad.pt"), damaged.replace(struct.pack("<I", zlib.crc32(model["w"][2])), bytes(4)))
        self.convert("bad.pt", "none", "--verify")
        self.read_text("verify", self.at("bad.pt"))

    def test_crcs_of_what_was_done_before(self):
        """A resumed conversion reads again what an earlier run did, so that damage cannot slip through by resuming."""
        big = tensor(random.Random(SEED), "U8", 24, 1 << 20)
        whole = torch_files.pack({"w": torch_files.tensor(big)})
        self.damage("bad.pt", whole, whole.index(big[2]) + 5)
        options = ["--journal-bytes", "256K", "--max-memory", "2M", "--threads", "1"]
        self.fails("bad.pt", "out", *options, words="the data is damaged", left=["out.partial"])
        self.fails("bad.pt", "out", "--resume", *options, words="the data is damaged")

    def test_crcs_that_are_not_looked_at(self):
        """A member that is left out, or read in pieces, or twice: said, if it is long; and verify looks at it all the same."""
        rnd = random.Random(SEED)
        shared, wide = Storage("U8", rnd.randbytes(300000)), Storage("U8", rnd.randbytes(250000))
        value = {"a": View(shared, 0, (300000,), (1,)), "again": View(shared, 0, (300000,), (1,)), "part": View(shared, 5, (100,), (1,)),
                 "w": View(wide, 0, (500, 500), (1, 500)), "small": torch_files.tensor(("U8", (3,), b"abc"))}
        whole = torch_files.pack(value)
        torch_files.write_bytes(self.at("m.pt"), whole)
        self.assertEqual(self.convert("m.pt", "all")["crcs_unchecked"], 1)
        self.assertEqual(self.convert("m.pt", "some", "--exclude", "a", "--exclude", "again")["crcs_unchecked"], 2)
        self.assertIn("note: 1 checksum in the source was not looked at; --verify looks at all\n", self.read_text("convert", self.at("m.pt"), self.at("text")))
        places = {"a": whole.index(shared.data), "w": whole.index(wide.data), "small": whole.index(b"abc"), "version": whole.index(b"3\n")}
        for name, at in places.items():
            self.damage("bad.pt", whole, at + 1)
            self.check_fails(["verify", self.at("bad.pt")], 1, "the data is damaged")
            self.check_fails(["digest", self.at("bad.pt")], 1, "the data is damaged")
            self.check_fails(["digest", self.at("bad.pt"), "--sha256"], 1, "the data is damaged")
            if name != "w":
                self.fails("bad.pt", "out", words="the data is damaged", left=["out.partial"])
                shutil.rmtree(self.at("out.partial"))

    def test_no_tensors(self):
        """Nothing to convert is an error; values are something where the format keeps them."""
        torch_files.write(self.at("values.pt"), {"step": 3})
        torch_files.write(self.at("empty.pt"), {})
        files.write(self.at("in/none.safetensors"), {}, {"format": "pt"})
        for source in ("values.pt", "empty.pt", "in/none.safetensors"):
            for options in ([], ["--quiet"], ["--to", "fsdp=2", "--rules", "fsdp"]):
                self.fails(source, "out", *options, words=f"{source}: holds no tensor, so there is nothing to convert")
        self.fails("empty.pt", "out", "--format", "torch", words="holds no tensor")
        self.assertEqual(self.convert("values.pt", "kept", "--format", "torch")["notes"], [])

    def test_complex128(self):
        """It is read and digested; safetensors has no such dtype, which is said of the tensor before anything is written."""
        view = View(Storage("C128", random.Random(SEED).randbytes(96)), 1, (2, 2), (1, 2))
        torch_files.write(self.at("c.pt"), {"z": view, "w": torch_files.tensor(("F32", (1,), bytes(4)))})
        tensors = {t["name"]: (t["dtype"], t["shape"]) for t in self.read_json("inspect", self.at("c.pt"))["tensors"]}
        self.assertEqual(tensors, {"z": ("C128", [2, 2]), "w": ("F32", [1])})
        self.assertEqual(len(self.read_json("digest", self.at("c.pt"))["tensors"]), 2)
        for options in [[], ["--to", "fsdp=2", "--rules", "fsdp"], ["--to", "fsdp=2", "--rules", "fsdp", "--format", "rank-files"]]:
            self.fails("c.pt", "out", *options, words='tensor "z" is c128, which safetensors does not have')
        self.convert("c.pt", "rest", "--exclude", "z")
        self.assertEqual(sorted(files.read_hf(self.at("rest"))), ["w"])

    def test_refused(self):
        storage = Storage("F32", bytes(48))
        def rebuild(name, *arguments):
            return Call(Global("torch._utils", name), arguments)
        rows = [
            (View(storage, 0, (13,), (1,)), "beyond its storage"),
            (View(storage, 11, (2,), (1,)), "beyond its storage"),
            (View(storage, 0, (2, 2), (2**62, 1)), "beyond its storage"),
            (View(storage, 0, (2**62, 4), (0, 0)), "beyond 63 bits"),
            (View(storage, 0, (2**61,), (0,)), "beyond 63 bits"),
            (View(storage, 0, (2**28 + 1,), (0,)), "has 1073741828 bytes, which repeat the 48 of its storage"),
            (View(storage, -1, (2,), (1,)), "is not a number"),
            (View(storage, 0, (2,), (-1,)), "not a size"),
            (View(storage, 0, (2,), (1, 1)), "it has 1 sizes, but 2 strides"),
            (View(storage, 0, (2,), (1,), metadata={"conj": True}), "conjugated"),
            (rebuild("_rebuild_sparse_tensor", 1, 2), "torch._utils._rebuild_sparse_tensor"),
            (rebuild("_rebuild_qtensor", 1, 2), "torch._utils._rebuild_qtensor"),
            (rebuild("_rebuild_tensor_v2"), "where a storage should be"),
            (rebuild("_rebuild_parameter", 3), "where a tensor should be"),
            (torch_files.dtensor(("F32", (1,), bytes(4)), (2,), torch_files.mesh([0, 1]), ["S0"]), "the files of all ranks"),
        ]
        for i, (value, words) in enumerate(rows):
            torch_files.write(self.at(f"{i}.pt"), {"x": {"bad": value}})
            self.check_fails(["inspect", self.at(f"{i}.pt")], 1, words)
            self.check_fails(["inspect", self.at(f"{i}.pt")], 1, 'tensor "x.bad"')
        torch_files.write(self.at("repeats.pt"), {"x": View(storage, 0, (2**28,), (0,))})
        self.assertEqual(self.read_json("inspect", self.at("repeats.pt"))["bytes"], 2**30)
        torch_files.write(self.at("same.pt"), {"a.b": torch_files.tensor(("U8", (1,), b"1")), "a": {"b": torch_files.tensor(("U8", (1,), b"2"))}})
        self.check_fails(["inspect", self.at("same.pt")], 1, 'the name "a.b"')
        torch_files.write(self.at("big.pt"), {}, byteorder="big")
        self.check_fails(["inspect", self.at("big.pt")], 1, "big-endian")
        whole = torch_files.pack({"w": torch_files.tensor(("U8", (4,), b"abcd"))})
        for cut in range(0, len(whole) - 1, 7):
            with open(self.at("cut.pt"), "wb") as file:
                file.write(whole[:cut])
            self.check_fails(["inspect", self.at("cut.pt")], 1)
        whole = torch_files.pack_legacy({"w": torch_files.tensor(("U8", (4,), b"abcd"))})
        for cut in range(14, len(whole) - 1, 5):
            with open(self.at("cut.pt"), "wb") as file:
                file.write(whole[:cut])
            self.check_fails(["inspect", self.at("cut.pt")], 1)

    def test_hostile(self):
        """Names of functions stay names; graphs that explode are refused, or cost their size only."""
        torch_files.write(self.at("call.pt"), {"w": torch_files.tensor(("U8", (1,), b"x")),
                                               "x": Call(Global("os", "system"), (f"touch {self.at('ran')}",))})
        line = "call.pt: Python would call os.system to load it; reshard calls nothing"
        for command in (["inspect", self.at("call.pt"), "--json"], ["convert", self.at("call.pt"), self.at("quiet"), "--quiet"], ["verify", self.at("call.pt")],
                        ["convert", self.at("call.pt"), self.at("out"), "--json"], ["digest", self.at("call.pt")]):
            done = support.run(*command)
            self.assertEqual((done.returncode, done.stderr), (0, f"reshard: warning: {line}\n"), command)
            if "--json" in command:
                found = json.loads(done.stdout)
                self.assertEqual((found["warnings"], [note for note in found["notes"] if "os." in note]), ([line], []))
        self.assertFalse(os.path.exists(self.at("ran")))
        # Called by INST, or through an attribute; and named without a call.
        hidden = Call(Call(Global("__builtin__", "getattr"), (Global("os", "path"), "join")), ("a",))
        torch_files.write(self.at("get.pt"), {"w": torch_files.tensor(("U8", (1,), b"x")), "x": hidden, "y": Call(Global("some.thing", "Kind"), new=True)})
        done = support.run("inspect", self.at("get.pt"), "--json")
        self.assertEqual(done.stderr, "reshard: warning: get.pt: Python would call os.path to load it; reshard calls nothing\n")
        self.assertEqual(json.loads(done.stdout)["notes"], ["get.pt: names 1 Python object that tensors do not need, neither looked up nor run: some.thing.Kind"])
        torch_files.write_bytes(self.at("inst.pt"), torch_files.pack_parts(b"(S'true'\nios\nsystem\n.", []))
        self.assertIn("Python would call os.system", support.run("inspect", self.at("inst.pt")).stderr)
        for leaf, words in ((1, None), (torch_files.tensor(("U8", (1,), b"x")), "shared so often")):
            value = {"w": torch_files.tensor(("U8", (1,), b"x")), "x": leaf}
            for _ in range(64):
                value = {"a": value, "b": value, "n": 1} if words else {"w": value["w"], "x": [value["x"], value["x"]]}
            torch_files.write(self.at("dag.pt"), value)
            if words:
                self.check_fails(["inspect", self.at("dag.pt")], 1, words)
            else:
                self.compare("dag.pt", {"w": ("U8", (1,), b"x")})
        deep = [torch_files.tensor(("U8", (1,), b"x"))]
        for _ in range(300):
            deep = [deep]
        torch_files.write(self.at("deep.pt"), deep)
        self.check_fails(["inspect", self.at("deep.pt")], 1, "levels deep")


class Ranks(TorchTest):
    def box_of(self, shape, sizes, coordinate, cuts):
        """cuts: (axis, dim) in the order in which they are made."""
        begin, end = [0] * len(shape), list(shape)
        for axis, d in cuts:
            a, b = torch_files.chunk(end[d] - begin[d], sizes[axis], coordinate[axis])
            begin[d], end[d] = begin[d] + a, begin[d] + b
        return begin, [b - a for a, b in zip(begin, end)]

    def write_ranks(self, folder, model, sizes, cuts_of, text_of, name="model_world_size_{w}_rank_{r}.pt"):
        """One file a rank; cuts_of(name): the cuts in order; text_of(name): the placements as PyTorch writes them."""
        world = 1
        for n in sizes:
            world *= n
        ranks = list(range(world))
        strides = torch_files.dense(sizes)
        for rank in ranks:
            the_mesh = torch_files.mesh(ranks, tuple(sizes))
            coordinate = [rank // s % n for s, n in zip(strides, sizes)]
            state = {}
            for key, (dtype, shape, values) in model.items():
                offset, size = self.box_of(shape, sizes, coordinate, cuts_of(key))
                local = (dtype, tuple(size), files.cut((dtype, shape, values), offset, size))
                state[key] = torch_files.dtensor(local, shape, the_mesh, text_of(key))
            state["buffer"] = torch_files.tensor(("U8", (3,), b"abc"))
            torch_files.write(f"{self.at(folder)}/{name.format(w=world, r=rank)}", state)
        return {**model, "buffer": ("U8", (3,), b"abc")}

    def draw_model(self, rnd):
        return {f"layer.{i}.weight": tensor(rnd, rnd.choice(["F32", "BF16", "U8"]), rnd.randint(1, 13), rnd.randint(1, 9))
                for i in range(6)}

    def test_meshes(self):
        """One to three axes, uneven cuts, replicas; other spellings of meshes are in test_torch_meshes.py."""
        rnd = random.Random(SEED)
        for case, sizes in enumerate([(4,), (2, 2), (2, 3), (2, 2, 2), (1, 3)]):
            model = self.draw_model(rnd)
            texts = {name: [rnd.choice(["S0", "S1", "R"]) for _ in sizes] for name in model}
            cuts = {name: [(axis, int(text[1])) for axis, text in enumerate(texts[name]) if text != "R"] for name in model}
            whole = self.write_ranks(f"array{case}", model, sizes, cuts.get, texts.get)
            self.compare(f"array{case}", whole)

    def test_strided(self):
        """FSDP over what tensor parallelism has cut: _StridedShard."""
        rnd = random.Random(SEED)
        model = self.draw_model(rnd)
        tp_first = lambda name: [(1, 0), (0, 0)]
        whole = self.write_ranks("strided", model, (2, 3), tp_first, lambda name: ["S0*3", "S0"])
        self.compare("strided", whole)
        whole = self.write_ranks("three", model, (2, 2, 2), lambda name: [(2, 0), (1, 0), (0, 0)], lambda name: ["S0*4", "S0*2", "S0"])
        self.compare("three", whole)
        self.write_ranks("odd", model, (2, 3), tp_first, lambda name: ["S0*2", "S0"])
        self.check_fails(["digest", self.at("odd")], 1, "a split factor of 2, but the axes behind that one cut into 3")

    def test_sharded_tensors(self):
        rnd = random.Random(SEED)
        w, v = tensor(rnd, "F32", 10, 4), tensor(rnd, "I64", 3)
        for new in (False, True):
            for rank in range(4):
                shards = []
                begin, end = torch_files.chunk(10, 4, rank)
                if begin != end:
                    shards.append(((begin, 0), ("F32", (end - begin, 4), files.cut(w, [begin, 0], [end - begin, 4]))))
                two = [((0,), ("I64", (1,), v[2][:8])), ((2,), ("I64", (1,), v[2][16:]))] if rank == 0 else []
                two = [((1,), ("I64", (1,), v[2][8:16]))] if rank == 3 else two
                torch_files.write(self.at(f"s{new}/model.rank_{rank}.pth"),
                                  {"w": torch_files.sharded(shards, (10, 4), "F32", rank, 4, new),
                                   "v": torch_files.sharded(two, (3,), "I64", rank, 4, new)})
            self.compare(f"s{new}", {"w": w, "v": v})
        os.unlink(self.at("sFalse/model.rank_0.pth"))
        self.check_fails(["inspect", self.at("sFalse")], 1, "the model file of rank 0 is missing")

    def test_groups(self):
        """verl's folder: the model, its optimizer, and what each rank keeps for itself."""
        rnd = random.Random(SEED)
        w, m = tensor(rnd, "BF16", 5, 2), tensor(rnd, "F32", 5, 2)
        for rank in range(2):
            the_mesh = torch_files.mesh([0, 1])
            begin, end = torch_files.chunk(5, 2, rank)
            def part(whole):
                return torch_files.dtensor((whole[0], (end - begin, 2), files.cut(whole, [begin, 0], [end - begin, 2])), (5, 2), the_mesh, ["S0"])
            end_of = f"_world_size_2_rank_{rank}.pt"
            torch_files.write(self.at("verl/model" + end_of), {"w": part(w)})
            torch_files.write(self.at("verl/optim" + end_of), {"state": {"w": {"exp_avg": part(m), "step": torch_files.tensor(("F32", (), bytes(4)))}},
                                                               "param_groups": [{"lr": 0.1}]})
            torch_files.write(self.at("verl/extra_state" + end_of), {"rng": torch_files.tensor(("U8", (2,), bytes([rank, 7]))), "epoch": rank})
        self.compare("verl", {"model.w": w, "optim.state.w.exp_avg": m, "optim.state.w.step": ("F32", (), bytes(4)),
                              "extra_state.0.rng": ("U8", (2,), b"\0\7"), "extra_state.1.rng": ("U8", (2,), b"\1\7")})

    def test_one_file_of_ranks(self):
        """By itself, to be looked at: DTensors tell which part of what they are."""
        model = {"w": tensor(random.Random(SEED), "F32", 7, 4)}
        self.write_ranks("one", model, (2, 2), lambda name: [(0, 0), (1, 1)], lambda name: ["S0", "S1"])
        path = self.at("one/model_world_size_4_rank_3.pt")
        found = self.read_json("inspect", path)
        self.assertEqual(found["notes"], ["model_world_size_4_rank_3.pt is the file of rank 3, one of 4 by its name; the others are ignored"])
        self.assertEqual([(t["name"], t["shape"], t.get("whole_shape"), t.get("whole_offset")) for t in found["tensors"]],
                         [("buffer", [3], None, None), ("w", [3, 2], [7, 4], [4, 2])])
        self.assertRegex(self.read_text("inspect", path), r"w +F32 +3x2 +24 B +part of 7x4 at 4x2\n")
        self.check_fails(["convert", path, self.at("x")], 1, "one rank's part of a DTensor")
        # Plain tensors say nothing, but the name does.
        torch_files.write(self.at("plain_world_size_8_rank_2.pt"), {"w": torch_files.tensor(("U8", (1,), b"x"))})
        for command, wanted in (("inspect", "is the file of rank 2, one of 8 by its name"), ("convert", "is one of 8 files by its name")):
            arguments = [self.at("plain_world_size_8_rank_2.pt")] + ([self.at("y")] if command == "convert" else [])
            self.assertIn(f"note: plain_world_size_8_rank_2.pt {wanted}; the others are ignored", self.read_text(command, *arguments))

    def test_values_of_ranks(self):
        """Values are compared all through: also what differs far behind, and what some ranks do not have."""
        long = ["word"] * 3000
        for i, (other, count) in enumerate([({"a": long, "b": 1.5}, 0), ({"a": long[:-1] + ["world"], "b": 1.5}, 1),
                                            ({"a": long, "b": 2.5}, 1), ({"a": long, "b": 1.5, "c": 1}, 1), ({"b": 1.5, "a": long}, 0)]):
            for rank in range(3):
                values = {"a": long, "b": 1.5} if rank != 1 else other
                w = torch_files.dtensor(("U8", (1,), b"x"), (3,), torch_files.mesh([0, 1, 2]), ["S0"])
                torch_files.write(self.at(f"v{i}/rank{rank}.pt"), {"w": w, **values})
            wanted = [f"values that differ between ranks: {count}; the first of each is kept"] if count else []
            self.assertEqual(self.read_json("inspect", self.at(f"v{i}"))["notes"], wanted)

    def test_refused(self):
        rnd = random.Random(SEED)
        model = self.draw_model(rnd)
        whole = self.write_ranks("w", model, (4,), lambda name: [(0, 0)], lambda name: ["S0"])
        os.rename(self.at("w/model_world_size_4_rank_2.pt"), self.at("hidden"))
        self.check_fails(["inspect", self.at("w")], 1, "the model file of rank 2 is missing")
        os.rename(self.at("hidden"), self.at("w/model_world_size_4_rank_2.pt"))
        self.compare("w", whole)
        os.rename(self.at("w/model_world_size_4_rank_2.pt"), self.at("w/model_world_size_4_rank_7.pt"))
        self.check_fails(["inspect", self.at("w")], 1, "its mesh does not hold rank 7")
        self.write_ranks("replicas", model, (2, 2), lambda name: [(1, 0)], lambda name: ["R", "S0"])
        os.unlink(self.at("replicas/model_world_size_4_rank_3.pt"))
        notes = self.read_json("inspect", self.at("replicas"))["notes"]
        self.assertEqual(notes, ["the model file of rank 3 is missing; the others hold all of every tensor"])
        for rank, byte in ((0, b"a"), (1, b"b")):
            torch_files.write(self.at(f"differ/rank{rank}.pt"), {"w": torch_files.dtensor(("U8", (1,), byte), (1,), torch_files.mesh([0, 1]), ["R"])})
            torch_files.write(self.at(f"partial/rank{rank}.pt"), {"w": torch_files.dtensor(("U8", (1,), byte), (1,), torch_files.mesh([0, 1]), ["P"])})
            torch_files.write(self.at(f"flat/rank{rank}.pt"), {"_flat_param": torch_files.tensor(("U8", (1,), byte)),
                                                               "w": torch_files.dtensor(("U8", (1,), byte), (1,), torch_files.mesh([0, 1]), ["R"])})
            torch_files.write(self.at(f"plain/rank{rank}.pt"), {"w": torch_files.tensor(("U8", (1,), byte))})
            torch_files.write(self.at(f"shape/rank{rank}.pt"), {"w": torch_files.dtensor(("U8", (2,), byte * 2), (3,), torch_files.mesh([0, 1]), ["S0"])})
        self.check_fails(["convert", self.at("differ"), self.at("out")], 1, 'tensor "w"')
        self.check_fails(["inspect", self.at("partial")], 1, "it is Partial")
        self.check_fails(["convert", self.at("flat"), self.at("out")], 1, "a flat parameter of FSDP1")
        self.assertEqual([t["name"] for t in self.read_json("inspect", self.at("flat"))["unreadable"]], ["_flat_param"])
        self.check_fails(["inspect", self.at("plain")], 1, "nothing in them says how they were split")
        self.check_fails(["inspect", self.at("shape")], 1, "its placements give this rank 1 of it, but the file holds 2")


if __name__ == "__main__":
    support.main()
