# SPDX-License-Identifier: Apache-2.0
"""A ZeRO-3 checkpoint of many ranks is planned with, in little time and memory."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import support
import zero_many
from test_deepspeed import ZeroTest


class ManyTest(ZeroTest):
    def test_planned(self):
        """RESHARD_TEST_SCALE=50 makes it one of 1,024 ranks and 1,000 parameters (make dcp-many)."""
        large = float(os.environ.get("RESHARD_TEST_SCALE", "1")) >= 50
        ranks, parameters = (1024, 1000) if large else (48, 300)
        shapes = zero_many.write(self.at("many"), ranks, parameters)
        found = self.read_json("inspect", self.at("many"), "--include", "model.*")
        self.assertEqual({entry["name"][6:]: tuple(entry["shape"]) for entry in found["tensors"]}, shapes)
        for options in (("--to", "fsdp=4", "--rules", "fsdp"), ("--format", "hf"), ("--format", "universal")):
            spent, held = support.measure(("plan", self.at("many"), *options))
            print(f"{ranks} ranks x {parameters} parameters, plan {options[1]}: {spent:.2f} s of processor time, {held:.0f} MiB")
            self.assertLess(held, 500)


if __name__ == "__main__":
    support.main()
