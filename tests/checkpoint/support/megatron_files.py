# SPDX-License-Identifier: Apache-2.0
"""Models in Hugging Face's naming and in Megatron-Core's, and Megatron's folders, made row by row: nothing here shares code with the library.

A model is {name: (dtype, shape, bytes)}. A Family says what its layers are made of; both namings come from the same random rows.
"""
import json
import os
import random

import dcp_files
import files
import torch_files

WIDTH = {"BF16": 2, "F16": 2, "F32": 4}


def rows(array):
    """The parts of a tensor along its first dim, as bytes."""
    _, shape, data = array
    each = len(data) // shape[0]
    return [data[i * each:(i + 1) * each] for i in range(shape[0])]


def join(dtype, parts, inner):
    return dtype, (len(parts),) + tuple(inner), b"".join(parts)


def concat(*arrays):
    return join(arrays[0][0], [row for array in arrays for row in rows(array)], arrays[0][1][1:])


def stack(arrays):
    assert len({(array[0], array[1]) for array in arrays}) == 1, [array[:2] for array in arrays]
    return join(arrays[0][0], [array[2] for array in arrays], arrays[0][1])


def exchange(array):
    """A matrix with its dims exchanged."""
    dtype, (height, width), data = array
    size = WIDTH[dtype]
    cells = [data[(r * width + c) * size:(r * width + c + 1) * size] for c in range(width) for r in range(height)]
    return dtype, (width, height), b"".join(cells)


class Family:
    """Sizes are small, and no two of them are equal, so that nothing fits by chance."""
    layers, hidden, heads, groups, head, inner, vocab, experts, expert_inner = 2, 24, 8, 2, 4, 20, 30, 0, 12
    model_type, biases, qk_norms, tied, dense, shared, mtp = "llama", False, False, False, None, 0, 0
    latent = q_lora = 0
    gated, gate = True, False
    nope, rope, value = 6, 2, 4

    def __init__(self, seed=1, **sizes):
        self.__dict__.update(sizes)
        self.rnd = random.Random(seed)

    def config(self):
        found = {"model_type": self.model_type, "num_hidden_layers": self.layers, "hidden_size": self.hidden, "num_attention_heads": self.heads,
                 "num_key_value_heads": self.groups, "head_dim": self.head, "vocab_size": self.vocab, "intermediate_size": self.inner,
                 "tie_word_embeddings": self.tied}
        if self.experts:
            found[{"mixtral": "num_local_experts", "gpt_oss": "num_local_experts", "deepseek_v3": "n_routed_experts", "glm4_moe": "n_routed_experts"}
                  .get(self.model_type, "num_experts")] = self.experts
        if self.dense is not None:
            found["first_k_dense_replace"] = self.dense
        if self.latent:
            found.update(kv_lora_rank=self.latent, q_lora_rank=self.q_lora or None, qk_nope_head_dim=self.nope, qk_rope_head_dim=self.rope,
                         v_head_dim=self.value)
        if self.mtp:
            found["num_nextn_predict_layers"] = self.mtp
        if self.gate:
            found["attn_output_gate"] = True
        return found

    def args(self):
        """What Megatron keeps in `args`."""
        found = {"num_layers": self.layers, "hidden_size": self.hidden, "num_attention_heads": self.heads, "num_query_groups": self.groups,
                 "group_query_attention": True, "kv_channels": self.head, "ffn_hidden_size": self.inner, "padded_vocab_size": self.padded(),
                 "vocab_size": self.vocab, "swiglu": True, "untie_embeddings_and_output_weights": not self.tied, "num_experts": self.experts or None,
                 "multi_latent_attention": bool(self.latent), "moe_layer_freq": 1, "lr": 1e-4, "bf16": True}
        if self.dense is not None:
            found["moe_layer_freq"] = [0] * self.dense + [1] * (self.layers - self.dense)
        if self.latent:
            found.update(kv_lora_rank=self.latent, q_lora_rank=self.q_lora or None, qk_head_dim=self.nope, qk_pos_emb_head_dim=self.rope,
                         v_head_dim=self.value)
        if self.mtp:
            found["mtp_num_layers"] = self.mtp
        if self.gate:
            found["attention_output_gate"] = True
        return found

    def padded(self):
        return self.vocab + 10

    def tensor(self, *shape, dtype="BF16"):
        return dtype, shape, self.rnd.randbytes(files.volume(shape) * WIDTH[dtype])

    # ---- one layer: what both namings have, by their names ---------------------------------------------------------

    def attention(self, hf, mc, at, to):
        if self.latent:
            return self.latent_attention(hf, mc, at, to)
        names = ["weight"] + (["bias"] if self.biases else [])
        for s in names:
            inner = (self.hidden,) if s == "weight" else ()
            q, k, v = (self.tensor(n * self.head, *inner) for n in (self.heads * (1 + self.gate), self.groups, self.groups))
            hf[f"{at}self_attn.q_proj.{s}"], hf[f"{at}self_attn.k_proj.{s}"], hf[f"{at}self_attn.v_proj.{s}"] = q, k, v
            each, fused = self.heads // self.groups, []
            for g in range(self.groups):
                for part in range(1 + self.gate):  # all heads of the group, then all their gates
                    for head in range(g * each, (g + 1) * each):
                        begin = (head * (1 + self.gate) + part) * self.head
                        fused += rows(q)[begin:begin + self.head]
                fused += rows(k)[g * self.head:(g + 1) * self.head] + rows(v)[g * self.head:(g + 1) * self.head]
            mc[f"{to}self_attention.linear_qkv.{s}"] = join(q[0], fused, inner)
        self.same(hf, at + "self_attn.o_proj.weight", mc, to + "self_attention.linear_proj.weight", self.hidden, self.heads * self.head)
        self.same(hf, at + "input_layernorm.weight", mc, to + "self_attention.linear_qkv.layer_norm_weight", self.hidden)
        if self.qk_norms:
            for s in "qk":
                self.same(hf, f"{at}self_attn.{s}_norm.weight", mc, f"{to}self_attention.{s}_layernorm.weight", self.head)
        if self.model_type == "gpt_oss":
            self.same(hf, at + "self_attn.o_proj.bias", mc, to + "self_attention.linear_proj.bias", self.hidden)
            self.same(hf, at + "self_attn.sinks", mc, to + "self_attention.core_attention.softmax_offset", self.heads)
        return None

    def latent_attention(self, hf, mc, at, to):
        self.same(hf, at + "input_layernorm.weight", mc, to + "input_layernorm.weight", self.hidden)
        each = self.nope + self.rope
        if self.q_lora:
            self.same(hf, at + "self_attn.q_a_proj.weight", mc, to + "self_attention.linear_q_down_proj.weight", self.q_lora, self.hidden)
            self.same(hf, at + "self_attn.q_a_layernorm.weight", mc, to + "self_attention.linear_q_up_proj.layer_norm_weight", self.q_lora)
            self.same(hf, at + "self_attn.q_b_proj.weight", mc, to + "self_attention.linear_q_up_proj.weight", self.heads * each, self.q_lora)
        else:
            self.same(hf, at + "self_attn.q_proj.weight", mc, to + "self_attention.linear_q_proj.weight", self.heads * each, self.hidden)
        self.same(hf, at + "self_attn.kv_a_proj_with_mqa.weight", mc, to + "self_attention.linear_kv_down_proj.weight", self.latent + self.rope, self.hidden)
        self.same(hf, at + "self_attn.kv_a_layernorm.weight", mc, to + "self_attention.linear_kv_up_proj.layer_norm_weight", self.latent)
        self.same(hf, at + "self_attn.kv_b_proj.weight", mc, to + "self_attention.linear_kv_up_proj.weight", self.heads * (self.nope + self.value), self.latent)
        self.same(hf, at + "self_attn.o_proj.weight", mc, to + "self_attention.linear_proj.weight", self.hidden, self.heads * self.value)

    def same(self, hf, name, mc, other, *shape, dtype="BF16"):
        hf[name] = mc[other] = self.tensor(*shape, dtype=dtype)

    def gated_pair(self, hf, gate, up, inner):
        hf[gate], hf[up] = self.tensor(inner, self.hidden), self.tensor(inner, self.hidden)
        return concat(hf[gate], hf[up])

    def dense_layer(self, hf, mc, at, to):
        norm = "pre_feedforward_layernorm" if self.model_type.startswith("gemma") else "post_attention_layernorm"
        self.same(hf, f"{at}{norm}.weight", mc, to + "mlp.linear_fc1.layer_norm_weight", self.hidden)
        if self.model_type.startswith("gemma"):
            self.same(hf, at + "post_attention_layernorm.weight", mc, to + "self_attention.linear_proj.post_layernorm.weight", self.hidden)
            self.same(hf, at + "post_feedforward_layernorm.weight", mc, to + "mlp.linear_fc2.post_layernorm.weight", self.hidden)
        if self.model_type == "nemotron":
            self.same(hf, at + "mlp.up_proj.weight", mc, to + "mlp.linear_fc1.weight", self.inner, self.hidden)
            self.same(hf, at + "input_layernorm.bias", mc, to + "self_attention.linear_qkv.layer_norm_bias", self.hidden)
            self.same(hf, at + "post_attention_layernorm.bias", mc, to + "mlp.linear_fc1.layer_norm_bias", self.hidden)
        else:
            mc[to + "mlp.linear_fc1.weight"] = self.gated_pair(hf, at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight", self.inner)
        self.same(hf, at + "mlp.down_proj.weight", mc, to + "mlp.linear_fc2.weight", self.hidden, self.inner)

    def expert_layer(self, hf, mc, at, to):
        self.same(hf, at + "post_attention_layernorm.weight", mc, to + "pre_mlp_layernorm.weight", self.hidden)
        inside = at + ("block_sparse_moe." if self.model_type == "mixtral" else "mlp.")
        names = ("w1", "w3", "w2") if self.model_type == "mixtral" else ("gate_proj", "up_proj", "down_proj")
        router = "router" if self.model_type == "gpt_oss" else "gate"
        self.same(hf, f"{inside}{router}.weight", mc, to + "mlp.router.weight", self.experts, self.hidden)
        if self.model_type in ("deepseek_v3", "glm4_moe"):
            self.same(hf, inside + "gate.e_score_correction_bias", mc, to + "mlp.router.expert_bias", self.experts, dtype="F32")
        if self.model_type == "gpt_oss":
            self.oss_experts(hf, mc, inside, to)
            return
        fc1, fc2 = [], []
        for e in range(self.experts):
            fc1.append(self.gated_pair(hf, f"{inside}experts.{e}.{names[0]}.weight", f"{inside}experts.{e}.{names[1]}.weight", self.expert_inner))
            hf[f"{inside}experts.{e}.{names[2]}.weight"] = self.tensor(self.hidden, self.expert_inner)
            fc2.append(hf[f"{inside}experts.{e}.{names[2]}.weight"])
        mc[to + "mlp.experts.experts.linear_fc1.weight"], mc[to + "mlp.experts.experts.linear_fc2.weight"] = stack(fc1), stack(fc2)
        if self.shared:
            name = "shared_expert" if self.model_type == "qwen2_moe" else "shared_experts"
            mc[to + "mlp.shared_experts.linear_fc1.weight"] = self.gated_pair(hf, f"{inside}{name}.gate_proj.weight", f"{inside}{name}.up_proj.weight", self.shared)
            self.same(hf, f"{inside}{name}.down_proj.weight", mc, to + "mlp.shared_experts.linear_fc2.weight", self.hidden, self.shared)
            if self.model_type == "qwen2_moe":
                self.same(hf, inside + "shared_expert_gate.weight", mc, to + "mlp.shared_experts.gate_weight", 1, self.hidden)

    def oss_experts(self, hf, mc, inside, to):
        """[E, H, 2I] with gate and up in turns; Megatron has [E, 2I, H], all of gate before all of up."""
        self.same(hf, inside + "router.bias", mc, to + "mlp.router.bias", self.experts)
        both, half = 2 * self.expert_inner, self.expert_inner
        weights = [self.tensor(self.hidden, both) for _ in range(self.experts)]
        biases = [self.tensor(both) for _ in range(self.experts)]
        downs = [self.tensor(half, self.hidden) for _ in range(self.experts)]
        order = list(range(0, both, 2)) + list(range(1, both, 2))
        hf[inside + "experts.gate_up_proj"], hf[inside + "experts.gate_up_proj_bias"] = stack(weights), stack(biases)
        hf[inside + "experts.down_proj"] = stack(downs)
        mc[to + "mlp.experts.experts.linear_fc1.weight"] = stack([join("BF16", [rows(exchange(w))[i] for i in order], (self.hidden,)) for w in weights])
        mc[to + "mlp.experts.experts.linear_fc1.bias"] = stack([join("BF16", [rows(b)[i] for i in order], ()) for b in biases])
        mc[to + "mlp.experts.experts.linear_fc2.weight"] = stack([exchange(w) for w in downs])
        self.same(hf, inside + "experts.down_proj_bias", mc, to + "mlp.experts.experts.linear_fc2.bias", self.experts, self.hidden)

    # ---- the model ----------------------------------------------------------------------------------------------

    def make(self):
        """(Hugging Face's tensors, Megatron's with one name for each layer)."""
        hf, mc = {}, {}
        self.same(hf, "model.embed_tokens.weight", mc, "embedding.word_embeddings.weight", self.vocab, self.hidden)
        if not self.tied:
            self.same(hf, "lm_head.weight", mc, "output_layer.weight", self.vocab, self.hidden)
        self.same(hf, "model.norm.weight", mc, "decoder.final_layernorm.weight", self.hidden)
        if self.model_type == "nemotron":
            self.same(hf, "model.norm.bias", mc, "decoder.final_layernorm.bias", self.hidden)
        for n in range(self.layers):
            at, to = f"model.layers.{n}.", f"decoder.layers.{n}."
            self.attention(hf, mc, at, to)
            (self.expert_layer if self.experts and n >= (self.dense or 0) else self.dense_layer)(hf, mc, at, to)
        for m in range(self.mtp):
            at, to = f"model.layers.{self.layers + m}.", f"mtp.layers.{m}."
            for name in ("enorm", "hnorm"):
                self.same(hf, f"{at}{name}.weight", mc, f"{to}{name}.weight", self.hidden)
            self.same(hf, at + "eh_proj.weight", mc, to + "eh_proj.weight", self.hidden, 2 * self.hidden)
            self.same(hf, at + "shared_head.norm.weight", mc, to + "final_layernorm.weight", self.hidden)
            hf[at + "embed_tokens.weight"], hf[at + "shared_head.head.weight"] = hf["model.embed_tokens.weight"], hf["lm_head.weight"]
            self.attention(hf, mc, at, to + "transformer_layer.")
            self.expert_layer(hf, mc, at, to + "transformer_layer.")
        return hf, mc

    def stacked(self, mc):
        """One tensor for all layers."""
        made = {name: array for name, array in mc.items() if not name.startswith("decoder.layers.")}
        for name in mc:
            if name.startswith("decoder.layers.0."):
                rest = name[len("decoder.layers.0."):]
                made["decoder.layers." + rest] = stack([mc[f"decoder.layers.{n}.{rest}"] for n in range(self.layers)])
        return made

    def pad(self, mc):
        """The vocabulary as ranks hold it: rows of padding may hold anything."""
        made = dict(mc)
        for name in ("embedding.word_embeddings.weight", "output_layer.weight"):
            if name in mc:
                made[name] = concat(mc[name], self.tensor(self.padded() - self.vocab, self.hidden))
        return made


FAMILIES = {
    "llama": dict(),
    "tied": dict(tied=True),
    "qwen2": dict(model_type="qwen2", biases=True),
    "qwen3": dict(model_type="qwen3", qk_norms=True),
    "gate": dict(model_type="qwen3_next", qk_norms=True, gate=True),
    "gate_mtp": dict(model_type="qwen3_next", layers=4, experts=4, dense=1, shared=16, qk_norms=True, gate=True, mtp=1),
    "mixtral": dict(model_type="mixtral", experts=4),
    "qwen2_moe": dict(model_type="qwen2_moe", experts=4, shared=16, biases=True),
    "qwen3_moe": dict(model_type="qwen3_moe", experts=4, qk_norms=True),
    "deepseek_v2_lite": dict(model_type="deepseek_v2", layers=4, experts=4, dense=1, latent=10, shared=16),
    "deepseek_v3": dict(model_type="deepseek_v3", layers=4, experts=4, dense=1, latent=10, q_lora=14, shared=16, mtp=1),
    "glm4_moe": dict(model_type="glm4_moe", layers=4, experts=4, dense=1, shared=16, qk_norms=True, biases=True, mtp=1),
    "gpt_oss": dict(model_type="gpt_oss", experts=4, biases=True),
    "gemma2": dict(model_type="gemma2", tied=True),
    "gemma3": dict(model_type="gemma3_text", tied=True, qk_norms=True),
    "nemotron": dict(model_type="nemotron"),
}


# ---- folders ---------------------------------------------------------------------------------------------------------

def lead(name):
    """How many dims in front are layers and experts, of which a chunk has one."""
    word = name.split("decoder.layers.")[-1].split(".")[0]
    return ("decoder.layers." in name and not word.isdigit()) + (".mlp.experts.experts." in name)


def cut_of(name, gated=True):
    """(dim without the leading ones, number of parts that are cut one by one) of tensor parallelism; None: whole."""
    if name.endswith(("word_embeddings.weight", "output_layer.weight")):
        return 0, 1
    if name.endswith(("linear_fc1.weight", "linear_fc1.bias")):
        return 0, 2 if gated else 1
    if name.endswith(("linear_proj.weight", "linear_fc2.weight")):
        return 1, 1
    if name.endswith(("linear_qkv.weight", "linear_qkv.bias", "linear_q_up_proj.weight", "linear_kv_up_proj.weight", "linear_q_proj.weight", "softmax_offset", "eh_proj.weight")):
        return 0, 1
    return None


def chunks(name, shape, tp=1, gated=True, padded=None):
    """[(offset, size)] as the ranks of one stage would write them. padded: rows of the vocabulary in memory."""
    front, cut = lead(name), cut_of(name, gated)
    leading = [()]
    for d in range(front):
        leading = [place + (i,) for place in leading for i in range(shape[d])]
    local = []
    if cut is None:
        local = [((0,) * (len(shape) - front), tuple(shape[front:]))]
    else:
        dim, parts = cut
        extent = shape[front + dim]
        whole = padded if padded and name.endswith(("word_embeddings.weight", "output_layer.weight")) else extent
        each = whole // parts // tp
        assert each * parts * tp == whole, (name, shape, tp)
        for t in range(tp):
            for part in range(parts):
                begin = part * (whole // parts) + t * each
                end = min(begin + each, extent)
                if begin >= end:
                    continue
                offset, size = [0] * (len(shape) - front), list(shape[front:])
                offset[dim], size[dim] = begin, end - begin
                local.append((tuple(offset), tuple(size)))
    return [(place + offset, (1,) * front + size) for place in leading for offset, size in local]


def namespace(members):
    """An argparse.Namespace, with an enum of Megatron's and a torch.dtype in it."""
    enum = torch_files.Call(torch_files.Global("megatron.core.transformer.enums", "AttnBackend"), (5,))
    state = {**members, "attention_backend": enum, "params_dtype": torch_files.Global("torch", "bfloat16")}
    return torch_files.Call(torch_files.Global("argparse", "Namespace"), state=state, new=True)


def extra_states(mc):
    """The keys of _extra_state for these tensors: one for each linear and each norm of its own, of every layer and expert."""
    keys = set()
    for name, (_, shape, _) in mc.items():
        module = name.rpartition(".")[0]
        last = module.rpartition(".")[2]
        if name.endswith(".weight") and (last.startswith("linear_") or last in ("eh_proj", "enorm", "hnorm") or last.endswith("layernorm")):
            front = lead(name)
            places = [()]
            for d in range(front):
                places = [place + (i,) for place in places for i in range(shape[d])]
            for place in places:
                offsets, sizes = (place, shape[:front]) if front else ((0,), (1,))
                keys.add(f"{module}._extra_state/shard_{'.'.join(map(str, offsets))}_{'.'.join(map(str, sizes))}")
    return keys


def write(folder, mc, tp=1, common="file", args=None, extra=True, gated=True, iteration=1000, more=None, optimizer=None):
    """An iteration's folder. common: "file", "entry" or "both"; more: further entries {key: object}; optimizer: {key: tensor}."""
    writer = dcp_files.Writer(dcp_files.Torch("2.6"), folder)
    held = {**mc, **(optimizer or {})}
    for name, array in held.items():
        writer.describe(name, array[0], array[1])
        for i, (offset, size) in enumerate(chunks(name, array[1], tp, gated)):
            local = (array[0], size, dcp_files.take(array, offset, size))
            writer.store(name, offset, size, f"__{i % 2}_0.distcp", torch_files.pack(torch_files.tensor(local)))
    state = {"checkpoint_version": 3.0, "iteration": iteration}
    if args is not None:
        state["args"] = namespace(args)
    for key in sorted(extra_states(mc)) if extra else []:
        writer.add_bytes(key, [None])
    for key, value in (more or {}).items():
        writer.add_bytes(key, value)
    if common != "file":
        writer.add_bytes("common_state/shard_0_1", [state])
    writer.paths = None
    writer.close()
    if common != "entry":
        torch_files.write(os.path.join(folder, "common.pt"), state)
    backend = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    if common == "file":
        backend.update(common_backend="torch", common_backend_version=1)
    with open(os.path.join(folder, "metadata.json"), "w") as stream:
        json.dump(backend, stream)


# ---- legacy ----------------------------------------------------------------------------------------------------------

OLD_PARTS = [("self_attention.linear_qkv.layer_norm_", "input_layernorm."), ("self_attention.linear_qkv.", "self_attention.query_key_value."),
             ("self_attention.linear_proj.", "self_attention.dense."), ("mlp.linear_fc1.layer_norm_", "post_attention_layernorm."),
             ("mlp.linear_fc1.", "mlp.dense_h_to_4h."), ("mlp.linear_fc2.", "mlp.dense_4h_to_h.")]


def local_of(name, array, tp, t, gated=True):
    """One rank's part of a tensor without leading dims."""
    cut = cut_of(name, gated)
    if cut is None:
        return array
    boxes = chunks_of_rank(array[1], cut, tp, t)
    parts = [(array[0], size, dcp_files.take(array, offset, size)) for offset, size in boxes]
    return parts[0] if len(parts) == 1 else concat(*parts)


def chunks_of_rank(shape, cut, tp, t):
    dim, parts = cut
    each, made = shape[dim] // parts // tp, []
    for part in range(parts):
        offset, size = [0] * len(shape), list(shape)
        offset[dim], size[dim] = part * (shape[dim] // parts) + t * each, each
        made.append((tuple(offset), tuple(size)))
    return made


def write_legacy(folder, made, mc, tp=1, pp=1, ep=1, virtual=1, old=False, grouped=False, skip=(), counts=None, ranks=None, iterations=lambda t, p, e: 7, **more):
    """mp_rank_XX[_YYY][_ZZZ]/model_optim_rng.pt of all ranks. mc: numbered layers. old: names before Megatron-Core. counts: how many layers
    each stage has, first those of all stages' first virtual stages; by default equally many. ranks: which rank saved a file, as the
    arguments of a training run say and those of a program that converts do not."""
    counts = counts or [made.layers // (pp * virtual)] * (pp * virtual)
    places = [(i, inside) for i, count in enumerate(counts) for inside in range(count)]
    args = {**made.args(), "tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp, "expert_model_parallel_size": ep,
            "virtual_pipeline_model_parallel_size": virtual if virtual > 1 else None, **more}
    for t, p, e in [(t, p, e) for t in range(tp) for p in range(pp) for e in range(ep)]:
        if ranks is not None:  # of two data parallel ranks, the first saves: tp-ep-dp-pp, or tp-pp-dp
            args = {**args, "rank": ranks(t, p, e), "world_size": 2 * tp * pp * ep}
        name = f"mp_rank_{t:02d}" + (f"_{p:03d}" if pp > 1 else "") + (f"_{e:03d}" if ep > 1 else "")
        models = [{} for _ in range(virtual)]
        for key, array in mc.items():
            chunk, local = 0, key
            if key.startswith("decoder.layers."):
                number, rest = key[len("decoder.layers."):].split(".", 1)
                stage, inside = places[int(number)]
                if stage % pp != p:
                    continue
                chunk, local = stage // pp, f"decoder.layers.{inside}.{rest}"
            elif p != (0 if key.startswith("embedding") else pp - 1):
                continue
            else:
                chunk = 0 if key.startswith("embedding") else virtual - 1
            if ".experts.experts." in key:
                share = made.experts // ep
                for j in range(share):
                    one = array[0], array[1][1:], rows(array)[e * share + j]
                    layer, _, word = local.partition("mlp.experts.experts.")
                    expert = f"{layer}mlp.experts.{word}{j}" if grouped else f"{layer}mlp.experts.local_experts.{j}.{word}"
                    models[chunk][expert] = local_of(key, one, tp, t)
                continue
            models[chunk][local] = local_of(key, array, tp, t)
        if made.tied and pp > 1 and p == pp - 1:
            models[virtual - 1]["output_layer.weight"] = local_of("output_layer.weight", mc["embedding.word_embeddings.weight"], tp, t)
        states = [{key: torch_files.tensor(array) for key, array in model.items()} for model in models]
        for state in states:
            state["decoder.layers.0.self_attention.linear_qkv._extra_state"] = None
        if old:
            states = [nest_old(state) for state in states]
        root = {"args": namespace(args), "checkpoint_version": 3.0, "iteration": iterations(t, p, e),
                "optimizer": {"fp32_from_fp16_params": [torch_files.tensor(made.tensor(3, dtype="F32"))]}, "rng_state": [{"a": 1}]}
        root.update({"model": states[0]} if virtual == 1 else {f"model{i}": state for i, state in enumerate(states)})
        if (t, p, e) not in skip:
            torch_files.write(os.path.join(folder, name, "model_optim_rng.pt"), root)


def nest_old(state):
    """The nested dicts and names that models had before Megatron-Core."""
    encoder, made = {}, {"language_model": {}}
    for key, value in state.items():
        if key.startswith("decoder.layers."):
            number, rest = key[len("decoder.layers."):].split(".", 1)
            for new, old in OLD_PARTS:
                if rest.startswith(new):
                    rest = old + rest[len(new):]
                    break
            encoder[f"layers.{number}.{rest}"] = value
        elif key.startswith("decoder.final_layernorm."):
            encoder["final_norm." + key.rpartition(".")[2]] = value
        elif key.startswith("embedding."):
            made["language_model"]["embedding"] = {"word_embeddings": {"weight": value}}
        else:
            made["language_model"]["output_layer"] = {"weight": value}
    made["language_model"]["encoder"] = encoder
    return made
