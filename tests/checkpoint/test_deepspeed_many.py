# SPDX-License-Identifier: Apache-2.0
"""A ZeRO-3 checkpoint of many ranks is planned with, in little time and memory."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))
import support
import zero_many
from test_dcp_many import measure
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
            spent, held = measure(("plan", self.at("many"), *options))
            print(f"{ranks} ranks x {parameters} parameters, plan {options[1]}: {spent:.2f} s of processor time, {held:.0f} MiB")
            self.assertLess(held, 500)


if __name__ == "__main__":
    support.main()
