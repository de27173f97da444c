# SPDX-License-Identifier: Apache-2.0
"""docs/python.md line by line, in a folder with a small Llama; and the programs of examples/python."""
import doctest
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

support.need("numpy")


class TestTutorial(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-tutorial-")
        self.addCleanup(shutil.rmtree, self.folder)
        support.make_llama(os.path.join(self.folder, "model"))

    def test_page__is_true(self):
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            found = doctest.testfile(os.path.join(support.ROOT, "docs", "python.md"), module_relative=False)
        finally:
            os.chdir(before)
        self.assertEqual(found.failed, 0)
        self.assertGreater(found.attempted, 30)

    def run_example(self, name, *arguments):
        path = os.path.join(support.ROOT, "examples", "python", name)
        return subprocess.run([sys.executable, "-B", path, *arguments], capture_output=True, text=True, check=True,
                              cwd=self.folder).stdout

    def test_example__shard(self):
        lines = self.run_example("shard.py", "model", "pp=2,tp=2").splitlines()
        self.assertEqual(len(lines), 5)
        self.assertTrue(lines[1].startswith("rank 0: 10 tensors"), lines[1])

    def test_example__ranks(self):
        self.assertEqual(self.run_example("ranks.py"), "[4560, 4560, 4560, 4560]\n")


if __name__ == "__main__":
    support.main()
