# SPDX-License-Identifier: Apache-2.0
"""What `reshard` starts and opens: the programs behind `reshard bench`, and the MPI backend."""
import os
import re
import shutil
import subprocess
import tempfile

import support
from support import CommandTest, main, run

PLAN = ["bench", "plan", "--ranks", "8", "--json"]
# hwloc writes about machines without /sys, such as a new root.
UNDER_MPIRUN = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "HWLOC_HIDE_ERRORS": "2"}


class ProgramsTest(CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.alone = os.path.join(self.folder, "alone", "reshard")
        os.mkdir(os.path.dirname(self.alone))
        shutil.copy(support.COMMAND, self.alone)

    def run_alone(self, *arguments, **environment):
        """Runs a copy of the command that nothing lies beside."""
        done = subprocess.run([self.alone, *arguments], capture_output=True, text=True, check=False, timeout=200,
                              env={"PATH": "/nowhere", **environment})
        return done.returncode, done.stdout, done.stderr

    def test_list_tells_what_programs_tell(self):
        listed = [line for line in self.read_text("bench", "--help").splitlines() if re.match("  reshard bench [a-z]", line)]
        own = []
        for program in ["reshard-bench", "reshard-bench-nn"]:
            path = os.path.join(os.path.dirname(support.COMMAND), program)
            if os.path.exists(path):
                page = subprocess.check_output([path, "--help"], text=True)
                own += [line for line in page.splitlines() if line.startswith("  reshard bench ")]
        self.assertGreaterEqual(len(own), 4)
        self.assertEqual(listed[:len(own)], own)

    def test_programs_alone(self):
        path = os.path.join(os.path.dirname(support.COMMAND), "reshard-bench")
        self.assertEqual(subprocess.check_output([path, "--version"], text=True), self.read_text("--version"))
        for arguments, words in [([], "name a measurement"), (["nothing"], "unknown measurement")]:
            done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(words, done.stderr)

    def test_not_installed(self):
        for arguments, program in [(PLAN, "reshard-bench"), (["bench", "train"], "reshard-bench-nn"),
                                   (["help", "bench", "move"], "reshard-bench")]:
            code, out, err = self.run_alone(*arguments)
            self.assertEqual(code, 1, err)
            self.assertEqual(out == "", "--json" not in arguments)
            self.assertRegex(err, rf"\Areshard: bench \w+: {program} is not installed[^\n]+\n\Z")
        self.assertEqual(self.run_alone("bench", "--help")[0], 0)

    def test_cannot_be_started(self):
        beside = os.path.join(os.path.dirname(self.alone), "reshard-bench")
        with open(beside, "w", encoding="ascii") as file:
            file.write("no program")
        code, _, err = self.run_alone(*PLAN, PATH="/nowhere")
        self.assertEqual(code, 1)
        self.assertIn("reshard-bench cannot be started: Permission denied", err)

    def test_found_on_path(self):
        code, out, err = self.run_alone(*PLAN, PATH=os.path.dirname(support.COMMAND))
        self.assertEqual((code, err), (0, ""))
        self.assertIn('"ranks":8', out)

    def test_environment_survives(self):
        """The second of two ranks has nothing to say, and knows that from its environment."""
        done = run(*PLAN, env={**os.environ, **UNDER_MPIRUN, "OMPI_COMM_WORLD_RANK": "1"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_no_mpi_backend(self):
        code, out, err = self.run_alone("verify", self.folder, **UNDER_MPIRUN)
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"\Areshard: started by mpirun, but [^\n]*libreshard_mpi\.so[^\n]*install libopenmpi-dev and "
                              r"build reshard again, or install the package[^\n]*\n\Z")

    def test_broken_mpi_backend(self):
        """A backend that is there but cannot be opened is not called missing."""
        with open(os.path.join(os.path.dirname(self.alone), "libreshard_mpi.so.0.3"), "w", encoding="ascii") as file:
            file.write("no library")
        code, _, err = self.run_alone("verify", self.folder, **UNDER_MPIRUN)
        self.assertEqual(code, 1)
        self.assertIn("libreshard_mpi.so.0.3: file too short", err)


if __name__ == "__main__":
    main()
