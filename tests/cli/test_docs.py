# SPDX-License-Identifier: Apache-2.0
"""What the README, the docs and the man pages show is run. Every block says what it is:

  console  lines that begin with "$ reshard" are run, in one empty folder for each page, and the lines that follow are compared
           with standard output and standard error; a line "..." stands for any lines
  sh       every line is run, in a folder that has models under the names that pages use, and has to succeed
  rules    a plan is made by these rules
  map      is the file that its first line names, "# x.map", for the lines of `console` that follow
  c        is cut from an example program, which is a test of its own
  python   is run by the test that PYTHON names
  text     shows what cannot be run: grammars, what files hold, measurements
"""
import glob
import os
import re
import shlex
import shutil
import subprocess
import tempfile

import docs_models
import support
from docs_models import write_zero
from support import CommandTest, main, run

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# Where Python of a page is run.
PYTHON = {"README.md": "tests/python/test_wheel.py", "python.md": "tests/python/test_tutorial.py", "python-torch.md": "tests/python/test_torch.py",
          "digest.md": "tests/checkpoint/engine/test_fingerprint.py"}
# Measurements are run with little to measure.
SMALL = {"calibrate": ["--side", "64", "--bytes", "300K"], "predict": ["--side", "64", "--bytes", "300K", "--runs", "1", "--within", "1e9"]}
# What lines of `sh` may run: what is built here, what scripts/install-deps installs, and what every Debian has. A machine of a
# developer has more (`time`, say, which no smallest Debian has).
PROGRAMS = {"reshard", "make", "mpirun", "pip", "sleep", "dd", "rm"}
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"]


def without_digest(text):
    """Digests are of the planner's version too, which pages need not follow."""
    return re.sub(r'"digest":"[0-9a-f]{32}"', '"digest":".."', text)


def read_files(pattern):
    for path in sorted(glob.glob(os.path.join(ROOT, pattern))):
        with open(path, encoding="utf-8") as file:
            yield os.path.basename(path), file.read()


def read_headings(path):
    """The headings of a page, as links spell them."""
    with open(path, encoding="utf-8") as file:
        page = re.sub(r"^ *```.*?^ *```$", "", file.read(), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}


class DocsTest(CommandTest):
    def read_pages(self):
        pages = list(read_files("docs/man/*.md"))
        self.assertGreaterEqual(len(pages), 4)
        return pages

    def test_sections(self):
        for name, page in self.read_pages():
            found = re.findall(r"^# (.*)$", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
            if name.endswith(".1.md"):
                self.assertEqual(found, SECTIONS, name)
            self.assertEqual((found[0], found[-1]), ("NAME", "SEE ALSO"), name)
            self.assertIn(f"title: {name[:-5].upper()}\nsection: {name[-4]}\n", page, name)

    def test_examples(self):
        count = 0
        for name, page in [*self.read_pages(), *read_files("*.md"), *read_files("docs/*.md"), *read_files("docs/answers/*.md")]:
            with tempfile.TemporaryDirectory() as folder:
                if os.path.exists(os.path.join(ROOT, "docs/answers", name)):
                    docs_models.make(support.COMMAND, folder, name)
                for kind, block in re.findall(r"^```(console|map)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
                    if kind == "map":
                        with open(os.path.join(folder, re.match(r"# ([a-z]+\.map)\n", block)[1]), "w", encoding="utf-8") as file:
                            file.write(block)
                        continue
                    for example in re.split(r"^(?=\$ )", block, flags=re.MULTILINE)[1:]:
                        line, wanted = example.split("\n", 1)
                        with self.subTest(page=name, line=line):
                            self.check_example(shlex.split(line), wanted, folder)
                        count += 1
        self.assertGreaterEqual(count, 11)

    def check_example(self, words, wanted, folder):
        self.assertEqual(words[:2], ["$", "reshard"])
        done = run(*words[2:], cwd=folder)
        found, wanted = without_digest(done.stdout + done.stderr), without_digest(wanted)
        pattern = "(?:.*\n)*".join(re.escape(part) for part in re.split(r"^\.\.\.\n", wanted, flags=re.MULTILINE))
        if not re.fullmatch(pattern, found):
            self.assertEqual(found, wanted)

    def read_all(self):
        return [*self.read_pages(), *read_files("*.md"), *read_files("docs/*.md"), *read_files("docs/answers/*.md"), *read_files("examples/*.md")]

    def test_blocks_say_what_they_are(self):
        for name, page in self.read_all():
            for kind, block in BLOCK.findall(page):
                self.assertIn(kind, ("console", "sh", "rules", "map", "c", "python", "text"), f"{name}: {block}")
                if kind == "text":
                    self.assertNotRegex(block, r"(?m)^(\$ |reshard [a-z]|mpirun |make |pip )", f"{name}: a command in a block that is not run")
                if kind == "python":
                    with open(os.path.join(ROOT, PYTHON[name]), encoding="utf-8") as file:
                        self.assertTrue(name in file.read(), f"{PYTHON[name]} does not run {name}")

    def make_models(self, folder):
        """Models under the names that pages use."""
        for line in ["bench model model --bytes 300K", "convert model MODEL", "convert model fsdp --to fsdp=8", "convert model model-tp4 --to tp=4",
                     "convert model ranks --to tp=4 --format rank-files", "convert model ranks8 --to tp=8 --format rank-files",
                     "convert model strangers --to tp=4 --format rank-files", "convert model pt --format torch", "convert model half --dtype bf16 --rename model.*={1}"]:
            self.assertEqual(run(*line.split(), cwd=folder).returncode, 0, line)
        write_zero(os.path.join(folder, "model"), os.path.join(folder, "run"))
        shutil.copy(os.path.join(folder, "model", "model.safetensors"), folder)
        shutil.copy(os.path.join(folder, "pt", "model.pt"), folder)
        os.mkdir(os.path.join(folder, "out"))

    def run_line(self, line, folder):
        words = shlex.split(line, comments=True)
        started = re.findall(r"(?:^|[;|&])\s*(\S+)", re.sub(r"\s+#\s.*$", "", line))
        self.assertLessEqual(set(started), PROGRAMS, f"{line}: starts a program that a fresh machine may lack")
        if words[0] == "make":
            with open(os.path.join(ROOT, "GNUmakefile"), encoding="utf-8") as file:
                self.assertRegex(file.read(), rf"(?m)^{words[1]}:|^{words[1]} |\b{words[1]}\b.*: packages", line)
            return
        if words[0] == "pip":  # tests/python/test_wheel.py does it
            return
        if words[0] == "mpirun" and shutil.which("mpirun") is None:
            return
        if "convert" in words and "bench" not in words:
            target = words[words.index("convert") + 2]
            shutil.rmtree(os.path.join(folder, target), ignore_errors=True)
        small = SMALL.get(words[words.index("bench") + 1], []) if "bench" in words else []
        environment = {**os.environ, "PATH": os.path.dirname(support.COMMAND) + ":" + os.environ["PATH"], "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        done = subprocess.run(["sh", "-c", re.sub(r"\s+#\s.*$", "", line) + " " + shlex.join(small)], cwd=folder, env=environment, capture_output=True,
                              text=True, check=False, timeout=200)
        self.assertEqual(done.returncode, 0, f"{line}: {done.stderr}")

    def test_commands_succeed(self):
        with tempfile.TemporaryDirectory() as folder:
            self.make_models(folder)
            count = 0
            for name, page in self.read_all():
                for kind, block in BLOCK.findall(page):
                    for line in block.replace("\\\n", " ").splitlines() if kind == "sh" else []:
                        with self.subTest(page=name, line=line):
                            self.run_line(line, folder)
                        count += 1
            self.assertGreaterEqual(count, 30)

    def test_rules(self):
        """A plan by the rules of each block, over a mesh of the axes that they name."""
        with tempfile.TemporaryDirectory() as folder:
            self.make_models(folder)
            blocks = [block for _, page in self.read_all() for kind, block in BLOCK.findall(page) if kind == "rules"]
            self.assertGreaterEqual(len(blocks), 2)
            for block in blocks:
                with open(os.path.join(folder, "some.rules"), "w", encoding="utf-8") as file:
                    file.write(block)
                mesh = ",".join(f"{axis}=2" for axis in sorted(set(re.findall(r"@([a-z]+)", block))))
                found = self.read_json("plan", "model", "--to", mesh, "--rules", "some.rules", "--tensors", cwd=folder)
                cuts = " ".join(tensor.get("cut", "") for tensor in found["tensor_list"])
                for axis in mesh.split(","):
                    self.assertIn(axis, cuts, block)

    def test_pages_link_to_what_is_there(self):
        """Links lead to files of the tree and to headings in them, and docs/README.md leads to every page."""
        count = 0
        for folder in ["", "docs/", "docs/answers/", "docs/man/", "examples/", "packaging/", "python/"]:
            for name, page in read_files(folder + "*.md"):
                for link, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", page, flags=re.MULTILINE | re.DOTALL)):
                    path = os.path.normpath(os.path.join(ROOT, folder, link or name))
                    self.assertTrue(os.path.exists(path), f"{folder}{name}: {link}")
                    self.assertTrue(not heading or heading in read_headings(path), f"{folder}{name}: {link}#{heading}")
                    count += 1
        self.assertGreaterEqual(count, 100)
        contents = dict(read_files("docs/*.md"))["README.md"]
        for name, _ in read_files("docs/*.md"):
            self.assertTrue(name == "README.md" or f"({name})" in contents, f"docs/README.md does not name {name}")
        for name, _ in read_files("docs/answers/*.md"):
            self.assertIn(f"(answers/{name})", contents)

    def test_recipes_have_the_version(self):
        version = self.read_text("--version").split()[1]
        for _, recipe in [*read_files("packaging/conda/meta.yaml"), *read_files("packaging/spack/package.py")]:
            self.assertEqual(set(re.findall(r"\b\d+\.\d+\.\d+\b", recipe)), {version})

    def test_snippets_are_cut_from_examples(self):
        examples = [text for _, text in [*read_files("examples/*.c"), *read_files("examples/reference/*.c")]]
        snippets = [snippet for _, page in [*read_files("*.md"), *read_files("docs/*.md"), *read_files("docs/answers/*.md"), *self.read_pages()]
                    for snippet in re.findall(r"^```c\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]
        self.assertGreaterEqual(len(snippets), 1)
        for snippet in snippets:
            self.assertTrue(any(snippet in example for example in examples), snippet)

    def test_named_tests_exist(self):
        """Tests that pages name are there: files by their path, or by their name in the folder that was named last, and
        functions, with or without their test_ in front, in the file that was named last."""
        sources = {}
        for path in glob.glob(os.path.join(ROOT, "tests/**/*.c"), recursive=True):
            with open(path, encoding="utf-8") as file:
                sources[os.path.relpath(path, ROOT)] = set(re.findall(r"\b(?:cmocka_unit_test|TEST)\((\w+)\)", file.read()))
        for name, page in read_files("docs/*.md"):
            if name in ("limits.md", "testing.md"):  # see test_promises_and_limits_have_tests
                continue
            folder, last, count = "tests/tensor/upstream/", None, 0
            for word in re.findall(r"`(tests/[\w/]+/|[\w/]+\.c|test_\w+|\w+__\w+)`", page):
                if word.endswith("/"):
                    folder = word
                elif word.endswith(".c"):
                    last = word if "/" in word else folder + word
                    self.assertTrue(last in sources or not os.path.basename(last).startswith("test_"), f"{name}: {last}")
                elif last in sources:
                    function = word if word.startswith("test_") else "test_" + word
                    self.assertTrue(function in sources[last], f"{name}: {last} has no {function}")
                    count += 1
            if name == "pytorch.md":
                self.assertGreaterEqual(count, 100)

    def test_promises_and_limits_have_tests(self):
        """Each row of SECURITY.md, of docs/limits.md and of what attacks found names tests: files by their paths, functions behind their file."""
        rows = 0
        attacks = [(name, page.split("\n## What attacks found\n")[1].split("\n## ")[0]) for name, page in read_files("docs/testing.md")]
        for _, page in [*read_files("SECURITY.md"), *read_files("docs/limits.md"), *attacks]:
            for line in re.findall(r"^\| .* \|$", page, re.MULTILINE):
                last = line.split(" | ")[-1]
                if last.strip(" |") in ("test", "tests"):
                    continue
                rows += 1
                source = None
                for word in re.findall(r"`([^`]*)`", last):
                    if word.startswith(("tests/", "scripts/")):
                        with open(os.path.join(ROOT, word), encoding="utf-8") as file:
                            source = file.read()
                    else:
                        self.assertRegex(source, rf"(def {word}\(|(cmocka_unit_test|TEST)\(test_{word}\))", line)
                self.assertIsNotNone(source, line)
        self.assertGreaterEqual(rows, 70)

    def test_options_are_those_of_the_help_pages(self):
        for name, page in self.read_pages():
            command = {"reshard-layout.1.md": ["layout"], "reshard-plan.1.md": ["plan"],
                       "reshard-inspect.1.md": ["inspect"], "reshard-info.1.md": ["info"], "reshard-convert.1.md": ["convert"],
                       "reshard-digest.1.md": ["digest"], "reshard-rules.1.md": ["rules"], "reshard-verify.1.md": ["verify"],
                       "reshard-bench.1.md": ["bench", "plan"], "reshard-bench-model.1.md": ["bench", "model"],
                       "reshard-bench-convert.1.md": ["bench", "convert"],
                       "reshard-bench-move.1.md": ["bench", "move"],
                       "reshard-bench-calibrate.1.md": ["bench", "calibrate"],
                       "reshard-bench-predict.1.md": ["bench", "predict"],
                       "reshard-bench-redistribute.1.md": ["bench", "redistribute"]}.get(name)
            if command == ["bench", "redistribute"] and not support.has_program("reshard-bench-nn"):
                continue
            if command is None:
                continue
            # The same options in the same order, under the same headings.
            help_page = self.read_text(*command, "--help")
            listed = re.findall(r"^  --([a-z0-9-]+)|^((?:What|How) to .*)$", help_page, re.MULTILINE)
            written = re.findall(r"^\*\*--([a-z0-9-]+)\*\*.*\n:   |^## ((?:What|How) to .*)$", page, re.MULTILINE)
            self.assertEqual(written, listed[:-1], name)
            more = re.search(r"\nOptions with CKPT\n(.*?)\n\n", help_page, re.DOTALL)
            if more:
                line, = re.findall(r"^With \*CKPT\*, the options of .* what to write can be given, and (.*?)\.", page, re.MULTILINE)
                groups = self.read_text("convert", "--help").partition("\nWhat to read\n")[2].partition("\nHow to run\n")[0]
                wanted = re.findall(r"^  (--[a-z-]+)", groups, re.MULTILINE) + re.findall(r"\*\*(--[a-z-]+)\*\*", line)
                self.assertEqual(wanted, re.findall(r"--[a-z-]+", more.group(1)), name)


if __name__ == "__main__":
    main()
