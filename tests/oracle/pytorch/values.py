# SPDX-License-Identifier: Apache-2.0
"""What the oracle saves, as PyTorch's values; and tensors as (dtype, shape, bytes), by dotted name."""
from collections import OrderedDict

import torch

DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
          torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64", torch.complex128: "C128"}


def make(seed):
    torch.manual_seed(seed)
    base = torch.randn(6, 4)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.125)
    module(base).sum().backward()
    optimizer.step()
    return {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "name": "small",
            "views": OrderedDict(whole=base, turned=base.t(), rows=base[1:5:2], part=base[2:4, 1:3], repeated=base[:1].expand(3, 4),
                                 tied=base, parameter=torch.nn.Parameter(base * 2), scalar=torch.tensor(2.5), empty=torch.empty(0, 3)),
            "dtypes": [torch.randint(0, 2, (3, 2)).to(dtype) for dtype in DTYPES if dtype != torch.complex128],
            "random": torch.get_rng_state()[:16].clone()}


def flatten(value, name=""):
    """{dotted name: tensor}"""
    if torch.is_tensor(value):
        return {name[1:]: value}
    found = {}
    if isinstance(value, dict):
        for key, part in value.items():
            found.update(flatten(part, f"{name}.{key}"))
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            found.update(flatten(part, f"{name}.{i}"))
    return found


def plain(tensor):
    dense = tensor.detach().contiguous()
    shape = tuple(dense.shape)
    if dense.dtype == torch.bfloat16:
        data = dense.view(torch.int16).numpy().tobytes()
    else:
        data = dense.numpy().tobytes()
    return (DTYPES[tensor.dtype], shape, data)
