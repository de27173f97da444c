# SPDX-License-Identifier: Apache-2.0
"""`reshard bench move`: every target shard holds the global indices that the layout says, between threads and, where mpirun
is there, between processes. How fast it is, the benchmarks tell."""
import itertools
import json
import os
import shutil
import struct
import subprocess
import tempfile

import support
from support import CommandTest, main

CASES = [
    ("6x10", "2: S(0)", "2: S(1)"),
    ("7x5x3", "2,2: S(0), S(2)", "3: S(flat~)"),
    ("9x8", "4: S(0)", "4: S(1/1)"),
    ("13", "2[1,0]: S(0)", "4: R"),
    ("8x8", "3: P(sum)", "3: S(1~)"),
    ("6x6", "boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]", "2: S(0/2)"),
]


class BenchMoveTest(CommandTest):
    def expected(self, spec, shape):
        """{(rank, shard): indices} by the layout's own boxes and pieces."""
        extents = [int(n) for n in shape.split("x")]
        found = {}
        counts = {}
        for shard in self.read_json("layout", spec, "--shape", shape)["shards"]:
            index = counts.get(shard["rank"], 0)
            counts[shard["rank"]] = index + 1
            size = 1
            for n in shard["size"]:
                size *= n
            memory = [None] * size
            dense = [1] * len(extents)
            for d in reversed(range(len(extents) - 1)):
                dense[d] = dense[d + 1] * (shard["size"][d + 1] if len(shard["size"]) == len(extents) else 1)
            whole = {"offset": shard["offset"], "size": shard["size"], "at": 0, "strides": dense}
            for piece in shard.get("pieces", [whole] if size else []):
                for x in itertools.product(*(range(n) for n in piece["size"])):
                    at = piece["at"] + sum(i * s for i, s in zip(x, piece["strides"]))
                    place = 0
                    for i, offset, n in zip(x, piece["offset"], extents):
                        place = place * n + offset + i
                    memory[at] = place
            found[shard["rank"], index] = memory
        return found

    def check_dump(self, folder, spec, shape):
        expected = self.expected(spec, shape)
        self.assertEqual(sorted(os.listdir(folder)),
                         sorted(f"rank-{rank}-shard-{shard}.bin" for rank, shard in expected))
        for (rank, shard), memory in expected.items():
            with open(os.path.join(folder, f"rank-{rank}-shard-{shard}.bin"), "rb") as file:
                self.assertEqual(list(struct.unpack(f"{len(memory)}i", file.read())), memory)

    def arguments(self, case, folder):
        shape, source, target = case
        return ["bench", "move", "--shape", shape, "--dtype", "i32", "--from", source, "--to", target, "--dump", folder]

    def test_threads(self):
        ways = itertools.cycle([[], [], ["--messages"], ["--plain"]])
        for case, options in zip(CASES, ways):
            with self.subTest(case=case, options=options), tempfile.TemporaryDirectory() as folder:
                found = self.read_json(*self.arguments(case, folder), *options)
                self.assertTrue(found["verified"])
                self.assertGreaterEqual(found["p99_seconds"], found["seconds"])
                for key in ["bytes", "seconds", "gb_per_s", "memcpy_gb_per_s", "ratio"]:
                    self.assertGreater(found[key], 0, key)
                self.check_dump(folder, case[2], case[0])

    def test_all_reduce_by_hand(self):
        """Beside an all-reduce of f32, and nothing else."""
        case = ["bench", "move", "--shape", "33x31", "--dtype", "f32", "--from"]
        found = self.read_json(*case, "4: P(sum)", "--to", "4: R")
        self.assertTrue(found["verified"])
        self.assertGreater(found["by_hand_gb_per_s"], 0)
        self.assertGreater(found["by_hand_ratio"], 0)
        for source, target in [("4: P(max)", "4: R"), ("4: S(0)", "4: R"), ("4: P(sum)", "4: S(0)"), ("4: P(sum)", "5: R")]:
            self.assertNotIn("by_hand_gb_per_s", self.read_json(*case, source, "--to", target))

    def run_mpi(self, environment, case, folder, *options):
        return subprocess.run(["mpirun", "-n", "4", support.COMMAND, *self.arguments(case, folder), "--json", *options],
                              env=environment, capture_output=True, text=True, timeout=200, check=False)

    def test_mpi(self):
        library = os.path.join(os.path.dirname(os.path.abspath(support.COMMAND)), "libreshard_mpi.so")
        if shutil.which("mpirun") is None or not os.path.exists(library):
            self.skipTest("no mpirun, or no MPI backend in this build")
        if os.path.basename(os.path.dirname(library)) in ("asan", "tsan"):
            self.skipTest("sanitizers do not know what MPI does to memory")
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}
        ways = itertools.cycle([[], ["--plain"], ["--messages"]])
        for case, options in zip(CASES + CASES[1:3], ways):
            with self.subTest(case=case, options=options), tempfile.TemporaryDirectory() as folder:
                done = self.run_mpi(environment, case, folder, *options)
                self.assertEqual(done.returncode, 0, done.stderr)
                found = json.loads(done.stdout)
                self.assertTrue(found["verified"])
                self.check_dump(folder, case[2], case[0])
                # MPI's collectives are given copies in one stage: no reductions, and none from few to many replicas.
                for key in ["alltoallw_gb_per_s", "alltoallw_ratio", "alltoallv_gb_per_s", "alltoallv_ratio"]:
                    self.assertEqual(found.get(key, 0) > 0, "P" not in case[1] and "R" not in case[2], key)
        for dtype in ["u8", "bf16", "f64", "c128"]:  # elements of every size
            with self.subTest(dtype=dtype):
                done = subprocess.run(["mpirun", "-n", "2", support.COMMAND, "bench", "move", "--shape", "6x10", "--dtype", dtype,
                                       "--from", "2: S(0)", "--to", "2: S(1)", "--json"],
                                      env=environment, capture_output=True, text=True, timeout=200, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertGreater(json.loads(done.stdout)["alltoallw_gb_per_s"], 0)

    def test_one_run_is_enough_for_a_dump(self):
        with tempfile.TemporaryDirectory() as folder:
            found = self.read_json("bench", "move", "--shape", "4x4", "--dtype", "f32", "--from", "2: S(0)", "--to", "2: S(1)",
                                   "--runs", "1", "--dump", folder)
            self.assertEqual((found["runs"], found["verified"]), (1, True))
            self.assertEqual(len(os.listdir(folder)), 2)

    def test_bad_input(self):
        case = ["bench", "move", "--shape", "4x4", "--dtype", "f32", "--from", "2: S(0)", "--to"]
        self.check_fails([*case, "2: S(5)"], 2, "dimension 5")
        self.check_fails([*case, "2: S(1)", "--runs", "1"], 2, "--runs 1: must be from 5 to 1000")
        self.check_fails([*case, "2: S(1)", "--runs", "0", "--dump", "x"], 2, "--runs 0: must be from 1 to 1000")
        self.check_fails(["bench", "move", "--shape", "4x4", "--dtype", "f4", "--from", "2: S(0)", "--to", "2: R"], 2, "4 bits")
        self.check_fails([*case, "2: S(1)", "--dump", "/dev/null/x"], 1, "--dump")


if __name__ == "__main__":
    main()
