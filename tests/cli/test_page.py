# SPDX-License-Identifier: Apache-2.0
"""`--html`: the data in a page, and the file itself. What a browser makes of it: tests/browser."""
import ctypes
import glob
import html.parser
import json
import os
import re
import struct
import subprocess
import tempfile

from support import CommandTest, main, run

WEB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cli", "page", "web")

# from, to, shape
PLANS = [
    ("4: S(0)", "4: S(1)", "64x64"),
    ("4: P(sum)", "4: R", "1024x1024"),
    ("4: S(0)", "4[1,2,3,0]: S(0)", "64x64"),
    ("dp=2,tp=4: R, S(0)", "dp=2,tp=4: S(0), S(1)", "24x40x3"),
    ("8: S(0)", "3: S(0)", "7x5"),
    ("6: S(0/4)", "4: S(1~)", "50x9"),
    ("5: R", "7: S(0)", "13"),
    ("1: R", "3: R", "scalar"),
    ("boxes 4x4: 0[0:4,0:1] 2[0:2,1:4] 5[2:4,1:4]", "2: S(0)", "4x4"),
    ("2: S(0)", "2: S(0)", "0x8"),
]


class Elements(html.parser.HTMLParser):
    """The elements of a page, and the text of the one with the data."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.data, self.in_data = [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.in_data = dict(attrs).get("id") == "data"

    def handle_endtag(self, tag):
        self.in_data = False

    def handle_data(self, data):
        if self.in_data:
            self.data += data


def unpack(matrix):
    """The rows of a matrix that is written as runs."""
    rows = [[value for value, count in zip(runs[::2], runs[1::2]) for _ in range(count)] for runs in matrix["runs"]]
    assert all(len(row) == -(-matrix["columns"] // matrix["cell"]) for row in rows)
    return rows


class PageTest(CommandTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="reshard-test-")
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "page.html")

    def read_page(self, *arguments):
        """The page's data."""
        self.read_text(*arguments, "--html", self.path)
        with open(self.path, encoding="ascii") as file:
            text = file.read()
        elements = Elements(text)
        self.assertEqual(elements.tags.count("script"), 2)
        self.assertEqual(elements.tags.count("body"), 1)
        self.assertNotIn("<", elements.data)
        self.assertEqual(os.listdir(self.folder.name), ["page.html"])
        return json.loads(elements.data)

    def make_model(self, names, shape=(8, 4)):
        folder = tempfile.TemporaryDirectory(prefix="reshard-test-")
        self.addCleanup(folder.cleanup)
        volume = 2 * shape[0] * shape[1]
        header = {name: {"dtype": "BF16", "shape": list(shape), "data_offsets": [i * volume, (i + 1) * volume]}
                  for i, name in enumerate(names)}
        text = json.dumps(header).encode()
        with open(os.path.join(folder.name, "model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + len(names) * volume)
        return folder.name


class PlanPageTest(PageTest):
    def test_figures_are_those_of_json(self):
        for source, target, shape in PLANS:
            with self.subTest(source=source, target=target, shape=shape):
                arguments = ["plan", "--shape", shape, "--dtype", "f32", "--from", source, "--to", target]
                told = self.read_json(*arguments, "--moves")
                page = self.read_page(*arguments)
                self.assertEqual(page["kind"], "plan")
                self.assertEqual(page["report"], {key: value for key, value in told.items() if key not in ("matrix", "parts")})
                self.check_ranks(page, told)
                self.check_rounds(page)

    def check_ranks(self, page, told):
        stages = [unpack(stage["matrix"]) for stage in page["stage_list"]]
        n = told["ranks"]
        self.assertEqual(len(stages), told["stages"])
        total = [[sum(stage[s][t] for stage in stages) for t in range(n)] for s in range(n)]
        self.assertEqual(total, told["matrix"])
        ranks = page["rank_list"]
        for name, field in [("in", "bytes_in"), ("out", "bytes_out"), ("staging", "staging_bytes_peak")]:
            self.assertEqual(ranks[name], [part[field] for part in told["parts"]], name)
        self.assertEqual(ranks["kept"], [total[r][r] for r in range(n)])

    def check_rounds(self, page):
        """In round k rank r sends to r+k, and each pair has one round."""
        n = page["report"]["ranks"]
        for stage in page["stage_list"]:
            matrix = unpack(stage["matrix"])
            wanted = []
            for k in range(1, n):
                sent = [matrix[r][(r + k) % n] for r in range(n)]
                wanted += [sum(sent), max(sent)]
            self.assertEqual(stage["rounds"], wanted)

    def test_boxes(self):
        """Every element of both layouts belongs to the ranks that the cut by definition gives it to."""
        page = self.read_page("plan", "--shape", "8x6", "--dtype", "f32", "--from", "4: S(0)", "--to", "dp=2,tp=3: R, S(1)")
        owners = [lambda i, j: {i // 2}, lambda i, j: {j // 2, 3 + j // 2}]
        for layout, owner in zip(page["layouts"], owners):
            self.assertEqual(layout["shape"], [8, 6])
            found = {(i, j): set() for i in range(8) for j in range(6)}
            pieces = layout["pieces"]
            for at in range(0, len(pieces), 6):
                first, count, row, column, rows, columns = pieces[at:at + 6]
                for i in range(row, row + rows):
                    for j in range(column, column + columns):
                        found[i, j] |= set(range(first, first + count))
            self.assertEqual(found, {(i, j): owner(i, j) for i, j in found})
            self.assertFalse(layout["pieces_cut"])
            self.assertEqual(layout["ranks_shown"], layout["ranks"])

    def test_memory(self):
        ranks = self.read_page("plan", "--shape", "8x6", "--dtype", "f32", "--from", "4: S(0)", "--to", "3: S(1)")["rank_list"]
        self.assertEqual(ranks["source"], [2 * 6 * 4] * 4)
        self.assertEqual(ranks["target"], [8 * 2 * 4] * 3 + [0])

    def test_replicas_are_one_entry(self):
        page = self.read_page("plan", "--shape", "8x6", "--dtype", "f32", "--from", "1: R", "--to", "1000: R")
        self.assertEqual(page["layouts"][-1]["pieces"], [0, 1000, 0, 0, 8, 6])
        page = self.read_page("plan", "--shape", "8x6", "--dtype", "f32", "--from", "4: P(sum)", "--to", "4: S(0)")
        self.assertEqual(page["layouts"][0]["partial"], "sum")

    def test_replicas_of_other_ranks_are_another_entry(self):
        """Rank 1 is between two ranks that hold the same, and holds nothing."""
        page = self.read_page("plan", "--shape", "8x6", "--dtype", "f32", "--from", "1: R", "--to", "3[0,2,3]: R")
        self.assertEqual(page["layouts"][-1]["pieces"], [0, 1, 0, 0, 8, 6, 2, 2, 0, 0, 8, 6])

    def test_command(self):
        page = self.read_page("plan", "--shape", "8", "--dtype", "f32", "--from=2: S(0)", "--to", "2: R")
        self.assertEqual(page["command"],
                         f"reshard plan --shape 8 --dtype f32 '--from=2: S(0)' --to '2: R' --html {self.path}")

    def test_size_is_bounded(self):
        """However many ranks or boxes there are, the page stays small and says what is missing."""
        page = self.read_page("plan", "--shape", "20000x8", "--dtype", "f32", "--from", "20000: S(0)", "--to", "10000: S(0)")
        self.assertNotIn("stage_list", page)
        self.assertLess(page["layouts"][0]["ranks_shown"], 20000)
        self.assertLess(os.path.getsize(self.path), 1 << 20)
        page = self.read_page("plan", "--shape", "100000x8", "--dtype", "f32", "--from", "3: S(0/1)", "--to", "4: S(0)")
        self.assertTrue(page["layouts"][0]["pieces_cut"])
        self.assertLess(os.path.getsize(self.path), 1 << 20)

    def test_irregular_matrices_are_joined(self):
        """Cyclic blocks of 3 and of 7 meet in a different way for nearly every pair."""
        arguments = ["plan", "--shape", "299993", "--dtype", "f32", "--from", "512: S(0/3)", "--to", "500: S(0/7)"]
        page = self.read_page(*arguments)
        matrix = page["stage_list"][0]["matrix"]
        runs = sum(len(row) // 2 for row in matrix["runs"])
        self.assertLessEqual(runs, 100000)
        self.assertGreater(matrix["cell"], 1)
        self.assertEqual(sum(map(sum, unpack(matrix))), page["report"]["bytes_moved"] + page["report"]["bytes_kept"])
        self.assertLess(os.path.getsize(self.path), 4 << 20)


class ConversionPageTest(PageTest):
    NAMES = ["</script><script>alert(1)</script>", "<!--<script>", "a&b", "\u2028\u2029\u0000", "__proto__", ""]

    def test_figures_are_those_of_json(self):
        model = self.make_model([f"layers.{i}.weight" for i in range(12)])
        arguments = ["plan", model, "--to", "fsdp=4", "--rules", "fsdp"]
        told = self.read_json(*arguments, "--tensors")
        page = self.read_page(*arguments)
        self.assertEqual(page["kind"], "conversion")
        self.assertEqual(page["report"], {key: value for key, value in told.items() if key not in ("matrix", "tensor_list")})
        self.assertEqual(unpack(page["matrix"]), told["matrix"])
        pictures = {tensor["picture"]: tensor["layout"] for tensor in page["tensor_list"] if "layout" in tensor}
        self.assertEqual(len(pictures), 1)
        for shown, tensor in zip(page["tensor_list"], told["tensor_list"], strict=True):
            shards = tensor.pop("shards")
            self.assertEqual({key: shown[key] for key in tensor}, tensor)
            wanted = [number for shard in shards for piece in shard["pieces"]
                      for number in [shard["rank"], 1, *piece["offset"], *piece["size"]]]
            self.assertEqual(pictures[shown["picture"]]["pieces"], wanted)
            self.assertEqual(shown["stored"]["pieces"], [0, 1, 0, 0, 8, 4])
        self.assertEqual(page["source_files"], ["model.safetensors"])
        self.assertEqual(page["target_files"], self.list_written(model))

    def list_written(self, model):
        target = os.path.join(self.folder.name, "out")
        self.read_text("convert", model, target, "--to", "fsdp=4", "--rules", "fsdp")
        return sorted(name for name in os.listdir(target) if name.endswith(".safetensors"))

    def test_hostile_names(self):
        """They are in the data as they are, and nowhere as markup."""
        page = self.read_page("plan", self.make_model(self.NAMES), "--to", "fsdp=2", "--rules", "fsdp")
        self.assertEqual(sorted(tensor["name"] for tensor in page["tensor_list"]), sorted(self.NAMES))

    def test_dry_run(self):
        model = self.make_model(["a", "b"])
        target = os.path.join(self.folder.name, "out")
        told = self.read_json("convert", model, target, "--dry-run", "--to", "fsdp=2", "--rules", "fsdp")
        page = self.read_page("convert", model, target, "--dry-run", "--to", "fsdp=2", "--rules", "fsdp")
        self.assertGreaterEqual(page["report"].pop("seconds_estimated"), 0)
        told.pop("seconds_estimated")
        self.assertEqual({key: page["report"][key] for key in told}, told)
        self.check_fails(["convert", model, target, "--to", "fsdp=2", "--html", self.path], words="add --dry-run")
        self.assertFalse(os.path.exists(target))

    def test_many_tensors(self):
        page = self.read_page("plan", self.make_model([f"t.{i}" for i in range(10050)], (2, 1)), "--to", "fsdp=2", "--rules", "fsdp")
        self.assertEqual((len(page["tensor_list"]), page["report"]["tensors"]), (10000, 10050))
        self.assertLess(os.path.getsize(self.path), 4 << 20)


PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def give_up_reading_everything():
    """Makes root, in the child that will be the command, subject to the modes of files. Becoming another user instead would not do:
    that one cannot start a command in a home of mode 0700."""
    for right in [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH] if os.getuid() == 0 else []:
        if ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, right, 0, 0, 0) != 0:
            raise PermissionError(ctypes.get_errno(), "prctl")


class FileTest(PageTest):
    PLAN = ["plan", "--shape", "8", "--dtype", "f32", "--from", "2: S(0)", "--to", "2: R"]

    def test_only_pages_are_replaced(self):
        self.read_page(*self.PLAN)
        self.read_page(*self.PLAN)
        for text in [b"weights", b"<!doctype html>\n<p>mine", b"\0"]:
            with open(self.path, "wb") as file:
                file.write(text)
            self.check_fails([*self.PLAN, "--html", self.path], words="is not a page of reshard")
            with open(self.path, "rb") as file:
                self.assertEqual(file.read(), text)
        self.assertEqual(os.listdir(self.folder.name), ["page.html"])

    def test_unreadable_files_are_not_replaced(self):
        """A file that the user may not read may be anything, although a rename could replace it."""
        with open(self.path, "wb") as file:
            file.write(b"weights")
        os.chmod(self.path, 0)
        for option in ["--html", "--svg"]:
            try:
                done = run(*self.PLAN, option, self.path, preexec_fn=give_up_reading_everything)
            except (PermissionError, subprocess.SubprocessError) as error:
                self.skipTest(f"root cannot start the command without its right to read everything: {error}")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("cannot be read: Permission denied; it is left alone", done.stderr)
        os.chmod(self.path, 0o600)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"weights")

    def test_failures_leave_nothing(self):
        self.check_fails([*self.PLAN, "--html", self.path, "--rank", "1"], words="leave --rank out")
        self.check_fails([*self.PLAN, "--html", os.path.join(self.path, "x")], 1, "No such file or directory")
        self.check_fails([*self.PLAN, "--html", self.folder.name], 1, "Is a directory")
        self.check_fails([*self.PLAN, "--html", "/dev/full"], 1, "No space left")
        many = ["plan", "--shape", "3000000000", "--dtype", "f32", "--from", "2147483647: S(0)", "--to", "2: R"]
        self.check_fails([*many, "--html", self.path], words="2147483647 ranks")
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_standard_output(self):
        done = run(*self.PLAN, "--json", "--html", "/dev/stdout")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.startswith("<!doctype html>"))
        self.assertTrue(done.stdout.endswith("}\n"))


class ModulesTest(CommandTest):
    def test_names_are_defined_once(self):
        """Joined modules share one scope, and each imports what others export."""
        seen, exported, imported = {}, set(), set()
        for path in sorted(glob.glob(os.path.join(WEB, "*.js"))):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for is_export, name in re.findall(r"^(export )?(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE):
                self.assertNotIn(name, seen, f"{path} and {seen.get(name)}")
                seen[name] = path
                if is_export:
                    exported.add(name)
            for names in re.findall(r'^import \{([^}]*)\} from "\./\w+\.js";', text, re.MULTILINE):
                imported |= {name.strip() for name in names.split(",")}
        self.assertGreater(len(seen), 50)
        self.assertEqual(imported, exported)


if __name__ == "__main__":
    main()
