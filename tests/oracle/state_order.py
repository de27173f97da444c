#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks PyTorch in which order it lists the tensors of a module, and writes that as a C header.

  tests/oracle/state_order.py > tests/oracle/state_order.h

tests/nn/test_module.c makes the same module: parameters, buffers and children are added in turns.
Needs PyTorch (Debian: python3-torch); the tests read only the header.
"""
import torch


def make(*children):
    """A module with children before, between and after its own tensors."""
    module = torch.nn.Module()
    for name, child in children[:1]:
        module.add_module(name, child)
    module.register_buffer("mean", torch.zeros(2))
    module.register_parameter("w", torch.nn.Parameter(torch.zeros(2)))
    module.register_parameter("bias", None)
    for name, child in children[1:]:
        module.add_module(name, child)
    module.register_buffer("cache", torch.zeros(2), persistent=False)
    module.register_buffer("count", torch.zeros(2))
    module.register_parameter("v", torch.nn.Parameter(torch.zeros(2)))
    return module


inner = make()
root = make(("z", make(("y", inner))), ("a", make()))
root.a.w = root.w  # tied
print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* state_order.h - made by state_order.py with PyTorch; do not edit. */")
print("/* clang-format off */")
for what, names in (("state", root.state_dict()),
                    ("parameters", dict(root.named_parameters())),
                    ("buffers", dict(root.named_buffers()))):
    print(f'static const char oracle_{what}[] = "{"".join(name + " " for name in names)}";')
