# SPDX-License-Identifier: Apache-2.0
"""Beside a real PyTorch (make test-torch): what it saves is read as it holds it, and what we write it loads, tensors and values,
also with weights_only=True, which in PyTorch 1.13 takes no floats."""
import json
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "cli"), os.path.join(HERE, "..", "..", "checkpoint", "support")]
try:
    import torch
except ImportError:
    print("skipped: this Python has no torch (Debian: python3-torch)")
    sys.exit(77)
import files
import support
import values


class PyTorch(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def same(self, found, wanted, where=""):
        if torch.is_tensor(wanted):
            self.assertEqual(values.plain(found), values.plain(wanted), where)
        elif isinstance(wanted, dict):
            self.assertEqual(set(found), set(wanted), where)
            for key in wanted:
                self.same(found[key], wanted[key], f"{where}.{key}")
        elif isinstance(wanted, list):
            self.assertEqual(len(found), len(wanted), where)
            for i, part in enumerate(wanted):
                self.same(found[i], part, f"{where}.{i}")
        else:
            self.assertEqual(found, wanted, where)

    def test_saved(self):
        for seed in range(5):
            value = values.make(seed)
            expected = {name: values.plain(tensor) for name, tensor in values.flatten(value).items()}
            for legacy in (False, True):
                path = f"{self.folder}/s{seed}{legacy}"
                torch.save(value, path + ".pt", _use_new_zipfile_serialization=not legacy)
                self.read_text("convert", path + ".pt", path, "--all", "--quiet")
                self.assertEqual(files.read_hf(path), expected)

    def test_loaded(self):
        for seed in range(5):
            value, path = values.make(seed), f"{self.folder}/l{seed}"
            torch.save(value, path + ".pt")
            self.read_text("convert", path + ".pt", path, "--format", "torch", "--quiet")
            found = torch.load(path + "/model.pt")
            self.same(found, value)
            self.assertEqual(found["views"]["whole"].data_ptr(), found["views"]["tied"].data_ptr())
            self.read_text("convert", path + ".pt", path + "-views", "--format", "torch", "--only", "views", "--quiet")
            self.same(torch.load(path + "-views/model.pt", weights_only=True), dict(value["views"]))

    def test_ranks(self):
        value, path = values.make(9), f"{self.folder}/r"
        torch.save(value, path + ".pt")
        self.read_text("convert", path + ".pt", path, "--format", "torch", "--to", "fsdp=3", "--quiet")
        parts = [values.flatten(torch.load(f"{path}/model_world_size_3_rank_{rank}.pt")) for rank in range(3)]
        for name, tensor in values.flatten(value).items():
            whole = tensor.detach()
            joined = torch.cat([part[name] for part in parts]) if whole.dim() else parts[0][name]
            self.assertEqual(values.plain(joined), values.plain(whole), name)

    def make_llama(self, folder):
        """A small Llama under Meta's names, saved as two ranks have it; returns what hf has, by PyTorch's own view and transpose."""
        torch.manual_seed(5)
        dim, heads, kv, vocab, wide = 16, 4, 2, 24, 40

        def draw(*shape):
            return torch.randn(shape).to(torch.bfloat16)

        whole = {"tok_embeddings.weight": draw(vocab, dim), "norm.weight": draw(dim), "output.weight": draw(vocab, dim)}
        for name, shape in [("attention.wq", (dim, dim)), ("attention.wk", (dim // 2, dim)), ("attention.wv", (dim // 2, dim)),
                            ("attention.wo", (dim, dim)), ("feed_forward.w1", (wide, dim)), ("feed_forward.w2", (dim, wide)),
                            ("feed_forward.w3", (wide, dim)), ("attention_norm", (dim,)), ("ffn_norm", (dim,))]:
            whole[f"layers.0.{name}.weight"] = draw(*shape)
        for rank in range(2):
            part = {}
            for name, tensor in whole.items():
                cut = 1 if name.endswith(("wo.weight", "w2.weight")) else 0
                part[name] = tensor if tensor.dim() == 1 else tensor.chunk(2, cut)[rank]
            part["rope.freqs"] = torch.ones(2)
            torch.save(part, f"{folder}/consolidated.{rank:02}.pth")
        with open(f"{folder}/params.json", "w", encoding="utf-8") as file:
            json.dump({"dim": dim, "n_layers": 1, "n_heads": heads, "n_kv_heads": kv, "vocab_size": vocab, "multiple_of": 8,
                       "norm_eps": 1e-5}, file)

        def turn(tensor, count):
            return tensor.view(count, tensor.shape[0] // count // 2, 2, dim).transpose(1, 2).reshape(tensor.shape)

        names = {"attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj", "attention.wv": "self_attn.v_proj",
                 "attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj",
                 "feed_forward.w3": "mlp.up_proj", "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
        hf = {f"model.layers.0.{new}.weight": whole[f"layers.0.{old}.weight"] for old, new in names.items()}
        hf["model.layers.0.self_attn.q_proj.weight"] = turn(hf["model.layers.0.self_attn.q_proj.weight"], heads)
        hf["model.layers.0.self_attn.k_proj.weight"] = turn(hf["model.layers.0.self_attn.k_proj.weight"], kv)
        hf.update({"model.embed_tokens.weight": whole["tok_embeddings.weight"], "model.norm.weight": whole["norm.weight"],
                   "lm_head.weight": whole["output.weight"]})
        return whole, hf

    def test_consolidated(self):
        """Meta's files: chunks that are views, as they come out of a rank, and back into another number of files."""
        folder = f"{self.folder}/meta"
        os.mkdir(folder)
        whole, hf = self.make_llama(folder)
        self.read_text("convert", folder, f"{self.folder}/hf", "--as", "hf", "--verify", "--quiet")
        self.assertEqual(files.read_hf(f"{self.folder}/hf"), {name: values.plain(tensor.contiguous()) for name, tensor in hf.items()})
        self.read_text("convert", f"{self.folder}/hf", f"{self.folder}/four", "--as", "meta", "--to", "tp=4", "--quiet")
        parts = [torch.load(f"{self.folder}/four/consolidated.{rank:02}.pth", weights_only=True) for rank in range(4)]
        for name, tensor in whole.items():
            cut = 1 if name.endswith(("wo.weight", "w2.weight")) else 0
            ranks = [part[name] for part in parts]
            if name.endswith(("wk.weight", "wv.weight")):  # two heads for four ranks
                ranks = ranks[::2]
            joined = torch.cat(ranks, cut) if tensor.dim() > 1 else ranks[0]
            self.assertEqual(values.plain(joined), values.plain(tensor), name)


if __name__ == "__main__":
    support.main()
