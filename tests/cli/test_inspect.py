# SPDX-License-Identifier: Apache-2.0
"""reshard inspect: rows that stand for many tensors, the number of parameters, lines that fit a window, patterns, values, and tensors
that cannot be read."""
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "checkpoint", "support"))
import dcp_files
import files
import support
import torch_files
from convert_case import SEED, ConvertTest, tensor

SPARSE = torch_files.Call(torch_files.Global("torch._utils", "_rebuild_sparse_tensor"), (
    torch_files.Call(torch_files.Global("torch.serialization", "_get_layout"), ("torch.sparse_coo",)),
    (torch_files.integers([0, 1], (1, 2)), torch_files.tensor(("F32", (2,), bytes(8))), torch_files.size((4,)))))
QUANTISED = torch_files.Call(torch_files.Global("torch._utils", "_rebuild_qtensor"), (
    torch_files.Storage("U8", bytes(4)), 0, (4,), (1,), (torch_files.Global("torch", "per_tensor_affine"), 1.0, 0), False,
    torch_files.Call(torch_files.Global("collections", "OrderedDict"))))


class InspectTest(ConvertTest):
    def setUp(self):
        super().setUp()
        self.rnd = random.Random(SEED)

    def rows(self, *arguments):
        """{first column: the others} of the table; checks that all lines of it fit 80 columns."""
        lines = self.read_text("inspect", *arguments).split("\n")
        begin = next(i for i, line in enumerate(lines) if line.startswith("tensor  "))
        table = lines[begin + 1:lines.index("", begin)]
        found, name = {}, None
        for line in lines[begin:begin + 1 + len(table)]:
            self.assertLessEqual(len(line), 80 if not re.match(r"\S{60}", line) else 200, line)
        for line in table:
            if line.startswith("    ") and not line.startswith("     "):
                found[name].append(line.strip())
            elif line.startswith(" "):
                found[name] += re.split(r"  +", line.strip())
            else:
                parts = re.split(r"  +", line)
                name = parts[0]
                found[name] = parts[1:]
        return found


class Rows(InspectTest):
    def test_layers_are_grouped(self):
        model = {"model.norm.weight": tensor(self.rnd, "F32", 8), "lm_head.weight": tensor(self.rnd, "BF16", 16, 8)}
        for i in range(12):
            model[f"model.layers.{i}.self_attn.q_proj.weight"] = tensor(self.rnd, "F32", 8, 8)
            model[f"model.layers.{i}.mlp.weight"] = tensor(self.rnd, "BF16", 4, 8) if i < 3 else tensor(self.rnd, "F32", 4, 8)
            for e in range(3):
                model[f"model.layers.{i}.experts.{e}.w1"] = tensor(self.rnd, "U8", 2 if i == 7 else 1)
        self.write_hf("m", model)
        self.assertEqual(self.rows(self.at("m")), {
            "lm_head.weight": ["BF16", "16x8", "256 B", "whole"],
            "model.layers.{0..11}.experts.{0..2}.w1 x33": ["U8", "1", "33 B", "whole"],
            "model.layers.{0..2}.mlp.weight x3": ["BF16", "4x8", "192 B", "whole"],
            "model.layers.{0..11}.self_attn.q_proj.weight x12": ["F32", "8x8", "3 KiB", "whole"],
            "model.layers.{3..11}.mlp.weight x9": ["F32", "4x8", "1.1 KiB", "whole"],
            "model.layers.7.experts.{0..2}.w1 x3": ["U8", "2", "6 B", "whole"],
            "model.norm.weight": ["F32", "8", "32 B", "whole"]})
        every = self.rows(self.at("m"), "--all")
        self.assertEqual(set(every), set(model))
        self.assertEqual(every["model.norm.weight"], ["F32", "8", "32 B", "whole in model.safetensors"])
        # JSON has all of them in any case.
        for options in [[], ["--all"]]:
            self.assertEqual([t["name"] for t in self.read_json("inspect", self.at("m"), *options)["tensors"]], sorted(model))

    def test_a_row_has_one_split(self):
        """Layers of two pipeline stages lie in different files."""
        model = {f"l.{i}.w": tensor(self.rnd, "U8", 4, 4) for i in range(4)}
        self.write_hf("m", model)
        rules = self.write_text("r.rules", "l.{0..1}.w A(0)@pp, S(0)@tp\nl.{2..3}.w A(1)@pp, S(0)@tp\n")
        self.convert("m", "p", "--to", "pp=2,tp=2", "--rules", rules, "--format", "rank-files")
        self.assertEqual(self.rows(self.at("p")), {"l.{0..1}.w x2": ["U8", "4x4", "32 B", "2: S(0)"],
                                                   "l.{2..3}.w x2": ["U8", "4x4", "32 B", "2[2,3]: S(0)"]})

    def test_numbers_that_are_none(self):
        names = ["a.01.w", "a.1.w", "a.2.w", "a.x1.w", "a.x2.w", "1", "3", "b.1234567890", "b.1234567891", "a.1.v", "a..w"]
        self.write_hf("m", {name: ("U8", (1,), b"x") for name in names})
        self.assertEqual(set(self.rows(self.at("m"))), {"{1..3} x2", "a..w", "a.01.w", "a.{1..2}.w x2", "a.x1.w", "a.x2.w", "a.1.v",
                                                        "b.1234567890", "b.1234567891"})

    def test_rows_of_random_names(self):
        """More kinds than there is room for in the beginning, and fewer than are left out."""
        model, kinds = {}, {}
        while len(model) < 600:
            parts = [self.rnd.choice(["aa", "ab", "07", str(self.rnd.randrange(8, 40))]) for _ in range(self.rnd.randrange(1, 3))]
            name, extent = ".".join(parts), self.rnd.randrange(1, 3)
            if name not in model:
                model[name] = tensor(self.rnd, "U8", extent)
                pattern = tuple(0 if re.fullmatch("0|[1-9][0-9]*", part) else part for part in parts)
                kinds.setdefault((pattern, "U8", extent), []).append(name)
        self.write_hf("m", model)

        def by_value(name):
            """As text, but numbers by value."""
            return [(ord("0"), int(part)) if part.isdigit() else (ord(part), 0) for part in re.findall("[0-9]+|[^0-9]", name)]

        wanted = []
        for (pattern, dtype, extent), names in sorted(kinds.items(), key=lambda kind: by_value(min(kind[1], key=by_value))):
            row = []
            for i, part in enumerate(pattern):
                numbers = {int(name.split(".")[i]) for name in names} if part == 0 else None
                row.append(part if part != 0 else f"{{{min(numbers)}..{max(numbers)}}}" if len(numbers) > 1 else str(min(numbers)))
            wanted.append((".".join(row) + (f" x{len(names)}" if len(names) > 1 else ""), dtype, str(extent)))
        self.assertGreater(len(wanted), 20)
        lines = self.read_text("inspect", self.at("m"), "--all").split("\n")
        everything = [line.split()[0] for line in lines[lines.index("") + 2:] if line and not line.startswith(" ")]
        self.assertEqual(everything[:len(model)], sorted(model, key=by_value))
        table = self.read_text("inspect", self.at("m")).split("\n")
        table = [re.split("  +", line.strip()) for line in table[table.index("") + 2:] if line]
        found = [tuple(line[:3]) for line in table[:len(wanted)]]
        self.assertEqual(found, wanted)

    def test_many_rows_are_cut_short(self):
        self.write_hf("m", {f"t{i}.{k}": ("U8", (1,), b"x") for i in range(100) for k in range(2)})
        text = self.read_text("inspect", self.at("m"))
        self.assertIn("  ... 88 tensors left out; --all prints them\n", text)
        self.assertEqual(text.count(" x2  "), 56)
        self.assertEqual(len(self.read_text("inspect", self.at("m"), "--all").split("\n")), 204)

    def test_lines_fit(self):
        name = "model.language_model.layers.{}.self_attn.indexer.some_rather_long_projection.weight"
        self.write_hf("m", {**{name.format(i): tensor(self.rnd, "F8_E4M3", 100, 100) for i in range(12)}, "a": tensor(self.rnd, "F32", 2)})
        self.convert("m", "r", "--to", "fsdp=7", "--format", "rank-files")
        for folder in ["m", "r"]:
            for options in [[], ["--all"]]:
                self.rows(self.at(folder), *options)
        wide = self.read_text("inspect", self.at("m"), env={**os.environ, "COLUMNS": "150"})
        self.assertIn(name.format("{0..11}") + " x12  F8_E4M3  100x100  117.2 KiB  whole\n", wide)


class Parameters(InspectTest):
    def test_elements_are_counted(self):
        self.write_hf("m", {"a": tensor(self.rnd, "F32", 10, 7), "b": tensor(self.rnd, "F4", 8), "s": tensor(self.rnd, "F32"),
                            "e": tensor(self.rnd, "F32", 0, 9)})
        self.assertEqual(self.read_json("inspect", self.at("m"))["parameters"], 70 + 8 + 1)
        self.assertIn("m  safetensors, 4 tensors, 79 parameters, 288 B in 1 file\n", self.read_text("inspect", self.at("m")))

    def test_an_optimizer_has_none(self):
        dcp_files.write(self.at("d"), {"model.w": tensor(self.rnd, "F32", 6), "optimizer.state.w.exp_avg": tensor(self.rnd, "F32", 6),
                                       "optim.step": tensor(self.rnd, "F32")}, 2)
        self.assertEqual(self.read_json("inspect", self.at("d"))["parameters"], 6)
        self.assertNotIn("parameter", self.read_text("inspect", self.at("d"), "--include", "optim*"))

    def test_large_numbers_have_words(self):
        header, end = {}, 0
        for name, rows, words in [("a", 999, "999999"), ("b", 1001, "1.00 million"), ("c", 6738416, "6.74 billion")]:
            end = rows * 1000 + (999 if name == "a" else 0)
            header = {name: {"dtype": "U8", "shape": [end], "data_offsets": [0, end]}}
            path = self.at(f"{name}.safetensors")
            with open(path, "wb") as file:
                file.write(files.frame(header))
                file.truncate(len(files.frame(header)) + end)
            self.assertIn(f", {words} parameters, ", self.read_text("inspect", path))
            self.assertEqual(self.read_json("inspect", path)["parameters"], end)


class Include(InspectTest):
    def test_patterns_choose(self):
        model = {f"l.{i}.{n}": tensor(self.rnd, "U8", 2) for i in range(4) for n in "vw"}
        self.write_hf("m", model)
        self.assertEqual(set(self.rows(self.at("m"), "--include", "l.*.w")), {"l.{0..3}.w x4"})
        self.assertEqual(set(self.rows(self.at("m"), "--include", "l.{1..2}.v", "--include", "l.3.*", "--all")),
                         {"l.1.v", "l.2.v", "l.3.v", "l.3.w"})
        found = self.read_json("inspect", self.at("m"), "--include", "l.0.*")
        self.assertEqual(([t["name"] for t in found["tensors"]], found["bytes"], found["parameters"]), (["l.0.v", "l.0.w"], 4, 4))
        self.assertIn(", 2 of 8 tensors, 4 parameters, 4 B in 1 file", self.read_text("inspect", self.at("m"), "--include", "l.0.*"))
        self.check_fails(["inspect", self.at("m"), "--include", "l.0.*", "--include", "x*"], 1, '--include "x*"')
        self.check_fails(["inspect", self.at("m"), "--include", "{"], 2, '--include "{": ')
        self.check_fails(["inspect", self.at("m"), "--include", "l.0.w", "--draw", "l.0.w"], 2, "leave out --include")


class Values(InspectTest):
    def test_of_a_distributed_checkpoint(self):
        writer = dcp_files.Writer(dcp_files.Torch(), self.at("d"))
        writer.add("w", tensor(self.rnd, "F32", 4), 2)
        for name, value in [("lr", 0.001), ("step", 1000), ("name", "adam"), ("betas", (0.9, 0.95)), ("nothing", None)]:
            writer.add_bytes(name, value)
        writer.close(version="1.0.0")
        wanted = {"lr": "0.001", "step": "1000", "name": "'adam'", "betas": "(0.9, 0.95)", "nothing": "None"}
        self.assertEqual({v["name"]: v["value"] for v in self.read_json("inspect", self.at("d"))["values"]}, wanted)
        text = self.read_text("inspect", self.at("d"))
        for name, value in wanted.items():
            self.assertIn(f"  {name} = {value}\n", text)
        found = {v["name"]: v for v in self.read_json("inspect", self.at("d"), "--values")["values"]}
        self.assertEqual({name: v["type"] for name, v in found.items()},
                         {"lr": "float", "step": "int", "name": "str", "betas": "tuple", "nothing": "None"})
        self.assertIn("  betas: tuple of 2 = (0.9, 0.95)\n", self.read_text("inspect", self.at("d"), "--values"))

    def test_pickled_in_full(self):
        """Long, deep, shared over and over, and with what a terminal might act on."""
        many, deep = [self.rnd.randrange(10 ** 9) for _ in range(3000)], [7]
        for _ in range(100):
            deep = [deep]
        bomb = ["x"]
        for _ in range(60):
            bomb = [bomb, bomb]
        value = {"w": torch_files.tensor(tensor(self.rnd, "F32", 2)), "many": many, "deep": deep, "long": "y" * 5000, "bomb": bomb,
                 "hidden": "\x1b]0;t\x07"}
        torch_files.write(self.at("m.pt"), value)
        found = {v["name"]: v for v in self.read_json("inspect", self.at("m.pt"), "--values")["values"]}
        self.assertEqual((found["many"]["full"], found["many"]["count"], found["many"]["type"]), (repr(many), 3000, "list"))
        self.assertEqual((found["deep"]["full"], found["long"]["full"]), (repr(deep), repr("y" * 5000)))
        self.assertTrue(found["bomb"]["too_long"])
        text = self.read_text("inspect", self.at("m.pt"), "--values")
        self.assertIn(f"  many: list of 3000 = [{repr(many[:64])[1:-1]}, .. 3000 in all]\n", text)
        self.assertFalse([c for c in text if not " " <= c < "\x7f" and c != "\n"])

    def test_metadata_of_safetensors(self):
        model = {"w": tensor(self.rnd, "F32", 4)}
        files.write(self.at("m.safetensors"), model, {"format": "pt", "note": "a\x1b[1m\"\u202e", "x": "9" * 9000})
        found = self.read_json("inspect", self.at("m.safetensors"), "--values")["values"]
        self.assertEqual([(v["name"], v["type"], v["full"]) for v in found],
                         [("format", "str", "pt"), ("note", "str", "a\x1b[1m\"\u202e"), ("x", "str", "9" * 9000)])
        self.assertEqual(self.read_json("inspect", self.at("m.safetensors"))["values"], [])
        text = self.read_text("inspect", self.at("m.safetensors"), "--values", "--include", "{format,note}")
        self.assertIn('  format: str = "pt"\n', text)
        self.assertFalse([c for c in text if not " " <= c < "\x7f" and c != "\n"])
        files.write(self.at("m.safetensors"), model)
        self.assertIn("no values", self.read_text("inspect", self.at("m.safetensors"), "--values"))
        self.check_fails(["inspect", self.at("m.safetensors"), "--values", "--draw", "w"], 2, "--values")


class Unreadable(InspectTest):
    def check(self, source, bad, others, *reasons):
        """The others are shown, and converted if the bad ones are excluded; without that nothing is."""
        found = self.read_json("inspect", self.at(source))
        self.assertEqual([t["name"] for t in found["tensors"]], others)
        self.assertEqual([t["name"] for t in found["unreadable"]], bad)
        text = self.read_text("inspect", self.at(source))
        for tensor_found, reason in zip(found["unreadable"], reasons):
            self.assertIn(reason, tensor_found["reason"])
            self.assertIn(tensor_found["name"], tensor_found["reason"])
            self.assertIn("\n  " + tensor_found["reason"] + "\n", text)
        self.fails(source, "x", words=found["unreadable"][0]["reason"] + "; exclude this tensor to go on with the others")
        self.check_fails(["plan", self.at(source), "--to", "fsdp=2"], 1, reasons[0])
        for command in ["digest", "verify"]:
            self.check_fails([command, self.at(source)], 1, reasons[0])
        excluded = [word for name in bad for word in ("--exclude", name)]
        made = self.convert(source, "out", *excluded)
        self.assertNotIn("source_digest", made)
        self.assertEqual(sorted(files.read_hf(self.at("out"))), others)
        self.convert(source, "out2", *[word for name in others for word in ("--include", name)])
        self.check_same("out", "out2")
        if len(bad) > 1:
            self.fails(source, "x", *excluded[:2], words=reasons[1])

    def test_sparse_and_quantised(self):
        torch_files.write(self.at("m.pt"), {"good": torch_files.tensor(tensor(self.rnd, "F32", 4)), "sparse": SPARSE, "also": torch_files.integers([1]),
                                            "quantised": QUANTISED})
        self.check("m.pt", ["sparse", "quantised"], ["also", "good"], "is sparse", "is quantised by PyTorch")

    def test_of_several_ranks(self):
        for rank in range(2):
            local = torch_files.dtensor(("U8", (2,), bytes(2)), (4,), torch_files.mesh([0, 1]), ["S0"])
            torch_files.write(self.at(f"r/rank{rank}.pt"), {"good": local, "sparse": SPARSE})
        self.check("r", ["sparse"], ["good"], "is sparse")

    def test_of_a_distributed_checkpoint(self):
        writer = dcp_files.Writer(dcp_files.Torch(), self.at("d"))
        for name in ["good", "odd", "sparse"]:
            writer.add(name, tensor(self.rnd, "F32", 4), 2)
        with writer.torch:
            state = writer.tensors["sparse"].properties.state
            writer.tensors["sparse"].properties.state = (state[0], writer.torch.layout("torch.sparse_coo"), *state[2:])
            setattr(writer.torch.modules["torch"], "qint8", dcp_files.Named("torch", "qint8"))
            state = writer.tensors["odd"].properties.state
            writer.tensors["odd"].properties.state = (writer.torch.modules["torch"].qint8, *state[1:])
        writer.close(version="1.0.0")
        self.check("d", ["odd", "sparse"], ["good"], "qint8", "torch.sparse_coo")
        self.assertEqual(self.read_json("inspect", self.at("d"))["notes"], [])

    def test_of_an_archive_of_numpy(self):
        def array(descr, data):
            head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}".encode()
            head += b" " * (-(len(head) + 11) % 64) + b"\n"
            return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data
        import zipfile
        with zipfile.ZipFile(self.at("m.npz"), "w") as archive:
            archive.writestr("good.npy", array("<f4", bytes(8)))
            archive.writestr("names.npy", array("<U4", bytes(32)))
        self.check("m.npz", ["names"], ["good"], "its elements are '<U4'")

    def test_where_all_are(self):
        torch_files.write(self.at("m.pt"), {"sparse": SPARSE})
        self.check_fails(["inspect", self.at("m.pt")], 1, 'tensor "sparse": is sparse')
        self.fails("m.pt", "x", "--exclude", "sparse", words='tensor "sparse": is sparse')

    def test_names_are_shown_harmlessly(self):
        torch_files.write(self.at("m.pt"), {"good": torch_files.integers([1]), "evil\033[2J\n": SPARSE})
        self.assertNotIn("\033", self.read_text("inspect", self.at("m.pt")))


if __name__ == "__main__":
    support.main()
