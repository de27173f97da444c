# SPDX-License-Identifier: Apache-2.0
"""What tests of conversions share: a folder of their own, a small model in it, and what a conversion says and leaves behind."""
import filecmp
import json
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cli"))
import files
import support

CONFIG = {"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 32, "head_dim": 8,
          "vocab_size": 100, "num_hidden_layers": 2, "intermediate_size": 96}
SEED = int(os.environ.get("RESHARD_TEST_SEED", "1"))


def tensor(rnd, dtype, *shape):
    return (dtype, shape, rnd.randbytes(files.size_of(dtype, shape)))


def llama(rnd, dtype="F32"):
    model = {"model.embed_tokens.weight": tensor(rnd, dtype, 100, 32), "model.norm.weight": tensor(rnd, dtype, 32),
             "lm_head.weight": tensor(rnd, dtype, 100, 32)}
    for i in range(2):
        layer = f"model.layers.{i}."
        for name, shape in [("self_attn.q_proj", (64, 32)), ("self_attn.k_proj", (16, 32)), ("self_attn.v_proj", (16, 32)),
                            ("self_attn.o_proj", (32, 64)), ("mlp.gate_proj", (96, 32)), ("mlp.up_proj", (96, 32)),
                            ("mlp.down_proj", (32, 96)), ("input_layernorm", (32,))]:
            model[f"{layer}{name}.weight"] = tensor(rnd, dtype, *shape)
    return model


class ConvertTest(support.CommandTest):
    PLACE = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-", dir=self.PLACE)
        self.addCleanup(shutil.rmtree, self.folder)

    def at(self, name):
        return f"{self.folder}/{name}"

    def write_hf(self, name, model, config=None):
        files.write(f"{self.at(name)}/model.safetensors", model, {"format": "pt"})
        if config is not None:
            with open(f"{self.at(name)}/config.json", "w", encoding="utf-8") as file:
                json.dump(config, file)

    def write_text(self, name, text):
        with open(self.at(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.at(name)

    def convert(self, source, target, *options):
        return self.read_json("convert", self.at(source), self.at(target), *options)

    def fails(self, source, target, *options, words="", left=(), code=1):
        """Fails with words, and leaves nothing but `left` beside what was there."""
        before = set(os.listdir(self.folder))
        self.check_fails(["convert", self.at(source), self.at(target), *options], code, words)
        self.assertEqual(set(os.listdir(self.folder)) - before, set(left))

    def leave_journal(self, source, target, journal, *options):
        """Puts a journal with this head back into a finished folder, one that names all blocks and says that it is finished, as after
        a crash that undid only its removal. How many blocks there are is what refusing a journal without any of them says."""
        head = b"".join(journal.splitlines(keepends=True)[:3])
        path = self.at(f"{target}/.reshard-journal")
        with open(path, "wb") as file:
            file.write(head + b"blocks done 0\nfinished\n")
        refused = support.run("convert", self.at(source), self.at(target), *options, "--resume", "--quiet").stderr
        count = re.search(r"but not that block 0 of (\d+) was written", refused)[1].encode()
        with open(path, "wb") as file:
            file.write(head + b"done 0 " + count + b"\nblocks done " + count + b"\nfinished\n")

    def check_same(self, a, b):
        names = sorted(os.listdir(self.at(a)))
        self.assertEqual(names, sorted(os.listdir(self.at(b))))
        match, mismatch, errors = filecmp.cmpfiles(self.at(a), self.at(b), names, shallow=False)
        self.assertEqual((mismatch, errors), ([], []))
