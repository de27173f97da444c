# SPDX-License-Identifier: Apache-2.0
"""Rank files of every placement that rules can express: written, read back with the mesh and the rules, the same tensors."""
import json
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support
from convert_case import SEED, ConvertTest, tensor

SCALE = float(os.environ.get("RESHARD_TEST_SCALE", "1"))
DTYPES = ["U8", "I16", "F32", "F64"]


def draw_sizes(rnd, n, k):
    """k sizes that add up to n, some of them 0."""
    marks = sorted(rnd.randint(0, n) for _ in range(k - 1))
    return [b - a for a, b in zip([0, *marks], [*marks, n])]


def draw_cut(rnd, shape, size, left, flat):
    """The text of a cut over an axis of that size. left: which dims earlier cuts have left whole."""
    kinds = ["R", "A", "chunk", "balanced", "strided", "cyclic", "max"] if shape else ["R", "A"]
    dim = rnd.randrange(len(shape)) if shape else 0
    if shape and left[dim]:
        kinds += ["ragged", "packed", "parts", "unit"]
    if flat:
        kinds += ["flat"] * 3
    kind = rnd.choice(kinds)
    n = shape[dim] if shape else 0
    if kind not in ("R", "A", "flat"):
        left[dim] = False
    written = rnd.choice([dim, dim - len(shape)]) if shape else 0
    if kind == "A":
        return "A(" + ", ".join(str(i) for i in sorted(rnd.sample(range(size), rnd.randint(1, size)))) + ")"
    if kind == "unit":  # whole units for every coordinate, or none: rules insist on that
        unit = next((u for u in range(5, 0, -1) if n % (u * size) == 0), 0)
        kind = "unit" if unit > 1 else "chunk"
    if kind in ("packed", "parts"):
        parts = draw_sizes(rnd, n, rnd.randint(2, 3))
        if kind == "parts":
            return f"S({written}; " + ", ".join(f"{p}|{rnd.randint(1, size)}" for p in parts) + ")"
        return f"S({written}; " + ", ".join(map(str, parts)) + ")"
    return {"R": lambda: "R", "chunk": lambda: f"S({written})", "balanced": lambda: f"S({written}~)",
            "strided": lambda: f"S({written}*{rnd.randint(1, 4)})", "cyclic": lambda: f"S({written}/{rnd.randint(1, 3)})",
            "max": lambda: f"S({written}, max={rnd.randint(1, size)})", "unit": lambda: f"S({written}, unit={unit})",
            "ragged": lambda: f"S({written}=" + ", ".join(map(str, draw_sizes(rnd, n, size))) + ")",
            "flat": lambda: rnd.choice(["S(flat)", "S(flat~)", "S(flat/2)"])}[kind]()


class RankFiles(ConvertTest):
    def draw_case(self, rnd):
        axes = [(name, rnd.randint(1, 4)) for name in rnd.sample(["tp", "pp", "fsdp", "ep"], rnd.randint(1, 3))]
        model, lines = {}, []
        for i in range(12):
            shape = [rnd.choice([1, 2, 3, 5, 8, 12, 24]) for _ in range(rnd.randint(0, 3))]
            if shape and rnd.random() < 0.05:
                shape[rnd.randrange(len(shape))] = 0
            cuts, left, flat = [], [True] * len(shape), False
            for name, size in rnd.sample(axes, rnd.randint(0, len(axes))):
                text = draw_cut(rnd, shape, size, left, not flat and bool(shape))
                flat = flat or "flat" in text
                cuts.append(f"{text}@{name}")
                if flat:
                    break
            pad = ""
            if shape and not flat and all(left) is False and not any(c in "".join(cuts) for c in "=;"):
                dim = rnd.randrange(len(shape))
                pad = f" pad({dim}, {rnd.randint(1, 5)}, {shape[dim]})" if shape[dim] else ""
            model[f"t{i}"] = tensor(rnd, rnd.choice(DTYPES), *shape)
            lines.append(f"t{i} {' '.join(cuts) or 'R'}{pad}")
        model["f4"] = tensor(rnd, "F4", 3, 4)
        lines += [f"f4 A(0)@{axes[0][0]}", "none " + " ".join(f"S(0)@{name}" for name, _ in axes)]
        return ",".join(f"{name}={size}" for name, size in axes), lines, model

    def is_refused(self, source, lines, options):
        """Copies of a part that are cut again may overlap in part: neither format can tell, so neither is written."""
        done = support.run("convert", self.at(source), self.at("x"), *options, "--dry-run")
        if done.returncode == 0:
            return False
        found = re.fullmatch(r'reshard: tensor "t(\d+)": ranks hold boxes that partly overlap:[^\n]*\n', done.stderr)
        self.assertIsNotNone(found, done.stderr)
        self.assertRegex(lines[int(found[1])], r"\|.*@.*@")
        self.fails(source, "x", *options, "--format", "rank-files", words="partly overlap")
        return True

    def test_every_placement_comes_back(self):
        for case in range(max(1, int(40 * SCALE))):
            rnd = random.Random(SEED * 1000 + case)
            mesh, lines, model = self.draw_case(rnd)
            with self.subTest(case=case, mesh=mesh, rules=lines, shapes={name: value[1] for name, value in model.items()}):
                source, ranks = f"source{case}", f"ranks{case}"
                self.write_hf(source, model)
                rules = self.write_text(f"r{case}.rules", "\n".join(lines) + "\n")
                options = ["--to", mesh, "--rules", rules, "--no-sync"]
                if self.is_refused(source, lines, options):
                    continue
                self.convert(source, f"dcp{case}", *options)
                self.assertEqual(files.read_dcp(self.at(f"dcp{case}")), model)
                self.convert(source, ranks, *options, "--format", "rank-files")
                expected = self.read_json("digest", self.at(source))
                self.assertEqual(self.read_json("digest", self.at(ranks)), expected)
                # The same without a word in the files: the mesh and the rules say it all, but for shapes of what is cut flat.
                flat = files.strip_rank_files(self.at(ranks), self.at(ranks + "-plain"))
                ranks += "-plain"
                self.assertEqual(self.read_json("digest", self.at(ranks), "--from", mesh, "--rules", rules)["tensors"],
                                 {name: value for name, value in expected["tensors"].items() if name not in flat})
                self.read_json("verify", self.at(ranks), "--from", mesh, "--rules", rules)

    def test_names_with_odd_numbers(self):
        """What files say about many tensors is joined by the numbers in their names: gaps, zeros in front, and numbers in two places."""
        rnd = random.Random(SEED)
        names = [f"l.{number}.w" for number in ("0", "00", "2", "3", "06", "07", "7", "007", "10", "1000000000", "9999999999", "x", "")]
        names += [f"g.{i}.{j}" for i in range(4) for j in range(3) if (i, j) != (2, 1)] + ["5", "6.", ".7", "8"]
        model = {name: tensor(rnd, "F32", 4, 2) for name in names}
        self.write_hf("source", model)
        self.convert("source", "ranks", "--to", "fsdp=2", "--rules", "fsdp", "--format", "rank-files")
        self.assertEqual(self.read_json("digest", self.at("ranks")), self.read_json("digest", self.at("source")))
        self.convert("ranks", "back")
        self.assertEqual(files.read_hf(self.at("back")), model)

    def test_one_file_is_shown_by_itself(self):
        """Local shapes, and the whole that they are parts of; nobody takes it for the model."""
        rnd = random.Random(SEED)
        model = {"a": tensor(rnd, "F32", 10, 4), "b": tensor(rnd, "U8", 3), "late": tensor(rnd, "F32", 2)}
        self.write_hf("source", model, None)
        rules = self.write_file(b"a S(0)@tp pad(0, 4, 10)\nb R\nlate A(1)@tp\n")
        shapes = {"a": ([6, 4], [10, 4], "tp=2: S(0)"), "b": ([3], [3], "tp=2: R"), "late": ([2], [2], "tp=2: A(1)")}
        for form, name, whole in [("rank-files", "rank-0000{}-of-00002.safetensors", "missing"), ("torch", "model_world_size_2_rank_{}.pt", "is the file of one rank")]:
            self.convert("source", form, "--to", "tp=2", "--format", form, "--rules", rules)
            for rank in range(2):
                path = self.at(f"{form}/{name.format(rank)}")
                found = self.read_json("inspect", path)
                self.assertEqual({t["name"]: (t["shape"], t["whole_shape"], t["whole_spec"]) for t in found["tensors"]},
                                 {key: shapes[key] for key in ("a", "b", "late") if rank == 1 or key != "late"})
                self.assertEqual(found["notes"], [f"{name.format(rank)} is the file of rank {rank}, one of 2 of tp=2; the others are ignored"])
                self.assertRegex(self.read_text("inspect", path), r"a +F32 +6x4 +96 B +part of 10x4, tp=2: S\(0\)")
                for command in (["convert", path, self.at("x")], ["plan", path, "--to", "tp=4"], ["digest", path], ["verify", path, path]):
                    self.check_fails(command, 1, whole)
        # Under another name it is no less a part, also in company.
        os.mkdir(self.at("renamed"))
        os.rename(self.at("torch/model_world_size_2_rank_0.pt"), self.at("renamed/a.pt"))
        os.rename(self.at("torch/model_world_size_2_rank_1.pt"), self.at("renamed/b.pt"))
        for path in ("renamed", "renamed/a.pt"):
            self.check_fails(["convert", self.at(path), self.at("x")], 1, "a.pt: is the file of one rank")
        # A file that is not what it claims to be.
        path = self.at("rank-files/rank-00001-of-00002.safetensors")
        with open(path, "rb") as file:
            data = file.read()
        self.assertEqual(data.count(b'\\"rank\\":1'), 1)
        with open(path, "wb") as file:
            file.write(data.replace(b'\\"rank\\":1', b'\\"rank\\":7'))
        self.check_fails(["inspect", path], 1, "rank 7, which tp=2 does not have")

    def test_flat_cuts(self):
        """A flat shard is a line. Our own files say of what; from files of others the shape cannot be found."""
        rnd = random.Random(SEED)
        model = {"flat": tensor(rnd, "I16", 5, 7), "padded": tensor(rnd, "U8", 3, 2), "rows": tensor(rnd, "F32", 4, 2)}
        rules = self.write_text("f.rules", "flat S(flat)@tp\npadded S(flat)@tp pad(0, 4)\nrows S(0)@tp\n")
        self.write_hf("source", model)
        self.convert("source", "told", "--to", "tp=2", "--rules", rules, "--format", "rank-files")
        files.strip_rank_files(self.at("told"), self.at("ranks"), flat=True)
        for rank in range(2):
            found, metadata, _ = files.read(self.at(f"ranks/rank-0000{rank}-of-00002.safetensors"))
            self.assertEqual(found["flat"], ("I16", (18 - rank,), model["flat"][2][36 * rank:36 * rank + 36]))
            self.assertEqual(found["padded"], ("U8", (4,), (model["padded"][2] + bytes(2))[4 * rank:4 * rank + 4]))
            self.assertEqual(metadata, {"format": "pt"})
        self.convert("told", "whole", "--verify")
        self.assertEqual(files.read_hf(self.at("whole")), model)
        self.fails("ranks", "x", "--from", "tp=2", "--rules", rules, words="S(flat) does not leave the shape to be found")


if __name__ == "__main__":
    support.main()
