# SPDX-License-Identifier: Apache-2.0
"""Help, version, and every kind of wrong usage."""
import json
import os
import re

from support import CommandTest, has_program, main, run

SHAPE = ["--shape", "4x4"]
PLAN = ["plan", *SHAPE, "--dtype", "f32", "--from", "2: S(0)", "--to", "2: S(1)"]

WRONG_USAGE = [
    # arguments, words of the message
    ([], "name a command"),
    ([""], "unknown command"),
    (["layot"], 'unknown command "layot"; did you mean layout?'),
    (["/"], '"/" is a file or folder, not a command; to look into it: reshard inspect /'),
    (["convert"], "convert: SRC is missing; the usage is: reshard convert SRC DST [--to MESH [--rules R]] [OPTIONS]"),
    (["convert", "a"], "convert: DST is missing; the usage is: reshard convert SRC DST"),
    (["convert", "a", "b", "c"], 'unexpected argument "c"; reshard convert --help has the usage'),
    (["convert", "a", "b", "--too", "tp=2"], "unknown option --too; did you mean --to?"),
    (["digest", "a", "--sha"], "unknown option --sha; did you mean --sha256?"),
    (["convert", "a", "b", "-v"], "unknown option -v; reshard convert --help lists them"),
    (["convert", "a", "b", "--to", "tp"], "a mesh is written like --to tp=4 or --to pp=2,tp=4"),
    (["convert", "a", "b", "--format", "safetensors"], "hf is the one with plain safetensors files"),
    (["convert", "a", "b", "--dtype", "bfloat"], 'did you mean "bfloat16"?'),
    (["inspect"], "CKPT is missing; the usage is: reshard inspect CKPT"),
    (["verify"], "A is missing; the usage is: reshard verify A [B]"),
    (["nothing-like-it"], 'unknown command "nothing-like-it"'),
    (["--frob"], 'unknown option "--frob"'),
    (["-v"], 'unknown option "-v"'),
    (["--version", "now"], "unexpected argument"),
    (["--help", "plan"], "unexpected argument"),
    (["help", "nothing"], 'unknown command "nothing"'),
    (["help", "plan", "more"], 'unexpected argument "more"'),
    (["bench"], "name a measurement"),
    (["bench", "nothing"], 'unknown measurement "nothing"'),
    (["help", "bench", "nothing"], 'unknown measurement "nothing"'),
    (["help", "bench", "plan", "more"], 'unexpected argument "more"'),
    (["lay\nout\x1b[31m"], 'unknown command "lay\\x0aout\\x1b[31m"'),
    (["x" * 100000], "..."),
    # layout
    (["layout"], "SPEC is missing"),
    (["layout", *SHAPE], "SPEC is missing"),
    (["layout", "4: S(0)"], "option --shape SHAPE is missing"),
    (["layout", "4: S(0)", "--shape"], "option --shape needs a value"),
    (["layout", "--shape", "--json", "4: S(0)"], "option --shape needs a value"),
    (["layout", "4: S(0)", "--shap", "4"], "unknown option --shap; did you mean --shape?"),
    (["layout", "4: S(0)", "--shap=4"], "unknown option --shap=4"),
    (["layout", "4: S(0)", "-j", *SHAPE], "unknown option -j"),
    (["layout", "4: S(0)", "---json", *SHAPE], "unknown option ---json"),
    (["layout", "4: S(0)", "--=4", *SHAPE], "unknown option --=4"),
    (["layout", "4: S(0)", *SHAPE, "more"], 'unexpected argument "more"'),
    (["layout", "4: S(0)", *SHAPE, "--", "--json"], 'unexpected argument "--json"'),
    (["layout", "4: S(0)", *SHAPE, *SHAPE], "option --shape is given twice"),
    (["layout", "4: S(0)", *SHAPE, "--json=yes"], "option --json takes no value"),
    (["layout", "4: S(0)", *SHAPE, "--json="], "option --json takes no value"),
    (["layout", "4: S(0)", *SHAPE, "--rank", "-1"], "expected a rank"),
    (["layout", "4: S(0)", *SHAPE, "--rank", "2147483648"], "expected a rank"),
    (["layout", "4: S(0)", *SHAPE, "--rank="], "expected a rank"),
    (["layout", "4: S(0)", *SHAPE, "--rank", "1x"], "expected a rank"),
    # plan
    (["plan"], "option --shape SHAPE is missing; or give a CKPT: reshard plan CKPT .."),
    (PLAN[:3], "option --dtype DTYPE is missing"),
    (PLAN[:5], "option --from SPEC is missing"),
    (PLAN[:7], "option --to SPEC is missing"),
    ([*PLAN, "more"], 'unexpected argument "more"'),
    ([*PLAN, "--balance", "even"], '--balance "even": expected rule|exact'),
    ([*PLAN, "--balance", "rule|exact"], "expected rule|exact"),
    ([*PLAN, "--balance="], "expected rule|exact"),
    ([*PLAN, "--max-memory", "0"], "expected a size"),
    ([*PLAN, "--max-memory", "-1"], "expected a size"),
    ([*PLAN, "--max-memory", "1.5G"], "expected a size"),
    ([*PLAN, "--max-memory", "G"], "expected a size"),
    ([*PLAN, "--max-memory", "1X"], "expected a size"),
    ([*PLAN, "--max-memory", "1KiBB"], "expected a size"),
    ([*PLAN, "--max-memory", "99999999999999999999"], "expected a size"),
    ([*PLAN, "--max-memory", "17179869184G"], "expected a size"),
    ([*PLAN, "--max-memory", "17179869185G"], "expected a size"),
    ([*PLAN, "--rank", "one"], "expected a rank"),
    # bench train
    (["bench", "train", "--runs", "0"], "--runs 0: from 1 to 99"),
    (["bench", "train", "--heads", "65537"], "--heads 65537: from 1 to 65536"),
    # bench plan
    (["bench", "plan", "more"], 'unexpected argument "more"'),
    (["bench", "plan", "--ranks", "12"], "multiples of 8"),
    (["bench", "plan", "--ranks", "0"], "multiples of 8"),
    (["bench", "plan", "--ranks", ""], "multiples of 8"),
    (["bench", "plan", "--ranks", "8,"], "multiples of 8"),
    (["bench", "plan", "--ranks", "8,,8"], "multiples of 8"),
    (["bench", "plan", "--ranks", "-8"], "multiples of 8"),
    (["bench", "plan", "--ranks", "2147483648"], "multiples of 8"),
    (["bench", "plan", "--ranks", "8" * 40], "multiples of 8"),
    (["bench", "plan", "--ranks", ",".join(["8"] * 65)], "more than 64"),
    (["bench", "plan", "--ranks", "8", "--rank", "8"], "does not exist among 8 ranks"),
    (["bench", "plan", "--ranks", "8", "--rank", "1", "--worst"], "exclude each other"),
]


def run_on_terminal(test, *arguments, **environment):
    """What the command prints when standard output is a terminal."""
    ours, theirs = test.open_terminal()
    try:
        done = run(*arguments, stdout=theirs, env={**os.environ, "TERM": "xterm", **environment})
        os.close(theirs)
        text = b""
        while True:
            try:
                block = os.read(ours, 65536)
            except OSError:  # the terminal's way to say that this was all
                break
            if not block:
                break
            text += block
    finally:
        os.close(ours)
    return done, text.decode("ascii").replace("\r\n", "\n")


class UsageTest(CommandTest):
    def test_version(self):
        self.assertRegex(self.read_text("--version"), r"\Areshard \d+\.\d+\.\d+\n\Z")

    def test_help_lists_every_command(self):
        page = self.read_text("--help")
        listed = re.findall(r"^  reshard (\w+)  ", page, re.MULTILINE)
        self.assertEqual(listed, ["convert", "inspect", "verify", "plan", "digest", "rules", "layout", "info", "bench"])
        for command in ["plan", "move", "convert", "model", "calibrate", "predict", "redistribute", "train"]:
            self.assertIn(f"  reshard bench {command} ", self.read_text("bench", "--help"))
            self.assertNotIn(f"reshard bench {command}", page)
        self.assertEqual(page, self.read_text("help"))
        self.assertEqual(page, self.read_text("-h"))

    def test_every_command_has_a_page(self):
        self.assertLessEqual(max(map(len, self.read_text("--help").splitlines())), 80)
        for command in [["layout"], ["plan"], ["inspect"], ["convert"], ["digest"], ["verify"], ["rules"], ["info"], ["bench"],
                        *(["bench", name] for name in ["plan", "convert", "model", "move", "predict", "calibrate", "redistribute", "train"])]:
            if command[-1] in ["redistribute", "train"] and not has_program("reshard-bench-nn"):
                continue
            page = self.read_text(*command, "--help")
            self.assertTrue(page.startswith(f"reshard {' '.join(command)} - "), page)
            self.assertIn("\nUsage\n", page)
            self.assertIn("\nExamples\n", page)
            self.assertLessEqual(max(map(len, page.splitlines())), 80, command)
            self.assertEqual(page, self.read_text("help", *command))
            self.assertEqual(page, self.read_text(*command, "-h"))

    def test_pages_list_the_options(self):
        for command, options in [
            ("layout", ["shape", "rank", "all", "json", "draw", "ascii", "slice", "svg", "help"]),
            ("plan", ["shape", "dtype", "from", "to", "relabel", "balance", "max-memory", "single-stage",
                      "check", "moves", "rank", "cluster", "trace", "json", "html", "draw", "ascii", "slice", "svg", "help"]),
            ("bench plan", ["ranks", "rank", "worst", "json", "help"]),
        ]:
            page = self.read_text(*command.split(), "--help")
            listed = re.findall(r"^  --([a-z-]+)", page, re.MULTILINE)
            self.assertEqual(listed, options, command)

    def test_options_of_checkpoints_are_in_groups(self):
        groups = ["What to read", "What to take", "How to split", "What to write", "How to run", "What to print"]
        for command, wanted in [("convert", groups), ("verify", groups[:2] + groups[4:]), ("digest", groups[:2] + groups[4:]),
                                ("inspect", groups[:2] + groups[5:])]:
            page = self.read_text(command, "--help")
            self.assertEqual(re.findall(r"^((?:What|How) to .*)$", page, re.MULTILINE), wanted, command)
            listed = re.findall(r"^  --([a-z0-9-]+)", page, re.MULTILINE)
            self.assertEqual(len(set(listed)), len(listed), command)

    def test_help_wins_over_mistakes(self):
        self.read_text("layout", "--frob", "--help")
        self.read_text("plan", "--shape", "--help")

    def test_wrong_usage(self):
        for arguments, words in WRONG_USAGE:
            if "train" in arguments and not has_program("reshard-bench-nn"):
                continue
            with self.subTest(arguments=[argument[:80] for argument in arguments]):
                self.check_fails(arguments, 2, words)

    def test_options_go_anywhere(self):
        wanted = self.read_text("layout", "2: S(0)", "--shape", "4x4", "--json")
        for arguments in [
            ["--shape", "4x4", "--json", "2: S(0)"],
            ["--json", "2: S(0)", "--shape=4x4"],
            ["--shape=4x4", "--json", "--", "2: S(0)"],
        ]:
            self.assertEqual(self.read_text("layout", *arguments), wanted)

    def test_errors_as_json(self):
        """Whatever fails, --json has one object on standard output, and the line on standard error stays."""
        damaged = self.write_file(b"\x08\0\0\0\0\0\0\0{\"x\": 1}")
        for arguments, code, status in [
            (["layout", "--json", "--oops"], 2, "USAGE"),
            (["--json"], 2, "USAGE"),
            (["layout", "2: S(0", *SHAPE, "--json"], 2, "SYNTAX"),
            (["layout", "2: S(7)", "--json", *SHAPE], 2, "INVALID"),
            (["layout", "\x1b[31m\n: S(0)", "--json", *SHAPE], 2, "SYNTAX"),
            (["inspect", "/nowhere", "--json"], 1, "NOT_FOUND"),
            (["convert", "/nowhere", "/nowhere/out", "--json"], 1, "NOT_FOUND"),
            (["plan", "/nowhere", "--to", "tp=2", "--json"], 1, "NOT_FOUND"),
            (["digest", "/nowhere", "--json"], 1, "NOT_FOUND"),
            (["verify", damaged, damaged, "--json"], 1, "SYNTAX"),
            (["inspect", damaged, "--json"], 1, "SYNTAX"),
            (["bench", "plan", "--ranks", "0", "--json"], 2, "USAGE"),
        ]:
            with self.subTest(arguments=arguments):
                self.check_fails(arguments, code)
                self.assertEqual(json.loads(run(*arguments).stdout)["error"]["status"], status)
        for arguments, subject in [(["inspect", "/nowhere"], "/nowhere"), (["inspect", damaged], damaged), (["layout", "2: S(", *SHAPE], "")]:
            error = json.loads(run(*arguments, "--json").stdout)["error"]
            self.assertEqual((error["hint"], error["subject"]), ("none", subject), error)
        for command in ["digest", "verify"]:  # the path is named once
            self.assertEqual(run(command, damaged).stderr.count(damaged), 1)
        # What follows -- is no option.
        done = run("layout", *SHAPE, "--", "--json")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_full_disk(self):
        big = ["layout", "4096: S(0)", "--shape", "8192x8", "--json"]
        for arguments in [["--help"], ["--version"], ["plan", "--help"], ["layout", "2: S(0)", *SHAPE], big]:
            with open("/dev/full", "wb") as full:
                self.check_fails(arguments, 1, "standard output cannot be written", stdout=full)

    def test_colour_is_for_terminals(self):
        arguments = ["layout", "2: S(0)", *SHAPE]
        plain = self.read_text(*arguments)
        self.assertNotIn("\x1b", plain)
        done, text = run_on_terminal(self, *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("\x1b[1m", text)
        self.assertEqual(re.sub(r"\x1b\[\d+m", "", text), plain)
        self.assertEqual(run_on_terminal(self, *arguments, NO_COLOR="1")[1], plain)
        self.assertEqual(run_on_terminal(self, *arguments, TERM="dumb")[1], plain)


if __name__ == "__main__":
    main()
