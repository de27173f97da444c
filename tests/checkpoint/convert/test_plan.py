# SPDX-License-Identifier: Apache-2.0
"""`reshard plan CKPT`: what a conversion would do, file by file, and nothing written."""
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support
from convert_case import CONFIG, SEED, ConvertTest, llama, tensor


class PlanCheckpoint(ConvertTest):
    def test_says_what_convert_says(self):
        self.write_hf("source", llama(random.Random(SEED)), CONFIG)
        for options in [["--to", "tp=4"], ["--to", "pp=2,tp=2", "--format", "rank-files"], ["--dtype", "bf16"],
                        ["--to", "fsdp=3", "--rename", "model.*=m.{1}", "--exclude", "lm_head.*"]]:
            with self.subTest(options=options):
                plan = self.read_json("plan", self.at("source"), *options, "--threads", "1")
                convert = self.convert("source", "out", *options, "--dry-run", "--threads", "1")
                convert.pop("seconds_estimated")
                self.assertEqual({key: plan[key] for key in convert}, convert)
                self.assertEqual(os.listdir(self.folder), ["source"])
                self.assertEqual((sum(map(sum, plan["matrix"])), plan["bytes_moved"], plan["bytes_kept"], plan["stages"]),
                                 (convert["bytes_written"], convert["bytes_written"], 0, 1))
                done = self.convert("source", "out", *options, "--threads", "1")
                self.assertEqual((done["bytes_read"], done["bytes_written"]), (plan["bytes_read"], plan["bytes_written"]))
                os.system(f"rm -r '{self.at('out')}'")

    def test_matrix_is_what_files_have_in_common(self):
        """Rows over three files, and columns over two: each pair shares a box."""
        rnd = random.Random(SEED)
        model = {"rows": tensor(rnd, "F32", 7, 10), "line": tensor(rnd, "I16", 11)}
        files.write_dcp(self.at("source"), model, 3, {"rows": 0, "line": 0})
        rules = self.write_text("r.rules", "rows S(1)@tp\nline A(1)@tp\n")
        wanted = [[n * 5 * 4, n * 5 * 4 + m * 2] for n, m in [(3, 4), (3, 4), (1, 3)]]
        plan = self.read_json("plan", self.at("source"), "--to", "tp=2", "--rules", rules)
        self.assertEqual((plan["matrix"], plan["moves"]), (wanted, 9))
        self.assertEqual(plan["bytes_total"], 7 * 10 * 4 + 22)
        half = self.read_json("plan", self.at("source"), "--to", "tp=2", "--rules", rules, "--dtype", "rows=bf16")
        self.assertEqual([row[0] for row in half["matrix"]], [30, 30, 10])
        text = self.read_text("plan", self.at("source"), "--to", "tp=2", "--rules", rules)
        self.assertIn("\n0  60 B  68 B\n1  60 B  68 B\n2  20 B  26 B\n", text)

    def test_mistakes(self):
        self.write_hf("source", {"w": tensor(random.Random(SEED), "U8", 4)})
        source = self.at("source")
        self.check_fails(["plan", self.at("none")], 1, "no such file")
        self.check_fails(["plan", source, "--to", "tp=2", "--rules", "llama"], 1, 'no rule of llama matches 1 of 1 tensors: w 4')
        self.check_fails(["plan", source, "--resume"], 2, "unknown option --resume")
        self.check_fails(["plan", "--jsn", source], 2, "unknown option --jsn; did you mean --json?")
        self.check_fails(["plan", source, source], 2, "unexpected argument")
        self.check_fails(["plan", source, "--shape", "4"], 2, "unexpected argument")
        self.check_fails(["plan"], 2, "option --shape SHAPE is missing")
        self.check_fails(["plan", "--json"], 2, "option --shape SHAPE is missing")
        self.read_text("plan", "--format", "hf", "--", source)


if __name__ == "__main__":
    support.main()
