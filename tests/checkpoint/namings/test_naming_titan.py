# SPDX-License-Identifier: Apache-2.0
"""hf and titan: torchtitan's keys, in a DCP folder."""
import re
import shutil

from naming_case import NamingTest
import models
import support
import test_naming_hf5

NAMES = [("model.embed_tokens.weight", "tok_embeddings.weight"), ("model.norm.weight", "norm.weight"), ("lm_head.weight", "lm_head.weight"),
         (r"model.layers.(\d+).input_layernorm.weight", r"layers.\1.attention_norm.weight"),
         (r"model.layers.(\d+).post_attention_layernorm.weight", r"layers.\1.ffn_norm.weight"),
         (r"model.layers.(\d+).self_attn.([qkv])_proj.(weight|bias)", r"layers.\1.attention.qkv_linear.w\2.\3"),
         (r"model.layers.(\d+).self_attn.o_proj.(weight|bias)", r"layers.\1.attention.wo.\2"),
         (r"model.layers.(\d+).self_attn.([qk]_norm).weight", r"layers.\1.attention.\2.weight"),
         (r"model.layers.(\d+).self_attn.q_a_proj.weight", r"layers.\1.attention.wq_a.weight"),
         (r"model.layers.(\d+).self_attn.q_a_layernorm.weight", r"layers.\1.attention.q_norm.weight"),
         (r"model.layers.(\d+).self_attn.q_b_proj.weight", r"layers.\1.attention.wq_b.weight"),
         (r"model.layers.(\d+).self_attn.kv_a_proj_with_mqa.weight", r"layers.\1.attention.wkv_a.weight"),
         (r"model.layers.(\d+).self_attn.kv_a_layernorm.weight", r"layers.\1.attention.kv_norm.weight"),
         (r"model.layers.(\d+).self_attn.kv_b_proj.weight", r"layers.\1.attention.wkv_b.weight"),
         (r"model.layers.(\d+).self_attn.sinks", r"layers.\1.attention.sinks"),
         (r"model.layers.(\d+).mlp.gate_proj.weight", r"layers.\1.feed_forward.w1.weight"),
         (r"model.layers.(\d+).mlp.down_proj.weight", r"layers.\1.feed_forward.w2.weight"),
         (r"model.layers.(\d+).mlp.up_proj.weight", r"layers.\1.feed_forward.w3.weight"),
         (r"model.layers.(\d+).mlp.shared_experts.gate_proj.weight", r"layers.\1.moe.shared_experts.w1.weight"),
         (r"model.layers.(\d+).mlp.shared_experts.down_proj.weight", r"layers.\1.moe.shared_experts.w2.weight"),
         (r"model.layers.(\d+).mlp.shared_experts.up_proj.weight", r"layers.\1.moe.shared_experts.w3.weight"),
         (r"model.layers.(\d+).mlp.gate.weight", r"layers.\1.moe.router.gate.weight"),
         (r"model.layers.(\d+).mlp.gate.e_score_correction_bias", r"layers.\1.moe.expert_bias_E"),
         (r"model.layers.(\d+).mlp.router.(weight|bias)", r"layers.\1.moe.router.gate.\2"),
         (r"model.layers.(\d+).mlp.experts.gate_up_proj", r"layers.\1.moe.routed_experts.inner_experts.mlp1_weight"),
         (r"model.layers.(\d+).mlp.experts.gate_up_proj_bias", r"layers.\1.moe.routed_experts.inner_experts.mlp1_bias"),
         (r"model.layers.(\d+).mlp.experts.down_proj", r"layers.\1.moe.routed_experts.inner_experts.mlp2_weight"),
         (r"model.layers.(\d+).mlp.experts.down_proj_bias", r"layers.\1.moe.routed_experts.inner_experts.mlp2_bias")]
EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight$")
STACKS = {"gate": "w1_EFD", "down": "w2_EDF", "up": "w3_EFD"}


def rotate(value, heads):
    """Row (head, half, place) of hf is row (head, place, half) of titan."""
    dtype, (rows, columns), _ = value
    size = rows // heads
    return models.build(dtype, (rows, columns), lambda r, c: (
        value, (r // size * size + r % size % 2 * (size // 2) + r % size // 2, c)))


def turn(value):
    dtype, (experts, rows, columns), _ = value
    return models.build(dtype, (experts, columns, rows), lambda e, c, r: (value, (e, r, c)))


def rename(name):
    found = [re.sub(f"^{old}$", new, name) for old, new in NAMES if re.match(f"^{old}$", name)]
    assert len(found) == 1, (name, found)
    return found[0]


def titan(model):
    """What torchtitan's newest release calls a model's tensors, element by element."""
    made, stacks = {}, {}
    for name, value in model.tensors.items():
        expert = EXPERT.match(name)
        if expert is not None:
            layer, number, part = expert.groups()
            stacks.setdefault(f"layers.{layer}.moe.routed_experts.inner_experts.{STACKS[part]}", {})[int(number)] = value
            continue
        if model.config["model_type"] == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            value = rotate(value, models.HEADS if "q_proj" in name else models.KV)
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            value = turn(value)
        made[rename(name)] = value
    for name, parts in stacks.items():
        dtype, shape, _ = parts[0]
        made[name] = models.build(dtype, (len(parts), *shape), lambda e, r, c: (parts[e], (r, c)))
    if model.config["tie_word_embeddings"]:
        made["lm_head.weight"] = made["tok_embeddings.weight"]
    return made


def older(tensors, generation):
    """The same under the names of an older release."""
    made = {}
    for name, value in tensors.items():
        name = name.replace("qkv_linear.", "").replace("routed_experts.inner_experts.", "experts.")
        if generation == 1:
            name = re.sub("_(EFD|EDF|E)$", "", name).replace("lm_head", "output")
        made[name] = value
    return made


class ThereAndBack(NamingTest):
    def whole(self, name):
        """The tensors of a DCP folder, written whole without a map."""
        shutil.rmtree(self.at("whole"), ignore_errors=True)
        self.convert(name, "whole")
        return self.read("whole")

    def check(self, model, map_name, *options):
        for name in ["source", "titan", "back"]:
            shutil.rmtree(self.at(name), ignore_errors=True)
        self.write_model("source", model)
        told = self.convert("source", "titan", "--as", "titan", "--verify", *options)
        self.assertEqual((told["names"], told["format"]), (f"hf; written as titan by map {map_name}", "dcp"))
        self.check_model(self.whole("titan"), titan(model))
        told = self.convert("titan", "back", "--as", "hf", "--verify")
        self.assertEqual(told["names"], f"titan; written as hf by map {map_name}")
        self.check_model(self.read("back"), model.tensors)
        self.assertEqual(self.digests("back"), self.digests("source"))

    def test_llama(self):
        self.check(models.llama(self.rnd), "hf-titan-llama")
        self.check(models.llama(self.rnd), "hf-titan-llama", "--to", "fsdp=3")

    def test_llama_with_a_tied_head(self):
        self.check(models.llama(self.rnd, tied=True), "hf-titan-llama")

    def test_qwen3(self):
        self.check(models.qwen3(self.rnd), "hf-titan-qwen3")

    def test_qwen3_moe(self):
        self.check(models.qwen3_moe(self.rnd), "hf-titan-qwen3_moe")

    def test_deepseek_v3(self):
        model = models.deepseek_v3(self.rnd)
        self.write_model("all", model)
        self.fails("all", "out", "--as", "titan", words=f'no line matches "model.layers.{models.LAYERS}.')
        model.tensors = {name: value for name, value in model.tensors.items() if f"layers.{models.LAYERS}." not in name}
        self.check(model, "hf-titan-deepseek_v3")

    def test_gpt_oss(self):
        self.check(models.gpt_oss(self.rnd), "hf-titan-gpt_oss")


class Releases(NamingTest):
    def test_older_names(self):
        for make in [models.llama, models.qwen3_moe, lambda rnd: models.llama(rnd, tied=True)]:
            for generation in [1, 2]:
                with self.subTest(generation=generation):
                    for name in ["old", "back"]:
                        shutil.rmtree(self.at(name), ignore_errors=True)
                    model = make(self.rnd)
                    self.write_hf("old", older(titan(model), generation), model.config)
                    told = self.convert("old", "back", "--as", "hf", "--verify")
                    self.assertTrue(told["names"].startswith("titan; written as hf"), told["names"])
                    self.check_model(self.read("back"), model.tensors)

    def test_head_that_is_not_tied(self):
        """config.json says that it is: the difference is an error."""
        model = models.llama(self.rnd, tied=True)
        made = titan(model)
        made["lm_head.weight"] = ("BF16", made["lm_head.weight"][1], self.rnd.randbytes(len(made["lm_head.weight"][2])))
        self.write_hf("source", made, model.config)
        self.fails("source", "out", "--as", "hf", words='tensor "lm_head.weight" does not equal "tok_embeddings.weight"')

    def test_tied_head_in_hf(self):
        """It may be there, and is then compared."""
        model = models.llama(self.rnd, tied=True)
        self.write_hf("source", {**model.tensors, "lm_head.weight": model.tensors["model.embed_tokens.weight"]}, model.config)
        self.convert("source", "out", "--as", "titan", "--verify")
        self.convert("out", "whole")
        self.check_model(self.read("whole"), titan(model))


class Refusals(NamingTest):
    def test_missing_tensors(self):
        """Layers of these models are alike, so each tensor of one has to be in all of them."""
        for make in (models.llama, models.qwen3):
            model = make(self.rnd)
            del model.tensors["model.layers.1.mlp.up_proj.weight"]
            self.write_model("source", model)
            self.fails("source", "out", "--as", "titan", words='there is no "model.layers.1.mlp.up_proj.weight"')

    def test_types(self):
        model = models.llama(self.rnd)
        model.config["model_type"] = "gemma3_text"
        self.write_model("source", model)
        self.fails("source", "out", "--as", "titan",
                   words='there is no map between hf and titan for model_type "gemma3_text"; there are maps for deepseek_v3, gpt_oss, llama, qwen3')
        self.write_hf("bare", model.tensors)
        self.fails("bare", "out", "--as", "titan", words="no config.json names a model_type, which decides the map between hf and titan")


class Joined(NamingTest):
    """From hf5 to titan and back, by way of hf but without it."""

    def test_two_maps(self):
        model = models.qwen3_moe(self.rnd)
        self.write_hf("fused", test_naming_hf5.fuse(model.tensors), model.config)
        told = self.convert("fused", "titan", "--as", "titan", "--verify")
        self.assertEqual(told["names"], "hf5; written as titan by maps hf-hf5 and hf-titan-qwen3_moe")
        self.convert("titan", "whole")
        self.check_model(self.read("whole"), titan(model))
        told = self.convert("titan", "back", "--as", "hf5", "--verify")
        self.assertEqual(told["names"], "titan; written as hf5 by maps hf-titan-qwen3_moe and hf-hf5")
        self.check_model(self.read("back"), test_naming_hf5.fuse(model.tensors))
        plan = self.read_json("plan", self.at("fused"), "--as", "titan", "--tensors")
        rows = {row["name"]: row for row in plan["tensor_list"]}
        row = rows["layers.1.moe.routed_experts.inner_experts.w1_EFD"]
        self.assertEqual((row["map"], row["sources"]), ("hf-titan-experts", ["model.layers.1.mlp.experts.gate_up_proj"]))

    def test_states_of_optimizers(self):
        """They are found among the tensors in between, too."""
        model = models.qwen3_moe(self.rnd, experts=2)
        step = ("F32", (), b"\0\0\x80\x3f")

        def with_states(tensors, moments):
            made = dict(tensors)
            for name, value in moments.items():
                made[f"optim.state.{name}.exp_avg"] = value
                made[f"optim.state.{name}.step"] = step
            return made

        moments = models.qwen3_moe(self.rnd, experts=2)
        fused = with_states(test_naming_hf5.fuse(model.tensors), test_naming_hf5.fuse(moments.tensors))
        self.write_hf("fused", fused, model.config)
        told = self.convert("fused", "titan", "--as", "titan", "--verify")
        self.assertEqual([note for note in told["notes"] if "cuts off" in note or "leaves out" in note], [])
        self.convert("titan", "whole", "--all")
        self.check_model(self.read("whole"), with_states(titan(model), titan(moments)))
        self.convert("titan", "back", "--as", "hf5", "--all", "--verify")
        self.check_model(self.read("back"), fused)
        # Steps that are joined have to be equal, by whichever maps.
        odd = with_states(titan(model), titan(moments))
        odd["optim.state.layers.1.moe.routed_experts.inner_experts.w3_EFD.step"] = ("F32", (), b"\0\0\0\x40")
        self.write_hf("odd", odd, model.config)
        self.fails("odd", "out", "--as", "hf5", "--all", words='inner_experts.w3_EFD.step" does not equal "optim.state.layers.1')


if __name__ == "__main__":
    support.main()
