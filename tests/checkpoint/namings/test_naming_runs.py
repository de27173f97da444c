# SPDX-License-Identifier: Apache-2.0
"""Conversions by shipped namings that are not one process from beginning to end: several ranks, and kills at random times. What they leave is
compared, file by file, with what one process left that nobody disturbed; that this is right is for the other tests of namings."""
import filecmp
import os
import random
import shutil
import subprocess
import sys
import time
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import models
import support
from naming_case import NamingTest
from test_trace import mpi_environment

SCALE = float(os.environ.get("RESHARD_TEST_SCALE", "1"))
# (model, options): what is written by each naming, and from there hf again
WAYS = {"hf5": ("experts", []), "vllm": ("experts", ["--to", "tp=2"]), "sglang": ("dense", ["--to", "tp=2"]),
        "meta": ("dense", ["--to", "tp=2"]), "mistral": ("mistral", []), "titan": ("experts", ["--to", "fsdp=2"]),
        "megatron": ("experts", ["--to", "tp=2,ep=2"]), "universal": ("dense", [])}
SMALL = ["--journal-bytes", "256K", "--max-memory", "2M", "--threads", "2"]


def make(rnd, kind):
    """About 5 MB, so that there is time between two records of the journal."""
    with unittest.mock.patch.multiple(models, H=256, V=640, D=64, HEADS=4, KV=2):
        if kind == "experts":
            return models.qwen3_moe(rnd, inner=96, experts=8)
        model = models.llama(rnd)
        model.config.update(hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=128)
        model.config["model_type"] = "llama" if kind == "dense" else kind
        return model


def tree(folder):
    return sorted(os.path.relpath(os.path.join(path, name), folder) for path, _, names in os.walk(folder) for name in names)


class RunsTest(NamingTest):
    PLACE = support.pick_memory(200 << 20)

    def check_tree(self, a, b):
        self.assertEqual(tree(self.at(a)), tree(self.at(b)))
        match, mismatch, errors = filecmp.cmpfiles(self.at(a), self.at(b), tree(self.at(a)), shallow=False)
        self.assertEqual((mismatch, errors), ([], []), (a, b))

    def each_way(self):
        """(naming, source, options) of each conversion, out and back; the source of the second is what the first wrote alone."""
        for naming, (kind, options) in WAYS.items():
            source = "hf-" + kind
            if not os.path.exists(self.at(source)):
                self.write_model(source, make(self.rnd, kind))
            self.convert(source, naming, "--as", naming, *options)
            yield naming, source, ["--as", naming, *options]
            self.convert(naming, naming + "-hf", "--as", "hf")
            yield naming + "-hf", naming, ["--as", "hf"]
            shutil.rmtree(self.at(naming))
            shutil.rmtree(self.at(naming + "-hf"))

    def test_ranks(self):
        environment = mpi_environment()
        if environment is None:
            self.skipTest("no mpirun, no MPI backend in this build, or sanitizers, which do not know what MPI does to memory")
        for alone, source, options in self.each_way():
            subprocess.run(["mpirun", "-n", "3", support.COMMAND, "convert", self.at(source), self.at("ranks"), *options, *SMALL, "--verify"],
                           env=environment, check=True, timeout=200, stdout=subprocess.DEVNULL)
            self.check_tree("ranks", alone)
            shutil.rmtree(self.at("ranks"))

    def kill_at_random(self, arguments, seconds):
        """One conversion that is killed, at some time of the `seconds` that it takes, and again while it goes on, until it comes to its end."""
        kills = 0
        while not os.path.exists(self.at("out")):
            resume = ["--resume"] if os.path.exists(self.at("out.partial")) else []
            running = subprocess.Popen([support.COMMAND, *arguments, *resume], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            # The fourth one may take as long as it wants.
            try:
                _, said = running.communicate(timeout=self.rnd.uniform(0, seconds) if kills < 3 else 200)
                self.assertEqual((running.returncode, said), (0, b""))
            except subprocess.TimeoutExpired:
                running.kill()
                running.communicate()
                kills += 1
        # One that is killed between taking its name and removing its journal is complete, and keeps it.
        journal = self.at("out/.reshard-journal")
        if os.path.exists(journal):
            self.assertEqual(support.run("verify", self.at("out")).returncode, 0)
            os.remove(journal)
        return kills

    def test_kills(self):
        kills = 0
        for alone, source, options in self.each_way():
            arguments = ["convert", self.at(source), self.at("out"), *options, *SMALL, "--quiet"]
            begun = time.monotonic()
            support.run(*arguments)
            seconds = time.monotonic() - begun
            self.check_tree("out", alone)
            for _ in range(max(1, round(2 * SCALE))):
                shutil.rmtree(self.at("out"))
                if os.path.exists(self.at("out.partial")):
                    shutil.rmtree(self.at("out.partial"))
                kills += self.kill_at_random(arguments, seconds)
                self.check_tree("out", alone)
                self.assertFalse(os.path.exists(self.at("out.partial")))
            shutil.rmtree(self.at("out"))
        self.assertGreater(kills, 0)

    def test_resumed_by_a_record(self):
        """One that surely has something to go on with."""
        self.write_model("source", make(random.Random(2), "experts"))
        for naming, options in [("vllm", ["--to", "tp=2"]), ("hf5", [])]:
            arguments = ["--as", naming, *options, *SMALL]
            self.convert("source", "whole", *arguments)
            self.kill_after_a_record("convert", self.at("source"), self.at("out"), *arguments, "--quiet", target=self.at("out"))
            told = self.convert("source", "out", *arguments, "--resume", "--verify")
            self.assertGreater(told["bytes_resumed"], 0)
            self.check_tree("out", "whole")
            for name in ["out", "whole"]:
                shutil.rmtree(self.at(name))


if __name__ == "__main__":
    support.main()
