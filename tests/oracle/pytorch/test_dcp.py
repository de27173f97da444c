# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints both ways between PyTorch 1.13 and us: what its processes save, we convert; what we write, they load.

  test_dcp.py RESHARD
"""
import os
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: this Python has no torch (Debian: python3-torch)")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))


def run(*arguments):
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)


def main():
    reshard, script = sys.argv[1], os.path.join(HERE, "dcp.py")
    with tempfile.TemporaryDirectory() as folder:
        saved, ours = os.path.join(folder, "saved"), os.path.join(folder, "ours")
        os.mkdir(saved)
        run(sys.executable, "-B", script, "save", saved, "3")
        run(reshard, "convert", saved, ours, "--format", "dcp", "--to", "fsdp=2", "--rules", "fsdp", "--verify")
        run(sys.executable, "-B", script, "load", ours, "2")
        run(reshard, "convert", saved, ours + "-1", "--format", "dcp", "--to", "1", "--rules", "fsdp")
        run(sys.executable, "-B", script, "load", ours + "-1", "1")
    print("torch %s: saved by 3 processes, converted, loaded by 2 and by 1" % torch.__version__)


if __name__ == "__main__":
    main()
