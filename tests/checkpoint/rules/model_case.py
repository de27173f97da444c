# SPDX-License-Identifier: Apache-2.0
"""What tests of models share: a plan of the command, and the comparison of its every shard with what families/ says."""
import json
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import support
from families import cuts


class ModelTest(support.CommandTest):
    def setUp(self):
        kept = tempfile.TemporaryDirectory(prefix="reshard-models-")
        self.addCleanup(kept.cleanup)
        self.folder = kept.name

    def plan(self, folder, mesh, *options):
        done = support.run("plan", folder, "--to", mesh, "--format", "dcp-safetensors", "--tensors", "--json", *options)
        return done, json.loads(done.stdout) if done.returncode == 0 else None

    def check_plan(self, row, tensors, folder, mesh, can, experts=0, options=(), stages=None):
        """Compares every shard with what it has to be, or the refusal if it cannot be. Whether it could. stages: of those
        tensors that are not where self.stages() says."""
        sizes = {axis: int(n) for axis, n in (part.split("=") for part in mesh.split(","))}
        tp, pp, ep = (sizes.get(axis, 1) for axis in ("tp", "pp", "ep"))
        done, plan = self.plan(folder, mesh, *options)
        if not can:
            self.assertEqual((done.returncode, list(json.loads(done.stdout))), (1, ["error"]), f"{row.name} {mesh} had to be refused")
            self.assertRegex(done.stderr, r"divide|multiple|evenly|not whole|add up", f"{row.name} {mesh}")
            return False
        self.assertEqual((done.returncode, done.stderr), (0, ""), f"{row.name} {mesh}")
        self.assertIn(f"family {row.family}", plan["rules"])
        found = {tensor["name"]: tensor for tensor in plan["tensor_list"]}
        self.assertEqual(set(found), {name for name, _, _, _ in tensors})
        tied = not any(re.search(r"lm_head|embed_out|output_layer|\boutput\.weight$", name) for name in found)
        for name, _, shape, how in tensors:
            want, there = {}, self.stages(row, name, pp, tied)
            if pp > 1 and stages and name in stages:
                there = stages[name]
            for rank in range(tp * pp * ep):
                place = dict(zip(sizes, self.coordinates(sizes, rank)))
                if place.get("pp", 0) not in there:
                    continue
                expert = re.search(r"\.experts\.(\d+)\.", name)
                if expert and ep > 1 and cuts.dealt_to(int(expert[1]), experts, ep) != place["ep"]:
                    continue
                want[rank] = cuts.pieces(how, shape, tp, place.get("tp", 0), ep, place.get("ep", 0))
            has = {shard["rank"]: self.merge([(piece["offset"], piece["size"]) for piece in shard["pieces"]]) for shard in found[name]["shards"]}
            self.assertEqual(has, want, f"{row.name} {mesh}: {name} {shape} {found[name]['cut']}")
        return True

    @staticmethod
    def merge(boxes):
        """Boxes of which each begins where the one before it ends, as one."""
        merged = boxes[:1]
        for offset, size in boxes[1:]:
            before, length = merged[-1]
            grown = [a - b for a, b in zip(offset, before)]
            dims = [d for d in range(len(grown)) if grown[d]]
            if len(dims) == 1 and grown[dims[0]] == length[dims[0]] and all(size[d] == length[d] for d in range(len(size)) if d != dims[0]):
                merged[-1] = (before, [n + (size[d] if d == dims[0] else 0) for d, n in enumerate(length)])
            else:
                merged.append((offset, size))
        return merged

    @staticmethod
    def coordinates(sizes, rank):
        found = []
        for n in reversed(list(sizes.values())):
            found.insert(0, rank % n)
            rank //= n
        return found

    @staticmethod
    def stages(row, name, pp, tied):
        """The stages of the pipeline that have the tensor."""
        if re.match(r"(model\.|thinker\.)?(visual|vision_|vision\.|projector\.|connector|image_newline|view_sep|embed_tokens_extend|audio_|multi_modal|mlp_AR|embed_vision|embed_audio|mlp1|vpm|resampler|(wav2vec2|wavlm)\.(feat|masked|encoder.pos))", name):
            return {0}
        if "shared_transf" in name or "encoder.rel_pos" in name:
            return set(range(pp))
        if re.match(r"layoutlmv3\.(cls_token|LayerNorm|norm)", name) or name.startswith("emb_ln"):
            return {0}
        if name.startswith("talker"):
            return {pp - 1}
        layer = re.search(r"(?:layers|layer|h|blocks|block)\.(\d+)\.", name)
        if layer:
            return {cuts.dealt_to(min(int(layer[1]), row.layers - 1), row.layers, pp)}
        if "rotary" in name:
            return {0}
        if "embed_out" in name or "embedding_norm" in name:
            return {pp - 1}
        if re.search(r"per_layer_(model|projection)|altup_projections", name):
            return {0}
        if re.search(r"emb|wte|wpe", name) and not re.search("mtp|unembed|norm_after", name):
            is_words = re.search(r"(embed_tokens|tok_embeddings)\.|word_embeddings?\.|wte|embed_in|backbone\.embeddings", name) and not row.headless
            return {0, pp - 1} if tied and is_words else {0}
        return {pp - 1}
