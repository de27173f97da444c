# SPDX-License-Identifier: Apache-2.0
"""Folders of Hugging Face with very many tensors, inspected in little time and memory."""
import collections
import json
import os
import random
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import support

FILES = 64


def names_of(count):
    """Experts of as many layers as it takes, in the order of a file."""
    return sorted(f"model.layers.{i // 1536}.mlp.experts.{i // 3 % 512}.{('down', 'gate', 'up')[i % 3]}_proj.weight" for i in range(count))


def write(folder, names, file_of, shuffle=None):
    """8 bytes for each name. file_of: the number of its file, by its place in the list. shuffle: puts lists into another order."""
    os.makedirs(folder)
    entries, places = collections.defaultdict(list), {}
    for i, name in enumerate(names):
        entries[file_of(i)].append(name)
        places[name] = f"model-{file_of(i) + 1:05}-of-{FILES:05}.safetensors"
    for number, here in entries.items():
        header = {name: {"dtype": "BF16", "shape": [2, 2], "data_offsets": [8 * i, 8 * i + 8]} for i, name in enumerate(here)}
        text = json.dumps(shuffle(header) if shuffle else header).encode()
        with open(os.path.join(folder, f"model-{number + 1:05}-of-{FILES:05}.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + bytes(8 * len(here)))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": shuffle(places) if shuffle else places}, file, indent=2)
    return places


class ManyTest(support.CommandTest):
    def setUp(self):
        kept = tempfile.TemporaryDirectory(prefix="reshard-many-")
        self.addCleanup(kept.cleanup)
        self.folder, self.rnd = kept.name, random.Random(1)

    def at(self, name):
        return os.path.join(self.folder, name)

    def shuffle(self, pairs):
        return dict(self.rnd.sample(list(pairs.items()), len(pairs)))

    def check(self, places):
        """inspect tells each tensor's file, and the table joins them to three rows."""
        found = self.read_json("inspect", self.at("many"))
        self.assertEqual([tensor["name"] for tensor in found["tensors"]], sorted(places))
        for tensor in found["tensors"]:
            self.assertEqual([shard["file"] for shard in tensor["shards"]], [places[tensor["name"]]])
            self.assertEqual((tensor["dtype"], tensor["shape"]), ("BF16", [2, 2]))
        text = self.read_text("inspect", self.at("many"))
        layers = (len(places) - 1) // 1536
        for i, part in enumerate(("down", "gate", "up")):
            row = f"model.layers.{{0..{layers}}}.mlp.experts.{{0..511}}.{part}_proj.weight x{(len(places) + 2 - i) // 3}"
            self.assertEqual([line for line in text.splitlines() if f"{part}_proj" in line and line.split("  ")[0] != row], [])
            self.assertIn(row, text)

    def test_any_order(self):
        """Files that take turns, and names in no order."""
        names = names_of(5000)
        self.check(write(self.at("many"), names, lambda i: i * 7 % FILES, self.shuffle))

    def test_memory(self):
        """RESHARD_TEST_SCALE=50 makes it a million tensors (make dcp-many)."""
        count = 1000000 if float(os.environ.get("RESHARD_TEST_SCALE", "1")) >= 50 else 20000
        each = (count + FILES - 1) // FILES
        places = write(self.at("many"), names_of(count), lambda i: i // each)
        spent, held = support.measure(("inspect", self.at("many")))
        print(f"{count} tensors, inspect: {spent:.2f} s of processor time, {held:.0f} MiB")
        if count == 20000:
            self.check(places)
        else:
            self.assertLess(held, 238) # 250 MB


if __name__ == "__main__":
    support.main()
