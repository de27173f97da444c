# SPDX-License-Identifier: Apache-2.0
"""Pictures. Those of drawings.txt have been looked at by a person; after a wanted change, write and look at them again:

    python3 test_draw.py build/dev/reshard --write

tests/draw/draw_random.c reads random pictures back and holds them against the layouts, element by element."""
import errno
import fcntl
import json
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import xml.etree.ElementTree as ElementTree

import support
from support import CommandTest, main, run

HERE = os.path.dirname(os.path.abspath(__file__))
PICTURES = os.path.join(HERE, "drawings.txt")
SVG = "{http://www.w3.org/2000/svg}"


def read_pictures():
    """[(line, picture), ...] of drawings.txt; each line begins with "$ COLUMNS=n reshard "."""
    with open(PICTURES, encoding="utf-8") as file:
        parts = re.split(r"^\$ (.*)\n", file.read(), flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2]))


def draw(line, **options):
    columns, _, *arguments = shlex.split(line)
    return run(*arguments, env={**os.environ, "COLUMNS": columns.split("=")[1]}, **options)


def write_pictures():
    """drawings.txt with what the command prints now."""
    text = "\n".join(f"$ {line}\n{draw(line).stdout}" for line, _ in read_pictures())
    with open(PICTURES, "w", encoding="utf-8") as file:
        file.write(text)


def parse_ranks(label):
    """The ranks of "0,4", "0..6/2" or "sum(0..3)"."""
    ranks = set()
    for first, last, step in re.findall(r"(\d+)(?:\.\.(\d+)(?:/(\d+))?)?", label):
        ranks.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return ranks


def read_all(master):
    """Everything that a terminal is sent. One read may return only a part: the kernel passes on what was written when it finds the time."""
    parts = []
    try:
        while part := os.read(master, 1 << 16):
            parts.append(part)
    except OSError as error:
        if error.errno != errno.EIO:  # the other end is closed, and nothing is left
            raise
    return b"".join(parts)


class DrawTest(CommandTest):
    def test_pictures(self):
        pictures = read_pictures()
        self.assertGreaterEqual(len(pictures), 30)
        for line, wanted in pictures:
            with self.subTest(line=line):
                done = draw(line)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(done.stdout.rstrip("\n"), wanted.rstrip("\n"))
                columns = int(re.match(r"COLUMNS=(\d+)", line).group(1))
                head = 4 if " plan " in line else 1 if columns >= 40 else 2  # lines that may be wider: specs and shapes
                for row in done.stdout.split("relabelling")[0].splitlines()[head:-1]:
                    self.assertLessEqual(len(row), columns, row)

    def test_line_above(self):
        """Where the window is too narrow for the line above a picture, it is broken between its two halves, not inside a word."""
        spec, facts = "dp=2,tp=2: R, S(1)", "shape 4096x4096, 4 ranks"
        self.assertEqual(len(spec + "  " + facts), 44)
        for columns, head in ((44, f"{spec}  {facts}\n\n"), (43, f"{spec}\n{facts}\n\n")):
            drawn = draw(f"COLUMNS={columns} reshard layout '{spec}' --shape 4096x4096 --draw").stdout
            self.assertEqual(drawn[:len(head)], head)
        self.assertIn(f"{spec}  {facts}\n", self.read_text("layout", spec, "--shape", "4096x4096", env={**os.environ, "COLUMNS": "40"}))
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run("bench", "model", "model", "--bytes", "300K", cwd=folder).returncode, 0)
            name = "model.layers.0.self_attn.q_proj.weight"
            drawn = draw(f"COLUMNS=40 reshard inspect model --draw {name}", cwd=folder).stdout
            self.assertRegex(drawn, rf"^{name}\nbf16, shape [0-9x]+, in 1 file\n\n")

    def show(self, arguments, **variables):
        """What a terminal of 40 columns is sent."""
        master, slave = self.open_terminal()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "", **variables}
        with subprocess.Popen([support.COMMAND, *arguments], stdout=slave, env=environment):
            os.close(slave)
            shown = read_all(master)
        os.close(master)
        return shown.decode("utf-8").replace("\r\n", "\n")

    def test_terminals_without_unicode(self):
        arguments = ["layout", "2: S(0)", "--shape", "8x8", "--draw"]
        narrow = {"env": {**os.environ, "COLUMNS": "40"}}
        lines, ascii_only = self.read_text(*arguments, **narrow), self.read_text(*arguments, "--ascii", **narrow)
        self.assertNotEqual(lines, ascii_only)
        for variables, wanted in [({"LC_ALL": "en_US.ISO-8859-1"}, ascii_only), ({"LC_ALL": "", "LC_CTYPE": "", "LANG": "C"}, ascii_only),
                                  ({"LC_ALL": "C.UTF-8"}, lines), ({"LC_ALL": "", "LC_CTYPE": "de_DE.utf8", "LANG": "C"}, lines),
                                  ({"LC_ALL": "", "LC_CTYPE": "", "LANG": ""}, lines)]:
            self.assertEqual(self.show(arguments, NO_COLOR="1", **variables), wanted, variables)

    def test_colours_and_the_window(self):
        """On a terminal: as wide as its window, coloured, and the same picture without the colours."""
        arguments = ["layout", "4,4: S(0), S(1)", "--shape", "64x64", "--draw"]
        shown = self.show(arguments, LC_ALL="C.UTF-8")
        self.assertIn("\x1b[0;38;5;16;48;5;153m", shown)  # rank 0
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        self.assertEqual(plain.replace(" \n", "\n"), self.read_text(*arguments, env={**os.environ, "COLUMNS": "40"}))

    def test_ranks_of_svg_are_those_of_json(self):
        """Every cell of the picture says where it is and who holds it; the shards of --json say the same of each element."""
        for spec, shape in [("4: S(0)", "10x7"), ("dp=2,tp=3: R, S(-1)", "6x9"), ("2,2: P(max), S(1)", "4x6"),
                            ("boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]", "6x6"), ("3: S(0/2)", "14"),
                            ("2,2,2: S(0), S(1), S(2)", "4x4x4"), ("4: S(flat)", "5x7")]:
            with self.subTest(spec=spec), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "layout.svg")
                layout = self.read_json("layout", spec, "--shape", shape, "--svg", path)
                root = ElementTree.parse(path).getroot()
                self.assertEqual((root.tag, root.get("role")), (SVG + "svg", "img"))
                self.assertIn(shape, root.find(SVG + "title").text)
                self.assertTrue(root.find(SVG + "desc").text)
                self.check_cells(layout, [cell.text for cell in root.findall(f".//{SVG}rect/{SVG}title")])

    def check_cells(self, layout, titles):
        covered = 0
        for title in titles:
            where, label = title.split(", held by ")
            bounds = {int(d): (int(low), int(high)) for d, low, high in re.findall(r"dim (\d+) (\d+):(\d+)", where)}
            box = [bounds.get(d, (0, length)) for d, length in enumerate(layout["shape"])]
            wanted = {shard["rank"] for shard in layout["shards"] for piece in shard.get("pieces", [shard])
                      if all(offset <= low and high <= offset + size
                             for offset, size, (low, high) in zip(piece["offset"], piece["size"], box))}
            self.assertEqual(parse_ranks(label), wanted, title)
            self.assertEqual("(" in label, any("partial" in shard for shard in layout["shards"]), title)
            volume = 1
            for low, high in box:
                volume *= high - low
            covered += volume
        whole = 1
        for length in layout["shape"]:
            whole *= length
        self.assertEqual(covered, whole)

    def test_bytes_of_svg_are_those_of_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.svg")
            plan = self.read_json("plan", "--shape", "12x10", "--dtype", "f32", "--from", "4: S(0)", "--to",
                                  "dp=2,tp=2: R, S(1)", "--svg", path)
            titles = [cell.text for cell in ElementTree.parse(path).getroot().findall(f".//{SVG}rect/{SVG}title")]
        found = {}
        for title in titles:
            match = re.fullmatch(r"rank (\d+) to rank (\d+): (\d+) bytes", title)
            if match:
                source, target, count = map(int, match.groups())
                found[source, target] = count
        self.assertEqual(found, {(s, t): count for s, row in enumerate(plan["matrix"]) for t, count in enumerate(row)})

    def test_a_tensor_of_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            header = json.dumps({"w": {"dtype": "F32", "shape": [4, 6], "data_offsets": [0, 96]}}).encode()
            source, target, rules = (os.path.join(folder, name) for name in ["m.safetensors", "out", "m.rules"])
            with open(source, "wb") as file:
                file.write(struct.pack("<Q", len(header)) + header + bytes(96))
            with open(rules, "w", encoding="utf-8") as file:
                file.write("w S(0)@tp\n")
            self.read_text("convert", source, target, "--to", "tp=2", "--rules", rules, "--quiet")
            shown = self.read_text("inspect", target, "--draw", "w")
            rows = re.findall(r"^(\d) [┌├└]", shown, re.MULTILINE)
            self.assertEqual((rows, re.findall(r"│ +(\d+) +│", shown)), (["0", "2", "4"], ["0", "1"]))
            for file, name in enumerate(sorted(os.listdir(target))[-2:]):
                self.assertIn(f"\n{file}  {name}\n", shown)
            self.check_fails(["inspect", target, "--draw", "v"], words='no tensor "v"')
            self.check_fails(["inspect", target, "--svg", "v.svg"], words="name it with --draw")

    def test_mistakes(self):
        layout = ["layout", "4: S(0)", "--shape", "10x7"]
        plan = ["plan", "--shape", "8", "--dtype", "f32", "--from", "2: S(0)", "--to", "2: R"]
        self.check_fails([*layout, "--draw", "--slice", "2=0"], words="dimension 2 does not exist")
        self.check_fails([*layout, "--draw", "--slice", "0=10"], words="no index 10; its length is 10")
        self.check_fails([*layout, "--draw", "--slice", "0=1", "--slice", "-2=1"], code=2, words="given twice")
        for text in ["0", "0=", "=3", "x=1", "0=1=2", "0=-1", ""]:
            self.check_fails([*layout, "--draw", "--slice", text], words="expected DIM=INDEX")
        self.check_fails([*layout, "--slice", "0=1"], words="add --draw or --svg")
        self.check_fails([*layout, "--draw", "--json"], words="leave out --json")
        self.check_fails([*plan, "--draw", "--moves"], words="leave out --moves")
        self.check_fails(["layout", "2,2,2,2: S(0),S(1),S(2),S(3)", "--shape", "4x4x4x4", "--draw"],
                         words="draw a slice of 1 of them")

    def test_pictures_of_the_docs_are_fresh(self):
        script = os.path.join(HERE, "..", "..", "scripts", "make-pictures")
        done = subprocess.run([sys.executable, "-B", script, support.COMMAND, "--check"], stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr.decode()), (0, ""))

    def test_svg_replaces_only_pictures(self):
        with tempfile.TemporaryDirectory() as folder:
            path, other = os.path.join(folder, "a.svg"), os.path.join(folder, "notes.txt")
            for _ in range(2):
                self.read_text("layout", "4: S(0)", "--shape", "10x7", "--svg", path)
            with open(other, "w", encoding="utf-8") as file:
                file.write("mine")
            self.check_fails(["layout", "4: S(0)", "--shape", "10x7", "--svg", other], words="is not an SVG file")
            self.check_fails(["layout", "4: S(0)", "--shape", "10x7", "--svg", folder + "/none/a.svg"], code=1,
                             words="No such file")
            with open(other, encoding="utf-8") as file:
                self.assertEqual(file.read(), "mine")
            self.assertEqual(sorted(os.listdir(folder)), ["a.svg", "notes.txt"])


if __name__ == "__main__":
    if sys.argv[2:] == ["--write"]:
        support.COMMAND = os.path.abspath(sys.argv[1])
        write_pictures()
    else:
        main()
