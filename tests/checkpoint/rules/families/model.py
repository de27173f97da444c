# SPDX-License-Identifier: Apache-2.0
"""A model as a list of tensors (name, dtype, shape, cut), and a published model as a row of the table in docs/families.md."""
import re

from families.cuts import cut, kv, vocabulary, whole
from families.forms import FORMS


class Model:
    """What a family's function fills in: tensors of the layers asked for."""

    def __init__(self, config):
        self.config, self.tensors, self.linears = config, [], {}

    def add(self, name, shape, how, dtype="BF16"):
        self.tensors.append((name, dtype, tuple(shape), how))

    def linear(self, name, out, inputs, how, bias=False, bias_cut=None):
        """A weight [out, in], which quantised forms replace."""
        self.linears[name] = (out, inputs, how)
        self.add(f"{name}.weight", (out, inputs), how)
        if bias:
            along_rows = how.kind == "whole" or how.dim == 0
            self.add(f"{name}.bias", (out,), bias_cut or (how if along_rows else whole()))

    def norms(self, *names, size, bias=False):
        for name in names:
            self.add(f"{name}.weight", (size,), whole())
            if bias:
                self.add(f"{name}.bias", (size,), whole())

    def attention(self, at, bias=False, out="o_proj", out_bias=False, hidden=None):
        c = self.config
        h, heads = hidden or c["hidden_size"], c["num_attention_heads"]
        groups, d = c.get("num_key_value_heads", heads), c.get("head_dim") or h // heads
        self.linear(f"{at}.q_proj", heads * d, h, cut(0, d), bias)
        self.linear(f"{at}.k_proj", groups * d, h, kv(0, groups, d), bias)
        self.linear(f"{at}.v_proj", groups * d, h, kv(0, groups, d), bias)
        self.linear(f"{at}.{out}", h, heads * d, cut(1, d), out_bias)

    def mlp(self, at, size, hidden=None, gated=True, names=("gate_proj", "up_proj", "down_proj"), bias=False):
        h = hidden or self.config["hidden_size"]
        for name in names[:-1] if gated else names[1:-1]:
            self.linear(f"{at}.{name}", size, h, cut(0), bias)
        self.linear(f"{at}.{names[-1]}", h, size, cut(1), bias)

    def ends(self, at="model", head=True, embed="embed_tokens", norm="norm", head_name="lm_head", bias=False):
        c = self.config
        self.add(f"{at}{'.' if at else ''}{embed}.weight", (c["vocab_size"], c["hidden_size"]), vocabulary())
        self.norms(f"{at}{'.' if at else ''}{norm}", size=c["hidden_size"], bias=bias)
        if head:
            self.add(f"{head_name}.weight", (c["vocab_size"], c["hidden_size"]), vocabulary())


class Row:
    """A published model: its family, its configuration, which of its layers are looked at closely."""

    def __init__(self, name, family, make, given, sample=None, axes="tp pp", mtp=(), forms=None, headless=False):
        self.name, self.family, self.make, self.given, self.mtp, self.axes = name, family, make, given, mtp, axes.split()
        self.headless = headless  # no tensor says that there is an output head, tied or not
        self.plain_name = name.replace("/", " ")
        c = text_of(flat(flat(flat(given, "llm_config"), "language_config"), "thinker_config.text_config"))
        self.layers = c.get("num_hidden_layers") or c.get("n_layer") or c.get("n_layers") or c.get("num_layers") or 32
        self.sample = sample or (0, self.layers - 1)
        self.forms = [form[0] for form in FORMS] if forms is None else forms

    def build(self, layers, given=None):
        options = {"mtp": self.mtp} if self.mtp else {}
        return self.make(given or self.given, layers, **options)

    def sampled(self):
        """The layers of the sample, with a few of the experts."""
        m = self.build(self.sample)
        experts = max([int(e) for name, *_ in m.tensors for e in re.findall(r"\.experts\.(\d+)\.", name)] or [0]) + 1
        wanted = {0, 1, experts // 2, experts - 1}
        keep = lambda name: all(int(e) in wanted for e in re.findall(r"\.experts\.(\d+)\.", name))
        m.tensors = [tensor for tensor in m.tensors if keep(tensor[0])]
        m.linears = {name: value for name, value in m.linears.items() if keep(name)}
        return m, experts


def sizes(model_type, hidden, heads, groups, inner, layers, vocab, **more):
    return {"model_type": model_type, "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": groups,
            "intermediate_size": inner, "num_hidden_layers": layers, "vocab_size": vocab, **more}


def text(outer, inner, **more):
    return {"model_type": outer, "text_config": inner, **more}


def text_of(config):
    return {**config, **config.get("text_config", {})}


def flat(config, key):
    for part in key.split("."):
        config = {**config, **config.get(part, {})}
    return config


def renamed(m, old, new):
    m.tensors = [(tensor[0].replace(old, new, 1), *tensor[1:]) for tensor in m.tensors]
    m.linears = {name.replace(old, new, 1): value for name, value in m.linears.items()}
    return m
