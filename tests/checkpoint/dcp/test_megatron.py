# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core's folders to Hugging Face and back, against megatron_files.py, which shares no code with the library."""
import json
import os
import pickle
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import dcp_files
import files
import megatron_files
import support
import torch_files
from convert_case import ConvertTest
from megatron_files import FAMILIES, Family

TO_HF = ["--as", "hf"]
TO_MEGATRON = ["--as", "megatron"]


def family(name):
    return Family(**FAMILIES[name])


class MegatronTest(ConvertTest):
    def write_config(self, folder, config):
        os.makedirs(self.at(folder), exist_ok=True)
        self.write_text(f"{folder}/config.json", json.dumps(config))

    def write_megatron(self, name, made, mc, **how):
        """A training run's folder with one iteration, and config.json unless config=False."""
        config = how.pop("config", True)
        megatron_files.write(self.at(f"{name}/iter_0001000"), mc, gated=made.model_type != "nemotron", **how)
        self.write_text(f"{name}/latest_checkpointed_iteration.txt", "1000")
        if config:
            self.write_config(name, made.config())

    def check_hf(self, folder, want):
        found = files.read_hf(self.at(folder))
        self.assertEqual(sorted(found), sorted(want))
        for name, array in want.items():
            self.assertEqual(found[name], array, name)


class In(MegatronTest):
    def test_every_family(self):
        """Stacked and numbered layers, the common state in a file and in an entry, config.json above and beside."""
        for name in FAMILIES:
            made = family(name)
            hf, mc = made.make()
            forms = {"layers": (mc, "entry")} if made.dense is not None else {"layers": (mc, "entry"), "stacked": (made.stacked(mc), "file")}
            for form, (tensors, common) in forms.items():
                folder = f"{name}-{form}"
                self.write_megatron(folder, made, made.pad(tensors), tp=2, common=common)
                done = self.convert(folder, folder + "-hf", *TO_HF)
                self.check_hf(folder + "-hf", hf)
                count = len(megatron_files.extra_states(tensors))
                self.assertIn(f"{count} entries with states of Transformer Engine (_extra_state) stay behind", done["notes"], name)
                self.assertIn(f"the map cuts off {(1 if made.tied else 2) * 10 * made.hidden} elements of padding", done["notes"])
                self.assertEqual(sorted(os.listdir(self.at(folder + "-hf"))), ["config.json", "model.safetensors"])

    def test_arguments_for_want_of_a_configuration(self):
        for name in ("llama", "tied", "qwen3_moe", "deepseek_v3"):
            made = family(name)
            hf, mc = made.make()
            tensors = made.pad(mc if made.dense is not None else made.stacked(mc))
            for common in ("file", "entry", "both"):
                folder = f"{name}-{common}"
                self.write_megatron(folder, made, tensors, config=False, common=common, args=made.args())
                done = self.convert(folder, folder + "-hf", *TO_HF)
                self.assertIn("there is no config.json; the arguments of the training run describe the model", done["notes"])
                self.check_hf(folder + "-hf", hf)
        # That heads have gates; a model of no known type is warned about, because its queries are twice as many as of others.
        made = family("gate")
        hf, mc = made.make()
        self.write_megatron("gate", made, made.pad(made.stacked(mc)), config=False, args=made.args())
        self.assertEqual(support.run("convert", self.at("gate"), self.at("gate-hf"), *TO_HF).returncode, 0)
        self.check_hf("gate-hf", hf)
        # An iteration's folder by itself, too.
        self.convert("llama-both/iter_0001000", "alone", *TO_HF)
        self.check_hf("alone", family("llama").make()[0])

    def test_without_any_configuration(self):
        made = family("llama")
        _, mc = made.make()
        self.write_megatron("a", made, made.stacked(mc), config=False)
        found = self.read_json("inspect", self.at("a"))
        self.assertEqual(found["format"], "megatron")
        self.assertIn("neither a config.json nor arguments in the common state describe the model", found["notes"])
        self.fails("a", "b", *TO_HF, words="nothing says how long axis g is: $num_key_value_heads has no value, in config.json or set")
        # All of it can be set.
        sets = [word for key in ("num_hidden_layers", "num_key_value_heads", "head_dim", "vocab_size") for word in ("--set", f"{key}={made.config()[key]}")]
        self.convert("a", "c", *TO_HF, *sets)
        self.check_hf("c", family("llama").make()[0])

    def test_padding_that_nothing_tells(self):
        made = family("llama")
        hf, mc = made.make()
        args = made.args()
        del args["vocab_size"]
        padded = made.pad(made.stacked(mc))
        self.write_megatron("a", made, padded, config=False, args=args)
        done = self.convert("a", "b", *TO_HF)
        self.assertIn("nothing says how many rows of the vocabulary are padding; a config.json with vocab_size would", done["notes"])
        self.check_hf("b", {**hf, "model.embed_tokens.weight": padded["embedding.word_embeddings.weight"], "lm_head.weight": padded["output_layer.weight"]})

    def test_states_of_ranks_stay_behind(self):
        made = family("llama")
        hf, mc = made.make()
        more = {"rng_state/shard_0.0_1.2": [[{"random_rng_state": 1}]], "rng_state/shard_0.1_1.2": [[{"random_rng_state": 2}]],
                "rerun_state_machine_state/shard_0_1": [{"mode": 0}]}
        self.write_megatron("a", made, made.stacked(mc), more=more)
        done = self.convert("a", "b", *TO_HF)
        self.assertIn("2 entries with random states of ranks (rng_state) stay behind", done["notes"])
        self.assertIn("1 entry with states of the rerun machine stays behind", done["notes"])
        self.check_hf("b", hf)

    def test_optimizers_by_parameter(self):
        """fully_reshardable and the plain form follow their parameters; hf takes the model, other formats take all."""
        made = family("qwen2")
        hf, mc = made.make()
        states, want = {}, dict(hf)
        for word, front in (("exp_avg", "optimizer.state.exp_avg."), ("param", "optimizer.state.param."), ("fp32_param", "chained_1.optimizer.state.fp32_param.")):
            other_hf, other = Family(seed=len(word), **FAMILIES["qwen2"]).make()
            states.update({front + name: array for name, array in made.stacked(other).items()})
            want.update({front + name: array for name, array in other_hf.items()})
        self.write_megatron("a", made, made.stacked(mc), optimizer=states)
        done = self.convert("a", "b", *TO_HF)
        self.assertIn(f"{len(states)} states of an optimizer stay behind", done["notes"])
        self.check_hf("b", hf)
        self.convert("a", "c", *TO_HF, "--format", "dcp", "--to", "fsdp=2")
        found, _, _ = dcp_files.read(self.at("c"))
        self.assertEqual(found, want)
        # And back: states under Megatron's keys, cut as their parameters are.
        self.convert("c", "d", *TO_MEGATRON, "--to", "tp=2", "--config", self.at("a"))
        found, _, _ = dcp_files.read(self.at("d/release"))
        self.assertEqual(found, {**made.stacked(mc), **states})
        chunks, _ = read_chunks(self.at("d/release"))
        for name in ("self_attention.linear_qkv.weight", "mlp.linear_fc1.weight", "mlp.linear_fc2.weight"):
            self.assertEqual(chunks["optimizer.state.exp_avg.decoder.layers." + name], chunks["decoder.layers." + name])

    def test_optimizers_in_other_forms(self):
        made = family("llama")
        hf, mc = made.make()
        bucket = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.exp_avg"
        flat = {bucket: made.tensor(100, dtype="F32"), "chained_0." + bucket: made.tensor(50, dtype="F32")}
        sharded = {"optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight": made.tensor(2, 10, 4 * made.hidden, dtype="F32")}
        for optimizer, first in ((flat, "chained_0." + bucket), (sharded, next(iter(sharded)))):
            self.write_megatron(f"a{len(optimizer)}", made, made.stacked(mc), optimizer=optimizer)
            done = support.run("convert", self.at(f"a{len(optimizer)}"), self.at(f"b{len(optimizer)}"), *TO_HF)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"of an optimizer {'is' if len(optimizer) == 1 else 'are'} left out (\"{first}\"", done.stderr)
            self.assertIn("not stored parameter by parameter, as Megatron does with fully_reshardable", done.stderr)
            self.check_hf(f"b{len(optimizer)}", hf)
        self.write_megatron("c", made, made.stacked(mc), more={"optimizer.distributed.dp_group_idx_0.gathered/shard_0_1": [{"a": 1}]})
        done = self.convert("c", "d", *TO_HF)
        self.assertIn("1 entry with states of an optimizer, gathered as objects stays behind", done["notes"])
        self.check_hf("d", hf)

    def test_refusals(self):
        made = family("llama")
        _, mc = made.make()
        self.write_megatron("z", made, made.stacked(mc))
        self.write_text("z/iter_0001000/metadata.json", '{"sharded_backend": "zarr", "sharded_backend_version": 1}')
        self.fails("z", "b", *TO_HF, words="of Megatron's old backend zarr")
        # Linear attention, as some layers of Qwen3-Next have it.
        self.write_megatron("l", made, {**made.stacked(mc), "decoder.layers.self_attention.in_proj.weight": made.tensor(2, 3)})
        self.fails("l", "b", *TO_HF, words='no line matches "decoder.layers.self_attention.in_proj.weight"')
        # A name that the map does not know, and a layer that is not there.
        self.write_megatron("x", made, {**made.stacked(mc), "decoder.layers.self_attention.linear_gate.weight": made.tensor(2, 3)})
        self.fails("x", "b", *TO_HF, words='no line matches "decoder.layers.self_attention.linear_gate.weight"')
        self.write_megatron("y", made, {name: array for name, array in mc.items() if "layers.1." not in name})
        self.fails("y", "b", *TO_HF, words='there is no "decoder.layers.1.')
        # Other JSON beside a distributed checkpoint.
        for text in ("{", "[1]", '{"a": {"sharded_backend": "zarr"}}', '{"sharded_backend": 3}', "{}"):
            self.write_text("z/iter_0001000/metadata.json", text)
            self.assertEqual(self.read_json("inspect", self.at("z"))["format"], "dcp", text)


def read_chunks(folder):
    """{key: sorted [(offset, size)]} of .metadata, and the files that hold each."""
    with dcp_files.Torch("2.6"), open(os.path.join(folder, ".metadata"), "rb") as stream:
        metadata = pickle.load(stream)
    chunks = {name: sorted((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks)
              for name, entry in metadata.state_dict_metadata.items() if type(entry).__name__ == "TensorStorageMetadata"}
    places = {}
    for index, info in metadata.storage_data.items():
        if index.offset is not None:
            places.setdefault(info.relative_path, []).append((index.fqn, tuple(index.offset)))
    return chunks, places


class Out(MegatronTest):
    MESHES = {"tp=2,pp=2": (2, 2, 1), "ep=2": (1, 1, 2), "tp=2,pp=2,ep=2": (2, 2, 2)}

    def check_folder(self, folder, made, want, tp, extras=True):
        """Keys, shapes and bytes; chunks; the common state in both homes; nothing else."""
        inside = self.at(folder + "/release")
        found, values, paths = dcp_files.read(inside)
        self.assertEqual(sorted(found), sorted(want))
        for name, array in want.items():
            self.assertEqual(found[name], array, name)
        self.assertIsNone(paths)
        gated, padded = made.model_type != "nemotron", -(-made.vocab // (128 * tp)) * 128 * tp
        chunks, _ = read_chunks(inside)
        for name, array in want.items():
            self.assertEqual(chunks[name], sorted(megatron_files.chunks(name, array[1], tp, gated, padded)), name)
        common = torch_files.load_value(values.pop("common_state/shard_0_1"))
        state = {"checkpoint_version": 3.0, "iteration": 0, "content_metadata": {"singleton_local_shards": False, "chained_optim_avoid_prefix": True}}
        model = json.loads(common[0].pop("reshard_model"))
        self.assertEqual(common, [state])
        for key, value in model.items():
            self.assertEqual(value, made.config()[key], key)
        self.assertLessEqual({"model_type", "num_attention_heads", "num_key_value_heads", "head_dim"}, set(model))
        with open(inside + "/common.pt", "rb") as stream:
            found = torch_files.load_value(stream.read())
        self.assertEqual(json.loads(found.pop("reshard_model")), model)
        self.assertEqual(found, state)
        self.assertEqual(set(values), megatron_files.extra_states(want) if extras else set())
        for value in values.values():
            self.assertEqual(torch_files.load_value(value), [None])
        with open(inside + "/metadata.json", encoding="utf-8") as stream:
            self.assertEqual(json.load(stream), {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1})
        with open(self.at(folder + "/latest_checkpointed_iteration.txt"), encoding="utf-8") as stream:
            self.assertEqual(stream.read(), "release")
        self.assertEqual(sorted(os.listdir(self.at(folder))), ["config.json", "latest_checkpointed_iteration.txt", "release"])
        self.assertTrue(all(name in (".metadata", "common.pt", "metadata.json") or name.endswith(".distcp") for name in os.listdir(inside)))

    def test_every_family_there_and_back(self):
        for name in FAMILIES:
            made = family(name)
            hf, mc = made.make()
            self.write_hf(name, hf, made.config())
            first = self.read_json("digest", self.at(name))
            for mesh, (tp, pp, ep) in self.MESHES.items():
                if ep > 1 and not made.experts:
                    continue
                folder = f"{name}-{mesh}"
                done = self.convert(name, folder, *TO_MEGATRON, "--to", mesh)
                want = mc if made.dense is not None else made.stacked(mc)
                self.check_folder(folder, made, want, tp)
                self.assertTrue(any(line.startswith("layers are " + ("stacked" if made.dense is None else "numbered")) for line in done["notes"]), done["notes"])
                self.convert(folder, folder + "-back", *TO_HF)
                self.assertEqual(self.read_json("digest", self.at(folder + "-back")), first)
                self.check_hf(folder + "-back", hf)

    def test_experts_in_mxfp4(self):
        """GPT-OSS as it is published: codes and scales are no weights, and refused; dequantised, they are weights like others."""
        made = Family(**{**FAMILIES["gpt_oss"], "hidden": 64, "expert_inner": 32, "inner": 32})
        hf, mc = made.make()
        packed = {}
        for name, array in hf.items():
            if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                packed[name] = array
                continue
            experts, inner, outer = array[1]
            packed[name + "_blocks"] = "U8", (experts, outer, inner // 32, 16), made.rnd.randbytes(experts * outer * inner // 2)
            packed[name + "_scales"] = "U8", (experts, outer, inner // 32), bytes(made.rnd.choices(range(115, 125), k=experts * outer * inner // 32))
        self.write_hf("a", packed, {**made.config(), "quantization_config": {"quant_method": "mxfp4"}})
        self.fails("a", "b", *TO_MEGATRON, words="model.layers.0.mlp.experts.down_proj_blocks")
        self.convert("a", "c", "--dequantize", "bf16")
        plain = files.read_hf(self.at("c"))
        self.assertEqual({name: array[:2] for name, array in plain.items()}, {name: array[:2] for name, array in hf.items()})
        self.convert("c", "d", *TO_MEGATRON, "--to", "tp=2,ep=2")
        found, _, _ = dcp_files.read(self.at("d/release"))
        self.assertEqual({name: tuple(array[:2]) for name, array in found.items()}, {name: array[:2] for name, array in made.stacked(mc).items()})
        for n in range(made.layers):
            weights = plain[f"model.layers.{n}.mlp.experts.down_proj"]
            for e in range(made.experts):
                want = megatron_files.exchange((weights[0], weights[1][1:], megatron_files.rows(weights)[e]))
                at = found["decoder.layers.mlp.experts.experts.linear_fc2.weight"]
                self.assertEqual(dcp_files.take(at, (n, e, 0, 0), (1, 1, *want[1])), want[2])
        self.convert("d", "e", *TO_HF)
        self.check_hf("e", plain)

    def test_a_tied_head_is_compared(self):
        """config.json says that it is tied: it is left out if it is, and otherwise not lost to that word."""
        made = family("tied")
        hf, mc = made.make()
        self.write_hf("a", {**hf, "lm_head.weight": hf["model.embed_tokens.weight"]}, made.config())
        self.convert("a", "b", *TO_MEGATRON)
        self.check_folder("b", made, made.stacked(mc), 1)
        self.write_hf("c", {**hf, "lm_head.weight": made.tensor(*hf["model.embed_tokens.weight"][1])}, made.config())
        self.fails("c", "d", *TO_MEGATRON, words='"lm_head.weight" does not equal "model.embed_tokens.weight"')

    def test_which_rank_has_what(self):
        """A stage has its layers, the first the embedding, the last the ends; ranks of ep have their experts."""
        made = family("qwen3_moe")
        hf, _ = made.make()
        self.write_hf("a", hf, made.config())
        self.convert("a", "b", *TO_MEGATRON, "--to", "pp=2,ep=2,tp=2")
        _, places = read_chunks(self.at("b/release"))
        self.assertEqual(len(places), 8)
        for file, entries in places.items():
            rank = int(file.split("_")[2])
            stage, share, _ = rank // 4, rank // 2 % 2, rank % 2
            for name, offset in entries:
                if name.startswith("decoder.layers."):
                    self.assertEqual(offset[0], stage, (file, name))
                if ".experts.experts." in name:
                    self.assertEqual(offset[1] // 2, share, (file, name))
                if name.startswith(("embedding", "output_layer", "decoder.final")):
                    self.assertEqual(stage, 0 if name.startswith("embedding") else 1, (file, name))

    def test_without_a_mesh(self):
        made = family("llama")
        hf, mc = made.make()
        self.write_hf("a", hf, made.config())
        self.convert("a", "b", *TO_MEGATRON)
        self.check_folder("b", made, made.stacked(mc), 1)
        self.convert("a", "c", *TO_MEGATRON, "--set", "extra_state=0", "--set", "per_layer=1")
        self.check_folder("c", made, mc, 1, extras=False)
        self.convert("b", "d", *TO_HF)
        self.convert("c", "e", *TO_HF)
        self.check_hf("d", hf)
        self.check_hf("e", hf)

    def test_resumed(self):
        made = family("llama")
        hf, mc = made.make()
        self.write_hf("a", hf, made.config())
        self.convert("a", "whole", *TO_MEGATRON, "--to", "tp=2")
        self.kill_after_a_record("convert", self.at("a"), self.at("b"), *TO_MEGATRON, "--to", "tp=2", "--max-memory", "2M", target=self.at("b"))
        self.convert("a", "b", *TO_MEGATRON, "--to", "tp=2", "--max-memory", "2M", "--resume", "--verify")
        self.check_folder("b", made, made.stacked(mc), 2)
        for name in os.listdir(self.at("whole/release")):
            with open(self.at(f"whole/release/{name}"), "rb") as one, open(self.at(f"b/release/{name}"), "rb") as other:
                self.assertEqual(one.read(), other.read(), name)

    def test_another_configuration_on_the_way_back(self):
        """The common state has the numbers that shapes do not show; so has a config.json that was copied along."""
        made = family("llama")
        hf, _ = made.make()
        config = {**made.config(), "rope_theta": 500000.0, "rms_norm_eps": 1e-5}
        self.write_hf("a", hf, config)
        self.convert("a", "b", *TO_MEGATRON)
        changes = [{"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": made.head * 2}, {"rope_theta": 10000}, {"rms_norm_eps": 1e-6},
                   {"text_config": {"rope_theta": 10000.0}, "rope_theta": None}, {"rope_parameters": {"rope_theta": 10000.0}, "rope_theta": None}]
        both = [("num_attention_heads", made.heads, 4), ("rope_theta", 500000.0, 10000), ("rms_norm_eps", 1e-05, 1e-06), ("rope_theta", 500000.0, 10000.0),
                ("rope_theta", 500000.0, 10000.0)]
        for source, told in (("b", "its files say"), ("b/release", "its files say"), ("alone", "its files say"), ("beside", "its own config.json says"), ("titan", "its own config.json says")):
            if source == "alone":
                os.rename(self.at("b/release"), self.at("alone"))
            if source == "titan":  # the rows of another naming are ordered by heads, too
                self.convert("a", "titan", "--as", "titan")
            if source == "beside":  # a folder with config.json and without the common state's words
                self.write_megatron("beside", made, made.stacked(family("llama").make()[1]))
                self.write_config("beside", config)
            for change, (key, own, other) in zip(changes, both):
                given = {**config, **change}
                self.write_config("other", {k: v for k, v in given.items() if v is not None})
                self.fails(source, "x", *TO_HF, "--config", self.at("other"), words=f"{told} that {key} is {own}, but config.json that it is {other};")
            # The same numbers, spelt otherwise; and what is set counts as it is.
            self.write_config("other", {**config, "rope_theta": 500000, "max_position_embeddings": 7, "model_type": "llama"})
            self.convert(source, "x-" + source.replace("/", "-"), *TO_HF, "--config", self.at("other"))
            self.check_hf("x-" + source.replace("/", "-"), hf)

    def test_arguments_that_say_how_to_compute(self):
        """Arguments of converters are not always those of the model: what orders no rows is warned about."""
        made = family("llama")
        hf, mc = made.make()
        for number, (kind, warns) in enumerate((("rope", True), ("learned_absolute", False))):
            self.write_megatron(f"a{number}", made, made.stacked(mc), args={**made.args(), "rotary_base": 10000, "position_embedding_type": kind})
            self.write_config(f"a{number}", {**made.config(), "rope_theta": 500000.0})
            done = support.run("convert", self.at(f"a{number}"), self.at(f"b{number}"), *TO_HF)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("its files say that rope_theta is 10000, but config.json that it is 500000.0" in done.stderr, warns, done.stderr)
            self.check_hf(f"b{number}", hf)
        # Not every head has keys of its own unless config.json says otherwise.
        self.write_config("a0", {key: value for key, value in made.config().items() if key != "num_key_value_heads"})
        self.fails("a0", "x", *TO_HF, words=f"its files say that num_key_value_heads is {made.groups}, but config.json that it is {made.heads};")

    def test_refusals(self):
        made = family("llama")
        hf, _ = made.make()
        self.write_hf("a", hf, made.config())
        self.fails("a", "b", *TO_MEGATRON, "--to", "tp=3", words="elements")
        self.fails("a", "b", *TO_MEGATRON, "--to", "pp=3", words="2 elements")
        self.write_hf("q", {**hf, "model.layers.0.mlp.gate_proj.weight_scale_inv": made.tensor(1, 1, dtype="F32")}, made.config())
        self.fails("q", "b", *TO_MEGATRON, words='no line matches "model.layers.0.mlp.gate_proj.weight_scale_inv"')
        # Experts in some layers only, which nothing tells.
        mixed = family("qwen3_moe")
        hf, _ = mixed.make()
        self.write_hf("m", {name: array for name, array in hf.items() if "layers.1.mlp.experts" not in name}, mixed.config())
        self.fails("m", "b", *TO_MEGATRON, words='but no "model.layers.1.mlp.experts.0.down_proj.weight", which belongs to it')


class Legacy(MegatronTest):
    def check(self, name, label, config=True, **how):
        made = family(name)
        if "layers" in how:
            made.layers = how.pop("layers")
        hf, mc = made.make()
        folder = f"{name}-{label}"
        megatron_files.write_legacy(self.at(f"{folder}/iter_0000007"), made, made.pad(mc), **how)
        self.write_text(f"{folder}/latest_checkpointed_iteration.txt", "7")
        if config:
            self.write_config(folder, made.config())
        self.assertEqual(self.read_json("inspect", self.at(folder))["format"], "megatron-legacy")
        done = self.convert(folder, folder + "-hf", *TO_HF, "--verify")
        self.check_hf(folder + "-hf", hf)
        self.assertTrue(any("legacy files store them by rank" in line for line in done["notes"]), done["notes"])

    def test_ranks(self):
        self.check("llama", "one")
        self.check("llama", "tp2pp2", tp=2, pp=2)
        self.check("qwen2", "virtual", layers=8, tp=2, pp=2, virtual=2)
        self.check("tied", "tied", tp=2, pp=2)
        self.check("llama", "args", config=False, tp=2, pp=2)
        self.check("qwen3_moe", "sequential", tp=2, pp=2, ep=2)
        self.check("qwen3_moe", "grouped", ep=2, grouped=True)
        self.check("mixtral", "mixtral", pp=2, ep=2, grouped=True)

    def test_uneven_stages(self):
        """Files show how many layers a stage has, whatever made it so many."""
        self.check("llama", "first", layers=5, tp=2, pp=2, counts=[2, 3], decoder_first_pipeline_num_layers=2)
        self.check("llama", "both", layers=7, pp=3, counts=[2, 4, 1], decoder_first_pipeline_num_layers=2, decoder_last_pipeline_num_layers=1)
        self.check("llama", "embedding", layers=7, pp=2, counts=[3, 4], account_for_embedding_in_pipeline_split=True)
        self.check("qwen3_moe", "virtual", layers=9, tp=2, pp=2, ep=2, virtual=3, counts=[1, 2, 1, 2, 1, 2], decoder_first_pipeline_num_layers=3)
        self.check("llama", "old", layers=5, tp=2, pp=2, counts=[4, 1], old=True)

    def test_names_before_megatron_core(self):
        self.check("llama", "old", tp=2, pp=2, old=True)

    def test_a_configuration_that_contradicts_the_arguments(self):
        """Rows of queries, keys and values are ordered by heads, which no shape shows."""
        made = family("llama")
        _, mc = made.make()
        megatron_files.write_legacy(self.at("c"), made, made.pad(mc), tp=2)
        config = made.config()
        for key in ("num_attention_heads", "num_key_value_heads"):
            self.write_config("c", {**config, key: config[key] // 2})
            self.fails("c", "x", *TO_HF, words=f"its files say that {key} is {config[key]}, but config.json that it is {config[key] // 2}; rows would get")
        self.write_config("c", config)
        self.convert("c", "c-hf", *TO_HF)

    def test_who_saved_a_file(self):
        """Folders that were exchanged: each file knows its rank, and the ends of a pipeline show which stage they are."""
        inner, outer = lambda t, p, e: t + 2 * p, lambda t, p, e: t + 2 * 2 * p
        self.check("llama", "inner", tp=2, pp=2, ranks=inner)
        self.check("qwen3_moe", "outer", tp=2, pp=2, ep=2, ranks=lambda t, p, e: t + 2 * e + 8 * p)
        self.check("llama", "converted", tp=2, pp=2, ranks=lambda t, p, e: 0)
        made = family("llama")
        made.layers = 3
        _, mc = made.make()
        by_rank = "this is the file of tensor parallel rank 0 by its name, but rank {} saved it, which is number 1 of 2; have files been renamed?"
        by_stage = "this is the file of stage 0 of 3 by its name, but it holds the norm behind the last layer; have files been renamed?"
        by_order = "this is the file of stage 2 by its name, but rank 4 saved it"
        cases = [({"tp": 2, "ranks": inner}, "mp_rank_00", "mp_rank_01", "mp_rank_00/model_optim_rng.pt: " + by_rank.format(1)),
                 ({"tp": 2, "pp": 3, "ranks": outer}, "mp_rank_00_001", "mp_rank_01_001", "mp_rank_00_001/model_optim_rng.pt: " + by_rank.format(5)),
                 ({"tp": 2, "pp": 3, "ranks": outer}, "mp_rank_00_001", "mp_rank_00_002", by_order),
                 ({"pp": 3}, "mp_rank_00_000", "mp_rank_00_002", "mp_rank_00_000/model_optim_rng.pt: " + by_stage),
                 ({"pp": 3}, "mp_rank_00_000", "mp_rank_00_001", "stage 1 of 3 by its name, but it holds the embedding"),
                 ({"pp": 3}, "mp_rank_00_001", "mp_rank_00_002", "stage 1 of 3 by its name, but it holds the norm behind the last layer")]
        for number, (how, a, b, words) in enumerate(cases):
            megatron_files.write_legacy(self.at(f"e{number}"), made, mc, **how)
            a, b = self.at(f"e{number}/{a}"), self.at(f"e{number}/{b}")
            os.rename(a, a + "x")
            os.rename(b, a)
            os.rename(a + "x", b)
            self.fails(f"e{number}", "x", *TO_HF, words=words)
        megatron_files.write_legacy(self.at("i"), made, mc, tp=2, iterations=lambda t, p, e: 7 + t)
        self.fails("i", "x", *TO_HF, words="mp_rank_01/model_optim_rng.pt: is of iteration 8, but mp_rank_00/model_optim_rng.pt of 7")

    def test_refusals(self):
        made = family("llama")
        _, mc = made.make()
        megatron_files.write_legacy(self.at("m"), made, mc, tp=2, pp=2, skip=[(1, 1, 0)])
        self.fails("m", "x", *TO_HF, words="mp_rank_01_001/model_optim_rng.pt is missing; by the arguments there are 2 x 2 x 1 ranks")
        megatron_files.write_legacy(self.at("f"), made, mc, tp=2, skip=[(0, 0, 0)])
        self.fails("f", "x", *TO_HF, words="mp_rank_00/model_optim_rng.pt is missing")
        megatron_files.write_legacy(self.at("u"), made, mc, tp=2, pp=2, decoder_first_pipeline_num_layers=2)
        self.fails("u", "x", *TO_HF, words="its stages have 1, 1 layers, but the arguments say 2 in the first stage")
        megatron_files.write_legacy(self.at("n"), made, mc, tp=2, pp=2, num_layers=5)
        self.fails("n", "x", *TO_HF, words="1, 1 layers")
        five = Family(**{**FAMILIES["llama"], "layers": 5})
        _, more = five.make()
        megatron_files.write_legacy(self.at("g"), five, {name: array for name, array in more.items() if "layers.4." not in name}, tp=2, pp=2, counts=[2, 3])
        self.fails("g", "x", *TO_HF, words="2, 2 layers")
        # A layer between others that a stage does not have.
        megatron_files.write_legacy(self.at("h"), five, {name: array for name, array in more.items() if "layers.3." not in name}, tp=2, pp=2, counts=[2, 3])
        self.fails("h", "x", *TO_HF, words="decoder.layers.3.")
        for root, words in (({"checkpoint_version": 3.0, "model": {}}, "has no arguments of Megatron-LM (args)"),
                            ({"args": megatron_files.namespace(made.args()), "model": {}}, "has checkpoint_version 0 or 1")):
            torch_files.write(self.at("v/mp_rank_00/model_optim_rng.pt"), root)
            self.fails("v", "x", *TO_HF, words=words)


if __name__ == "__main__":
    support.main()
