# SPDX-License-Identifier: Apache-2.0
"""What the tests of the `reshard` command share. Each test file is a script whose first argument is the command:

    python3 test_usage.py build/dev/reshard
"""
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

COMMAND = None


def run(*arguments, stdin=b"", **options):
    """Runs the command to its end."""
    done = subprocess.run([COMMAND, *arguments], input=stdin, stderr=subprocess.PIPE, check=False, timeout=200,
                          **{"stdout": subprocess.PIPE, **options})
    done.stdout = (done.stdout or b"").decode("utf-8")
    done.stderr = done.stderr.decode("utf-8", "replace")
    return done


MEASURE = """import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)"""


def measure(arguments):
    """Seconds of processor time and MiB that the command takes. By a small process: what a large one starts seems as large."""
    done = subprocess.run([sys.executable, "-c", MEASURE, COMMAND, *arguments], check=True, timeout=200, capture_output=True)
    seconds, kibibytes = done.stdout.split()
    return float(seconds), int(kibibytes) / 1024


def has_program(name):
    """Whether the build has made the program, beside the command."""
    return os.path.exists(os.path.join(os.path.dirname(COMMAND), name))


def pick_memory(room):
    """A folder in memory with `room` bytes for tests that sync a lot; None, the usual place, if there is none."""
    try:
        found = os.statvfs("/dev/shm")
        return "/dev/shm" if found.f_bavail * found.f_frsize >= room and os.access("/dev/shm", os.W_OK) else None
    except OSError:
        return None


def is_unfinished(partial):
    """Whether a conversion that was killed had something left to do, by its journal."""
    try:
        with open(partial + "/.reshard-journal", encoding="utf-8") as file:
            return "\nfinished\n" not in file.read()
    except FileNotFoundError:
        return False


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


class CommandTest(unittest.TestCase):
    maxDiff = None

    def kill_after_a_record(self, *arguments, target, besides=()):
        """Starts conversions until one can be killed after some blocks were recorded and before it is finished. What one that finished
        has made is removed: the target, and the files `besides`. It may have recorded all blocks, so no test may count on any
        that are missing."""
        for _ in range(50):
            running = subprocess.Popen([COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            recorded = False
            while not recorded and running.poll() is None:
                try:
                    with open(target + ".partial/.reshard-journal", "rb") as file:
                        recorded = b"\ndone " in file.read()
                except FileNotFoundError:
                    pass
            running.kill()
            running.wait()
            if is_unfinished(target + ".partial"):
                return
            for path in [target, target + ".partial", *besides]:
                remove(path)
        self.fail("no conversion could be killed between two records")

    def read_text(self, *arguments, **options):
        """What the command prints when all goes well."""
        done = run(*arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def read_json(self, *arguments, **options):
        """The one object on one line that --json prints."""
        text = self.read_text(*arguments, "--json", **options)
        self.assertTrue(text.endswith("}\n") and text.count("\n") == 1, text)
        return json.loads(text)

    def check_fails(self, arguments, code=2, words="", **options):
        """Exit code, one line on standard error that holds `words`, nothing on standard output (convert is told not to print
        its plan) or, with --json, the same text as an object."""
        done = run(*arguments, *(["--quiet"] if arguments and arguments[0] == "convert" else []), **options)
        shown = f"{[argument[:80] for argument in arguments]}: {done.stderr[:400]}"
        self.assertEqual(done.returncode, code, shown)
        self.assertRegex(done.stderr, r"\Areshard: [^\n]{5,2000}\n\Z", shown)
        before = arguments[:arguments.index("--")] if "--" in arguments else arguments
        if "--json" in before and "stdout" not in options:
            error = json.loads(done.stdout)["error"]
            self.assertRegex(error["status"], r"\A[A-Z_]+\Z", shown)
            self.assertEqual("reshard: " + error["text"] + "\n", done.stderr)
            self.assertEqual(list(error), ["status", "text", "hint", "subject"], shown)
        else:
            self.assertEqual(done.stdout, "", shown)
        self.assertIn(words, done.stderr, shown)

    def open_terminal(self):
        """The two ends of a terminal; skips the test where there are none, as in some containers."""
        try:
            return pty.openpty()
        except OSError as error:
            return self.skipTest(f"no pseudo-terminals here: {error}")

    def write_file(self, data):
        """The path of a file that holds `data` while the test runs."""
        descriptor, path = tempfile.mkstemp(prefix="reshard-test-")
        self.addCleanup(os.unlink, path)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return path


def main():
    global COMMAND
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} COMMAND [TEST..]")
    COMMAND = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__")
