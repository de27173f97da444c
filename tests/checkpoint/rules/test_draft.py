# SPDX-License-Identifier: Apache-2.0
"""`reshard rules --for MODEL` writes names of tensors into a file of rules. Whatever the names are, the file stays printable,
has no line but its own, and each line stands for the tensors that it was drafted for."""
import json
import os
import random
import re
import shutil
import sys
import tempfile
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files  # noqa: E402
from support import CommandTest, main, run  # noqa: E402

# Names that would be read as something else, would end their line, or would speak to a terminal.
HOSTILE = ["", "#", "# x", "#x", "x#", "x #", "x # y", "\\", "\\\\", "\\x41", "x\\x41", "\\xzz", "every", "every:", "every x:", "every\tx:", "every: S(0)@tp",
           "every:\nuse llama", "use", "use llama", "default", "default a 1", "types", "sign", "sign x", "usex", "???", "*", "**", "?", "{a,b}", "{", "}",
           "{0..3}", "a.{0..3}", "a.7.b", "a.007", "[1]", "x [1, *]", "x  ???  # x1  3", "x drop", ",", "x,", " ", "  x", "x ", "\t", "x\ty", "\n", "x\n",
           "\nx", "x\ny", "x\nevery: drop", "x\r", "x\ry", "x\v", "x\fy", "\0", "x\0y", "\0\n", "\x1b[2J", "x\x1b]0;title\x07", "\x7f", "x\u0085every: drop", "\u009b31m",
           "x\u00a0y", "\u00ad", "\u061c", "\u200b", "x\u2028every: drop", "x\u2029", "\u202egpj.x", "\u2066", "\ufeff#", "\ufff9", "\U000e0041", "\u00e9", "\U0001f600",
           "$key", "@tp", "S(0)@tp", "R", "-", "--", '"', "'", "`touch x`", "$(touch x)", "x" * 4000, "x" * 4095, "\\" * 2047, "\n" * 1023,
           "use".join("#*\n"), "\\use", "\\every:", "\\#"]
TOO_LONG = ["y" * 4096, "y" * 60000, "\n" * 1024 + "z", "*" * 2048]


def is_printable(text):
    """By Unicode's own tables: no control, format, surrogate, separator of lines, or unassigned character."""
    return all(each == " " or unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for each in text)


class DraftTest(CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def draft(self, names):
        """Drafts rules for tensors of these names, each of a shape of its own: name i is i + 1 long. Returns the lines."""
        header, at = {}, 0
        for i, name in enumerate(names):
            header[name] = {"dtype": "U8", "shape": [i + 1], "data_offsets": [at, at + i + 1]}
            at += i + 1
        with open(self.folder + "/model.safetensors", "wb") as file:
            file.write(files.frame(json.dumps(header).encode(), bytes(at)))
        text = self.read_text("rules", "--for", self.folder)
        for line in text.split("\n"):
            self.assertTrue(is_printable(line), repr(line))
        return text.split("\n")[:-1]

    def check_draft(self, names, chance, too_long=()):
        """Fills some lines in as R and drops the others: exactly the tensors of the former must be left."""
        everything = [*names, *too_long]
        lines = self.draft(everything)
        self.assertEqual(lines[0], f"# Rules for {len(everything)} tensors, whose names no family knows")
        self.assertTrue(lines[1].startswith("# In place of ???"))
        self.assertEqual(lines[-1], "every:  S(0)@fsdp")
        kept, filled, seen = [], [], []
        for line in lines[2:-1]:
            length = int(re.search(r"^# x1  (\d+)  too long|  \?\?\?  # x1  (\d+)$", line).group(2) or 0)
            if length == 0:
                filled.append(line)  # a comment
                continue
            keep = chance.random() < 0.5
            seen.append(everything[length - 1])
            kept += [everything[length - 1]] * keep
            filled.append(re.sub(r"  \?\?\?(  # x1  \d+)$", "  R\\1" if keep else "  drop\\1", line))
        self.assertEqual(sorted(seen), sorted(names))
        with open(self.folder + "/draft.rules", "w", encoding="utf-8") as file:
            file.write("\n".join([*lines[:2], *filled, *["*  drop"] * bool(too_long), ""]))
        plan = run("plan", self.folder, "--to", "dp=1", "--rules", self.folder + "/draft.rules", "--tensors", "--json")
        if kept:
            self.assertEqual(plan.returncode, 0, plan.stderr)
            self.assertEqual(sorted(each["name"] for each in json.loads(plan.stdout)["tensor_list"]), sorted(kept))

    def test_hostile_names(self):
        chance = random.Random(19)
        for _ in range(4):
            self.check_draft(HOSTILE, chance, TOO_LONG)
        for name in HOSTILE:
            with self.subTest(name=name):
                self.check_draft([name], random.Random(3))  # R

    def test_random_names(self):
        """Names of pieces that mean something to the language, to a terminal or to a line."""
        chance = random.Random(23)
        pieces = ["#", "every:", "every", "use ", "llama", "\n", "\r", "\t", " ", "\0", "\x1b[", "\\", "\\x", "x", "u", "41", "{", "}", "*", "?", ",", ".", "0", "12", "..",
                  "[", "]", "???", "drop", ":", "\u0085", "\u202e", "\u2028", "\u00e9", "\U000e0001", "S(0)@tp", "$"]
        for _ in range(30):
            names = {"".join(chance.choices(pieces, k=chance.randrange(1, 7))) for _ in range(40)}
            # Names that differ only in numbers share a line, and so do their shapes.
            distinct = {re.sub(r"(^|(?<=\.))\d+(?=\.|$)", "0", name): name for name in sorted(names)}
            self.check_draft(list(distinct.values()), chance)

    def test_groups_of_hostile_names(self):
        """Numbers still become ranges."""
        tensors = {f"a\n.{i}.#": ("U8", (4, 2), bytes(8)) for i in range(3)}
        files.write(self.folder + "/model.safetensors", tensors)
        self.assertIn(r"a\x0a.{0..2}.#  ???  # x3  4x2", self.read_text("rules", "--for", self.folder).split("\n"))

    def test_bytes_by_number_in_patterns(self):
        """Patterns of options read what drafts write."""
        files.write(self.folder + "/in/model.safetensors", {name: ("U8", (1,), b"x") for name in ("a\nb", "a\x1bb", "aAb", "axb", "ax4b", "x41")})
        for pattern, wanted in [(r"a\x0ab", ["a\nb"]), (r"a\x0Ab", ["a\nb"]), (r"a\x1bb", ["a\x1bb"]), (r"a\x41b", ["aAb"]), (r"a\xb", ["axb"]),
                                (r"a\x4b", []), (r"a\x4\b", ["ax4b"]), (r"a{\x0a,\x41}b", ["a\nb", "aAb"]), (r"\x41", []), (r"\\x41", []), (r"x\41", ["x41"])]:
            done = run("plan", self.folder + "/in", "--include", pattern, "--tensors", "--json")
            self.assertEqual(done.returncode, 0 if wanted else 1, (pattern, done.stderr))
            if wanted:
                self.assertEqual(sorted(each["name"] for each in json.loads(done.stdout)["tensor_list"]), sorted(wanted), pattern)


if __name__ == "__main__":
    main()
