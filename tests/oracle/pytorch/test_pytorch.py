# SPDX-License-Identifier: Apache-2.0
"""Beside a real PyTorch (make test-torch): what it saves is read as it holds it, and what we write it loads, tensors and values,
also with weights_only=True, which in PyTorch 1.13 takes no floats."""
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "cli"), os.path.join(HERE, "..", "..", "checkpoint")]
try:
    import torch
except ImportError:
    print("skipped: this Python has no torch (Debian: python3-torch)")
    sys.exit(77)
import files
import support
import values


class PyTorch(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def same(self, found, wanted, where=""):
        if torch.is_tensor(wanted):
            self.assertEqual(values.plain(found), values.plain(wanted), where)
        elif isinstance(wanted, dict):
            self.assertEqual(set(found), set(wanted), where)
            for key in wanted:
                self.same(found[key], wanted[key], f"{where}.{key}")
        elif isinstance(wanted, list):
            self.assertEqual(len(found), len(wanted), where)
            for i, part in enumerate(wanted):
                self.same(found[i], part, f"{where}.{i}")
        else:
            self.assertEqual(found, wanted, where)

    def test_saved(self):
        for seed in range(5):
            value = values.make(seed)
            expected = {name: values.plain(tensor) for name, tensor in values.flatten(value).items()}
            for legacy in (False, True):
                path = f"{self.folder}/s{seed}{legacy}"
                torch.save(value, path + ".pt", _use_new_zipfile_serialization=not legacy)
                self.read_text("convert", path + ".pt", path, "--all", "--quiet")
                self.assertEqual(files.read_hf(path), expected)

    def test_loaded(self):
        for seed in range(5):
            value, path = values.make(seed), f"{self.folder}/l{seed}"
            torch.save(value, path + ".pt")
            self.read_text("convert", path + ".pt", path, "--format", "torch", "--quiet")
            found = torch.load(path + "/model.pt")
            self.same(found, value)
            self.assertEqual(found["views"]["whole"].data_ptr(), found["views"]["tied"].data_ptr())
            self.read_text("convert", path + ".pt", path + "-views", "--format", "torch", "--only", "views", "--quiet")
            self.same(torch.load(path + "-views/model.pt", weights_only=True), dict(value["views"]))

    def test_ranks(self):
        value, path = values.make(9), f"{self.folder}/r"
        torch.save(value, path + ".pt")
        self.read_text("convert", path + ".pt", path, "--format", "torch", "--to", "fsdp=3", "--quiet")
        parts = [values.flatten(torch.load(f"{path}/model_world_size_3_rank_{rank}.pt")) for rank in range(3)]
        for name, tensor in values.flatten(value).items():
            whole = tensor.detach()
            joined = torch.cat([part[name] for part in parts]) if whole.dim() else parts[0][name]
            self.assertEqual(values.plain(joined), values.plain(whole), name)


if __name__ == "__main__":
    support.main()
