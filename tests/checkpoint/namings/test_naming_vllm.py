# SPDX-License-Identifier: Apache-2.0
"""The namings vllm and sglang: what every rank gets, by slices that share no code with the library, and the way back."""
import json
import os
import random
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import engine_models as engines
import files
import support
from convert_case import SEED, ConvertTest


class EngineTest(ConvertTest):
    def setUp(self):
        super().setUp()
        self.rnd = random.Random(SEED)

    def write_model(self, model, name="hf"):
        self.write_hf(name, model.tensors, model.config)
        return model

    def ranks(self, name, tp):
        """What the parts of each rank hold together."""
        found = [{} for _ in range(tp)]
        for file in sorted(os.listdir(self.at(name))):
            if not file.endswith(".safetensors"):
                continue
            rank = int(file.split("-")[2])
            tensors, _, begin = files.read(self.at(f"{name}/{file}"))
            self.assertEqual(begin % 4096, 0)
            self.assertFalse(set(tensors) & set(found[rank]), file)
            found[rank].update(tensors)
        return found

    def check_ranks(self, name, wanted):
        for rank, (found, one) in enumerate(zip(self.ranks(name, len(wanted)), wanted)):
            self.assertEqual(sorted(found), sorted(one), rank)
            for key, value in one.items():
                self.assertEqual(found[key][:2], value[:2], (rank, key))
                self.assertTrue(found[key][2] == value[2], (rank, key))

    def digests(self, name):
        return self.read_json("digest", self.at(name))["tensors"]

    def check_both_ways(self, model, tp, ep=1, version=None, naming="vllm"):
        name = f"{naming}-{tp}-{ep}-{version}"
        sets = [] if version is None else ["--set", f"vllm_version={version}"]
        mesh = f"tp={tp}" if ep == 1 else f"tp={tp},ep={ep}"
        self.convert("hf", name, "--as", naming, "--to", mesh, "--verify", *sets)
        number = 0 if naming == "sglang" else 28 if version is None else version
        self.check_ranks(name, [model.engine(rank, tp, ep, number) for rank in range(tp)])
        self.assertEqual(sorted(file for file in os.listdir(self.at(name)) if file.endswith(".safetensors")),
                         sorted(f"model-rank-{rank}-part-0.safetensors" for rank in range(tp)))
        told = self.convert(name, name + "-back", "--as", "hf", "--verify", *sets)
        self.assertEqual(told["warnings"], [])
        self.assertEqual(files.read_hf(self.at(name + "-back")), model.tensors)
        self.assertEqual(self.digests(name + "-back"), self.digests("hf"))
        return name

    def check_model(self, model, *dealt):
        self.write_model(model)
        for tp in (1, 2, 4, 8):
            self.check_both_ways(model, tp)
        for tp in dealt:
            self.check_both_ways(model, tp, tp)


class Dense(EngineTest):
    def test_llama(self):
        self.check_model(engines.Llama(self.rnd))

    def test_llama_tied(self):
        self.check_model(engines.Llama(self.rnd, tied=True))

    def test_qwen2_with_biases(self):
        self.check_model(engines.Qwen2(self.rnd))

    def test_qwen3_with_norms(self):
        self.check_model(engines.Qwen3(self.rnd, tied=True))

    def test_many_heads(self):
        """As many key-value heads as ranks, and more."""
        self.check_model(engines.Llama(self.rnd, kv=8))

    def test_table_made_by_hand(self):
        model = self.write_model(engines.Llama(self.rnd))
        head = model.tensors["lm_head.weight"][2]
        for tp, (qkv, o, gate_up, down, vocabulary, heads) in engines.TABLE.items():
            self.convert("hf", f"t{tp}", "--as", "vllm", "--to", f"tp={tp}")
            for rank, found in enumerate(self.ranks(f"t{tp}", tp)):
                at = "model.layers.1."
                for name, shape in [(at + "self_attn.qkv_proj", qkv), (at + "self_attn.o_proj", o), (at + "mlp.gate_up_proj", gate_up),
                                    (at + "mlp.down_proj", down), ("lm_head", vocabulary), ("model.embed_tokens", vocabulary)]:
                    self.assertEqual(found[name + ".weight"][:2], ("BF16", shape), (tp, rank, name))
                key = model.tensors[at + "self_attn.k_proj.weight"][2]
                rows = found[at + "self_attn.qkv_proj.weight"][2]
                row = 2 * engines.H
                first = 8 * 8 // tp * row  # behind the query's rows
                for place, h in enumerate(heads[rank]):
                    self.assertEqual(rows[first + place * 8 * row:first + (place + 1) * 8 * row], key[h * 8 * row:(h + 1) * 8 * row])
                real = max(0, min(vocabulary[0], 100 - rank * vocabulary[0])) * row
                data = found["lm_head.weight"][2]
                self.assertEqual(data[:real], head[rank * vocabulary[0] * row:][:real])
                self.assertEqual(data[real:], bytes(len(data) - real))
                if (tp, rank) in [(4, 3), (8, 6)]:
                    self.assertEqual(real, 4 * row)
                if (tp, rank) == (8, 7):
                    self.assertEqual(real, 0)
                for x in ("_k_scale", "_v_scale", "_q_scale", "_prob_scale"):
                    self.assertEqual(found[f"{at}self_attn.attn.{x}"], ("F32", (), struct.pack("<f", 1.0)))

    def test_releases(self):
        """0.14 began to ask for scales."""
        model = self.write_model(engines.Llama(self.rnd))
        for version in (13, 14):
            name = self.check_both_ways(model, 2, version=version)
            self.assertEqual(any("scale" in key for key in self.ranks(name, 2)[0]), version >= 14)

    def test_sglang(self):
        for model in (engines.Llama(self.rnd), engines.Llama(self.rnd, tied=True), engines.Qwen2(self.rnd), engines.Qwen3(self.rnd)):
            self.write_model(model)
            for tp in (1, 2, 4, 8):
                name = self.check_both_ways(model, tp, naming="sglang")
                self.assertNotIn("scale", "".join(self.ranks(name, tp)[0]))
                for made in (name, name + "-back"):
                    support.shutil.rmtree(self.at(made))

    def test_without_a_mesh(self):
        """One rank."""
        model = self.write_model(engines.Llama(self.rnd))
        self.convert("hf", "one", "--as", "vllm")
        self.check_ranks("one", [model.engine(0, 1)])

    def test_head_that_is_there_though_tied(self):
        """It has to be the embedding, and is left out. A line says so."""
        model = engines.Llama(self.rnd, tied=True)
        model.tensors["lm_head.weight"] = model.tensors["model.embed_tokens.weight"]
        self.write_model(model)
        told = self.convert("hf", "tied", "--as", "vllm", "--to", "tp=2")
        self.assertIn('the head is tied: "lm_head.weight" serves as head and embedding, and "model.embed_tokens.weight" is not written',
                      told["notes"])
        self.check_ranks("tied", [model.engine(rank, 2) for rank in range(2)])
        self.assertIn("the map leaves out 1 tensor once it is compared", "\n".join(told["notes"]))
        told = self.convert("tied", "back", "--as", "hf")
        self.assertIn('the head is tied: "model.embed_tokens.weight" serves as head and embedding, and "lm_head.weight" is not written',
                      told["notes"])
        self.assertNotIn("lm_head.weight", files.read_hf(self.at("back")))
        dtype, shape, data = model.tensors["lm_head.weight"]
        model.tensors["lm_head.weight"] = (dtype, shape, data[:-1] + bytes([data[-1] ^ 1]))
        self.write_model(model)
        self.fails("hf", "bad", "--as", "vllm", "--to", "tp=2", words='"lm_head.weight" does not equal "model.embed_tokens.weight"')


class Experts(EngineTest):
    def test_mixtral(self):
        self.check_model(engines.Mixtral(self.rnd), 2, 8)

    def test_qwen3_moe(self):
        self.check_model(engines.Qwen3Moe(self.rnd), 2, 4)

    def test_qwen3_moe_dense_layers_and_uneven_experts(self):
        """Nine experts on two and four ranks: the first ones have one more."""
        model = self.write_model(engines.Qwen3Moe(self.rnd, dense=[1], experts=9))
        for tp in (2, 4):
            self.check_both_ways(model, tp, tp)

    def test_qwen2_moe(self):
        self.check_model(engines.Qwen2Moe(self.rnd), 4)

    def test_deepseek_v3(self):
        self.check_model(engines.DeepSeek(self.rnd), 2, 8)

    def test_deepseek_without_query_lora(self):
        self.check_model(engines.DeepSeek(self.rnd, lora=False, bias_of_router=False))

    def test_deepseek_v3_in_fp8(self):
        """Scales of blocks go with their weights."""
        model = self.write_model(engines.DeepSeekFp8(self.rnd))
        for tp, ep in ((1, 1), (2, 1), (2, 2)):
            self.check_both_ways(model, tp, ep)

    def test_gpt_oss(self):
        self.check_model(engines.GptOss(self.rnd), 2, 8)

    def test_llama4(self):
        self.check_model(engines.Llama4(self.rnd), 2, 8)

    def test_releases(self):
        """Names of experts, routers and shared experts changed."""
        for make in (engines.Mixtral, engines.Qwen3Moe, engines.Qwen2Moe, engines.DeepSeek, engines.GptOss, engines.Llama4):
            model = self.write_model(make(self.rnd))
            for version in (11, 13, 17, 20, 22, 24):
                name = self.check_both_ways(model, 2, version=version)
                for made in (name, name + "-back"):
                    support.shutil.rmtree(self.at(made))

    def test_layers_that_predict(self):
        """They are left out, and a line says so."""
        model = self.write_model(engines.DeepSeek(self.rnd, predicts=True))
        told = self.convert("hf", "two", "--as", "vllm", "--to", "tp=2")
        self.check_ranks("two", [model.engine(rank, 2) for rank in range(2)])
        self.assertIn('the map drops 2 tensors ("model.layers.2.eh_proj.weight" and others)', "\n".join(told["notes"]))


class Files(EngineTest):
    def test_parts(self):
        """A tensor that does not fit begins another part, and a first one that is too large does not leave an empty part."""
        model = self.write_model(engines.Llama(self.rnd))
        self.convert("hf", "parts", "--as", "vllm", "--to", "tp=2", "--max-shard-size", "10000", "--verify")
        self.check_ranks("parts", [model.engine(rank, 2) for rank in range(2)])
        sizes = {}
        for file in os.listdir(self.at("parts")):
            if file.endswith(".safetensors"):
                tensors = files.read(self.at(f"parts/{file}"))[0]
                sizes[file] = [len(value[2]) for value in tensors.values()]
        self.assertGreater(len(sizes), 8)
        for file, each in sizes.items():
            self.assertTrue(len(each) == 1 or sum(each) <= 10000, file)
            self.assertNotEqual(each, [], file)
        for rank in range(2):
            numbers = sorted(int(file.split("-")[4].split(".")[0]) for file in sizes if f"rank-{rank}-" in file)
            self.assertEqual(numbers, list(range(len(numbers))))
        self.convert("parts", "back", "--as", "hf", "--verify")
        self.assertEqual(files.read_hf(self.at("back")), model.tensors)

    def test_other_files_go_along(self):
        """But no index, which the source has."""
        model = engines.Llama(self.rnd)
        names = sorted(model.tensors)
        half = {name: model.tensors[name] for name in names[::2]}
        rest = {name: model.tensors[name] for name in names[1::2]}
        self.write_hf("hf", {}, model.config)
        os.remove(self.at("hf/model.safetensors"))
        files.write(self.at("hf/model-00001-of-00002.safetensors"), half)
        files.write(self.at("hf/model-00002-of-00002.safetensors"), rest)
        index = {"weight_map": {name: f"model-0000{1 + (name in rest)}-of-00002.safetensors" for name in names}}
        self.write_text("hf/model.safetensors.index.json", json.dumps(index))
        self.write_text("hf/tokenizer.json", "{}")
        self.convert("hf", "two", "--as", "vllm", "--to", "tp=2")
        self.assertEqual(sorted(os.listdir(self.at("two"))),
                         ["config.json", "model-rank-0-part-0.safetensors", "model-rank-1-part-0.safetensors", "tokenizer.json"])
        self.check_ranks("two", [model.engine(rank, 2) for rank in range(2)])
        # the engine's own example copies the index along
        self.write_text("two/model.safetensors.index.json", json.dumps(index))
        self.convert("two", "back", "--as", "hf")
        self.assertEqual(files.read_hf(self.at("back")), model.tensors)

    def engine_folder(self, model, tp, ep=1, change=None, name="engine"):
        """A folder as the engine itself would write it: no metadata."""
        for rank in range(tp):
            tensors = model.engine(rank, tp, ep)
            if change is not None:
                change(rank, tensors)
            files.write(self.at(f"{name}/model-rank-{rank}-part-0.safetensors"), tensors)
        self.write_text(name + "/config.json", json.dumps(model.config))

    def test_what_engines_wrote(self):
        """Dense weights are safe. With an empty part, which the engine leaves where the first tensor is too large."""
        model = self.write_model(engines.Qwen3(self.rnd))
        self.engine_folder(model, 4)
        os.rename(self.at("engine/model-rank-2-part-0.safetensors"), self.at("engine/model-rank-2-part-1.safetensors"))
        files.write(self.at("engine/model-rank-2-part-0.safetensors"), {})
        told = self.convert("engine", "back", "--as", "hf")
        self.assertEqual(told["warnings"], [])
        self.assertEqual(files.read_hf(self.at("back")), model.tensors)
        self.assertEqual(self.read_json("inspect", self.at("engine"))["format"], "sharded-state")
        files.write(self.at("engine/other.safetensors"), {})
        self.assertIn('left out: 1 file of weights beside the ranks\' files ("other.safetensors")',
                      self.read_json("inspect", self.at("engine"))["notes"])

    def test_experts_that_engines_wrote(self):
        """Taken as logical, with a warning; dealt out or not, as the number of experts tells."""
        for make in (engines.Mixtral, engines.GptOss):
            model = self.write_model(make(self.rnd))
            for ep in (1, 4):
                self.engine_folder(model, 4, ep, name=f"{make.__name__}{ep}")
                done = support.run("convert", self.at(f"{make.__name__}{ep}"), self.at(f"back-{make.__name__}{ep}"), "--as", "hf")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("are assumed to be in logical order", done.stderr)
                self.assertEqual(files.read_hf(self.at(f"back-{make.__name__}{ep}")), model.tensors)

    def test_zeros_have_to_be_zero(self):
        def change(rank, tensors):
            name = "model.layers.1.mlp.experts.routed_experts.w2_bias"
            dtype, shape, data = tensors[name]
            if rank == 2:
                tensors[name] = (dtype, shape, data[:-2] + b"\1\0")
        self.engine_folder(engines.GptOss(self.rnd), 4, change=change)
        self.fails("engine", "back", "--as", "hf",
                   words='tensor "model.layers.1.mlp.experts.routed_experts.w2_bias": model-rank-2-part-0.safetensors holds values that '
                         'are not zero')

    def test_scales_have_to_be_one(self):
        def change(rank, tensors):
            tensors["model.layers.1.self_attn.attn._v_scale"] = ("F32", (), struct.pack("<f", 0.5))
        self.engine_folder(engines.Llama(self.rnd), 2, change=change)
        self.fails("engine", "back", "--as", "hf", words="model.layers.1.self_attn.attn._v_scale")


class Like(EngineTest):
    """--like: names, dtypes and shapes of a live engine."""

    def keys(self, model, tp, ep=1):
        names = {"BF16": "bfloat16", "F32": "torch.float32"}
        return {name: [names[dtype], list(shape)] for name, (dtype, shape, _) in model.engine(0, tp, ep).items()}

    def test_same(self):
        model = self.write_model(engines.Qwen3Moe(self.rnd))
        for tp, ep in ((1, 1), (4, 1), (4, 4)):
            path = self.write_text("keys.json", json.dumps(self.keys(model, tp, ep)))
            told = self.convert("hf", f"like-{tp}-{ep}", "--as", "vllm", "--to", f"tp={tp},ep={ep}", "--like", path)
            self.assertIn(f": {len(self.keys(model, tp))} in all", "\n".join(told["notes"]))

    def test_other_names_dtypes_shapes(self):
        model = self.write_model(engines.Llama(self.rnd))
        right = self.keys(model, 2)

        def refused(words, *more, **changes):
            keys = {**right, **changes}
            for name in more:
                del keys[name]
            path = self.write_text("keys.json", json.dumps(keys))
            self.check_fails(["convert", self.at("hf"), self.at("out"), "--as", "vllm", "--to", "tp=2", "--like", path], 1, words)
            self.assertFalse(os.path.exists(self.at("out")))

        norm, qkv = "model.norm.weight", "model.layers.0.self_attn.qkv_proj.weight"
        refused('2 tensors would not be as it says: "model.norm.weight" of rank 0 is not expected; "model.norm.weight" of '
                "rank 1 is not expected", norm)
        refused('"more.weight" of rank 0 would not be written', **{"more.weight": ["bfloat16", [2]]})
        refused('"model.norm.weight" of rank 0 would be bf16 64, not f32 64', **{norm: ["float32", [64]]})
        refused(f'"{qkv}" of rank 0 would be bf16 48x64, not bf16 64x48', **{qkv: ["BF16", [64, 48]]})
        refused("46 tensors would not be as it says", *list(right)[:-1], **{list(right)[-1]: ["int8", [1]]})

    def test_lists_that_are_none(self):
        self.write_model(engines.Llama(self.rnd))
        for text, words in [("[]", "expected an object {name: [dtype, shape]}"), ('{"a": 3}', "expected [dtype, shape]"),
                            ('{"a": ["bf17", [3]]}', "the dtype is unknown"), ('{"a": ["bf16", 3]}', "expected a shape"),
                            ('{"a": ["bf16", [3], 4]}', "expected [dtype, shape]"), ('{"a": ["bf16", [-3]]}', "keys.json"),
                            ('{"a": ["bf16", [1,1,1,1,1,1,1,1,1]]}', "the shape has more than 8 dimensions"),
                            ('{"a": ["bf16", []], "a": ["bf16", []]}', 'names "a" twice'), ('{"a": ["bf16", []]', "keys.json")]:
            path = self.write_text("keys.json", text)
            self.check_fails(["convert", self.at("hf"), self.at("out"), "--as", "vllm", "--like", path], 1, words)
        self.check_fails(["convert", self.at("hf"), self.at("out"), "--as", "vllm", "--like", self.at("none.json")], 1, "none.json")


class Refusals(EngineTest):
    def refused(self, model, mesh, words, *options, name="hf"):
        self.write_model(model, name)
        self.fails(name, "out", "--as", "vllm", "--to", mesh, *options, words=words)

    def test_meshes(self):
        model = engines.Qwen3Moe(self.rnd)
        self.refused(model, "tp=4,ep=2", "ep=2: ep is over the ranks of tp=4, so it has 1 coordinate or 4")
        self.refused(model, "ep=2", "ep=2: ep is over the ranks of tp=1, so it has 1 coordinate or 1")
        self.refused(model, "tp=2,ep=4", "ep=4: ep is over the ranks of tp=2, so it has 1 coordinate or 2")
        self.refused(model, "tp=2,ep=2[3,2,1,0]", "so a mesh of both takes no list of ranks")
        self.refused(model, "pp=2,tp=2", "no rule of vllm says what axis pp=2 does")
        self.refused(model, "dp=2,tp=2", "files of engines are numbered by the ranks of tp, so their names have no place for dp=2")

    def test_sizes(self):
        model = engines.DeepSeek(self.rnd)
        self.refused(model, "tp=16", "cannot be divided evenly by tp=16")
        small = engines.Llama(self.rnd)
        small.config.update(num_attention_heads=12, num_key_value_heads=12, head_dim=8)
        for name, (dtype, _, _) in list(small.tensors.items()):
            if ".self_attn." in name:
                small.add(name, *((engines.H, 96) if "o_proj" in name else (96, engines.H)))
        self.refused(small, "tp=3", "128 elements cannot be divided evenly by tp=3")
        self.refused(small, "tp=8", "12 units of 8 cannot be divided evenly by tp=8")
        self.refused(engines.GptOss(self.rnd, kv=2), "tp=4", "2 units of 8 cannot be divided evenly by tp=4")

    def test_models_without_a_map(self):
        model = engines.Llama(self.rnd)
        model.config["model_type"] = "gemma"
        self.refused(model, "tp=2", "gemma")
        self.write_model(engines.Mixtral(self.rnd), "moe")
        self.fails("moe", "out", "--as", "sglang", "--to", "tp=2", words="mixtral")

    def test_names_that_no_line_knows(self):
        model = engines.Llama4(self.rnd)
        model.add("vision_model.patch_embedding.linear.weight", 4, 4)
        self.refused(model, "tp=2", "vision_model.patch_embedding.linear.weight")
        # As docs/maps.md advises: the language model alone.
        model.add("multi_modal_projector.linear_1.weight", 4, 4)
        self.write_model(model, "images")
        self.convert("images", "text", "--as", "vllm", "--to", "tp=2", "--include", "language_model.*", "--verify")
        self.check_ranks("text", [model.engine(rank, 2, 1, 28) for rank in range(2)])
        model = engines.GptOss(self.rnd)
        model.add("model.layers.0.mlp.experts.gate_up_proj_blocks", 4, 4, dtype="U8")
        self.refused(model, "tp=2", "model.layers.0.mlp.experts.gate_up_proj_blocks")

    def test_half_of_a_fused_tensor(self):
        self.refused(engines.Llama(self.rnd), "tp=2", "k_proj.weight", "--exclude", "*.k_proj.weight")

    def test_folders_of_engines(self):
        model = engines.Llama(self.rnd)
        self.write_model(model)
        self.convert("hf", "two", "--as", "vllm", "--to", "tp=4")
        self.fails("two", "back", "--as", "hf", "--from", "tp=2", words="holds files of 4 ranks, but the mesh tp=2 has 2 ranks")
        os.remove(self.at("two/model-rank-1-part-0.safetensors"))
        self.fails("two", "back", "--as", "hf", words="has model-rank-2-part-0.safetensors, but no file for rank 1")
        for rank in range(4):
            tensors = model.engine(rank, 4)
            files.write(self.at(f"two/model-rank-{rank}-part-0.safetensors"), tensors)
        files.write(self.at("two/model-rank-3-part-2.safetensors"), {})
        self.fails("two", "back", "--as", "hf", words="but no file for part 1 of rank 3")
        os.rename(self.at("two/model-rank-3-part-2.safetensors"), self.at("two/model-rank-3-part-1.safetensors"))
        files.write(self.at("two/model-rank-3-part-1.safetensors"), {"model.norm.weight": model.tensors["model.norm.weight"]})
        self.fails("two", "back", "--as", "hf", words='tensor "model.norm.weight": model-rank-3-part-0.safetensors and '
                   "model-rank-3-part-1.safetensors of one rank both hold it")

    def test_quantised(self):
        """What engines save of quantised weights may be in a kernel's order."""
        model = engines.Llama(self.rnd)
        for rank in range(2):
            tensors = model.engine(rank, 2)
            tensors["model.layers.0.mlp.down_proj.weight_scale"] = ("F32", (), bytes(4))
            files.write(self.at(f"q/model-rank-{rank}-part-0.safetensors"), tensors)
        self.write_text("q/config.json", json.dumps(model.config))
        self.fails("q", "back", "--as", "hf", words='tensor "model.layers.0.mlp.down_proj.weight_scale": the weights are quantised')

    def test_number_of_experts_has_to_be_known(self):
        model = engines.Mixtral(self.rnd)
        for rank in range(2):
            files.write(self.at(f"m/model-rank-{rank}-part-0.safetensors"), model.engine(rank, 2))
        del model.config["num_local_experts"]
        self.write_text("m/config.json", json.dumps(model.config))
        self.fails("m", "back", "--as", "hf", words="the number of experts is not known")


if __name__ == "__main__":
    support.main()
