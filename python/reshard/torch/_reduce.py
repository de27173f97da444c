# SPDX-License-Identifier: Apache-2.0
"""Reductions, one term at a time, with the same results as the library's: 16-bit floats are rounded after every step,
integers wrap around and division truncates, and NaN wins over every number."""
from typing import Any, Dict

import torch

from .. import _native
from .._errors import Unsupported

_ON_NUMBERS: Dict[int, Any] = {
    _native.RESHARD_SUM: torch.add, _native.RESHARD_AVG: torch.add, _native.RESHARD_PROD: torch.mul,
    _native.RESHARD_MIN: torch.minimum, _native.RESHARD_MAX: torch.maximum, _native.RESHARD_BAND: torch.bitwise_and,
    _native.RESHARD_BOR: torch.bitwise_or, _native.RESHARD_BXOR: torch.bitwise_xor,
}
_ON_TRUTH: Dict[int, Any] = {_native.RESHARD_SUM: torch.logical_or, _native.RESHARD_MAX: torch.logical_or,
             _native.RESHARD_PROD: torch.logical_and, _native.RESHARD_MIN: torch.logical_and}


def reduce_into(reduction: int, target: Any, values: Any) -> None:
    known = _ON_TRUTH if target.dtype == torch.bool and reduction in _ON_TRUTH else _ON_NUMBERS
    if reduction not in known:
        raise Unsupported("torch has no operation for this reduction")
    target.copy_(known[reduction](target, values))


def divide(target: Any, divisor: int) -> None:
    if target.dtype.is_floating_point or target.is_complex():
        target.div_(divisor)
    else:
        target.copy_(torch.div(target, divisor, rounding_mode="trunc"))


def fill_value(reduction: int, dtype: Any) -> Any:
    """The neutral element of a reduction."""
    if reduction == _native.RESHARD_PROD:
        return 1
    if reduction == _native.RESHARD_BAND:
        return True if dtype == torch.bool else -1 if dtype.is_signed else torch.iinfo(dtype).max
    if reduction in (_native.RESHARD_MIN, _native.RESHARD_MAX):
        least = reduction == _native.RESHARD_MAX
        if dtype == torch.bool:
            return not least
        if dtype.is_floating_point:
            return float("-inf") if least else float("inf")
        return torch.iinfo(dtype).min if least else torch.iinfo(dtype).max
    return 0
