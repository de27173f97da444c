# SPDX-License-Identifier: Apache-2.0
"""Memory for results."""
import ctypes
from typing import Any, Tuple

import torch

_HUGE_BYTES = 2 << 20
_MADV_HUGEPAGE = 14


def empty(shape: Tuple[int, ...], dtype: Any, device: Any) -> Any:
    """A new tensor. A long one asks the system for pages of 2 MiB: to get pages of 4 KiB one by one, when it is first
    written, takes about as long as filling it."""
    made = torch.empty(shape, dtype=dtype, device=device)
    begin = -(-made.data_ptr() // _HUGE_BYTES) * _HUGE_BYTES
    end = (made.data_ptr() + made.numel() * made.element_size()) // _HUGE_BYTES * _HUGE_BYTES
    if made.device.type == "cpu" and end > begin:
        # A wish: where it is not granted, pages are small as before.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_HUGEPAGE)
    return made
