# SPDX-License-Identifier: Apache-2.0
"""Folders of DeepSpeed's ZeRO, made by zero_files.py, read by the command and compared with the tensors they were made of."""
import json
import os
import resource
import shutil
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import dcp_files
import files
import support
import torch_files
import zero_files
from zero_files import Zero

# Shapes of a small model whose parameters begin and end anywhere on the line.
PARAMS = {"model.embed.weight": (13, 6), "model.layers.0.up.weight": (7, 6), "model.layers.0.down.weight": (6, 7), "model.norm.weight": (6,),
          "model.layers.0.up.bias": (7,), "scale": (), "none": (0, 3), "conv": (2, 3, 2, 5)}
DECAY = ["model.embed.weight", "model.layers.0.up.weight", "model.layers.0.down.weight", "conv"]
OTHERS = ["model.norm.weight", "model.layers.0.up.bias", "scale", "none"]


def bytes_of(dtype, shape, seed):
    return (dtype, shape, bytes((seed * 13 + i * 5) % 253 for i in range(files.size_of(dtype, shape))))


class ZeroTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-", dir=support.pick_memory(256 << 20))
        self.addCleanup(shutil.rmtree, self.folder)

    def at(self, name):
        return f"{self.folder}/{name}"

    def write(self, zero, name="in"):
        shutil.rmtree(self.at(name), ignore_errors=True)
        zero.write(self.at(name))
        return zero

    def make(self, stage, world, **how):
        """A model with everything in it: two groups, buffers, frozen and shared parameters."""
        zero = Zero(PARAMS, how.pop("groups", [DECAY, OTHERS]), world, stage, **how)
        zero.buffers = {"model.inv_freq": bytes_of("F32", (3,), 1), "mask": bytes_of("BOOL", (2, 2), 2)}
        zero.frozen = {"vision.w": bytes_of("BF16", (5, 3), 3), "vision.b": bytes_of("BF16", (5,), 4)}
        zero.shared = {"lm_head.weight": "model.embed.weight"}
        return self.write(zero)

    def convert(self, source, target, *more):
        shutil.rmtree(self.at(target), ignore_errors=True)
        return self.read_text("convert", self.at(source), self.at(target), "--verify", *more)

    def check_model(self, zero, source="in", *more):
        """The weights, as Hugging Face's names."""
        said = self.convert(source, "hf", *more)
        self.assertEqual(files.read_hf(self.at("hf")), zero.expect_model())
        return said

    def check_all(self, zero, source="in"):
        """Weights and moments, as PyTorch's distributed checkpoint."""
        self.convert(source, "dcp", "--format", "dcp", "--to", "dp=2")
        tensors, values, _ = dcp_files.read(self.at("dcp"))
        self.assertEqual({name: tuple(array) for name, array in tensors.items()}, zero.expect_all())
        return {name: torch_files.load_value(data) for name, data in values.items()}


class Reading(ZeroTest):
    def test_all_stages(self):
        for stage in (1, 2, 3):
            for world in (1, 3, 4, 8):
                with self.subTest(stage=stage, world=world):
                    zero = self.make(stage, world, stage_how=["call", "getattr", "int"][world % 3])
                    self.check_model(zero)
                    self.check_all(zero)

    def test_examples_of_the_arithmetic(self):
        """6 + 4 elements over 4 ranks: 16 with padding. Weights of 4, 4, 2 and 0 elements, moments of 4 each."""
        zero = self.write(Zero({"a": (6,), "b": (4,)}, [["a", "b"]], 4, 2))
        lengths = [len(zero.partition(["a", "b"], zero.weights, rank, True)) // 4 for rank in range(4)]
        self.assertEqual(lengths, [4, 4, 2, 0])
        self.check_model(zero)
        self.check_all(zero)
        shards = {entry["name"]: [(shard["offset"], shard["size"]) for shard in entry["shards"]]
                  for entry in self.read_json("inspect", self.at("in"))["tensors"]}
        self.assertEqual(shards["model.a"], [([0], [4]), ([4], [2])])
        self.assertEqual(shards["model.b"], [([0], [2]), ([2], [2])])
        self.assertEqual(shards["optimizer.state.b.exp_avg"], shards["model.b"])
        # 10 elements over 4 ranks in stage 3: 3, 3, 3 and 1 with two zeros
        zero = self.write(Zero({"a": (10,)}, [["a"]], 4, 3))
        self.check_all(zero)
        shards = self.read_json("inspect", self.at("in"), "--include", "model.a")["tensors"][0]["shards"]
        self.assertEqual([(shard["offset"], shard["size"]) for shard in shards], [([0], [3]), ([3], [3]), ([6], [3]), ([9], [1])])

    def test_across_three_ranks(self):
        """A parameter that begins within one rank's share, fills the next and ends within a third; and ranks without any weights."""
        for stage in (1, 3):
            zero = self.write(Zero({"a": (3,), "wide": (5, 3), "z": (2,)}, [["a", "wide", "z"]], 4, stage))
            self.check_all(zero)
            self.assertNotIn("of weights", self.check_model(zero))  # stage 3 has a model file of each rank; one is read
        zero = self.write(Zero({"a": (1,)}, [["a"]], 8, 2))
        self.check_all(zero)

    def test_sub_groups(self):
        """Stage 3 has more arrays than groups."""
        subs = [["model.embed.weight"], ["model.layers.0.up.weight", "model.layers.0.down.weight"], ["conv"], OTHERS]
        for world in (1, 3, 8):
            self.check_all(self.make(3, world, subs=subs))

    def test_other_states(self):
        """SGD's momentum, and no state at all; steps as numbers and as tensors; two kinds of old and new files."""
        zero = self.make(2, 3, states=("momentum_buffer",), no_step=True)
        self.check_all(zero)
        zero = self.make(1, 3, states=())
        self.check_all(zero)
        for stage in (2, 3):
            zero = self.make(stage, 3, step_tensor=True)
            self.check_all(zero)
        zero = self.make(2, 4, elastic=True)
        self.check_all(zero)
        zero = self.make(1, 4, bf16_optimizer=True)
        self.check_all(zero)
        zero = self.make(2, 4, bf16=False)
        self.check_all(zero)

    def test_values(self):
        zero = self.make(3, 2)
        values = self.check_all(zero)
        self.assertEqual(values["global_steps"], 7)
        self.assertEqual(values["optimizer.state.scale.step"], 7)
        shown = {value["name"]: value["value"] for value in self.read_json("inspect", self.at("in"))["values"]}
        self.assertEqual(shown["optimizer.state.model.norm.weight.step"], "7")
        self.assertEqual(shown["lr_scheduler"], "{'last_epoch': 7}")
        self.assertIn("'lr': 0.001", shown["optimizer.param_groups"])
        self.assertNotIn("param_shapes", shown)

    def test_module(self):
        """The 16-bit weights have to be asked for. Stage 3 does not have them."""
        zero = self.make(2, 3)
        sixteen = {name: zero.sixteen(name) for name in PARAMS}
        sixteen.update(zero.buffers, **zero.frozen)
        sixteen["lm_head.weight"] = sixteen["model.embed.weight"]
        said = self.convert("in", "hf", "--only", "module")
        self.assertEqual(files.read_hf(self.at("hf")), sixteen)
        self.assertIn('only "module" is taken', said)
        self.assertIn("under \"module\": 13.", " ".join(self.read_json("inspect", self.at("in"))["notes"]))
        self.assertIn('13 tensors ("module.conv" and others) repeat what others hold', self.convert("in", "dcp", "--format", "dcp", "--to", "dp=2"))
        self.make(3, 3)
        self.check_fails(("convert", self.at("in"), self.at("out"), "--only", "module"), 1, 'only "module": no tensor')

    def test_module_in_front_is_cut(self):
        for stage in (2, 3):
            zero = self.make(stage, 3, prefix="module.")
            self.check_all(zero)

    def test_parameters_in_no_list(self):
        """Files of old releases do not list frozen parameters: in stages 1 and 2 they are whole, in stage 3 nobody holds them."""
        zero = Zero({"a": (4, 3)}, [["a"]], 3, 2)
        zero.module_only = {"frozen": bytes_of("BF16", (3, 3), 5)}
        self.write(zero)
        self.check_model(zero)
        self.assertIn("neither trained nor listed as frozen", " ".join(self.read_json("inspect", self.at("in"))["notes"]))
        zero = Zero({"a": (4, 3)}, [["a"]], 3, 3)
        zero.module_only = {"frozen": ("BF16", (0,), b"")}
        self.write(zero)
        self.check_fails(("convert", self.at("in"), self.at("out")), 1, 'parameter "frozen" is empty here, and no other file holds it')

    def test_inspect_and_latest(self):
        for stage, words in ((2, "ZeRO stage 2 over 3 data-parallel ranks, 1 tensor parallel rank and 1 stage of a pipeline; 2 groups of parameters"),
                             (3, "ZeRO stage 3 over 3 data-parallel ranks, 1 tensor parallel rank and 1 stage of a pipeline; 2 sub-groups of parameters")):
            zero = self.make(stage, 3)
            shutil.rmtree(self.at("run"), ignore_errors=True)
            zero.write(self.at("run/global_step7"))
            zero_files.write_latest(self.at("run"), "global_step7")
            found = self.read_json("inspect", self.at("run"))
            self.assertEqual(found["format"], "deepspeed")
            self.assertIn(words, found["notes"])
            self.assertIn("reads the folder global_step7, which latest names", found["notes"])
            self.check_model(zero, "run")
        self.assertEqual(self.read_text("inspect", self.at("in")).count("warning"), 0)

    def test_digest_and_verify(self):
        zero = self.make(3, 4)
        before = self.read_json("digest", self.at("in"))
        self.convert("in", "dcp", "--format", "dcp", "--to", "dp=2")
        self.assertEqual(self.read_json("digest", self.at("dcp")), before)
        self.read_text("verify", self.at("in"), self.at("dcp"))
        # The 16-bit weights are no part of what is digested, listed, counted, verified or converted.
        zero = self.make(2, 4)
        done = self.read_json("convert", self.at("in"), self.at("dcp2"), "--format", "dcp", "--to", "dp=2")
        found = self.read_json("digest", self.at("in"))
        self.assertEqual(found, self.read_json("digest", self.at("dcp2")))
        self.assertEqual((found["checkpoint"], len(found["tensors"])), (done["digest"], len(zero.expect_all())))
        self.assertEqual(self.read_json("digest", self.at("in"), "--sha256"), self.read_json("digest", self.at("dcp2"), "--sha256"))
        for options in ((), ("--sha256",)):
            said, other = (self.read_text("digest", self.at(name), *options) for name in ("in", "dcp2"))
            self.assertEqual(said.replace("; without 13 that say the same in another dtype", ""), other)
            self.assertNotEqual(said, other)
        for options in ((), ("--digest",)):
            self.read_text("verify", self.at("in"), self.at("dcp2"), *options)
            self.read_text("verify", self.at("dcp2"), self.at("in"), *options)
        self.convert("in", "dcp", "--format", "dcp", "--to", "dp=2")
        self.read_text("verify", self.at("in"), self.at("dcp"))
        self.read_text("verify", self.at("dcp"), self.at("in"))
        self.read_text("verify", self.at("in"))

    def test_little_memory(self):
        """Nothing is gathered: a model of 24 MB by blocks of at most 1 MB."""
        params = {f"layers.{i}.w": (768, 511) for i in range(4)}
        for stage in (2, 3):
            zero = self.write(Zero(params, [list(params)], 8, stage))
            self.check_model(zero, "in", "--max-memory", "1M", "--threads", "1")

    def test_resume(self):
        params = {f"layers.{i}.w": (1024, 512) for i in range(12)}
        zero = self.write(Zero(params, [list(params)], 3, 2, states=()))
        self.kill_after_a_record("convert", self.at("in"), self.at("hf"), "--max-memory", "1M", "--threads", "1", target=self.at("hf"))
        self.read_text("convert", self.at("in"), self.at("hf"), "--resume", "--verify", "--max-memory", "1M", "--threads", "1")
        self.assertEqual(files.read_hf(self.at("hf")), zero.expect_model())


def rows(array, dim, ranges):
    """Some ranges of a dim of a tensor, one after the other."""
    dtype, shape, _ = array
    lengths, parts = sum(end - begin for begin, end in ranges), []
    for begin, end in ranges:
        offset = [begin if d == dim else 0 for d in range(len(shape))]
        size = [end - begin if d == dim else n for d, n in enumerate(shape)]
        parts.append((size, files.cut(array, offset, size)))
    made = [lengths if d == dim else n for d, n in enumerate(shape)]
    whole = bytearray(files.size_of(dtype, made))
    at = 0
    for size, data in parts:
        files.paste(whole, dtype, made, [at if d == dim else 0 for d in range(len(shape))], size, data)
        at += size[dim]
    return (dtype, tuple(made), bytes(whole))


class Grids(ZeroTest):
    """Tensor parallel ranks, stages of a pipeline, experts."""
    INFO = {"universal_checkpoint_version": 0.4, "original_vocab_size": 10, "vocabulary_parameter_patterns": [r"\d+.embed.weight"],
            "tp_replicated_parameter_patterns": [r"\d+.norm.weight", r"^2\.bias$"],
            "parameter_with_row_parallelism_patterns": [r"\d+.down.weight"],
            "parameter_with_2_sub_params_cat_dim_0": [r"[0-9]+.gate_up.weight"],
            "parameter_with_sub_params": [{"patterns": ["1.qkv.weight"], "shape": ((8, 2, 2), -1), "partition_dim": 0},
                                          {"patterns": ["2.uneven.weight"], "shape": ((6, 3), -1), "partition_dim": 0}],
            "sub_param_shard_widths": {"2.uneven.weight": [[4, 2], [1, 2]]}}
    # name: full shape with padding, and what each of two ranks has: None: all, else (dim, ranges)
    CUTS = {"0.embed.weight": ((12, 5), [(0, [(0, 6)]), (0, [(6, 12)])]), "1.norm.weight": ((5,), [None, None]),
            "1.qkv.weight": ((12, 5), [(0, [(0, 4), (8, 9), (10, 11)]), (0, [(4, 8), (9, 10), (11, 12)])]),
            "1.down.weight": ((5, 8), [(1, [(0, 4)]), (1, [(4, 8)])]), "1.up.bias": ((6,), [(0, [(0, 3)]), (0, [(3, 6)])]),
            "2.gate_up.weight": ((8, 5), [(0, [(0, 2), (4, 6)]), (0, [(2, 4), (6, 8)])]), "2.bias": ((5,), [None, None]),
            "2.uneven.weight": ((9, 5), [(0, [(0, 4), (6, 7)]), (0, [(4, 6), (7, 9)])])}

    def write_grid(self, stage, dp, stages, folder, info=INFO, **how):
        """stages: lists of names, one for each stage of the pipeline. Returns all full tensors, without the vocabulary's padding."""
        full = Zero({name: shape for name, (shape, _) in self.CUTS.items()}, [list(self.CUTS)], 1, 1)
        shutil.rmtree(folder, ignore_errors=True)
        made = {}
        for pp, names in enumerate(stages):
            for tp in range(2):
                def take(values, dtype="F32"):
                    found = {}
                    for name in names:
                        shape, ranks = self.CUTS[name]
                        array = (dtype, shape, values[name])
                        found[name] = array if ranks[tp] is None else rows(array, *ranks[tp])
                    return found
                weights = take(full.weights)
                sixteen = take({name: full.sixteen(name)[2] for name in self.CUTS}, "BF16")
                zero = Zero({name: array[1] for name, array in weights.items()}, [names], dp, stage, mp=2 * pp + tp, sixteen=sixteen,
                            **({"info": info} if info else {}), **how)
                zero.weights = {name: array[2] for name, array in weights.items()}
                zero.states = {state: {name: array[2] for name, array in take(values).items()} for state, values in full.states.items()}
                zero.write(folder)
                if how.get("pipeline"):
                    for layer in sorted({name.split(".")[0] for name in names}):
                        torch_files.write(f"{folder}/layer_{int(layer):02d}-model_{tp:02d}-model_states.pt", torch_files.ordered(
                            {name[len(layer) + 1:]: torch_files.tensor(sixteen[name]) for name in names if name.startswith(layer + ".")}))
        for name, (shape, _) in self.CUTS.items():
            for front, back, dtype, data in (("model.", "", "F32", full.weights[name]), ("module.", "", "BF16", full.sixteen(name)[2]),
                                             *(("optimizer.state.", "." + state, "F32", values[name]) for state, values in full.states.items())):
                made[front + name + back] = rows((dtype, shape, data), 0, [(0, 10)]) if "embed" in name else (dtype, shape, data)
        return made

    def check_grid(self, made):
        model = {name: array for name, array in made.items() if not name.startswith("module.")}
        self.convert("in", "dcp", "--format", "dcp", "--to", "dp=2")
        tensors, _, _ = dcp_files.read(self.at("dcp"))
        self.assertEqual({name: tuple(array) for name, array in tensors.items()}, model)

    def test_tensor_parallel(self):
        for stage in (2, 3):
            for dp in (1, 3):
                with self.subTest(stage=stage, dp=dp):
                    self.check_grid(self.write_grid(stage, dp, [list(self.CUTS)], self.at("in")))
        made = self.write_grid(1, 2, [list(self.CUTS)], self.at("in"))
        self.convert("in", "hf", "--only", "module")
        self.assertEqual(files.read_hf(self.at("hf")), {name[7:]: array for name, array in made.items() if name.startswith("module.")})

    def test_pipeline(self):
        """Layers in files of their own; a tensor that two stages have."""
        names = list(self.CUTS)
        made = self.write_grid(1, 2, [names[:3] + ["2.bias"], names[3:]], self.at("in"), pipeline=True)
        self.check_grid(made)
        notes = " ".join(self.read_json("inspect", self.at("in"))["notes"])
        self.assertIn("over 2 data-parallel ranks, 2 tensor parallel ranks and 2 stages of a pipeline", notes)
        self.assertIn("keep them equal: 3;", notes)
        os.unlink(self.at("in/layer_01-model_01-model_states.pt"))
        self.check_fails(("inspect", self.at("in")), 1, "the file of layer 1 of tensor parallel rank 1 is missing")

    def test_replicas_are_compared(self):
        self.write_grid(2, 2, [list(self.CUTS)], self.at("in"))
        path = self.at("in/bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt")
        found = self.read_json("inspect", self.at("in"), "--include", "model.1.norm.weight")["tensors"][0]
        self.assertEqual(found["shape"], [5])
        with open(path, "rb") as file:
            data = file.read()
        # the norm follows the 30 elements of the vocabulary on the line
        values = Zero({name: shape for name, (shape, _) in self.CUTS.items()}, [list(self.CUTS)], 1, 1).weights["1.norm.weight"]
        at = data.index(values)
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(b"\x01\x02\x03\x04")
        self.check_fails(("convert", self.at("in"), self.at("out")), 1, "norm.weight")

    def test_cuts_that_cannot_be_known(self):
        def spoil(**changes):
            return {**self.INFO, **changes}
        for info, words in ((None, "no file says how it is cut (universal_checkpoint_info); put its config.json beside it"),
                            (spoil(parameter_to_average_patterns=["1.up.bias"]), "is an average over tensor parallel ranks"),
                            (spoil(tp_replicated_parameter_patterns=["(a|b)"]), 'has the pattern "(a|b)", which uses parts'),
                            (spoil(sub_param_shard_widths={}), "not a multiple of the 2 tensor parallel ranks"),
                            (spoil(tp_replicated_parameter_patterns=[]), "shape"),
                            (spoil(parameter_with_row_parallelism_patterns=[r"\d+.*"]), "along dim 1"),
                            (spoil(autotp_unsupported_parameter_patterns=["1.up"]), "says that it cannot be put together")):
            with self.subTest(words=words):
                self.write_grid(2, 2, [list(self.CUTS)], self.at("in"), info)
                if info and not info["tp_replicated_parameter_patterns"]:
                    found = self.read_json("inspect", self.at("in"), "--include", "model.1.norm.weight")["tensors"][0]
                    self.assertEqual(found["shape"], [10])  # whatever no pattern names is cut along dim 0
                else:
                    self.check_fails(("convert", self.at("in"), self.at("out")), 1, words)

    # name of a Llama: full shape, and the dim that two ranks cut; None: each has all of it
    LLAMA = {"model.embed_tokens.weight": ((10, 8), None), "model.layers.0.self_attn.q_proj.weight": ((16, 8), 0),
             "model.layers.0.self_attn.k_proj.weight": ((4, 8), None), "model.layers.0.self_attn.v_proj.weight": ((4, 8), None),
             "model.layers.0.self_attn.o_proj.weight": ((8, 16), 1), "model.layers.0.self_attn.q_norm.weight": ((4,), None),
             "model.layers.0.mlp.gate_up_proj.weight": ((24, 8), (0, 2)), "model.layers.0.mlp.down_proj.weight": ((8, 12), 1),
             "model.layers.0.input_layernorm.weight": ((8,), None), "lm_head.weight": ((10, 8), 0)}
    LLAMA_CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 4,
                    "intermediate_size": 12, "vocab_size": 10}

    def write_llama(self, stage, dp, config, tensors=None, above=False):
        """Ranks of AutoTP without universal_checkpoint_info. One key head, which both ranks have; the head is cut, the embedding whole."""
        tensors = tensors or self.LLAMA
        full = Zero({name: shape for name, (shape, _) in tensors.items()}, [list(tensors)], 1, 1)
        shutil.rmtree(self.at("run"), ignore_errors=True)

        def part(name, data, tp, dtype="F32"):
            shape, cut = tensors[name]
            if cut is None:
                return dtype, shape, data
            dim, halves = cut if isinstance(cut, tuple) else (cut, 1)
            each = shape[dim] // halves // 2
            return rows((dtype, shape, data), dim, [((2 * half + tp) * each, (2 * half + tp + 1) * each) for half in range(halves)])
        for tp in range(2):
            weights = {name: part(name, full.weights[name], tp) for name in tensors}
            zero = Zero({name: array[1] for name, array in weights.items()}, [list(tensors)], dp, stage, mp=tp,
                        sixteen={name: part(name, full.sixteen(name)[2], tp, "BF16") for name in tensors})
            zero.weights = {name: array[2] for name, array in weights.items()}
            zero.states = {state: {name: part(name, values[name], tp)[2] for name in tensors} for state, values in full.states.items()}
            zero.write(self.at("run/global_step7"))
        zero_files.write_latest(self.at("run"), "global_step7")
        if config:
            with open(self.at("run/config.json" if above else "run/global_step7/config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file)
        return full

    def test_tensor_parallel_by_rules(self):
        """No file says how the model is cut, but the rules of its family and config.json do."""
        for stage, dp, above in ((1, 1, True), (2, 3, False), (3, 2, True)):
            with self.subTest(stage=stage, dp=dp):
                full = self.write_llama(stage, dp, self.LLAMA_CONFIG, above=above)
                self.check_all(full, "run")
                self.check_model(full, "run")
                if stage != 3:
                    self.convert("run", "hf", "--only", "module")
                    self.assertEqual(files.read_hf(self.at("hf")), {name: full.sixteen(name) for name in self.LLAMA})
        self.assertEqual(sorted(os.listdir(self.at("hf"))), ["config.json", "model.safetensors"])  # and no `latest`
        notes = " ".join(self.read_json("inspect", self.at("run"))["notes"])
        self.assertIn("no file says how 2 tensor parallel ranks cut the model; it is joined by rules of the family llama", notes)

    def test_tensor_parallel_by_rules_refused(self):
        tensor = "model.layers.0.mlp.down_proj.weight"
        for config, change, words in (
                (None, {}, "there is no config.json"),
                ({**self.LLAMA_CONFIG, "intermediate_size": 14}, {}, "its parts make a dimension 1 of 12 elements, but config.json says 14"),
                ({**self.LLAMA_CONFIG, "vocab_size": 11}, {}, "its parts make a dimension 0 of 10 elements, but config.json says at least 11"),
                ({key: value for key, value in self.LLAMA_CONFIG.items() if key != "intermediate_size"}, {tensor: ((8, 12), 1)},
                 "config.json does not say how long its dimension"),
                (self.LLAMA_CONFIG, {"model.strange.weight": ((4, 4), 0)}, "no rule of llama matches its name")):
            with self.subTest(words=words):
                self.write_llama(2, 2, config, {**self.LLAMA, **change})
                self.check_fails(("convert", self.at("run"), self.at("out")), 1, words)

    def test_experts(self):
        """Four ranks, of which two and two have the same experts; every rank calls its experts 0 and 1."""
        experts = [f"moe.deepspeed_moe.experts.deepspeed_experts.{i}.w" for i in range(2)]
        dense = Zero({"a": (5, 3), "moe.gate": (2, 3)}, [["a", "moe.gate"]], 4, 2)
        sets = [Zero({name: (3, 3) for name in experts}, [experts], 2, 2) for _ in range(2)]
        for name in experts:
            sets[1].weights[name] = zero_files.floats(9, 500 + len(name) + int(name[-3]))
            for k, values in enumerate(sets[1].states.values()):
                values[name] = zero_files.floats(9, 600 + 10 * k + int(name[-3]))
        for rank in range(4):
            state, other = dense.optim_lines(rank), sets[rank % 2].optim_lines(rank // 2)
            for key in ("single_partition_of_fp32_groups", "group_paddings", "param_slice_mappings"):
                state[key] += other[key]
            state["partition_count"] = [4, 2]
            state["base_optimizer_state"]["state"][1] = other["base_optimizer_state"]["state"][0]
            torch_files.write(self.at(f"in/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"), {"optimizer_state_dict": state})
        model = dense.model_state(0)
        model["param_shapes"].append(torch_files.ordered({name: torch_files.size((3, 3)) for name in experts}))
        torch_files.write(self.at("in/mp_rank_00_model_states.pt"), model)
        made, sixteen = dense.expect_all(), {"a": dense.sixteen("a"), "moe.gate": dense.sixteen("moe.gate")}
        for number in range(4):
            local, name = experts[number % 2], f"moe.deepspeed_moe.experts.deepspeed_experts.{number}.w"
            holder = sets[number // 2]
            made["model." + name] = ("F32", (3, 3), holder.weights[local])
            for state, values in holder.states.items():
                made[f"optimizer.state.{name}.{state}"] = ("F32", (3, 3), values[local])
            sixteen[name] = bytes_of("BF16", (3, 3), number)
            torch_files.write(self.at(f"in/layer_0_expert_{number}_mp_rank_00_model_states.pt"), {name: torch_files.tensor(sixteen[name])})
            torch_files.write(self.at(f"in/expp_rank_{number}_mp_rank_00_optim_states.pt"), {"optimizer": None})
        self.check_grid(made)
        self.convert("in", "hf", "--only", "module")
        self.assertEqual(files.read_hf(self.at("hf")), sixteen)


class Refusals(ZeroTest):
    def check_refused(self, words, stage=2, world=3, change=None, code=1, after=None, **how):
        if change is not None:
            how["change"] = lambda kind, rank, value: change(kind, rank, value) or value
        self.make(stage, world, **how)
        if after is not None:
            after()
        for command in (("inspect", self.at("in")), ("convert", self.at("in"), self.at("out"))):
            self.check_fails(command, code, words)

    def unlink(self, *names):
        return lambda: [os.unlink(self.at(f"in/{name}")) for name in names]

    def test_missing_files(self):
        for stage in (2, 3):
            self.check_refused("the optimizer file of data-parallel rank 1 (mp rank 0) is missing; there are 4 ranks", stage, 4,
                               after=self.unlink("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"))
            self.check_refused("its group 0 is cut over 4 ranks, but there are files for 3", stage, 4,
                               after=self.unlink("bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"))
        self.check_refused("mp_rank_00_model_states.pt is missing", after=self.unlink("mp_rank_00_model_states.pt"))
        self.check_refused("the model file of data-parallel rank 2 (mp rank 0) is missing", 3, 4,
                           after=self.unlink("zero_pp_rank_2_mp_rank_00_model_states.pt"))
        self.check_refused("the files *_optim_states.pt are missing; in ZeRO's checkpoints they hold the weights", 3, 2,
                           after=self.unlink(*(f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(2))))
        self.check_refused("belongs to the same rank as", after=lambda: shutil.copy(
            self.at("in/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"), self.at("in/zero_pp_rank_1_mp_rank_00_optim_states.pt")))

    def test_numbers(self):
        """Names with numbers beyond the limit are none of DeepSpeed's."""
        zero = self.make(2, 3)
        shutil.copy(self.at("in/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"), self.at(f"in/bf16_zero_pp_rank_{1 << 20}_mp_rank_00_optim_states.pt"))
        self.check_model(zero)
        os.rename(self.at(f"in/bf16_zero_pp_rank_{1 << 20}_mp_rank_00_optim_states.pt"),
                  self.at(f"in/bf16_zero_pp_rank_{(1 << 20) - 1}_mp_rank_00_optim_states.pt"))
        self.check_fails(("inspect", self.at("in")), 1, "the optimizer files of data-parallel ranks 3, 4, 5, 6, 7, 8, 9, 10, .. (mp rank 0) are missing")

    def test_many_files(self):
        """More files than a program may open unless it asks."""
        params = {f"p{i}": (3,) for i in range(40)}
        zero = self.write(Zero(params, [list(params)], 2, 3))
        for target, options in (("u", ("--format", "universal")), ("hf", ())):
            done = support.run("convert", self.at("in" if target == "u" else "u"), self.at(target), "--quiet", *options,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096)))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(files.read_hf(self.at("hf")), zero.expect_model())

    def test_sizes(self):
        def shorter(kind, rank, value):
            if kind == "optim" and rank == 1:
                value["optimizer_state_dict"]["single_partition_of_fp32_groups"][0] = zero_files.flat(bytes(40))

        def shares(kind, rank, value):
            if kind == "optim" and rank == 1:
                value["optimizer_state_dict"]["fp32_flat_groups"][0] = zero_files.flat(bytes(40))

        def larger(kind, rank, value):
            if kind == "model":
                value["param_shapes"][0].pairs["conv"] = torch_files.size((20, 3, 2, 5))

        def endless(kind, rank, value):
            if kind == "model":
                for name in ("model.embed.weight", "conv"):
                    value["param_shapes"][0].pairs[name] = torch_files.size((1 << 31, (1 << 32) - 1))

        def moment(kind, rank, value):
            if kind == "optim" and rank == 2:
                value["optimizer_state_dict"]["base_optimizer_state"]["state"][0]["exp_avg"] = zero_files.flat(bytes(8))

        def factored(kind, rank, value):
            if kind == "optim":
                value["optimizer_state_dict"]["base_optimizer_state"]["state"][0]["row"] = zero_files.flat(bytes(8))

        def lists(kind, rank, value):
            if kind == "model":
                value["param_shapes"] = value["param_shapes"][:1]

        def slices(kind, rank, value):
            if kind == "optim" and rank == 1:
                next(iter(value["optimizer_state_dict"]["param_slice_mappings"][0].pairs.values())).state["start"] += 1

        def renamed(kind, rank, value):
            if kind == "optim" and rank == 1:
                pairs = value["optimizer_state_dict"]["param_slice_mappings"][0].pairs
                pairs["other"] = pairs.pop(next(iter(pairs)))

        def fragment(kind, rank, value):
            if kind == "model" and rank == 1:
                value["frozen_param_fragments"].pairs["vision.w"] = zero_files.flat(bytes(2), "BF16")
        self.check_refused("but there are 10 weights and 0 elements of padding", change=shorter)
        self.check_refused("its sub-group 0 has 10 elements, but the first rank's has", 3, change=shares, states=())
        self.check_refused("have 762 elements, but the files of its 3 ranks hold 222", change=larger)
        self.check_refused("the parameters of group 0 have more than 2^63 elements", change=endless)
        self.check_refused("its sub-groups do not fit the shapes in the model file", 3, change=larger)
        self.check_refused('state "exp_avg" of group 0 has 2 elements, but there are', change=moment)
        self.check_refused('state "row" of group 0 has 2 elements, neither 1 nor one for each', change=factored)
        self.check_refused("param_slice_mappings names parameter", change=lists)
        self.check_refused("param_slice_mappings puts", change=slices)
        self.check_refused('param_slice_mappings names parameter "other" in group 0', change=renamed)
        self.check_refused('frozen parameter "vision.w" has 15 elements, but the files of 3 ranks hold 11', 3, change=fragment)

    def test_sizes_without_slices(self):
        """Old files have no param_slice_mappings, so only the sums tell."""
        def without(more):
            def change(kind, rank, value):
                if kind == "optim":
                    del value["optimizer_state_dict"]["param_slice_mappings"]
                more(kind, rank, value)
            return change

        def shorter(kind, rank, value):
            if kind == "optim" and rank == 1:
                state = value["optimizer_state_dict"]
                state["single_partition_of_fp32_groups"][0] = zero_files.flat(bytes(40))
                state["base_optimizer_state"]["state"] = {}

        def lists(kind, rank, value):
            if kind == "model":
                value["param_shapes"] = value["param_shapes"][:1]

        def larger(kind, rank, value):
            if kind == "model":
                value["param_shapes"][0].pairs["conv"] = torch_files.size((20, 3, 2, 5))

        def grown(kind, rank, value):
            if kind == "optim" and rank == 2:
                state = value["optimizer_state_dict"]
                state["single_partition_of_fp32_groups"][0] = zero_files.flat(bytes(4000))
        self.check_model(self.make(2, 3, change=lambda kind, rank, value: without(lambda *_: None)(kind, rank, value) or value))
        self.check_refused("which does not fit the files of the ranks before it", states=(), change=without(shorter))
        self.check_refused("which does not fit the files of the ranks before it", states=(), change=without(grown))
        self.check_refused("has 2 groups of weights, but the model file lists the shapes of 1", change=without(lists))
        self.check_refused("elements, but the files of its 3 ranks hold", change=without(larger))

    def test_mixtures(self):
        def other_stage(kind, rank, value):
            if kind == "optim" and rank == 1:
                value["optimizer_state_dict"]["zero_stage"] = 1

        def other_step(kind, rank, value):
            if kind == "optim" and rank == 2:
                state = value["optimizer_state_dict"]
                states = (state.get("base_optimizer_state") or state["optimizer_state_dict"])["state"]
                for key in states:
                    states[key]["step"] = (torch_files.tensor(("F32", (), struct.pack("<f", 9)))
                                           if isinstance(states[key]["step"], torch_files.View) else 9)

        def no_state(kind, rank, value):
            if kind == "optim" and rank == 1:
                value["optimizer_state_dict"]["base_optimizer_state"]["state"] = {}

        def other_state(kind, rank, value):
            if kind == "optim" and rank == 1:
                states = value["optimizer_state_dict"]["base_optimizer_state"]["state"][0]
                states["other"] = states.pop("exp_avg")

        def fewer(kind, rank, value):
            if kind == "optim" and rank == 1:
                value["optimizer_state_dict"]["single_partition_of_fp32_groups"].pop()

        def half(kind, rank, value):
            if kind == "optim" and rank == 1:
                groups = value["optimizer_state_dict"]["single_partition_of_fp32_groups"]
                groups[0] = zero_files.flat(bytes(2 * groups[0].size[0]), "BF16")

        def counts(kind, rank, value):
            if kind == "optim":
                value["optimizer_state_dict"]["partition_count"] = 4
        self.check_refused("has ZeRO stage 1, but the first rank's file has stage 2; are there two checkpoints in one folder?", change=other_stage)
        for stage in (2, 3):
            for step_tensor in (False, True):
                self.check_refused('state "step" of group 0 has another value than in the first rank\'s file; do the files come from two steps?', stage,
                                   change=other_step, step_tensor=step_tensor)
        self.check_refused("group 0 has 0 states, but 3 in the first rank's file", change=no_state)
        self.check_refused('state "exp_avg" of group 0 is missing; the first rank\'s file has it', change=other_state)
        self.check_refused("has 1 groups, but the first rank's file has 2", change=fewer)
        self.check_refused("has dtype bf16, but f32 in the first rank's file", change=half)
        self.check_refused("its group 0 is cut over 4 ranks, but there are files for 3", change=counts)
        self.make(3, 3)
        self.make(2, 3).write(self.at("in3"))
        zero = self.make(3, 3)
        for rank in range(3):
            shutil.copy(self.at(f"in3/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"), self.at("in"))
        self.check_fails(("inspect", self.at("in")), 1, "is a model file of stage 3, but the optimizer's files have stage 2")

    def test_foreign_classes(self):
        def with_value(key, made):
            def change(kind, rank, value):
                if kind == "optim" and key in value["optimizer_state_dict"]:
                    held = value["optimizer_state_dict"][key]
                    if isinstance(held, list):
                        held[0] = made
                    else:
                        value["optimizer_state_dict"][key] = made
            return change

        class_of = torch_files.Call(torch_files.Global("some.module", "Strange"), new=True, state={"x": 1})
        self.check_refused("its zero_stage is some.module.Strange", change=with_value("zero_stage", class_of))
        self.check_refused("has ZeRO stage 4", change=with_value("zero_stage", 4))
        self.check_refused("its array of weights of group 0 is some.module.Strange", change=with_value("single_partition_of_fp32_groups", class_of))

        def mapping(kind, rank, value):
            if kind == "optim" and rank == 0:
                pairs = value["optimizer_state_dict"]["param_slice_mappings"][0].pairs
                pairs[next(iter(pairs))] = class_of
        self.check_refused("where a fragment_address should be", change=mapping)

        def autoep(kind, rank, value):
            if kind == "model":
                value["ds_autoep_layers"] = [{"checkpoint_format": "zero3_partitioned", "num_experts": 4}]
        self.check_refused("holds experts of AutoEP (zero3_partitioned)", 3, change=autoep)

        def groups(kind, rank, value):
            if kind == "optim":
                value["optimizer_state_dict"]["ds_zero_partition_groups"] = [{"partition_count": 2}]
        self.check_refused("holds experts of AutoEP (ds_zero_partition_groups)", 3, change=groups)

        def nothing(kind, rank, value):
            if kind == "model":
                del value["param_shapes"]
        self.check_refused("has no param_shapes", change=nothing)

        def no_dict(kind, rank, value):
            if kind == "optim":
                value["optimizer_state_dict"] = None
        self.check_refused("has no dict optimizer_state_dict", change=no_dict)

        def names(kind, rank, value):
            if kind == "optim":
                value["optimizer_state_dict"]["partition_count"] = [1, 2]
                value["optimizer_state_dict"]["param_slice_mappings"] = []
        self.check_refused("its group 1 is cut over 2 ranks, but there are files for 3", change=names)

        def expert(kind, rank, value):
            if kind == "optim":
                value["optimizer_state_dict"]["partition_count"] = [1, 3]
                value["optimizer_state_dict"]["param_slice_mappings"] = []
                value["optimizer_state_dict"]["single_partition_of_fp32_groups"][0] = zero_files.flat(bytes(4 * 222))
        self.check_refused("its name does not say which expert of which ranks it is", states=(), change=expert)

        def harmful(kind, rank, value):
            if kind == "optim" and rank == 1:
                value["client"] = torch_files.Call(torch_files.Global("os", "system"), ("echo",))
        self.make(2, 3, change=lambda kind, rank, value: harmful(kind, rank, value) or value)
        done = support.run("convert", self.at("in"), self.at("out2"))
        self.assertEqual(done.returncode, 0)
        self.assertIn("Python would call os.system to load it; reshard calls nothing", done.stderr + done.stdout)


if __name__ == "__main__":
    support.main()
