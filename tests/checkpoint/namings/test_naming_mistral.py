# SPDX-License-Identifier: Apache-2.0
"""hf and mistral: one consolidated.safetensors and params.json."""
import json
import os
import re
import shutil

from naming_case import NamingTest
import files
import models
import support
import torch_files

NAMES = [("model.embed_tokens.weight", "tok_embeddings.weight"), ("model.norm.weight", "norm.weight"), ("lm_head.weight", "output.weight"),
         (r"model.layers.(\d+).input_layernorm.weight", r"layers.\1.attention_norm.weight"),
         (r"model.layers.(\d+).post_attention_layernorm.weight", r"layers.\1.ffn_norm.weight"),
         (r"model.layers.(\d+).self_attn.([qkvo])_proj.weight", r"layers.\1.attention.w\2.weight"),
         (r"model.layers.(\d+).mlp.gate_proj.weight", r"layers.\1.feed_forward.w1.weight"),
         (r"model.layers.(\d+).mlp.down_proj.weight", r"layers.\1.feed_forward.w2.weight"),
         (r"model.layers.(\d+).mlp.up_proj.weight", r"layers.\1.feed_forward.w3.weight"),
         (r"model.layers.(\d+).block_sparse_moe.gate.weight", r"layers.\1.feed_forward.gate.weight"),
         (r"model.layers.(\d+).block_sparse_moe.experts.(\d+).(w[123]).weight", r"layers.\1.feed_forward.experts.\2.\3.weight")]
PARAMS = {"dim": models.H, "n_layers": models.LAYERS, "head_dim": models.D, "hidden_dim": 20, "n_heads": models.HEADS,
          "n_kv_heads": models.KV, "vocab_size": models.V, "norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": 4096}


def mistral(model):
    """A model's tensors under Mistral's names; row 2a+b of a head is row b*D/2+a in hf's."""
    made, half = {}, models.D // 2
    for name, value in model.tensors.items():
        found = [re.sub(f"^{old}$", new, name) for old, new in NAMES if re.match(f"^{old}$", name)]
        assert len(found) == 1, name
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            dtype, shape, _ = value
            value = models.build(dtype, shape, lambda r, c: (value, (r // models.D * models.D + r % 2 * half + r % models.D // 2, c)))
        made[found[0]] = value
    return made


def dense(rnd, tied=False):
    model = models.llama(rnd, tied=tied, rms_norm_eps=1e-05, rope_theta=1000000.0, sliding_window=4096)
    model.config["model_type"] = "mistral"
    return model


class MistralTest(NamingTest):
    def json_of(self, name):
        with open(self.at(name), encoding="utf-8") as file:
            return json.load(file)


class ThereAndBack(MistralTest):
    def check(self, model, map_name, params):
        self.write_model("source", model)
        told = self.convert("source", "mistral", "--as", "mistral", "--verify")
        self.assertEqual(told["names"], f"hf; written as mistral by map {map_name}")
        self.assertEqual(sorted(os.listdir(self.at("mistral"))), ["consolidated.safetensors", "params.json"])
        self.check_model(files.read(self.at("mistral/consolidated.safetensors"))[0], mistral(model))
        self.assertEqual(self.json_of("mistral/params.json"), params)
        self.assertEqual(self.read_json("inspect", self.at("mistral"))["naming"], "mistral")
        for source in ["mistral", "mistral/consolidated.safetensors"]:
            shutil.rmtree(self.at("back"), ignore_errors=True)
            told = self.convert(source, "back", "--as", "hf", "--verify")
            self.assertEqual(told["names"], f"mistral; written as hf by map {map_name}")
            self.assertEqual(sorted(os.listdir(self.at("back"))), ["config.json", "model.safetensors"])
            self.check_model(self.read("back"), model.tensors)
            self.assertEqual(self.digests("back"), self.digests("source"))
            config = self.json_of("back/config.json")
            self.assertEqual({key: config.get(key) for key in model.config}, model.config)

    def test_dense(self):
        self.check(dense(self.rnd), "hf-mistral", {**PARAMS, "tied_embeddings": False})

    def test_tied(self):
        self.check(dense(self.rnd, tied=True), "hf-mistral", {**PARAMS, "tied_embeddings": True})

    def test_mixtral(self):
        model = models.mixtral(self.rnd)
        model.config.update(rms_norm_eps=1e-05, rope_theta=1000000.0, num_experts_per_tok=2)
        params = {**PARAMS, "hidden_dim": 10, "tied_embeddings": False, "moe": {"num_experts": 3, "num_experts_per_tok": 2}}
        del params["sliding_window"]
        self.check(model, "hf-mistral-mixtral", params)

    def test_repository_with_both(self):
        """The folder of a release has config.json too, and the weights twice."""
        model = dense(self.rnd)
        self.write_model("source", model)
        files.write(self.at("source/consolidated.safetensors"), mistral(model))
        self.write_text("source/params.json", json.dumps(PARAMS))
        self.assertEqual(self.read_json("inspect", self.at("source"))["naming"], "hf")
        told = self.convert("source/consolidated.safetensors", "back", "--as", "hf", "--verify")
        self.assertEqual(told["names"], "mistral; written as hf by map hf-mistral")
        self.check_model(self.read("back"), model.tensors)
        self.assertEqual(self.json_of("back/config.json"), model.config)
        # The release's own params.json is better than one that is made.
        self.convert("source", "out", "--as", "mistral", "--verify")
        self.assertEqual(self.json_of("out/params.json"), PARAMS)
        self.assertFalse(os.path.exists(self.at("out/config.json")))

    def test_first_files_of_torch(self):
        model = dense(self.rnd)
        torch_files.write(self.at("old/consolidated.00.pth"), {name: torch_files.tensor(value) for name, value in mistral(model).items()})
        self.write_text("old/params.json", json.dumps(PARAMS))
        told = self.convert("old", "back", "--as", "hf", "--verify")
        self.assertEqual(told["names"], "mistral; written as hf by map hf-mistral")
        self.check_model(self.read("back"), model.tensors)

    def test_several_files(self):
        """Only if options say so, since loaders look for one."""
        model = dense(self.rnd)
        self.write_model("source", model)
        self.convert("source", "many", "--as", "mistral", "--max-shard-size", "2KB", "--verify")
        names = [name for name in os.listdir(self.at("many")) if name.endswith(".safetensors")]
        self.assertTrue(len(names) > 1 and all(re.match(r"consolidated-\d{5}-of-\d{5}\.safetensors$", name) for name in names), names)
        self.convert("many", "back", "--as", "hf", "--verify")
        self.check_model(self.read("back"), model.tensors)


class Refusals(MistralTest):
    def test_all(self):
        model = dense(self.rnd)
        self.write_model("source", model)
        self.fails("source", "out", "--as", "mistral", "--to", "tp=2", words="the format hf holds whole tensors, so it cannot be split over tp=2")
        model.config["model_type"] = "llama"
        self.write_model("llama", model)
        self.fails("llama", "out", "--as", "mistral", words='there is no map between hf and mistral for model_type "llama"; there are maps for mixtral, mistral')
        tensors = mistral(model)
        tensors["layers.0.attention.wq.qscale_weight"] = ("F32", (1,), bytes(4))
        files.write(self.at("scaled/consolidated.safetensors"), tensors)
        self.write_text("scaled/params.json", json.dumps(PARAMS))
        self.fails("scaled", "out", "--as", "hf", words='no line matches "layers.0.attention.wq.qscale_weight"')
        tied = {**mistral(dense(self.rnd, tied=True)), "output.weight": ("BF16", (models.V, models.H), bytes(2 * models.V * models.H))}
        files.write(self.at("tied/consolidated.safetensors"), tied)
        self.write_text("tied/params.json", json.dumps({**PARAMS, "tied_embeddings": True}))
        self.fails("tied", "out", "--as", "hf", words='tensor "output.weight" does not equal "tok_embeddings.weight"')


if __name__ == "__main__":
    support.main()
