# SPDX-License-Identifier: Apache-2.0
"""Allocates memory for results."""
import ctypes
from typing import Any, Tuple

import torch

_HUGE_BYTES = 2 << 20
_MADV_HUGEPAGE = 14


def empty(shape: Tuple[int, ...], dtype: Any, device: Any) -> Any:
    """A new tensor. A large one asks the system for pages of 2 MiB: page faults of 4 KiB each, when it is first written,
    take about as long as filling it."""
    made = torch.empty(shape, dtype=dtype, device=device)
    begin = -(-made.data_ptr() // _HUGE_BYTES) * _HUGE_BYTES
    end = (made.data_ptr() + made.numel() * made.element_size()) // _HUGE_BYTES * _HUGE_BYTES
    if made.device.type == "cpu" and end > begin:
        # Only a hint: if the system ignores it, pages are small as usual.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_HUGEPAGE)
    return made
