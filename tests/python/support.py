# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share. Each is run as `test_x.py BUILD_FOLDER`."""
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "python")
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "dev")
SKIPPED = 77

sys.path.insert(0, PACKAGE)
os.environ["PYTHONPATH"] = PACKAGE


def need(*modules):
    """Ends the script as skipped if this Python lacks one of them."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            print(f"skipped: {sys.executable} has no {module}; scripts/install-deps python installs what is needed")
            sys.exit(SKIPPED)


def main():
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
