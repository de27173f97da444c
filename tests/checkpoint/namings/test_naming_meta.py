# SPDX-License-Identifier: Apache-2.0
"""hf and meta: the files of Meta's releases, one for each rank of tensor parallelism, and params.json."""
import json
import os
import shutil

from naming_case import NamingTest
import models
import support
import torch_files

H, V, LAYERS, HEADS, D, WIDE, EXPERTS, INNER = 32, 48, 3, 8, 4, 24, 3, 16


class Model:
    """A model under hf's names whose heads and widths divide by 8."""

    def __init__(self, rnd, kind="llama", kv=4, tied=False, bias=False, prefix="model."):
        self.rnd, self.kv, self.tensors, self.prefix = rnd, kv, {}, prefix
        self.head = prefix[:-len("model.")]
        text = {"hidden_size": H, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": kv, "vocab_size": V,
                "intermediate_size": WIDE, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": tied}
        if kind.startswith("llama4"):
            text.update(head_dim=D, num_local_experts=EXPERTS, interleave_moe_layer_step=2, intermediate_size=INNER, num_experts_per_tok=1)
        self.config = {"model_type": kind, "text_config": text} if kind == "llama4" else {"model_type": kind, **text}
        self.add(prefix + "embed_tokens.weight", V, H)
        self.add(prefix + "norm.weight", H)
        if not tied:
            self.add(self.head + "lm_head.weight", V, H)
        for n in range(LAYERS):
            at = f"{prefix}layers.{n}."
            self.add(at + "input_layernorm.weight", H)
            self.add(at + "post_attention_layernorm.weight", H)
            for part, heads in [("q", HEADS), ("k", kv), ("v", kv)]:
                self.add(f"{at}self_attn.{part}_proj.weight", heads * D, H)
                if bias:
                    self.add(f"{at}self_attn.{part}_proj.bias", heads * D)
            self.add(at + "self_attn.o_proj.weight", H, HEADS * D)
            if kind.startswith("llama4"):
                self.add_llama4(at + "feed_forward.", (n + 1) % 2 == 0)
            else:
                self.add_dense(at + "mlp.", WIDE)

    def add(self, name, *shape):
        size = 2
        for extent in shape:
            size *= extent
        self.tensors[name] = ("BF16", shape, self.rnd.randbytes(size))

    def add_dense(self, at, rows):
        self.add(at + "gate_proj.weight", rows, H)
        self.add(at + "up_proj.weight", rows, H)
        self.add(at + "down_proj.weight", H, rows)

    def add_llama4(self, at, has_experts):
        if not has_experts:
            return self.add_dense(at, WIDE)
        self.add(at + "router.weight", EXPERTS, H)
        self.add(at + "experts.gate_up_proj", EXPERTS, H, 2 * INNER)
        self.add(at + "experts.down_proj", EXPERTS, INNER, H)
        return self.add_dense(at + "shared_expert.", INNER)


NAMES = {"input_layernorm.weight": "attention_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
         "self_attn.o_proj.weight": "attention.wo.weight", "mlp.gate_proj.weight": "feed_forward.w1.weight",
         "mlp.down_proj.weight": "feed_forward.w2.weight", "mlp.up_proj.weight": "feed_forward.w3.weight"}
NAMES4 = {"input_layernorm.weight": "attention.wqkv.layer_norm_weight", "self_attn.o_proj.weight": "attention.wo.weight",
          "feed_forward.down_proj.weight": "feed_forward.mlp.fc2_weight",
          "feed_forward.shared_expert.gate_proj.weight": "feed_forward.w_in_shared_FD.weight",
          "feed_forward.shared_expert.up_proj.weight": "feed_forward.w_swiglu_FD.weight",
          "feed_forward.shared_expert.down_proj.weight": "feed_forward.w_out_shared_DF.weight"}


def rows(value, pick):
    """The rows pick(0), pick(1), .. of a matrix or vector."""
    dtype, shape, data = value
    size = len(data) // shape[0]
    chosen = [data[r * size:(r + 1) * size] for r in pick]
    return (dtype, (len(chosen), *shape[1:]), b"".join(chosen))


def columns(value, pick):
    dtype, (height, width), _ = value
    pick = list(pick)
    return models.build(dtype, (height, len(pick)), lambda r, c: (value, (r, pick[c])))


def turn(value):
    dtype, (height, width), _ = value
    return models.build(dtype, (width, height), lambda c, r: (value, (r, c)))


def rotated(value, first, count):
    """Heads first .. first+count of q or k: row 2a+b of a head in Meta's files is row b*D/2+a in hf's."""
    return rows(value, [h * D + b * (D // 2) + a for h in range(first, first + count) for a in range(D // 2) for b in range(2)])


def share(total, rank, world):
    return range(total * rank // world, total * (rank + 1) // world)


def join(*values):
    return (values[0][0], (sum(v[1][0] for v in values), *values[0][1][1:]), b"".join(v[2] for v in values))


def heads_of(model, rank, world):
    """First head and number of heads of keys and values."""
    if world > model.kv:
        return rank * model.kv // world, 1
    return model.kv // world * rank, model.kv // world


def rank_of(model, rank, world):
    """What Meta's code has on one rank, taken from hf's tensors element by element."""
    made, get = {}, model.tensors
    at = model.prefix
    first, count = heads_of(model, rank, world)
    head = get.get(model.head + "lm_head.weight", get[at + "embed_tokens.weight"])
    made["tok_embeddings.weight"] = rows(get[at + "embed_tokens.weight"], share(V, rank, world))
    made["output.weight"] = rows(head, share(V, rank, world))
    made["norm.weight"] = get[at + "norm.weight"]
    for n in range(LAYERS):
        own = {name[len(f"{at}layers.{n}."):]: value for name, value in get.items() if name.startswith(f"{at}layers.{n}.")}
        to = f"layers.{n}."
        queries, keys = HEADS // world * rank, range(first * D, (first + count) * D)
        if model.config["model_type"] == "llama":
            for part in ["weight", "bias"]:
                if f"self_attn.q_proj.{part}" in own:
                    made[f"{to}attention.wq.{part}"] = rotated(own[f"self_attn.q_proj.{part}"], queries, HEADS // world)
                    made[f"{to}attention.wk.{part}"] = rotated(own[f"self_attn.k_proj.{part}"], first, count)
                    made[f"{to}attention.wv.{part}"] = rows(own[f"self_attn.v_proj.{part}"], keys)
        else:
            made[to + "attention.wqkv.weight"] = join(rows(own["self_attn.q_proj.weight"], share(HEADS * D, rank, world)),
                                                      rows(own["self_attn.k_proj.weight"], keys), rows(own["self_attn.v_proj.weight"], keys))
        for name, value in own.items():
            new = (NAMES if model.config["model_type"] == "llama" else NAMES4).get(name)
            if new is None:
                continue
            if new.endswith(("attention.wo.weight", "w2.weight", "fc2_weight", "w_out_shared_DF.weight")):
                value = columns(value, share(value[1][1], rank, world))
            elif not new.endswith(("norm.weight", "layer_norm_weight")):
                value = rows(value, share(value[1][0], rank, world))
            made[to + new] = value
        if model.config["model_type"] != "llama":
            llama4_layer(made, own, to + "feed_forward.", rank, world)
    return made


def llama4_layer(made, own, to, rank, world):
    norm = own["post_attention_layernorm.weight"]
    if "feed_forward.router.weight" not in own:
        wide = share(WIDE, rank, world)
        made[to + "mlp.layer_norm_weight"] = norm
        made[to + "mlp.fc1_weight"] = join(rows(own["feed_forward.gate_proj.weight"], wide), rows(own["feed_forward.up_proj.weight"], wide))
        return
    made[to + "norm.weight"] = norm
    made[to + "router_DE"] = turn(own["feed_forward.router.weight"])
    gate_up, down, wide = own["feed_forward.experts.gate_up_proj"], own["feed_forward.experts.down_proj"], share(INNER, rank, world)
    for name, begin in [("moe_w_in_eD_F", 0), ("moe_w_swiglu_eD_F", INNER)]:
        made[f"{to}experts.{name}"] = models.build("BF16", (EXPERTS * H, len(wide)), lambda r, c: (
            gate_up, (r // H, r % H, begin + wide[c])))
    size = len(wide)
    made[to + "experts.moe_w_out_eF_D"] = models.build("BF16", (EXPERTS * size, H), lambda r, c: (down, (r // size, wide[r % size], c)))


class MetaTest(NamingTest):
    def warned(self, source, target, *options, words):
        """Converts, with one warning."""
        done = support.run("convert", self.at(source), self.at(target), *options, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"\Areshard: warning: [^\n]*\n\Z")
        self.assertIn(words, done.stderr)
        return json.loads(done.stdout)

    def params(self, name):
        with open(self.at(f"{name}/params.json"), encoding="utf-8") as file:
            return json.load(file)

    def config(self, name):
        with open(self.at(f"{name}/config.json"), encoding="utf-8") as file:
            return json.load(file)

    def clear(self, *names):
        for name in names:
            shutil.rmtree(self.at(name), ignore_errors=True)

    def load_ranks(self, name, world):
        self.assertEqual(sorted(file for file in os.listdir(self.at(name)) if file.endswith(".pth")),
                         [f"consolidated.{rank:02d}.pth" for rank in range(world)])
        found = []
        for rank in range(world):
            loaded = torch_files.load(self.at(f"{name}/consolidated.{rank:02d}.pth"))
            found.append({key: value.whole() for key, value in loaded.items()})
        return found

    def write_meta(self, name, ranks, params):
        """As torch.save would write them: files that say nothing about their split."""
        for number, tensors in enumerate(ranks):
            torch_files.write(self.at(f"{name}/consolidated.{number:02d}.pth"), {key: torch_files.tensor(value) for key, value in tensors.items()})
        if params is not None:
            self.write_text(f"{name}/params.json", json.dumps(params))


PARAMS = {"dim": H, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": 4, "vocab_size": V, "multiple_of": 8, "norm_eps": 1e-05,
          "rope_theta": 500000.0}


class ThereAndBack(MetaTest):
    def check(self, model, map_name, world, *back, axis="tp"):
        self.clear("source", "meta", "back")
        self.write_model("source", model)
        told = self.write_as_meta(model, "--to", f"{axis}={world}")
        self.assertEqual((told["names"], told["format"]), (f"hf; written as meta by map {map_name}", "consolidated"))
        self.assertFalse(os.path.exists(self.at("meta/config.json")))
        for rank, found in enumerate(self.load_ranks("meta", world)):
            self.check_model(found, rank_of(model, rank, world))
        self.assertEqual(self.read_json("inspect", self.at("meta"))["naming"], "meta")
        self.check_back("meta", model, map_name, *back)
        # The same files without our record, as Meta's are: the number of files and params.json say all.
        self.clear("plain")
        self.write_meta("plain", [rank_of(model, rank, world) for rank in range(world)], self.params("meta"))
        self.check_back("plain", model, map_name, *back)

    def write_as_meta(self, model, *options):
        if model.config["model_type"].startswith("llama4"):
            return self.warned("source", "meta", "--as", "meta", "--verify", *options, words="params.json is not complete for Llama 4")
        return self.convert("source", "meta", "--as", "meta", "--verify", *options)

    def check_back(self, name, model, map_name, *options):
        self.clear("back")
        told = self.convert(name, "back", "--as", "hf", "--verify", *options)
        self.assertEqual(told["names"], f"meta; written as hf by map {map_name}")
        self.check_model(self.read("back"), model.tensors)
        self.assertEqual(self.digests("back"), self.digests("source"))
        self.assertFalse(os.path.exists(self.at("back/params.json")))
        text = self.config("back")
        self.assertEqual(text["model_type"], model.config["model_type"])
        text, wanted = text.get("text_config", text), model.config.get("text_config", model.config)
        for key in set(wanted) - {"model_type", "head_dim"}:
            self.assertEqual(text.get(key), wanted[key], key)

    def test_dense(self):
        for world in [1, 2, 4, 8]:
            with self.subTest(world=world):
                self.check(Model(self.rnd), "hf-meta-llama", world)

    def test_tied(self):
        """params.json cannot say it: the head is there twice, and an option drops it once it is compared."""
        for world in [1, 4]:
            with self.subTest(world=world):
                self.check(Model(self.rnd, tied=True, kv=2), "hf-meta-llama", world, "--set", "tie_word_embeddings=1")

    def test_one_axis_with_two_names(self):
        self.check(Model(self.rnd, kv=8), "hf-meta-llama", 2, axis="mp")

    def test_biases(self):
        self.check(Model(self.rnd, bias=True), "hf-meta-llama", 2)

    def test_llama4(self):
        for world in [1, 2, 4, 8]:
            with self.subTest(world=world):
                self.check(Model(self.rnd, "llama4", prefix="language_model.model."), "hf-meta-llama4", world)

    def test_llama4_text(self):
        model = Model(self.rnd, "llama4_text")
        self.write_model("source", model)
        self.write_as_meta(model, "--to", "tp=4")
        for rank, found in enumerate(self.load_ranks("meta", 4)):
            self.check_model(found, rank_of(model, rank, 4))
        self.convert("meta", "back", "--as", "hf", "--config", self.at("source"), "--verify")
        self.check_model(self.read("back"), model.tensors)
        self.assertEqual(self.config("back"), model.config)

    def test_another_number_of_files(self):
        model = Model(self.rnd)
        self.write_meta("two", [rank_of(model, rank, 2) for rank in range(2)], PARAMS)
        told = self.convert("two", "four", "--as", "meta", "--to", "tp=4", "--verify")
        self.assertEqual(told["names"], "meta, as is to be written")
        for rank, found in enumerate(self.load_ranks("four", 4)):
            self.check_model(found, rank_of(model, rank, 4))
        self.assertEqual(self.params("four"), PARAMS)

    def test_to_titan(self):
        model = Model(self.rnd)
        self.write_meta("two", [rank_of(model, rank, 2) for rank in range(2)], PARAMS)
        told = self.convert("two", "titan", "--as", "titan", "--verify")
        self.assertEqual(told["names"], "meta; written as titan by maps hf-meta-llama and hf-titan-llama")
        self.convert("titan", "back", "--as", "hf", "--verify")
        self.check_model(self.read("back"), model.tensors)


class Reading(MetaTest):
    def test_llama_2(self):
        """The columns of the embedding are cut, angles are there, and the size of the vocabulary is not known."""
        model = Model(self.rnd, kv=8)
        ranks = [rank_of(model, rank, 2) for rank in range(2)]
        for rank, tensors in enumerate(ranks):
            tensors["tok_embeddings.weight"] = columns(model.tensors["model.embed_tokens.weight"], share(H, rank, 2))
            tensors["rope.freqs"] = ("BF16", (D // 2,), b"\0\x3f\0\x3e")
        params = {key: value for key, value in PARAMS.items() if key != "n_kv_heads"}
        self.write_meta("source", ranks, {**params, "vocab_size": -1})
        told = self.convert("source", "back", "--as", "hf", "--verify")
        self.assertIn('the map drops 1 tensor ("rope.freqs")', told["notes"])
        self.check_model(self.read("back"), model.tensors)
        self.assertEqual((self.config("back")["vocab_size"], self.config("back")["num_key_value_heads"]), (V, HEADS))

    def test_nested_params(self):
        model = Model(self.rnd)
        self.write_meta("source", [rank_of(model, 0, 1)], {"model": PARAMS})
        self.convert("source", "back", "--as", "hf", "--verify")
        self.check_model(self.read("back"), model.tensors)

    def test_views_into_one_storage(self):
        """The first files held norms as parts of larger storages."""
        model = Model(self.rnd)
        tensors = rank_of(model, 0, 1)
        made = {key: torch_files.tensor(value) for key, value in tensors.items()}
        big = torch_files.Storage("BF16", tensors["norm.weight"][2] + tensors["layers.0.ffn_norm.weight"][2])
        made["norm.weight"] = torch_files.View(big, 0, (H,), (1,))
        made["layers.0.ffn_norm.weight"] = torch_files.View(big, H, (H,), (1,))
        torch_files.write(self.at("source/consolidated.00.pth"), made)
        self.write_text("source/params.json", json.dumps(PARAMS))
        self.convert("source", "back", "--as", "hf", "--verify")
        self.check_model(self.read("back"), model.tensors)

    def test_counters_of_llama4_are_dropped(self):
        model = Model(self.rnd, "llama4", prefix="language_model.model.")
        tensors = rank_of(model, 0, 1)
        tensors["layers.1.feed_forward.global_gate_stats_3E"] = ("BF16", (3, EXPERTS), bytes(6 * EXPERTS))
        tensors["layers.1.feed_forward.expert_activation_DE"] = ("BF16", (H, EXPERTS), bytes(2 * H * EXPERTS))
        params = {**PARAMS, "moe_args": {"num_experts": EXPERTS, "interleave_moe_layer_step": 2}}
        self.write_meta("source", [tensors], params)
        told = self.convert("source", "back", "--as", "hf", "--verify")
        self.assertTrue(any("the map drops 2 tensors" in note for note in told["notes"]), told["notes"])
        self.check_model(self.read("back"), model.tensors)

    def test_text_of_llama4_with_images(self):
        """As docs/maps.md advises, both ways."""
        model = Model(self.rnd, "llama4", prefix="language_model.model.")
        text = dict(model.tensors)
        model.add("vision_model.patch_embedding.linear.weight", 4, 4)
        model.add("multi_modal_projector.linear_1.weight", 4, 4)
        self.write_model("source", model)
        self.fails("source", "meta", "--as", "meta", words="multi_modal_projector.linear_1.weight")
        self.warned("source", "meta", "--as", "meta", "--to", "tp=2", "--include", "language_model.*", words="params.json is not complete for Llama 4")
        for rank, found in enumerate(self.load_ranks("meta", 2)):
            self.check_model(found, rank_of(model, rank, 2))
        rules = self.write_text("text.rules", "vision_* drop\nuse meta\n")
        for world in [1, 2]:
            self.clear("images", "back")
            ranks = [rank_of(model, rank, world) for rank in range(world)]
            for rank, made in enumerate(ranks):
                made["vision_embeddings.vision_encoder.class_embedding"] = ("BF16", (4,), bytes([rank]) * 8)
                made["vision_projection.weight"] = ("BF16", (4, 2), bytes(16))
            self.write_meta("images", ranks, self.params("meta"))
            self.fails("images", "back", "--as", "hf", words="vision_")
            told = self.convert("images", "back", "--as", "hf", "--verify", "--from", f"tp={world}", "--from-rules", rules)
            self.check_model(self.read("back"), text)
            self.assertTrue(any("left out by the rules: 2 tensors" in note for note in told["notes"]), told["notes"])

    def test_whole_tensors_under_its_names(self):
        """Joined without a map, the folder is recognised by params.json, which goes along."""
        model = Model(self.rnd)
        self.write_meta("two", [rank_of(model, rank, 2) for rank in range(2)], PARAMS)
        self.convert("two", "whole")
        self.check_model(self.read("whole"), {**rank_of(model, 0, 1)})
        self.assertEqual(self.read_json("inspect", self.at("whole"))["naming"], "meta")
        self.convert("whole", "back", "--as", "hf", "--verify")
        self.check_model(self.read("back"), model.tensors)

    def test_one_of_several_files(self):
        model = Model(self.rnd)
        self.write_meta("two", [rank_of(model, rank, 2) for rank in range(2)], PARAMS)
        for number in range(2):
            done = support.run("inspect", self.at(f"two/consolidated.{number:02d}.pth"))
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"reshard: warning: consolidated.{number:02d}.pth is the file of one of several ranks", done.stderr)

    def test_unrelated_params(self):
        """A params.json of another program changes nothing."""
        model = Model(self.rnd)
        for number, text in enumerate(['{"lr": 0.1}', "not JSON", "[1]"]):
            self.write_hf(f"source{number}", model.tensors, model.config)
            self.write_text(f"source{number}/params.json", text)
            self.assertEqual(self.read_json("inspect", self.at(f"source{number}"))["naming"], "hf")
            self.convert(f"source{number}", f"out{number}", "--as", "meta")
            self.assertEqual(self.params(f"out{number}")["dim"], H)


class Params(MetaTest):
    """params.json and config.json."""

    def width(self, params):
        width = int(8 * params["dim"] / 3)
        width = int(params.get("ffn_dim_multiplier", 1) * width)
        return -(-width // params["multiple_of"]) * params["multiple_of"]

    def test_from_config(self):
        model = Model(self.rnd)
        model.config.update(rope_scaling={"rope_type": "llama3", "factor": 8.0}, sliding_window=7)
        self.write_model("source", model)
        told = self.convert("source", "out", "--as", "meta")
        params = self.params("out")
        self.assertEqual(self.width(params), WIDE)
        wanted = {key: value for key, value in PARAMS.items() if key != "multiple_of"}
        self.assertEqual({key: params[key] for key in wanted}, wanted)
        self.assertIs(params["use_scaled_rope"], True)
        self.assertIn("params.json is made from config.json, without its keys sliding_window", told["notes"])
        self.warned("out", "back", "--as", "hf", words="rope_scaling has the factor 8.0 of Llama 3.1")
        self.assertEqual(self.config("back")["rope_scaling"]["factor"], 8.0)

    def test_what_it_cannot_say(self):
        model = Model(self.rnd)
        model.config["rope_scaling"] = {"rope_type": "llama3", "factor": 32.0}
        self.write_model("source", model)
        self.warned("source", "out", "--as", "meta", words="cannot express that rope_scaling has the factor 32.0")
        model.config["rope_scaling"] = {"type": "linear", "factor": 2.0}
        self.write_model("linear", model)
        self.warned("linear", "out2", "--as", "meta", words='cannot express rope_scaling of type "linear"')

    def test_defaults_of_config(self):
        model = Model(self.rnd)
        for key in ["rope_theta", "rms_norm_eps"]:
            del model.config[key]
        self.write_model("source", model)
        self.convert("source", "out", "--as", "meta")
        self.assertEqual((self.params("out")["rope_theta"], self.params("out")["norm_eps"]), (10000.0, 1e-6))


class Refusals(MetaTest):
    def setUp(self):
        super().setUp()
        self.model = Model(self.rnd)
        self.ranks = [rank_of(self.model, rank, 4) for rank in range(4)]

    def test_types(self):
        self.model.config["model_type"] = "qwen3"
        self.write_model("source", self.model)
        self.fails("source", "out", "--as", "meta",
                   words='there is no map between hf and meta for model_type "qwen3"; there are maps for llama, llama4, llama4_text')

    def test_meshes(self):
        self.write_model("source", self.model)
        for mesh in ["fsdp=2", "tp=2,pp=2"]:
            self.fails("source", "out", "--as", "meta", "--to", mesh, words="no rule")
        self.fails("source", "out", "--as", "meta", "--to", "tp=2,mp=2", words="are split over one axis, tp (or mp)")
        self.fails("source", "out", "--as", "meta", "--to", "tp=3", words="4 units of 4")
        self.fails("source", "out", "--as", "meta", "--to", "tp=16", words="8 units of 4")

    def test_heads_of_another_size(self):
        self.write_model("wide", models.llama(self.rnd))
        self.fails("wide", "out", "--as", "meta", words="its 4 heads have 6 rows each (head_dim), but in Meta's files they have "
                   "hidden_size / num_attention_heads, here 12/4")

    def test_missing_files(self):
        self.write_meta("gap", self.ranks, PARAMS)
        os.remove(self.at("gap/consolidated.01.pth"))
        self.fails("gap", "out", "--as", "hf", words="consolidated.01.pth is missing beside consolidated.02.pth")
        self.write_meta("end", self.ranks[:3], PARAMS)
        self.fails("end", "out", "--as", "hf", words="tp=3")
        self.write_meta("half", self.ranks[:2], PARAMS)
        self.fails("half", "out", "--as", "hf", words="joined over tp=2")

    def test_two_files_with_a_number(self):
        self.write_meta("twice", self.ranks, PARAMS)
        shutil.copy(self.at("twice/consolidated.01.pth"), self.at("twice/consolidated.001.pth"))
        self.fails("twice", "out", "--as", "hf", words="have the same number; remove one of them")

    def test_params_without_sizes(self):
        for number, text in enumerate(["{", '{"dim": 32}', "[]"]):
            self.write_meta(f"source{number}", self.ranks, None)
            self.write_text(f"source{number}/params.json", text)
            self.fails(f"source{number}", "out", "--as", "hf", words="params.json does not describe the model")

    def test_no_params(self):
        self.write_meta("bare", self.ranks, None)
        self.fails("bare", "out", "--as", "hf", words="params.json is missing beside consolidated.00.pth")
        # A config.json from elsewhere says the same.
        self.write_model("model", self.model)
        self.convert("bare", "out", "--as", "hf", "--config", self.at("model"), "--verify")
        self.check_model(self.read("out"), self.model.tensors)

    def test_head_that_is_not_tied(self):
        self.write_meta("source", self.ranks, PARAMS)
        self.fails("source", "out", "--as", "hf", "--set", "tie_word_embeddings=1",
                   words='tensor "output.weight" does not equal "tok_embeddings.weight"')

    def test_unknown_names(self):
        for tensors in self.ranks:
            tensors["vision.weight"] = ("BF16", (2,), b"1234")
        self.write_meta("source", self.ranks, PARAMS)
        self.fails("source", "out", "--as", "hf", words='vision.weight')


if __name__ == "__main__":
    support.main()
