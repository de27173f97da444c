# SPDX-License-Identifier: Apache-2.0
"""Files that PyTorch 1.13 made (make_files.py), read by the command: every tensor, byte for byte. Needs no PyTorch."""
import json
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "cli"), os.path.join(HERE, "..", "..", "checkpoint", "support")]
import files
import support


class Kept(support.CommandTest):
    def test_kept(self):
        folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, folder)
        with open(f"{HERE}/files/expected.json", encoding="utf-8") as file:
            expected = {name: (dtype, tuple(shape), bytes.fromhex(data)) for name, (dtype, shape, data) in json.load(file).items()}
        for name in ("zip", "legacy", "legacy1", "legacy3", "legacy4", "legacy5"):
            self.read_text("convert", f"{HERE}/files/{name}.pt", f"{folder}/{name}", "--all", "--quiet")
            self.assertEqual(files.read_hf(f"{folder}/{name}"), expected)

    def test_unreadable(self):
        found = self.read_json("inspect", f"{HERE}/files/unreadable.pt")
        self.assertEqual([tensor["name"] for tensor in found["tensors"]], ["whole"])
        self.assertEqual([tensor["name"] for tensor in found["unreadable"]], ["sparse", "quantised"])
        self.check_fails(["convert", f"{HERE}/files/unreadable.pt", f"{HERE}/files/none"], 1, "is sparse")


if __name__ == "__main__":
    support.main()
