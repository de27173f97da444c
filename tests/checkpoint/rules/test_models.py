# SPDX-License-Identifier: Apache-2.0
"""The built-in families on published models at their full size: every shard of every rank is what families/, which is written by
hand, says it has to be; what cannot be cut is refused; quantised forms follow; a small model of each kind comes back byte for byte.

The table in docs/families.md is made here: RESHARD_WRITE_DOCS=1 writes it, otherwise it is compared."""
import functools
import json
import os
import random
import re
import subprocess
import sys
from functools import partial as P

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support
from families import BY_NAME, TOPICS, cuts, llama, towers
from families.cuts import cut, vocabulary, whole
from families.forms import FORMS, FP8, block_fits, form_fits, fp8_block
from families.model import Row, sizes
from families.written import small, write_small, write_sparse
from model_case import ModelTest

SCALE = float(os.environ.get("RESHARD_TEST_SCALE", "1"))
PAGE = os.path.join(HERE, "..", "..", "..", "docs", "families.md")


class Models(ModelTest):
    @functools.lru_cache(maxsize=None)
    def examine(self, name):
        row = BY_NAME[name]
        m, experts = row.sampled()
        stacked = [shape[0] for _, _, shape, how in m.tensors if how.experts]
        experts = stacked[0] if stacked else experts
        folder = f"{self.folder}/{row.plain_name}"
        write_sparse(folder, m.tensors, row.given)
        fits = lambda tp: all(cuts.fits(how, shape, tp) for _, _, shape, how in m.tensors)
        done = {tp: self.check_plan(row, m.tensors, folder, f"tp={tp}", fits(tp)) for tp in (1, 2, 4, 8)}
        usable = max(tp for tp in (1, 2) if fits(tp))
        if "pp" in row.axes:
            self.check_plan(row, m.tensors, folder, f"pp=2,tp={usable}", True)
        else:
            self.assertRegex(self.plan(folder, "pp=2")[0].stderr, "no rule of .* says what axis pp=2 does")
        if "ep" in row.axes:
            self.check_plan(row, m.tensors, folder, f"ep=2,tp={usable}", True, experts)
        return done, self.examine_forms(row, m), self.round_trip(row)

    def examine_forms(self, row, m):
        """Every form, as far as its groups divide the weights at all."""
        found = []
        plain = {f"{name}.weight" for name in m.linears}
        for form, write, extra in FORMS:
            if form not in row.forms:
                continue
            tensors = [] if form == "LoRA" else [tensor for tensor in m.tensors if tensor[0] not in plain]
            grouped = form not in ("fp8 channels", "fp8 tensors", "LoRA", "fp8 blocks")
            if grouped and any(out % 8 or inputs % 128 for out, inputs, _ in m.linears.values()):
                continue
            for name, (out, inputs, how) in m.linears.items():
                tensors += list(write(f"base_model.model.{name}" if form == "LoRA" else name, out, inputs, how))
            folder = f"{self.folder}/{row.plain_name} {form}"
            write_sparse(folder, tensors, {**row.given, **extra})
            can = {}
            for tp in (2, 8) if SCALE > 1 else (2,):
                can[tp] = all(form_fits(how, shape, tp) for _, _, shape, how in tensors)
                if form == "fp8 blocks":
                    can[tp] = can[tp] and all(block_fits(how, shape, tp) for _, dtype, shape, how in tensors
                                              if dtype == "F8_E4M3" or how.experts)
                self.check_plan(row, tensors, folder, f"tp={tp}", can[tp])
            if any(can.values()):
                found.append(form)
        return found

    def round_trip(self, row):
        """A small model of the same kind, cut into files of ranks and put together again."""
        given = small(row.given)
        layers = range({"jamba": 8, "minimax": 8, "bamba": 10, "gemma4": 6, "zamba2": 12}.get(row.family, 4))
        flat = given.get("llm_config") or given.get("language_config") or given.get("thinker_config", given).get("text_config", given)
        for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
            if key in flat:
                flat[key] = len(layers)
        if row.family in ("llava", "idefics2"):
            flat.update(hidden_size=64, num_attention_heads=4, num_key_value_heads=4, intermediate_size=64)
        if row.family == "rwkv" and "head_dim" not in given:
            given["head_size"] = 16
        if row.family == "gemma3":
            flat["vocab_size"] = 100
        m = row.make(given, layers)
        # What stays whole, such as towers, may be of any size, as long as config.json does not say it (norms).
        m.tensors = [(name, dtype, tuple(min(n, 128) for n in shape) if how.kind == "whole" and not how.experts else shape, how)
                     for name, dtype, shape, how in m.tensors]
        source, cut, back = (f"{self.folder}/small {row.plain_name} {step}" for step in ("source", "cut", "back"))
        os.makedirs(source)
        write_small(source, m.tensors, given, random.Random(row.name))
        self.read_text("convert", source, cut, "--to", "tp=2", "--format", "rank-files", "--quiet", "--no-sync")
        model = files.read(f"{source}/model.safetensors")[0]
        for rank in range(2):
            shard = files.read(f"{cut}/rank-{rank:05}-of-00002.safetensors")[0]
            for name, _, shape, how in m.tensors:
                self.assertEqual(shard[name][2], cuts.held(model[name][2], how, shape, 2, rank), f"{row.name} rank {rank}: {name}")
        self.read_text("convert", cut, back, "--from", "tp=2", "--quiet", "--no-sync")
        self.assertEqual(files.read_hf(back), model)
        return True

    @staticmethod
    def without_layers_of_towers(row):
        m, experts = row.sampled()
        m.tensors = [tensor for tensor in m.tensors if not re.match(r"(model\.)?(visual|vision_).*(layers|blocks|merger)\.", tensor[0])]
        return m, experts

    def test_towers_are_whole_and_cut_when_asked(self):
        tried = [("Llava-1.5-7B", towers.clip_tower, "vision_config", {"hidden_size": 1024, "num_attention_heads": 16}),
                  ("Gemma-3-27B", towers.siglip_tower, "vision_config", {"hidden_size": 1152, "num_attention_heads": 16}),
                  ("Mistral-Small-3.1-24B", towers.pixtral_tower, "vision_config", {"hidden_size": 1024, "num_attention_heads": 16}),
                  ("Llama-4-Scout", towers.llama4_tower, "vision_config", {"hidden_size": 1408, "num_attention_heads": 16}),
                  ("Qwen2-VL-7B", P(towers.add_qwen_blocks, at="visual", size=1280, inner=5120, heads=16, names=("fc1", "fc2")), "vision_config",
                   {"embed_dim": 1280, "hidden_size": 3584, "num_heads": 16}),
                  ("Qwen2.5-VL-7B", P(towers.add_qwen_blocks, at="visual", size=1280, inner=3420, heads=16, names=("gate_proj", "up_proj", "down_proj")),
                   "vision_config", {"hidden_size": 1280, "num_heads": 16}),
                  ("Qwen3-VL-8B", P(towers.add_qwen_blocks, at="model.visual", size=1152, inner=4304, heads=16, names=("linear_fc1", "linear_fc2")),
                   "vision_config", {"hidden_size": 1152, "num_heads": 16}),
                  ("Llama-2-7B", towers.audio_tower, "audio_config", {"d_model": 1280, "encoder_attention_heads": 20})]
        asked = ("--set", "towers=1")
        for name, add, key, said in tried:
            with self.subTest(name=name):
                row = BY_NAME[name]
                m, experts = self.without_layers_of_towers(row)
                before = len(m.tensors)
                add(m)
                folder = f"{self.folder}/tower {name}"
                write_sparse(folder, m.tensors, {**row.given, key: said})
                kept = [(tensor[:3] + (whole(),) if at >= before else tensor) for at, tensor in enumerate(m.tensors)]
                for tp in (2, 4):
                    self.check_plan(row, kept, folder, f"tp={tp}", True, experts)
                    self.check_plan(row, m.tensors, folder, f"tp={tp}", True, experts, asked)
                    self.assertNotEqual([t[3].kind for t in kept], [t[3].kind for t in m.tensors])
                if "VL" in name:
                    write_sparse(folder + " odd", m.tensors, {**row.given, key: {**said, "num_heads": 2}})
                    self.check_plan(row, m.tensors, folder + " odd", "tp=4", False, experts, asked)
        row = BY_NAME["Llava-1.5-7B"]
        m, _ = self.without_layers_of_towers(row)
        towers.clip_tower(m)
        layer = "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj"
        write_sparse(f"{self.folder}/no heads", m.tensors, row.given)
        self.check_fails(["plan", f"{self.folder}/no heads", "--to", "tp=2", *asked], 1,
                         "$vision_config.hidden_size has no value in config.json; --set vision_config.hidden_size=N gives it one")
        # Scales of a quantised tower would have to follow it.
        m.add(f"{layer}.weight_scale", (1024, 1), whole(), "F32")
        said = {**row.given, "vision_config": {"hidden_size": 1024, "num_attention_heads": 16}}
        write_sparse(f"{self.folder}/quantised tower", m.tensors, said)
        self.check_fails(["plan", f"{self.folder}/quantised tower", "--to", "tp=2", *asked], 1, "towers that are quantised are not cut")
        self.read_text("plan", f"{self.folder}/quantised tower", "--to", "tp=2")
        # An adapter of a tower is as whole as the tower.
        adapters = [(f"base_model.model.{at}{layer}.lora_{half}.weight", "F32", shape, whole())
                    for at in ("", "model.") for half, shape in (("A", (16, 1024)), ("B", (1024, 16)))]
        write_sparse(f"{self.folder}/tower adapter", adapters, said)
        self.check_plan(row, adapters, f"{self.folder}/tower adapter", "tp=2", True)

    def test_blocks_of_compressed_tensors(self):
        """fp8 in blocks under the name weight_scale, with the size of blocks deep in config.json."""
        row = BY_NAME["Llama-3.1-70B"]
        m, _ = row.sampled()
        plain = {f"{name}.weight" for name in m.linears}
        tensors = [tensor for tensor in m.tensors if tensor[0] not in plain]
        for name, value in m.linears.items():
            tensors += [(made.replace("_scale_inv", "_scale"), *rest) for made, *rest in fp8_block(name, *value)]
        groups = {"group_0": {"weights": {"strategy": "block", "block_structure": [128, 128]}}}
        write_sparse(f"{self.folder}/blocks", tensors, {**row.given, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}})
        for tp in (2, 4, 8):
            self.check_plan(row, tensors, f"{self.folder}/blocks", f"tp={tp}", True)
        self.check_fails(["plan", f"{self.folder}/blocks", "--to", "tp=64"], 1, "cannot be divided evenly by tp=64")

    def test_stacked_experts_in_fp8(self):
        """All experts in one tensor with a scale for each block of 128 x 128, as Qwen3-VL-MoE has them in fp8: [expert, in, out] and [expert, in/128, out/128]."""
        row = BY_NAME["Qwen3-VL-30B-A3B"]
        m, _ = row.sampled()
        tensors = []
        for name, dtype, shape, how in m.tensors:
            stacked = ".experts." in name
            tensors.append((name, "F8_E4M3" if stacked else dtype, shape, how))
            if stacked:
                tensors.append((name + "_scale_inv", "F32", (shape[0], shape[1] // 128, shape[2] // 128), how))
        folder = f"{self.folder}/experts fp8"
        write_sparse(folder, tensors, {**row.given, **FP8})
        for mesh in ("tp=2", "ep=4", "ep=3,tp=2", "pp=2,ep=2,tp=2"):
            self.check_plan(row, tensors, folder, mesh, True, 128)
        self.check_plan(row, tensors, folder, "tp=4", False)  # 6 blocks to a half
        # Without the size of blocks, nothing would keep weights and scales together.
        write_sparse(f"{folder} of unknown blocks", tensors, row.given)
        self.check_fails(["plan", f"{folder} of unknown blocks", "--to", "tp=4"], 1, "experts.down_proj_scale_inv is for [128, *, 2048]")

    def test_quantised_forms_come_back(self):
        """Each form of a small model, cut into files of ranks and put together again, also without what the files say of themselves."""
        given = sizes("llama", 512, 4, 4, 512, 2, 128, head_dim=128)
        for number, (form, write, extra) in enumerate(FORMS):
            m = llama.llama(given, range(2))
            plain = {f"{name}.weight" for name in m.linears}
            tensors = [] if form == "LoRA" else [tensor for tensor in m.tensors if tensor[0] not in plain]
            for name, value in m.linears.items():
                tensors += list(write(f"base_model.model.{name}" if form == "LoRA" else name, *value))
            source, cut, bare, back, again = (f"{self.folder}/form{number} {step}" for step in ("source", "cut", "bare", "back", "again"))
            os.makedirs(source)
            write_small(source, tensors, {**given, **extra}, random.Random(number))
            quiet = ("--quiet", "--no-sync")
            self.read_text("convert", source, cut, "--to", "tp=2", "--format", "rank-files", *quiet)
            self.read_text("convert", cut, back, *quiet)
            model = files.read(f"{source}/model.safetensors")[0]
            self.assertEqual(files.read_hf(back), model, form)
            files.strip_rank_files(cut, bare)
            with open(f"{bare}/config.json", "w", encoding="utf-8") as file:
                json.dump({**given, **extra}, file)
            self.read_text("convert", bare, again, "--from", "tp=2", "--rules", "llama", *quiet)
            self.assertEqual(files.read_hf(again), model, form)

    def test_a_configuration_that_does_not_fit(self):
        """Of heads: copies would go to wrong ranks. Of no known model: the names are a guess, and that is said."""
        row = BY_NAME["Llama-3.1-70B"]
        m, _ = row.sampled()
        for name, change, words in [("fewer", {"num_key_value_heads": 4}, "8 units of 128 are more than max=4"),
                                    ("smaller", {"head_dim": 64}, "16 units of 64 are more than max=8")]:
            write_sparse(f"{self.folder}/{name}", m.tensors, {**row.given, **change})
            self.check_fails(["plan", f"{self.folder}/{name}", "--to", "tp=8"], 1, words)
        write_sparse(f"{self.folder}/type", m.tensors, {**row.given, "model_type": "brand_new"})
        self.assertRegex(self.read_json("plan", f"{self.folder}/type", "--to", "tp=2")["rules"],
                         'family llama: no family knows model_type "brand_new", but a tensor is called "model.layers.0.self_attn.q_proj.weight"')
        for name, mesh, change, words in [
                ("Llama-3.1-70B", "pp=2", {"num_hidden_layers": 96}, "layers or experts dealt to pp by the model's numbers: 96; there are tensors of the first 80 only"),
                ("Mixtral-8x7B", "ep=2,pp=2", {"num_local_experts": 16}, "layers or experts dealt to ep by the model's numbers: 16; there are tensors of the first 8 only")]:
            other = BY_NAME[name]
            write_sparse(f"{self.folder}/more {name}", other.sampled()[0].tensors, {**other.given, **change})
            write_sparse(f"{self.folder}/as many {name}", other.sampled()[0].tensors, other.given)
            found = [[note for note in self.read_json("plan", f"{self.folder}/{which} {name}", "--to", mesh)["notes"] if "dealt" in note]
                     for which in ("more", "as many")]
            self.assertEqual(found, [[words], []])
        write_sparse(f"{self.folder}/list", m.tensors, [1])
        self.check_fails(["plan", f"{self.folder}/list", "--to", "tp=2"], 1, "object of keys and values")

    def test_blocks_and_groups_that_are_not_full(self):
        """192 rows or inputs are one and a half blocks of 128: shares of 96 would need the scale of the first block twice."""
        for number, (name, layer, form, words) in enumerate([
                ("BLOOM-176B", "transformer.h.0.mlp.dense_h_to_4h", "fp8", "weight"), ("OPT-66B", "model.decoder.layers.0.fc1", "fp8", "weight"),
                ("Phi-3-mini", "model.layers.0.mlp.gate_up_proj", "fp8", "weight"), ("BERT-large", "bert.encoder.layer.0.intermediate.dense", "fp8", "weight"),
                ("Llama-2-7B", "model.layers.0.mlp.down_proj", "gptq", "g_idx"), ("BLOOM-176B", "transformer.h.0.mlp.dense_4h_to_h", "gptq", "g_idx"),
                ("Llama-2-7B", "model.layers.0.mlp.down_proj", "awq", "qweight")]):
            rows = 384 if "gate_up" in layer else 192
            tensors = {"fp8": [("weight", "F8_E4M3", (rows, 256)), ("weight_scale_inv", "F32", (-(-rows // 128) // 2 * 2, 2))],
                       "gptq": [("qweight", "I32", (24, 256)), ("scales", "F16", (2, 256)), ("qzeros", "I32", (2, 32)), ("g_idx", "I32", (192,))],
                       "awq": [("qweight", "I32", (192, 32)), ("scales", "F16", (2, 256)), ("qzeros", "I32", (2, 32))]}[form]
            folder = f"{self.folder}/half{number}"
            extra = {"quant_method": form, **({"weight_block_size": [128, 128]} if form == "fp8" else {"group_size": 128})}
            write_sparse(folder, [(f"{layer}.{end}", dtype, shape, None) for end, dtype, shape in tensors], {**BY_NAME[name].given, "quantization_config": extra})
            self.check_fails(["plan", folder, "--to", "tp=2"], 1, f"{layer}.{words}")
            self.assertIn("is not a multiple of unit=128", self.plan(folder, "tp=2")[0].stderr)

    def test_names_that_others_add(self):
        """Heads of reward models, buffers of old programs, adapters and layers as PEFT names them in memory, a model without `model.`"""
        given = sizes("llama", 256, 4, 2, 192, 2, 100, head_dim=64)
        q = "layers.1.self_attn.q_proj"
        tensors = [("score.weight", "BF16", (1, 256), whole()), ("norm.weight", "BF16", (256,), whole()), ("layers.1.self_attn.rotary_emb.cos_cached", "F32", (1, 8), whole()),
                   (f"{q}.base_layer.weight", "BF16", (256, 256), cut(0, 64)), (f"{q}.base_layer.bias", "BF16", (256,), cut(0, 64)),
                   (f"{q}.lora_A.default.weight", "F32", (8, 256), whole()), (f"{q}.lora_B.default.weight", "F32", (256, 8), cut(0, 64)),
                   ("embed_tokens.weight", "BF16", (105, 256), vocabulary()), ("lm_head.weight", "BF16", (105, 256), vocabulary())]
        write_sparse(f"{self.folder}/added", tensors, given)
        self.check_plan(Row("added", "llama", None, given), tensors, f"{self.folder}/added", "pp=2,tp=2", True)

    def test_bitsandbytes_is_refused_with_the_reason(self):
        row = BY_NAME["Llama-3.1-70B"]
        m, _ = row.sampled()
        m.add("model.layers.0.mlp.down_proj.weight.absmax", (3670016,), whole(), "U8")
        folder = f"{self.folder}/bnb"
        write_sparse(folder, m.tensors, row.given)
        self.check_fails(["plan", folder, "--to", "tp=2"], 1, "bitsandbytes stores a weight as blocks")
        self.read_text("plan", folder, "--to", "pp=2")

    def test_square_experts_need_a_model_type(self):
        """[expert, 2 x inner, hidden] and [expert, hidden, 2 x inner] are the same shape when they are equal."""
        given = sizes("none", 64, 4, 4, 32, 1, 100, num_local_experts=4)
        name = "model.layers.0.mlp.experts.gate_up_proj"
        for number, (model_type, dim) in enumerate([(None, None), ("qwen3_moe", 1), ("qwen3_vl_moe", 2)]):
            folder = f"{self.folder}/square{number}"
            write_sparse(folder, [(name, "BF16", (4, 64, 64), None)], {**given, "model_type": model_type})
            done, plan = self.plan(folder, "tp=2")
            if dim is None:
                self.assertIn("equally well, and model_type in config.json does not say", done.stderr)
            else:
                self.assertEqual(plan["tensor_list"][0]["cut"], f"tp=2: S({dim}*2)")

    def test_groups_of_names_that_no_rule_knows(self):
        tensors = [(f"model.decoder.layers.{i}.fc{k}.weight", "BF16", (2048, 512), None) for i in range(12) for k in (1, 2)]
        folder = f"{self.folder}/unknown"
        write_sparse(folder, tensors + [("odd", "BF16", (3,), None)], {})
        self.check_fails(["plan", folder, "--to", "tp=2", "--rules", "llama"], 1,
                         "no rule of llama matches 25 of 25 tensors: model.decoder.layers.{0..11}.fc1.weight x12 2048x512; "
                         "model.decoder.layers.{0..11}.fc2.weight x12 2048x512; odd 3")
        draft = self.read_text("rules", "--for", folder)
        self.assertIn("model.decoder.layers.{0..11}.fc1.weight  ???  # x12  2048x512\n", draft)
        path = self.write_file(draft.encode())
        self.check_fails(["plan", folder, "--to", "tp=2", "--rules", path], 1, "this line")
        path = self.write_file(draft.replace("???", "S(0)@tp").replace("odd", "odd R #").encode())
        plan = self.read_json("plan", folder, "--to", "tp=2", "--tensors", "--rules", path)
        self.assertEqual([tensor["name"] for tensor in plan["tensor_list"]][2:6],
                         [f"model.decoder.layers.{i}.fc{k}.weight" for i in (1, 2) for k in (1, 2)])

    def test_the_largest_are_planned(self):
        """671B and 1T parameters, every tensor of them, in fp8 with its scales."""
        for name, formats in (("DeepSeek-V3", ("dcp-safetensors", "rank-files")), ("Kimi-K2", ("dcp-safetensors",))):
            row = BY_NAME[name]
            m = row.build(range(row.layers))
            plain = {f"{linear}.weight" for linear in m.linears}
            tensors = [tensor for tensor in m.tensors if tensor[0] not in plain]
            for linear, value in m.linears.items():
                tensors += list(fp8_block(linear, *value))
            folder = f"{self.folder}/full {name}"
            write_sparse(folder, tensors, {**row.given, **FP8})
            for form in formats:
                plan, seconds, memory = self.measure("plan", folder, "--to", "ep=8,tp=4,pp=4", "--format", form, "--json")
                print(f"{name}: {len(tensors)} tensors over ep=8,tp=4,pp=4 as {form}: {seconds:.2f} s of processor time, {memory >> 10} MiB")
                self.assertEqual(plan["tensors"], len(tensors))
                # The bar is 1 s; three times that leaves room for a busy machine. A sanitizer takes more of both.
                if SCALE >= 1:
                    self.assertLess(seconds, 3)
                    self.assertLess(memory, 100 << 10)

    def test_a_line_that_matches_nothing_is_said(self):
        folder = f"{self.folder}/typing"
        write_sparse(folder, [("a.q_proj.weight", "BF16", (8, 8), None)], {})
        path = self.write_file(b"*.q_porj.weight S(0)@tp\n*.q_proj.weight S(1)@tp\nevery b.*: S(0)@tp\n")
        plan = self.read_json("plan", folder, "--to", "tp=2", "--rules", path)
        self.assertEqual(plan["rules"], f"rules of {path}; line 1 (*.q_porj.weight) matches no tensor, nor do others")
        path = self.write_file(b"* R\nzz R\n*.q_proj.weight S(1)@tp\nevery a.*: S(0)@dp\n")
        plan = self.read_json("plan", folder, "--to", "tp=2", "--rules", path)
        self.assertEqual(plan["rules"], f"rules of {path}; line 2 (zz) matches no tensor; line 3 (*.q_proj.weight) is never the first that matches")
        # A line in front that only holds for some shapes, or models, may leave the rest to others.
        for condition in (b"[4, 4] S(1)@tp", b"S(1)@tp when($odd?0)", b"S(1)@tp when($model_type=other)", b"S(1)@tp without(zz)"):
            path = self.write_file(b"*.q_proj.weight " + condition + b"\na.q_proj.weight [8, 8] S(0)@tp\n* R\n")
            self.assertNotIn("(a.q_proj.weight)", self.read_json("plan", folder, "--to", "tp=2", "--rules", path)["rules"])
        path = self.write_file(b"use fsdp\n*.q_proj.weight S(1)@fsdp\na.* R\n")
        self.assertEqual(self.read_json("plan", folder, "--to", "fsdp=2", "--rules", path)["rules"],
                         f"rules of {path}; line 2 (*.q_proj.weight) is never the first that matches, nor are others")
        path = self.write_file(b"*.q_proj.weight S(1)@tp\nuse llama\n")
        self.assertEqual(self.read_json("plan", folder, "--to", "tp=2", "--rules", path)["rules"], f"rules of {path}")

    @staticmethod
    def measure(*arguments):
        """What the command says, its processor time in seconds and its memory in KiB. A small process starts it, as a child
        counts the memory of its parent as its own."""
        code = ("import json, resource, subprocess, sys\n"
                "out = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True).stdout\n"
                "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
                "print(json.dumps([json.loads(out), used.ru_utime + used.ru_stime, used.ru_maxrss]))")
        return json.loads(subprocess.run([sys.executable, "-c", code, support.COMMAND, *arguments], stdout=subprocess.PIPE, check=True).stdout)

    def table_line(self, row):
        done, forms, back = self.examine(row.name)
        if row.name == "GPT-OSS-120B":
            forms = ["mxfp4"]
        return "| " + " | ".join([
            row.name, f"`{row.family}`", ", ".join(str(tp) for tp in done if done[tp] and tp > 1) or "none",
            ", ".join(str(tp) for tp in done if not done[tp]) or "-",
            "yes" if "pp" in row.axes else "no", "yes" if "ep" in row.axes else "-",
            "all" if len(forms) == len(FORMS) else ", ".join(forms) or "-", "yes" if back else "no"]) + " |"

    def test_table(self):
        lines = []
        for topic, rows in TOPICS:
            lines += [f"\n**{topic}**\n", "| model | family | tp | refused | pp | ep | quantised forms | round trip |", "|---|---|---|---|---|---|---|---|"]
            lines += [self.table_line(row) for row in rows]
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        table = "\n".join(lines).strip()
        made = re.sub(r"(<!-- table -->\n).*?(\n<!-- end -->)", lambda match: match[1] + table + match[2], page, flags=re.S)
        if os.environ.get("RESHARD_WRITE_DOCS"):
            with open(PAGE, "w", encoding="utf-8") as file:
                file.write(made)
        self.assertEqual(page if not os.environ.get("RESHARD_WRITE_DOCS") else made, made)


if __name__ == "__main__":
    support.main()
