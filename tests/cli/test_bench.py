# SPDX-License-Identifier: Apache-2.0
"""`reshard bench plan`, `redistribute` and `train`: what they print. How fast it is, the benchmarks tell."""
import platform

import support
from support import CommandTest, main


class BenchTest(CommandTest):
    def setUp(self):
        name = self.id().rpartition(".")[2]
        if ("train" in name or "redistribute" in name) and not support.has_program("reshard-bench-nn"):
            self.skipTest("reshard-bench-nn is not built")

    def test_json(self):
        cases = self.read_json("bench", "plan", "--ranks", "16,1024")["cases"]
        self.assertEqual([case["ranks"] for case in cases], [16, 1024])
        self.assertEqual([case["rank"] for case in cases], [11, 515])
        for case in cases:
            self.assertEqual(case["tensors"], 1137)
            for key in ["moves", "records", "seconds", "peak_bytes", "stages"]:
                self.assertGreater(case[key], 0, key)
            self.assertGreaterEqual(case["seconds"], case["part_seconds"])

    def test_figures_do_not_change(self):
        first, second = (self.read_json("bench", "plan", "--ranks=8", "--rank=7")["cases"][0] for _ in range(2))
        for key in ["ranks", "rank", "tensors", "moves", "records", "stages", "peak_bytes"]:
            self.assertEqual(first[key], second[key], key)

    def test_worst(self):
        case = self.read_json("bench", "plan", "--ranks", "64", "--worst")["cases"][0]
        self.assertIn(case["rank"], range(64))

    def test_table(self):
        lines = self.read_text("bench", "plan", "--ranks", "8").splitlines()
        self.assertEqual(lines[3].split()[:6], ["ranks", "rank", "tensors", "moves", "records", "stages"])
        self.assertEqual(lines[4].split()[:3], ["8", "7", "1137"])

    def test_redistribute(self):
        case = ["bench", "redistribute", "--shape=512x1024", "--dtype=f32", "--from=4: S(0)", "--to=4: S(1)"]
        for options in [[], ["--plain"], ["--fresh"]]:
            figures = self.read_json(*case, *options)
            self.assertEqual([figures["bytes"], figures["ranks"], figures["runs"], figures["verified"]], [2 << 20, 4, 5, True])
            self.assertLessEqual(figures["kept_bytes"], 2 << 20)
            copies = ["streaming_gb_per_s", "streaming_ratio"] if platform.machine() == "x86_64" else []
            fresh = ["memcpy_fresh_gb_per_s", "fresh_ratio"]
            for key in ["seconds", "first_seconds", "memcpy_gb_per_s", "ratio", *copies, *(fresh if options == ["--fresh"] else [])]:
                self.assertGreater(figures[key], 0, key)
            self.assertEqual(fresh[0] in figures, options == ["--fresh"])
        self.assertIn("4 ranks (threads), 2 MiB, median of 7 runs", self.read_text(*case, "--runs=7"))

    def test_redistribute_refused(self):
        case = ["bench", "redistribute", "--shape=8x8", "--dtype=f32", "--from=2: S(0)"]
        self.check_fails([*case, "--to=2: S(1)", "--runs=4"], code=2, words="--runs 4: must be from 5 to 1000")
        self.check_fails([*case, "--to=2: S(2)"], words="dimension 2 does not exist")
        self.check_fails([*case, "--to=3[0,0,1]: S(1)"], words="each rank must have one shard")

    def test_train(self):
        small = ["--runs=1", "--size=16", "--layers=1", "--width=16", "--heads=2", "--batch=1", "--length=4"]
        figures = self.read_json("bench", "train", "--ranks=2", *small)
        self.assertEqual([figures["ranks"], figures["runs"]], [2, 1])
        for key in ["linear_seconds", "products_seconds", "step_seconds_1", "step_seconds"]:
            self.assertGreater(figures[key], 0, key)
        self.assertIn("step on 3 ranks", self.read_text("bench", "train", "--ranks=3", *small))

    def test_train_memory(self):
        small = ["--runs=1", "--size=16", "--layers=6", "--width=32", "--heads=4", "--batch=8", "--length=32", "--vocabulary=1024"]
        figures = self.read_json("bench", "train", "--ranks=4", *small)
        cut, gathered = figures["step_bytes"], figures["step_bytes_logits_gathered"]
        logits = 8 * 32 * 1024 * 4
        self.assertGreater(gathered - cut, logits)  # a whole copy of the logits at least
        self.assertGreater(figures["step_bytes_inputs_kept"], cut)
        self.assertGreater(figures["step_bytes_both"], gathered)
        self.check_fails(["bench", "train", "--vocabulary=0"], code=2, words="--vocabulary 0: from 1 to 1048576")

    def test_train_refused(self):
        self.check_fails(["bench", "train", "--runs=1", "--size=1", "--layers=1", "--width=16", "--heads=3",
                          "--batch=1", "--length=4"], words="a width of 16 cannot be parted into 3 heads")


if __name__ == "__main__":
    main()
