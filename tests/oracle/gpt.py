#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT with PyTorch and writes what came out as a C header.

  tests/oracle/gpt.py > tests/oracle/gpt_numbers.h

Weights and tokens are made by formulas that tests/nn/test_train.c repeats, so that nothing but
numbers is shared. Needs PyTorch (Debian: python3-torch); the tests read only the header.
"""
import math

import torch

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, BATCH, STEPS = 13, 8, 16, 4, 2, 4, 50
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (f(x).view(batch, length, HEADS, width // HEADS).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // HEADS)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, length, width))


class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.fc2(torch.nn.functional.gelu(self.fc1(x)))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.attn = torch.nn.LayerNorm(WIDTH), Attention()
        self.ln2, self.mlp = torch.nn.LayerNorm(WIDTH), MLP()

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = torch.nn.Embedding(LENGTH, WIDTH)
        self.h = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.ln(x))


def pattern(name, count):
    """-0.5 .. 0.5 by index and by the letters of the name."""
    key = sum(ord(letter) * (i + 1) for i, letter in enumerate(name))
    return torch.tensor([((i * 7919 + key * 104729) % 1009) / 1009 - 0.5 for i in range(count)])


def batch_of(step):
    numbers = [(i * 31 + step * 17 + i * i % 7) % VOCABULARY for i in range(BATCH * (LENGTH + 1))]
    numbers = torch.tensor(numbers).view(BATCH, LENGTH + 1)
    return numbers[:, :-1], numbers[:, 1:]


def main():
    gpt = GPT()
    with torch.no_grad():
        for name, parameter in gpt.named_parameters():
            first = 1.0 if "ln" in name and name.endswith("weight") else 0.0
            parameter.copy_((first + 0.4 * pattern(name, parameter.numel())).view_as(parameter))
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-2, weight_decay=0.1)
    losses, gradients = [], []
    for step in range(STEPS):
        tokens, labels = batch_of(step)
        loss = torch.nn.functional.cross_entropy(gpt(tokens).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = [(name, p.grad.norm().item(),
                          (p.grad.flatten() * pattern("grad", p.numel())).sum().item())
                         for name, p in gpt.named_parameters()]
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* gpt_numbers.h - made by gpt.py with PyTorch; do not edit. */")
    print("/* clang-format off */")
    print("static const double oracle_losses[] = {")
    print("".join(f"    {loss!r},\n" for loss in losses) + "};")
    print("/* of the first step: name, norm, sum of gradient * pattern(\"grad\") */")
    print("static const struct {\n    const char *name;\n    double norm, sum;\n} oracle_gradients[] = {")
    print("".join(f'    {{"{n}", {norm!r}, {total!r}}},\n' for n, norm, total in gradients) + "};")


main()
