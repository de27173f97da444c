#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the model of examples/reference/transformer.c in PyTorch, on one process, and compares losses.

    test_transformer.py PROGRAM [--time] [--width N --heads N --length N --vocabulary N --batch N --steps N]

The program trains over 1, 2 and 4 ranks, by styles, with sequence parallel, a cut vocabulary and input_reshard. All losses of 50 steps
in f64 must be within 1e-9 of PyTorch's. --time prints the seconds of a step of both instead, one thread each.
"""
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

sizes = {"width": 16, "heads": 4, "length": 8, "vocabulary": 13, "batch": 4, "steps": 50}


# ---- the activation: x / (1 + |x|), whose slope is (1 - |y|)^2


class Softsign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x / (1 + x.abs())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        y, = ctx.saved_tensors
        return gradient * (1 - y.abs()) ** 2


# ---- the model


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (m(x).view(b, t, sizes["heads"], -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) / (w // sizes["heads"]) ** 0.5
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = scores.masked_fill(mask, -torch.inf).softmax(-1) @ v
        return self.o(y.transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(width), Attention(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(Softsign.apply(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        width = sizes["width"]
        self.embed, self.place = nn.Embedding(sizes["vocabulary"], width), nn.Embedding(sizes["length"], width)
        self.layers = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, sizes["vocabulary"], bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place(torch.arange(sizes["length"]))
        return self.head(self.norm(self.layers(x)))


# ---- training


def fill(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            key = sum(ord(c) * (k + 1) for k, c in enumerate(name))
            i = torch.arange(parameter.numel())
            numbers = ((i * 7919 + key * 104729) % 1009).double() / 1009 - 0.5
            scale = 1 if "norm" in name and "weight" in name else 0
            parameter.copy_((scale + 0.4 * numbers).view(parameter.shape))


def make_batch(step):
    i = torch.arange(sizes["batch"] * (sizes["length"] + 1))
    numbers = ((i * 31 + step * 17 + i * i % 7) % sizes["vocabulary"]).view(sizes["batch"], -1)
    return numbers[:, :-1], numbers[:, 1:]


def train():
    model = Model().double()
    fill(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    losses, start = [], time.monotonic()
    for step in range(sizes["steps"]):
        tokens, labels = make_batch(step)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, (time.monotonic() - start) / sizes["steps"]


def run(program, ranks):
    options = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    return subprocess.run([program, "--ranks", str(ranks), "--losses", "1", *options], check=True, capture_output=True, text=True).stdout


def main():
    torch.set_num_threads(1)
    program, words = sys.argv[1], sys.argv[2:]
    for name in sizes:
        if f"--{name}" in words:
            sizes[name] = int(words[words.index(f"--{name}") + 1])
    losses, seconds = train()
    print(f"PyTorch {torch.__version__}: seconds a step {seconds:.6f}")
    for ranks in (1, 2, 4):
        text = run(program, ranks)
        found = [float(line.split()[1]) for line in text.splitlines() if line.startswith("loss ")]
        assert len(found) == len(losses), (len(found), len(losses))
        furthest = max(abs(a - b) for a, b in zip(found, losses))
        print(f"{ranks} ranks: losses within {furthest:.1e} of PyTorch's")
        print("\n".join(line for line in text.splitlines() if not line.startswith("loss ")))
        assert furthest <= 1e-9 or "--time" in words, furthest


main()
