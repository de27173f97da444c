# SPDX-License-Identifier: Apache-2.0
"""`reshard plan`: figures, stages, relabelling, moves."""
import os
import signal
import subprocess

import support
from support import CommandTest, main

REPORT = """\
from   4: S(0)
to     4: S(1)
shape  8192x8192 f32, 4 ranks

total             256 MiB  written to targets
moved             192 MiB  75.0%
kept               64 MiB  25.0%
"""

MATRIX = """\
rank to rank (rows send to columns, the diagonal stays)
        0       1       2       3
0  16 MiB  16 MiB  16 MiB  16 MiB
1  16 MiB  16 MiB  16 MiB  16 MiB
2  16 MiB  16 MiB  16 MiB  16 MiB
3  16 MiB  16 MiB  16 MiB  16 MiB
"""

# from, to, shape; bytes of f32 that move when every byte that is already there stays
MOVED = [
    ("4: S(0)", "4: S(0)", "64x64", 0),
    ("4: S(0)", "4: S(1)", "64x64", 64 * 64 * 3),
    ("4: R", "4: S(0)", "64x64", 0),
    ("4: S(0)", "4: R", "64x64", 64 * 64 * 4 * 3),
    ("4: S(0)", "4[4..7]: S(0)", "64x64", 64 * 64 * 4),
    ("4: S(0)", "2: S(0)", "64x64", 64 * 64 * 3),
    ("2: S(0)", "4: S(0)", "64x64", 64 * 64 * 3),
    ("4: S(0)", "4[1,2,3,0]: S(0)", "64x64", 64 * 64 * 4),
    ("dp=2,tp=2: R, S(0)", "dp=2,tp=2: S(0), R", "64x64", 64 * 64 * 4),
    ("2: S(0)", "2: S(0)", "0x64", 0),
    ("1: R", "2: R", "scalar", 4),
]

WRONG_PLANS = [
    # from, to, shape, dtype
    ("4: S(0)", "4: S(2)", "8x8", "f32"),
    ("4: S(2)", "4: S(0)", "8x8", "f32"),
    ("", "4: S(0)", "8x8", "f32"),
    ("4: S(0)", "", "8x8", "f32"),
    ("4: S(0)", "4: S(1)", "8y8", "f32"),
    ("4: S(0)", "4: S(1)", "8x8", "float31"),
    ("4: S(0)", "4: S(1)", "8x8", ""),
    ("4: S(0)", "4: S(1)", "8x8", "f4"),
    ("4: S(0)", "boxes 8x9: 0[0:8,0:9]", "8x8", "f32"),
    ("4: S(0)", "@/dev/null", "8x8", "f32"),
]


def arguments_of(source, target, shape="64x64", dtype="f32"):
    return ["plan", "--shape", shape, "--dtype", dtype, "--from", source, "--to", target]


LARGE = "3000000000x3000000000"


class LargeTest(CommandTest):
    def test_more_ranks_than_are_gone_through(self):
        arguments = arguments_of("2147483647: S(0)", "2147483647: S(1)", LARGE)
        text = self.read_text(*arguments)
        self.assertIn("Figures of rank 0 only; --rank chooses another. a plan over 2147483647 ranks; at most 1048576", text)
        self.assertIn("\nrank 0\n", text)
        shown = self.read_json(*arguments)
        self.assertNotIn("bytes_total", shown)
        self.assertIn("2147483647 ranks", shown["note"])
        self.assertEqual([part["rank"] for part in shown["parts"]], [0])
        self.assertNotIn("note", self.read_json(*arguments, "--rank", "7"))

    def test_ranks_squared(self):
        text = self.read_text(*arguments_of("1000000: R", "1000000: S(0)", "1048576x1048576"))
        self.assertRegex(text, "parts of all 1000000 ranks take about [0-9]{12} steps; at most 268435456")

    def test_tiny_blocks(self):
        self.check_fails(arguments_of("4: S(0/1)", "3: S(0/1)", "9223372036854775807", "u8"), 2,
                         "steps; at most 67108864 are taken")


class PlanTest(CommandTest):
    def plan(self, source, target, *more, shape="64x64", dtype="f32"):
        found = self.read_json(*arguments_of(source, target, shape, dtype), *more)
        matrix = found["matrix"]
        self.assertEqual([len(row) for row in matrix], [found["ranks"]] * found["ranks"])
        total = sum(map(sum, matrix))
        kept = sum(row[i] for i, row in enumerate(matrix))
        self.assertEqual((found["bytes_moved"], found["bytes_kept"]), (total - kept, kept))
        columns = list(zip(*matrix))
        self.assertEqual(found["bytes_out_max"], max(sum(r) - r[i] for i, r in enumerate(matrix)))
        self.assertEqual(found["bytes_in_max"], max(sum(c) - c[i] for i, c in enumerate(columns)))
        return found

    def test_report(self):
        text = self.read_text(*arguments_of("4: S(0)", "4: S(1)", "8192x8192"))
        self.assertEqual(text[:len(REPORT)], REPORT)
        self.assertTrue(text.endswith(MATRIX), text)
        self.assertRegex(text, r"\nstages +1\n")

    def test_busiest(self):
        """The first of the ranks that send, or receive, most. Rank 0 gets everything, and then gives everything."""
        text = self.read_text(*arguments_of("4: S(0)", "1: R", "1024x1024", "u8"))
        self.assertRegex(text, r"\nbusiest sender +256 KiB +rank 1\n")
        self.assertRegex(text, r"\nbusiest receiver +768 KiB +rank 0\n")
        text = self.read_text(*arguments_of("1: R", "4: S(0)", "1024x1024", "u8"))
        self.assertRegex(text, r"\nbusiest sender +768 KiB +rank 0\n")
        self.assertRegex(text, r"\nbusiest receiver +256 KiB +rank 1\n")

    def test_sizes_are_rounded_to_the_nearest(self):
        for count, shown in [(1023, "1023 B"), (1024, "1 KiB"), (1075, "1 KiB"), (1076, "1.1 KiB"), ((1 << 20) - 52, "1023.9 KiB"),
                             ((1 << 20) - 51, "1 MiB"), (1 << 20, "1 MiB"), ((1 << 30) - 1, "1 GiB")]:
            with self.subTest(count=count):
                self.assertRegex(self.read_text(*arguments_of("1: R", "1: R", str(count), "u8")), rf"\ntotal +{shown}  written")

    def test_json(self):
        text = self.read_text(*arguments_of("4: S(0)", "4: S(1)", "8192x8192"), "--json")
        self.assertTrue(text.startswith('{"bytes_total":268435456,"bytes_moved":201326592,"bytes_kept":67108864,'
                                        '"moves":'), text)
        found = self.plan("4: S(0)", "4: S(1)", shape="8192x8192")
        self.assertEqual(found["matrix"], [[16777216] * 4] * 4)
        self.assertEqual((found["stages"], found["ranks"], found["dtype"]), (1, 4, "f32"))
        self.assertEqual((found["from"], found["to"], found["shape"]), ("4: S(0)", "4: S(1)", [8192, 8192]))
        self.assertEqual(found["intermediates"], [])
        self.assertNotIn("relabel", found)
        self.assertNotIn("checked", found)
        self.assertGreater(found["moves"], 0)
        self.assertGreater(found["records"], 0)

    def test_what_is_there_stays(self):
        for source, target, shape, moved in MOVED:
            with self.subTest(source=source, target=target, shape=shape):
                found = self.plan(source, target, "--single-stage", "--check", shape=shape)
                self.assertEqual(found["bytes_moved"], moved)
                self.assertEqual(found["bytes_moved"] + found["bytes_kept"], found["bytes_total"])
                self.assertEqual(found["stages"], 1)
                self.assertIs(found["checked"], True)

    def test_relabel(self):
        source, target = "4: S(0)", "4[1,2,3,0]: S(0)"
        self.assertEqual(self.plan(source, target)["bytes_moved"], 64 * 64 * 4)
        found = self.plan(source, target, "--relabel")
        self.assertEqual((found["bytes_moved"], found["bytes_kept"]), (0, 64 * 64 * 4))
        self.assertEqual(found["bytes_moved_without_relabel"], 64 * 64 * 4)
        # Ranks 0, 1, 2, 3 were to have chunks 3, 0, 1, 2, which are on ranks of those numbers.
        self.assertEqual(found["relabel"], [3, 0, 1, 2])
        text = self.read_text(*arguments_of(source, target), "--relabel")
        self.assertIn("moved otherwise   16 KiB  without --relabel\n", text)
        self.assertIn("  3 for 0, 0 for 1, 1 for 2, 2 for 3\n", text)

    def test_partial_to_replicate(self):
        for more in [[], ["--single-stage"]]:
            found = self.plan("4: P(sum)", "4: R", "--check", *more)
            self.assertEqual(found["bytes_total"], 4 * 64 * 64 * 4)
        staged = self.plan("4: P(sum)", "4: R")
        direct = self.plan("4: P(sum)", "4: R", "--single-stage")
        self.assertEqual((staged["stages"], direct["stages"]), (2, 1))
        self.assertEqual(len(staged["intermediates"]), 1)
        self.assertLess(staged["bytes_moved"], direct["bytes_moved"])
        text = self.read_text(*arguments_of("4: P(sum)", "4: R"))
        self.assertIn(f"  0  4: P(sum) -> {staged['intermediates'][0]}\n", text)
        self.assertIn(f"  1  {staged['intermediates'][0]} -> 4: R\n", text)

    def test_balance(self):
        for balance in ["rule", "exact"]:
            found = self.plan("dp=2,tp=2: R, S(0)", "4[4..7]: S(1)", "--check", "--balance", balance)
            self.assertEqual(found["bytes_moved"], 64 * 64 * 4)

    def test_max_memory(self):
        for size, limit in [("4096", 4096), ("4K", 4096), ("4KiB", 4096), ("5kb", 5000), ("8KB", 8000),
                            ("1M", 1 << 20), ("1G", 1 << 30), ("1gb", 10**9), ("5000B", 5000)]:
            found = self.plan("4: S(0)", "4: S(1)", "--max-memory", size, shape="512x512")
            self.assertLessEqual(found["staging_bytes_peak"], limit, size)
        self.check_fails([*arguments_of("4: S(0)", "4: S(1)"), "--max-memory", "1"])

    def test_moves(self):
        plan = arguments_of("2: S(0)", "2: S(1)", "4x4")
        text = self.read_text(*plan, "--moves")
        self.assertIn("\nrank 0\n", text)
        self.assertIn("\nrank 1\n", text)
        parts = self.plan("2: S(0)", "2: S(1)", "--moves", shape="4x4")["parts"]
        self.assertEqual([part["rank"] for part in parts], [0, 1])
        for part in parts:
            self.assertEqual((part["bytes_in"], part["bytes_out"], part["bytes_kept"]), (16, 16, 16))
            self.assertGreaterEqual(len(part["lines"]), 1)
            for line in part["lines"]:
                self.assertIn(line, text)

    def test_one_rank(self):
        plan = arguments_of("131072: S(0)", "131072: S(1)", "131072x131072")
        found = self.read_json(*plan, "--moves", "--rank", "99999")
        self.assertEqual([part["rank"] for part in found["parts"]], [99999])
        self.assertEqual(found["parts"][0]["bytes_in"], 131071 * 4)
        self.assertNotIn("matrix", found)
        text = self.read_text(*plan, "--rank", "99999")
        self.assertIn("\nrank 99999\n", text)
        self.assertNotIn("rank to rank", text)

    def test_many_ranks(self):
        plan = arguments_of("65: S(0)", "65: S(1)", "130x130")
        self.check_fails([*plan, "--moves"], 2, "choose one with --rank")
        self.assertIn("with --json for up to 256", self.read_text(*plan))
        self.assertEqual(len(self.read_json(*plan)["matrix"]), 65)
        plan = arguments_of("257: S(0)", "257: R", "257")
        self.assertNotIn("matrix", self.read_json(*plan))
        plan = arguments_of("16: S(0)", "16: R", "16")
        self.assertIn("rank to rank", self.read_text(*plan))

    def test_bar_and_interrupt(self):
        """Long work shows a bar on a terminal; an interrupt erases it and ends the command with a message."""
        plan = arguments_of("8192[1..8191,0]: S(0)", "8192: S(1)", "8192x8192")
        ours, theirs = self.open_terminal()
        self.addCleanup(os.close, ours)
        shown = b""
        with subprocess.Popen([support.COMMAND, *plan], stdout=subprocess.PIPE, stderr=theirs,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
            os.close(theirs)
            while block := self.read_terminal(ours):
                if not shown:
                    process.send_signal(signal.SIGINT)
                shown += block
            printed = process.communicate(timeout=200)[0]
        if not shown:
            self.skipTest("the plan was ready before a bar could be shown")
        self.assertEqual((process.returncode, printed), (128 + signal.SIGINT, b""))
        self.assertRegex(shown, rb"\A\r[a-z]+ \[#* *\] +\d+%")
        self.assertRegex(shown, rb"\r\x1b\[Kreshard: cancelled[^\r\n]*\r\n\Z")

    @staticmethod
    def read_terminal(descriptor):
        try:
            return os.read(descriptor, 65536)
        except OSError:  # the terminal's way to say that nobody writes any more
            return b""

    def test_wrong_plans(self):
        for plan in WRONG_PLANS:
            with self.subTest(plan=plan):
                self.check_fails(arguments_of(*plan))


if __name__ == "__main__":
    main()
