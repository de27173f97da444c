# SPDX-License-Identifier: Apache-2.0
"""What tests of namings share."""
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
from convert_case import SEED, ConvertTest


class NamingTest(ConvertTest):
    def setUp(self):
        super().setUp()
        self.rnd = random.Random(SEED)

    def write_model(self, name, model):
        self.write_hf(name, model.tensors, model.config)

    def check_model(self, found, wanted):
        self.assertEqual(sorted(found), sorted(wanted))
        for name, value in wanted.items():
            self.assertEqual(found[name][:2], value[:2], name)
            self.assertTrue(found[name][2] == value[2], name)

    def read(self, name):
        return files.read_hf(self.at(name))

    def digests(self, name, *options):
        return self.read_json("digest", self.at(name), *options)["tensors"]
