# SPDX-License-Identifier: Apache-2.0
"""`reshard layout --json` against the layouts that torch 1.13 computes for chunk specs."""
import json
import os

from support import CommandTest, main

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors", "chunk_layouts.json")


class VectorsTest(CommandTest):
    def test_chunk_layouts(self):
        with open(VECTORS, encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        self.assertEqual(len(cases), 400)
        for number, case in enumerate(cases):
            shape = "x".join(map(str, case["shape"]))
            for side in ["source", "target"]:
                chunks = case[side]
                spec = f"{len(chunks['ranks'])}[{','.join(map(str, chunks['ranks']))}]: S({chunks['dim']})"
                with self.subTest(number=number, spec=spec, shape=shape):
                    found = self.read_json("layout", spec, "--shape", shape)
                    self.assertEqual(found["shape"], case["shape"])
                    self.assertEqual(found["ranks"], case["world"])
                    self.assertEqual(found["shards"], chunks["shards_by_rank"])


if __name__ == "__main__":
    main()
