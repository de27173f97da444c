# SPDX-License-Identifier: Apache-2.0
"""Completion: what `reshard complete` answers, and what bash and zsh make of it on real command lines."""
import json
import os
import re
import select
import shutil
import string
import struct
import subprocess
import tempfile

import support
from support import CommandTest, main

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BASH = os.path.join(ROOT, "cli/completion/reshard.bash")
ZSH = os.path.join(ROOT, "cli/completion")
COMMANDS = ["convert", "inspect", "verify", "plan", "digest", "rules", "layout", "info", "bench", "help", "--help", "--version"]

# Names that do something if a shell gets to read them, unquoted or inside some quotes, and names that do it to a terminal.
HOSTILE = ["x$(touch PWNED)", "x`touch PWNED`", "x;touch PWNED;", "x'$(touch PWNED)'", "x';touch PWNED;'", 'x";touch PWNED;"',
           "x|touch PWNED", "x&touch PWNED&", "x>PWNED", "x\\$(touch PWNED)", 'x\\";touch PWNED;\\"', "x\\';touch PWNED;\\'", "x!touch", "x${PWNED:=1}",
           "x<(touch PWNED)", "x #", "x *", "x~", "x{a,b}", "x[0]", "x^y", "x\ntouch PWNED\n", "x\rtouch PWNED\r", "x\ty", "x\x1b]0;PWNED\x07",
           "x\u0085touch PWNED", "x\u009b31m", "x\u202ey", "x\u2066y", "x\u200by", "x\u2028y", "x\ufeffy", "x\u00a0y", "x\u3000y", "x\U000e0041"]
# Those that are tried in real shells, each of them in every kind of quotes, which takes its time.
IN_SHELLS = HOSTILE[:7] + ["x\\$(touch PWNED)", "x${PWNED:=1}", "x\ntouch PWNED\n", "x\u0085touch PWNED", "x\u009b31m", "x\u202ey"]
# How the word may have begun.
OPENINGS = ["--draw ", "--draw '", '--draw "', "--draw $'", "--draw=", "--draw='", '--draw="']

# Sets the variables that bash sets, as its manual says, and prints what the function leaves. Cutting the line into
# COMP_WORDS is done by the test, which knows where it cut.
ASK_BASH = """
. "$1"; shift
COMP_LINE=$1; COMP_POINT=${#COMP_LINE}; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_reshard
printf '%s\\n' "${COMPREPLY[@]}"
"""


def cut(line):
    """As bash cuts a line: at spaces outside of quotes, and around = and :, whose runs are words of their own."""
    words = re.findall(r"""'[^']*'?|"[^"]*"?|[=:]+|(?:\\.|[^\s=:'"])+""", line)
    return words + ([""] if line[-1] in " " else [])


class CompleteTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="reshard-test-")
        subprocess.run([support.COMMAND, "bench", "model", "model", "--bytes", "300K"], cwd=cls.folder, check=True,
                       capture_output=True)
        os.mkdir(os.path.join(cls.folder, "more"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def ask(self, *words):
        kind, *found = self.read_text("complete", *words, cwd=self.folder).splitlines() or [None]
        return kind, found

    def names(self):
        return [tensor["name"] for tensor in self.read_json("inspect", "model", cwd=self.folder)["tensors"]]

    def listed(self, *command):
        """Options by the command's own help page."""
        return re.findall(r"^  (--[a-z0-9-]+)", self.read_text(*command, "--help"), re.MULTILINE)

    def test_commands(self):
        self.assertEqual(self.ask(), ("words", COMMANDS))
        self.assertEqual(self.ask(""), ("words", COMMANDS))
        self.assertEqual(self.ask("in"), ("words", ["inspect", "info"]))
        self.assertEqual(self.ask("help", "p"), ("words", ["plan"]))
        self.assertEqual(self.ask("bench", "mo"), ("words", ["move", "model"]))
        self.assertEqual(self.ask("help", "bench", "mo"), ("words", ["move", "model"]))
        self.assertEqual(self.ask("nothing", ""), (None, []))

    def test_options(self):
        for command in ["layout"], ["plan"], ["inspect"], ["convert"], ["digest"], ["verify"], ["rules"], ["info"], ["bench", "move"], \
                       ["bench", "convert"]:
            self.assertEqual(self.ask(*command, "--"), ("words", self.listed(*command)), command)
        self.assertEqual(self.ask("convert", "--dr"), ("words", ["--dry-run"]))
        # A checkpoint has other options than a tensor.
        self.assertEqual(self.ask("plan", "model", "--te"), ("words", ["--tensors"]))
        self.assertEqual(self.ask("plan", "--te"), ("words", []))
        self.assertEqual(self.ask("plan", "--shape", "8x8", "--rel"), ("words", ["--relabel"]))
        # What follows -- is no option.
        self.assertEqual(self.ask("convert", "--", "a", "b", "--dr"), (None, []))

    def test_values(self):
        formats = [entry["name"] for entry in self.read_json("info")["formats"] if entry["writes"]]
        self.assertEqual(self.ask("convert", "--format", ""), ("words", ["auto", *formats]))
        self.assertEqual(self.ask("convert", "--format=dcp"), ("words", ["--format=dcp-safetensors", "--format=dcp"]))
        families = re.findall(r"^(\S+) ", self.read_text("rules"), re.MULTILINE)[1:]
        self.assertEqual(self.ask("convert", "--rules", ""), ("files", families))
        self.assertEqual(self.ask("rules", "ll"), ("words", [name for name in families if name.startswith("ll")]))
        self.assertEqual(self.ask("plan", "--dtype", "bf"), ("words", ["bf16"]))
        self.assertEqual(self.ask("plan", "--balance", ""), ("words", ["rule", "exact"]))
        self.assertEqual(self.ask("inspect", "--unlisted", ""), ("words", ["skip", "take", "refuse"]))
        self.assertEqual(self.ask("layout", ""), ("words", []))
        self.assertEqual(self.ask("convert", ""), ("files", []))
        self.assertEqual(self.ask("convert", "a", ""), ("files", []))
        self.assertEqual(self.ask("layout", "4: S(0)", "--json=x"), (None, []))

    def test_tensor_names(self):
        names = self.names()
        self.assertGreater(len(names), 8)
        self.assertEqual(self.ask("inspect", "model", "--draw", ""), ("words", names))
        some = [name for name in names if name.startswith("model.layers.0.mlp")]
        self.assertEqual(self.ask("convert", "model", "out", "--include", "model.layers.0.mlp"), ("words", some))
        self.assertEqual(self.ask("convert", "--exclude=model.layers.0.mlp", "model"), ("files", []))
        self.assertEqual(self.ask("convert", "model", "out", "--exclude=model.layers.0.mlp"),
                         ("words", ["--exclude=" + name for name in some]))
        self.assertEqual(self.ask("convert", "nowhere", "out", "--include", ""), ("words", []))
        # Files of ranks tell their names only with their mesh.
        self.read_text("convert", "model", "ranks", "--to", "tp=2", "--format", "rank-files", "--quiet", cwd=self.folder)
        self.assertEqual(self.ask("inspect", "ranks", "--from", "tp=2", "--draw", ""), ("words", names))

    def write_names(self, file, names):
        """A model whose tensors have these names."""
        header = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, name in enumerate(names)}).encode()
        with open(os.path.join(self.folder, file), "wb") as out:
            out.write(struct.pack("<Q", len(header)) + header + bytes(len(names)))
        self.addCleanup(os.unlink, os.path.join(self.folder, file))

    def test_only_plain_names_are_offered(self):
        """Which quotes are open, and what a shell does inside them, is not known here."""
        plain = ["a/b:0", "a=b,c", "a@b%c+d", "a_1.weight-2"]
        self.write_names("odd.safetensors", HOSTILE + plain)
        self.assertEqual(self.ask("inspect", "odd.safetensors", "--draw", ""), ("words", plain))
        for name in HOSTILE:
            self.assertEqual(self.ask("inspect", "odd.safetensors", "--draw", name), ("words", []), repr(name))
            self.assertEqual(self.ask("inspect", "odd.safetensors", "--draw=" + name), ("words", []), repr(name))
        # Every other ASCII character, and all that are not ASCII.
        allowed = string.ascii_letters + string.digits + "_.,:/@%+=-"
        self.write_names("each.safetensors", ["x" + chr(code) for code in [*range(1, 128), 0x85, 0x9b, 0xa0, 0xe9, 0x202e, 0x3000, 0xe0041]])
        self.assertEqual(sorted(self.ask("inspect", "each.safetensors", "--draw", "x")[1]), sorted("x" + each for each in allowed))

    def in_bash(self, line):
        environment = {**os.environ, "PATH": os.path.dirname(support.COMMAND) + ":" + os.environ["PATH"]}
        done = subprocess.run(["bash", "--norc", "-c", ASK_BASH, "bash", BASH, line, *cut(line)], cwd=self.folder, env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []

    def test_bash(self):
        if shutil.which("bash") is None:
            self.skipTest("there is no bash")
        for line, wanted in [
                ("reshard in", ["inspect", "info"]),
                ("reshard bench red", ["redistribute"]),
                ("reshard convert mo", ["model", "more"]),
                ("reshard convert model out --format=dcp-", ["dcp-safetensors"]),
                ("reshard convert model out --format=", ["auto", *re.findall(r"--format auto\|(\S+)", re.sub(r"\|\s+", "|", self.read_text("convert", "--help")))[0].split("|")]),
                ("reshard plan --from '4: S(0)' --to dp=2,tp=2: --ba", ["--balance"]),
                ("reshard convert model out --to tp=4 --dr", ["--dry-run"]),
                ("reshard inspect 'model' --draw lm_", ["lm_head.weight"]),
                ("reshard inspect model --draw lm_$(touch", []),
                ("reshard convert mode", ["model"])]:
            found = self.in_bash(line)
            self.assertEqual([word for word in found if word != "ranks"], wanted, line)
        self.assertEqual(self.in_bash("reshard inspect model --draw "), self.names())
        self.assertFalse(os.path.exists(os.path.join(self.folder, ")")))

    def press_tab(self, shell, set_up, lines):
        """In a shell with a terminal of its own."""
        for line, wanted in lines:
            with Terminal(shell, self.folder, self.open_terminal()) as terminal:
                terminal.type(set_up)
                self.assertTrue(terminal.shows("ready"), terminal.seen)
                terminal.type(line + "\t")
                self.assertTrue(terminal.shows(wanted), (line, terminal.seen))

    def check_nothing_is_inserted(self, shell, set_up, works_in):
        """Presses the key in a real shell, reads the line that it leaves, and runs what it inserted, with each way to close it."""
        lines = [(f"reshard inspect {i}.safetensors {opening}", name) for i, name in enumerate(IN_SHELLS) for opening in OPENINGS]
        for i, name in enumerate(IN_SHELLS):
            self.write_names(f"{i}.safetensors", [name])
        left = os.path.join(self.folder, "left")
        run, shown = {}, {}
        self.addCleanup(lambda: os.path.exists(os.path.join(self.folder, "PWNED")) and os.unlink(os.path.join(self.folder, "PWNED")))
        with Terminal(shell, self.folder, self.open_terminal()) as terminal:
            terminal.type(set_up)
            self.assertTrue(terminal.shows("ready"), terminal.seen)
            # The key works here, in each of the quotes.
            for opening in works_in:
                terminal.type(f"reshard inspect model {opening}lm_\t\x07")
                self.assertTrue(terminal.shows("<left>"), (opening, terminal.seen))
                with open(left, encoding="utf-8") as file:
                    self.assertIn(f"{opening}lm_head.weight", file.read())
            for line, name in lines:
                terminal.type(f"{line}x\t\x07" if name.isascii() else f"{line}x\t\t\x07")  # the second time, a list is shown
                self.assertTrue(terminal.shows("<left>"), (line, name, terminal.seen))
                shown[line + name] = [each for each in terminal.raw if ord(each) > 126]
                with open(left, encoding="utf-8") as file:
                    run[file.read().rstrip("\n")] = name
        self.assertFalse(os.path.exists(os.path.join(self.folder, "PWNED")), "by the key alone")
        typed = {line + "x" for line, _ in lines}
        for line, name in run.items():
            for quote in () if line in typed else ("", "'", '"'):
                subprocess.run([*shell[:2], "-c", line + quote], cwd=self.folder, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL,
                               capture_output=True, check=False)
                self.assertFalse(os.path.exists(os.path.join(self.folder, "PWNED")), (name, line + quote))
        self.assertEqual(sorted(run), sorted(typed))
        self.assertEqual({line: found for line, found in shown.items() if found}, {})

    def test_bash__nothing_to_run_is_inserted(self):
        if shutil.which("bash") is None:
            self.skipTest("there is no bash")
        self.check_nothing_is_inserted(["bash", "--norc", "-i"], f""". {BASH}
show() {{ printf '%s' "$READLINE_LINE" > left; READLINE_LINE=; READLINE_POINT=0; echo '<le''ft>'; }}
bind 'set bell-style none'; bind -x '"\\C-g": show'; echo rea''dy\n""", ["--draw ", "--draw '", '--draw "', "--draw="])

    def test_zsh__nothing_to_run_is_inserted(self):
        if shutil.which("zsh") is None:
            self.skipTest("there is no zsh (Debian has it)")
        self.check_nothing_is_inserted(["zsh", "-f", "-i"], f"""fpath=({ZSH} $fpath); autoload -U compinit; compinit -u -D
show() {{ print -rn -- "$BUFFER" > left; BUFFER=; zle -I; print '<le''ft>'; }}
unsetopt beep; zle -N show; bindkey '^G' show; print rea''dy\n""", ["--draw ", "--draw '", '--draw "', "--draw="])

    def test_bash__tab(self):
        if shutil.which("bash") is None:
            self.skipTest("there is no bash")
        self.press_tab(["bash", "--norc", "-i"], f". {BASH}; echo rea''dy\n", [
            ("reshard ins", "reshard inspect "), ("reshard inspect model --draw lm_", "lm_head.weight "),
            ("reshard convert mode", "reshard convert model/"), ("reshard convert model out --format=dcp-", "--format=dcp-safetensors ")])

    def test_zsh__tab(self):
        if shutil.which("zsh") is None:
            self.skipTest("there is no zsh (Debian has it)")
        self.press_tab(["zsh", "-f", "-i"], f"fpath=({ZSH} $fpath); autoload -U compinit; compinit -u -D; print rea''dy\n", [
            ("reshard ins", "reshard inspect "), ("reshard convert model out --dry", "--dry-run "),
            ("reshard inspect model --draw lm_", "lm_head.weight "), ("reshard convert mode", "reshard convert model/"),
            ("reshard convert model out --format=dcp-", "--format=dcp-safetensors ")])


class Terminal:
    """A program in a terminal of its own; what it shows is waited for."""

    def __init__(self, command, folder, ends):
        child, self.end = ends
        environment = {**os.environ, "TERM": "dumb", "PATH": os.path.dirname(support.COMMAND) + ":" + os.environ["PATH"]}
        self.program = subprocess.Popen(command, cwd=folder, env=environment, stdin=self.end, stdout=self.end, stderr=self.end,
                                        start_new_session=True)
        os.close(self.end)
        self.end, self.seen, self.raw = child, "", ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.program.kill()
        self.program.wait()
        os.close(self.end)

    def type(self, text):
        self.seen = self.raw = ""
        os.write(self.end, text.encode())

    def shows(self, wanted):
        while wanted not in self.seen and select.select([self.end], [], [], 30)[0]:
            self.raw += os.read(self.end, 4096).decode("utf-8", "replace")
            self.seen = re.sub(r"\x1b\[\??[0-9;]*[a-zA-Z]", "", self.raw).replace("\b", "")
        return wanted in self.seen


if __name__ == "__main__":
    main()
