# SPDX-License-Identifier: Apache-2.0
"""PyTorch's distributed checkpoints of many chunks, which are taken out of `.metadata` while it is read."""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import dcp_many
import support
import test_dcp


class ManyTest(test_dcp.DcpTest):
    """So many chunks that they are taken out of the pickle while it is read."""
    WORLD = 64

    def write(self, gathered, tensors, protocol=4, change=None):
        """gathered: rank by rank, nothing shared between the two lists, as PyTorch's gathers leave it. Else they share all."""
        model = {f"t{i}": ("U8", (self.WORLD, 2 + i), self.rnd.randbytes(self.WORLD * (2 + i))) for i in range(tensors)}
        shutil.rmtree(self.at("in"), ignore_errors=True)
        writer = self.writer(protocol=protocol)
        for name, array in model.items():
            writer.add(name, array, self.WORLD)
        if gathered:
            torch, names = writer.torch, [f"__{rank}_0.distcp" for rank in range(self.WORLD)]
            rows = sorted(writer.stored.items(), key=lambda row: row[0].offset[0])
            writer.stored = {torch.MetadataIndex(fqn="".join(list(index.fqn)), offset=torch.Size(tuple(list(index.offset))), index=index.index):
                             torch._StorageInfo(relative_path=names[index.offset[0]], offset=info.offset, length=info.length) for index, info in rows}
        if change is not None:
            change(writer)
        writer.close()
        return model

    def test_converted(self):
        for gathered, protocol in ((True, 4), (True, 2), (False, 4)):
            with self.subTest(gathered=gathered, protocol=protocol):
                self.check_hf("in", self.write(gathered, 16, protocol))  # the dict of entries is in two batches

    def test_what_is_wrong_is_told(self):
        def last(writer):
            return list(writer.stored.items())[-1]

        def outside(writer):
            last(writer)[1].relative_path = "../x"

        def negative(writer):
            writer.tensors["t1"].chunks[60].sizes = writer.torch.Size((-1, 3))

        def flat(writer):
            writer.tensors["t1"].chunks[60].offsets = writer.torch.Size((60,))

        def lost(writer):
            del writer.stored[last(writer)[0]]

        def other(writer):
            writer.stored[last(writer)[0]] = writer.torch.other(key="k")

        def unused(writer):
            last(writer)[0].fqn = "nobody"
        for change, words in ((outside, 'its file "../x"'), (negative, "a list of sizes holds something that is not a size"),
                              (flat, "there are 1 numbers for 2 dimensions"), (lost, 'tensor "t1": no file is named for its chunk [63:64,0:3]'),
                              (other, "an object of class _RdmaObjectInfo where _StorageInfo should be"),
                              (unused, 'tensor "t1": no file is named for its chunk [63:64,0:3]')):
            with self.subTest(words=words):
                self.write(True, 2, change=change)
                self.check_fails(("inspect", self.at("in")), 1, words)

    def test_not_opened_to_plan(self):
        """A folder that only describes its tensors can be planned with. RESHARD_TEST_SCALE=50 makes it one of 1,024 ranks and
        1,000 tensors (make dcp-many)."""
        large = float(os.environ.get("RESHARD_TEST_SCALE", "1")) >= 50
        ranks, tensors = (1024, 1000) if large else (64, 300)
        dcp_many.write(self.at("many"), ranks, tensors)
        with open(self.at("many/config.json"), "w", encoding="utf-8") as file:
            json.dump({"model_type": "llama", "head_dim": dcp_many.COLUMNS // 4, "num_attention_heads": 4}, file)
        found = self.read_json("inspect", self.at("many"))
        self.assertEqual(sorted(entry["name"] for entry in found["tensors"]), sorted(dcp_many.names_of(tensors)))
        shards = [{"file": f"__{rank}_0.distcp", "offset": [rank * dcp_many.ROWS, 0], "size": [dcp_many.ROWS, dcp_many.COLUMNS]}
                  for rank in range(ranks)]
        for entry in found["tensors"]:
            self.assertEqual((entry["shape"], entry["shards"]), ([ranks * dcp_many.ROWS, dcp_many.COLUMNS], shards))
        self.assertIn(f"entries that it lists ({ranks * tensors}) are opened when", " ".join(found["notes"]))
        for options in (("--to", "tp=4"), ("--format", "hf")):
            self.assertIn(f"{tensors} tensors", self.read_text("plan", self.at("many"), *options))
        for command in (("inspect", self.at("many"), "--json"), ("plan", self.at("many"), "--to", "tp=4"), ("plan", self.at("many"), "--format", "hf")):
            spent, held = support.measure(command)
            print(f"{ranks} ranks x {tensors} tensors, {command[0]}: {spent:.2f} s of processor time, {held:.0f} MiB")
            self.assertLess(held, 500)
        self.check_fails(("convert", self.at("many"), self.at("out")), 1, "there is no end record")
        with open(self.at("many/__5_0.distcp"), "wb") as file:
            file.truncate(dcp_many.ENTRY_BYTES - 1)
        self.check_fails(("inspect", self.at("many")), 1, "is it truncated?")


if __name__ == "__main__":
    support.main()
