# SPDX-License-Identifier: Apache-2.0
"""Checkpoints under another naming (`Checkpoint.named`): boxes, shards and loads against NumPy's own joins, stacks and
permutations of the arrays that the files were written from."""
import json
import os
import pickle
import random
import tempfile
import unittest

import support

support.need("numpy")
import numpy as np

import reshard

H, V, LAYERS, HEADS, KV, D, F = 24, 40, 2, 4, 2, 6, 10
CONFIG = {"model_type": "llama", "hidden_size": H, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "num_key_value_heads": KV, "head_dim": D, "vocab_size": V, "intermediate_size": F, "tie_word_embeddings": False}


def make_llama(rng):
    def random_array(*shape):
        return rng.standard_normal(shape).astype("f4")
    tensors = {"model.embed_tokens.weight": random_array(V, H), "model.norm.weight": random_array(H), "lm_head.weight": random_array(V, H)}
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[at + name + ".weight"] = random_array(H)
        for name, rows in (("q", HEADS * D), ("k", KV * D), ("v", KV * D)):
            tensors[f"{at}self_attn.{name}_proj.weight"] = random_array(rows, H)
        tensors[at + "self_attn.o_proj.weight"] = random_array(H, HEADS * D)
        for name in ("gate", "up"):
            tensors[f"{at}mlp.{name}_proj.weight"] = random_array(F, H)
        tensors[at + "mlp.down_proj.weight"] = random_array(H, F)
    return tensors


def rotary(array, heads):
    """Meta's order of rows: the two halves of a head alternate."""
    return array.reshape(heads, 2, D // 2, -1).transpose(0, 2, 1, 3).reshape(array.shape)


def as_vllm(hf):
    made = {}
    for name, array in hf.items():
        if not any(part in name for part in (".q_proj", ".k_proj", ".v_proj", "gate_proj", "up_proj")):
            made[name] = array
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        made[at + "self_attn.qkv_proj.weight"] = np.concatenate([hf[f"{at}self_attn.{x}_proj.weight"] for x in "qkv"])
        made[at + "mlp.gate_up_proj.weight"] = np.concatenate([hf[f"{at}mlp.{x}_proj.weight"] for x in ("gate", "up")])
        for x in ("_k_scale", "_v_scale", "_q_scale", "_prob_scale"):
            made[at + "self_attn.attn." + x] = np.array(1, "f4")
    return made


def as_meta(hf):
    made = {"tok_embeddings.weight": hf["model.embed_tokens.weight"], "norm.weight": hf["model.norm.weight"],
            "output.weight": hf["lm_head.weight"]}
    names = {"self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
             "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm"}
    for n in range(LAYERS):
        for old, new in names.items():
            made[f"layers.{n}.{new}.weight"] = hf[f"model.layers.{n}.{old}.weight"]
        for x, heads in (("q", HEADS), ("k", KV)):
            made[f"layers.{n}.attention.w{x}.weight"] = rotary(hf[f"model.layers.{n}.self_attn.{x}_proj.weight"], heads)
    return made


class ViewTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.rng, self.rnd = np.random.default_rng(7), random.Random(7)
        self.hf = make_llama(self.rng)
        self.path = os.path.join(self.folder.name, "hf")
        os.mkdir(self.path)
        support.write_safetensors(os.path.join(self.path, "model.safetensors"), self.hf)
        with open(os.path.join(self.path, "config.json"), "w") as file:
            json.dump(CONFIG, file)

    def check(self, view, wanted):
        self.assertEqual(list(view), sorted(wanted))
        self.assertEqual(len(view), len(wanted))
        self.assertEqual(view.nbytes, sum(array.nbytes for array in wanted.values()))
        for name, array in wanted.items():
            self.assertEqual((view[name].shape, view[name].dtype), (array.shape, "f32"), name)
            np.testing.assert_array_equal(view[name][...], array, name)
            for _ in range(4):
                key = []
                for extent in array.shape:
                    low, high = sorted((self.rnd.randrange(extent + 1), self.rnd.randrange(extent + 1)))
                    key.append(slice(low, high))
                np.testing.assert_array_equal(view[name][tuple(key)], array[tuple(key)], f"{name} {key}")

    def test_boxes(self):
        for mmap in (False, True):
            with reshard.open(self.path, mmap=mmap) as ck:
                for naming, wanted in (("vllm", as_vllm(self.hf)), ("meta", as_meta(self.hf)), ("hf", self.hf)):
                    self.check(ck.named(naming), wanted)

    def test_of_what_was_converted(self):
        """From files of ranks, fused and permuted, back to hf's names."""
        reshard.convert(self.path, self.path + "-vllm", as_="vllm", to="tp=2", no_sync=True)
        reshard.convert(self.path, self.path + "-meta", as_="meta", to="tp=2", no_sync=True)
        for other in ("-vllm", "-meta"):
            view = reshard.open(self.path + other).named("hf")
            self.check(view, self.hf)
            self.assertIn("seen as hf by map hf-" + other[1:], view.notes[0])
        # Two maps in a row, without hf in between.
        self.check(reshard.open(self.path + "-vllm").named("meta"), as_meta(self.hf))

    def test_shards(self):
        """A rank's part by the rules of the new names."""
        view, fused = reshard.open(self.path).named("vllm"), as_vllm(self.hf)
        for rank in range(2):
            mine = view.shard("tp=2", rank=rank)
            name = "model.layers.1.mlp.gate_up_proj.weight"
            gate, up = fused[name][:F], fused[name][F:]
            np.testing.assert_array_equal(mine[name], np.concatenate([gate[rank * 5:][:5], up[rank * 5:][:5]]))
            name = "model.layers.0.self_attn.qkv_proj.weight"
            q, k, v = np.split(fused[name], [HEADS * D, (HEADS + KV) * D])
            np.testing.assert_array_equal(mine[name], np.concatenate([q[rank * 12:][:12], k[rank * 6:][:6], v[rank * 6:][:6]]))
        reshard.convert(self.path, self.path + "-meta", as_="meta", no_sync=True)
        back = reshard.open(self.path + "-meta").named("hf")
        for rank in range(2):  # computed, and cut by hf's rules
            mine = back.shard("tp=2", rank=rank)
            name = "model.layers.0.self_attn.q_proj.weight"
            np.testing.assert_array_equal(mine[name], self.hf[name][rank * 12:][:12])
            read = mine.read()
            np.testing.assert_array_equal(read["model.layers.0.self_attn.o_proj.weight"],
                                          self.hf["model.layers.0.self_attn.o_proj.weight"][:, rank * 12:][:, :12])
        cast = back.shard("tp=2", rank=1, dtype="f64")["model.layers.0.self_attn.k_proj.weight"]
        np.testing.assert_array_equal(cast, self.hf["model.layers.0.self_attn.k_proj.weight"][6:].astype("f8"))

    def test_casts(self):
        view = reshard.open(self.path).named("meta")
        name = "layers.0.attention.wq.weight"
        np.testing.assert_array_equal(view[name].read("f64"), as_meta(self.hf)[name].astype("f8"))

    def test_pieces(self):
        view = reshard.open(self.path).named("meta")
        self.assertEqual(len(view["norm.weight"].pieces), 1)  # renamed: still that of the file
        made = reshard.open(self.path).named("vllm")["model.layers.0.self_attn.attn._k_scale"]
        self.assertEqual(made.pieces, [])
        with self.assertRaisesRegex(reshard.Unsupported, "a map computes it"):
            made.layout

    def test_digests(self):
        for naming, options in (("vllm", {}), ("meta", {}), ("titan", {})):
            reshard.convert(self.path, self.path + naming, as_=naming, no_sync=True, **options)
            there = reshard.open(self.path + naming)
            view = reshard.open(self.path).named(naming)
            self.assertEqual(view.digest(), there.digest())
            self.assertEqual(view.digest(sha256=True, check_copies=True), there.digest(sha256=True))
            self.assertEqual(reshard.digest(self.path, as_=naming), there.digest().checkpoint)

    def test_compare(self):
        reshard.convert(self.path, self.path + "-meta", as_="meta", no_sync=True)
        found = reshard.compare(self.path, self.path + "-meta")
        self.assertTrue(found.same)
        self.assertIn("compared as meta by map hf-meta", found.notes[0])
        changed = dict(self.hf)
        name = "model.layers.1.self_attn.q_proj.weight"
        changed[name] = changed[name].copy()
        changed[name][7, 3] += 1
        support.write_safetensors(os.path.join(self.path, "model.safetensors"), changed)
        (one,) = reshard.compare(self.path, self.path + "-meta").differences
        row = int(np.flatnonzero((rotary(changed[name], HEADS) != rotary(self.hf[name], HEADS)).any(1))[0])
        self.assertEqual((one.kind, one.name, one.element), ("bytes", "layers.1.attention.wq.weight", (row, 3)))
        self.assertEqual((one.origin, one.origin_element), (name, (7, 3)))
        # A view as A.
        with reshard.open(self.path) as ck, reshard.open(self.path + "-meta") as meta:
            self.assertEqual(len(reshard.compare(ck.named("meta"), meta).differences), 1)
            with self.assertRaisesRegex(reshard.Unsupported, "only A may be one"):
                reshard.compare(ck, meta.named("hf"))

    def test_a_map_of_ones_own(self):
        text = os.path.join(self.folder.name, "own.map")
        with open(text, "w") as file:
            file.write("model.layers.{n}.mlp.{gate,up}_proj.weight [f i] = all [n i (f + f)]\n* = *\n")
        view = reshard.open(self.path).named(map=text)
        wanted = np.stack([np.concatenate([self.hf[f"model.layers.{n}.mlp.{x}_proj.weight"] for x in ("gate", "up")]).T for n in range(LAYERS)])
        np.testing.assert_array_equal(view["all"][...], wanted)
        np.testing.assert_array_equal(view["all"][1, 3:5, 8:13], wanted[1, 3:5, 8:13])
        with self.assertRaises(reshard.NotFound):
            view["model.layers.0.mlp.gate_proj.weight"]

    def test_lifetime(self):
        ck = reshard.open(self.path)
        view = ck.named("meta")
        again = pickle.loads(pickle.dumps(view))
        ck.close()  # the view keeps the files open
        self.check(view, as_meta(self.hf))
        self.check(again, as_meta(self.hf))
        view.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            view["norm.weight"]
        with self.assertRaisesRegex(ValueError, "closed"):
            ck.named("meta")

    def test_refusals(self):
        ck = reshard.open(self.path)
        for words, kind, call in (
                ("needs a naming or a map", reshard.Invalid, lambda: ck.named()),
                ('there is no naming "nobody"', reshard.NotFound, lambda: ck.named("nobody")),
                ("no map between hf and mistral", reshard.NotFound, lambda: ck.named("mistral")),
                ("is already a view through a map", reshard.Invalid, lambda: ck.named("meta").named("hf")),
                ("no tensor is quantised", reshard.Error, lambda: ck.named("meta", dequantize="bf16")),
                ("convert the checkpoint itself", reshard.Invalid, lambda: reshard.Conversion(ck.named("meta")))):
            with self.assertRaisesRegex(kind, words):
                call()
        with self.assertRaises(TypeError):
            ck.named("meta", rename={"a": "b"})

    def test_constants_are_compared(self):
        reshard.convert(self.path, self.path + "-vllm", as_="vllm", no_sync=True)
        file = os.path.join(self.path + "-vllm", "model-rank-0-part-0.safetensors")
        with open(file, "rb") as stream:
            count = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(count))
        at = 8 + count + header["model.layers.1.self_attn.attn._v_scale"]["data_offsets"][0]
        with open(file, "r+b") as stream:
            stream.seek(at)
            stream.write(np.array(0.5, "f4").tobytes())
        with self.assertRaisesRegex(reshard.Check, "model.layers.1.self_attn.attn._v_scale.* is not 1 everywhere"):
            reshard.open(self.path + "-vllm").named("hf")
        with self.assertRaisesRegex(reshard.Error, "_v_scale.* is not 1 everywhere"):
            reshard.compare(self.path + "-vllm", self.path)
        (one,) = reshard.compare(self.path, self.path + "-vllm").differences  # the map's 1 and the file's 0.5
        self.assertEqual((one.name, one.element, one.a, one.b, one.origin), ("model.layers.1.self_attn.attn._v_scale", (), "1", "0.5", None))


if __name__ == "__main__":
    support.main()
