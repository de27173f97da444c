# SPDX-License-Identifier: Apache-2.0
"""Element types: the library's names ("bf16"), NumPy's dtypes, and how they correspond.

NumPy has no bf16 and no fp8. If the package ml_dtypes is installed, its types are used. Otherwise such elements can only be
had as plain bits, unsigned integers of the same width, and only if the caller asks for that (`raw=True`): integers that are
taken for numbers compute nonsense. The caller says what they are when handing them back (`dtype="bf16"`). Elements of 4 and
6 bits are always plain bytes.
"""
from typing import Any, Dict, Optional

from . import _native
from ._errors import LibraryMissing, NotFound, Unsupported

_SIMPLE = {"bool": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "u16": "uint16", "f16": "float16", "i32": "int32",
           "u32": "uint32", "f32": "float32", "c64": "complex64", "f64": "float64", "i64": "int64", "u64": "uint64",
           "c128": "complex128"}
_OF_ML_DTYPES = {"bf16": "bfloat16", "f8_e5m2": "float8_e5m2", "f8_e4m3": "float8_e4m3fn", "f8_e8m0": "float8_e8m0fnu",
                 "f8_e4m3fnuz": "float8_e4m3fnuz", "f8_e5m2fnuz": "float8_e5m2fnuz"}
NAMES: Dict[int, str] = {number: name for name, (number, _) in _native.DTYPES.items()}


def numpy() -> Any:
    """NumPy, imported when arrays are first needed."""
    try:
        import numpy as module
    except ImportError as error:
        raise LibraryMissing("arrays need NumPy: %s" % error) from None
    return module


def _ml_dtypes() -> Optional[Any]:
    try:
        import ml_dtypes as module
    except ImportError:
        return None
    return module


def bits_of(name: str) -> int:
    return int(_native.DTYPES[name][1])


def numpy_dtype(name: str, *, raw: bool = False) -> Any:
    """The NumPy dtype that corresponds to one of the library's.

    Raises Unsupported for bf16 and the like unless ml_dtypes is installed. raw: unsigned integers of the same width for them,
    whether or not it is.

    >>> import reshard
    >>> reshard.numpy_dtype("f32"), reshard.numpy_dtype("bf16", raw=True)
    (dtype('float32'), dtype('uint16'))
    """
    np = numpy()
    name = name if name in _SIMPLE else dtype_name(name)
    if name in _SIMPLE:
        return np.dtype(_SIMPLE[name])
    bits = "uint%d" % max(8, bits_of(name))
    if raw:
        return np.dtype(bits)
    module = _ml_dtypes() if name in _OF_ML_DTYPES else None
    if module is not None and hasattr(module, _OF_ML_DTYPES[name]):
        return np.dtype(getattr(module, _OF_ML_DTYPES[name]))
    raise Unsupported('NumPy has no type for %s: install ml_dtypes, cast to another dtype such as "f32", or ask for the bits as %s '
                      'with raw=True' % (name, bits))


def is_held_by(name: str, dtype: Any, raw: bool = True) -> bool:
    """Whether arrays of this NumPy dtype hold elements of one of the library's: of the same kind and width, in this machine's
    byte order. raw: plain bits (uint16, V2) will do for a type that NumPy lacks."""
    if not dtype.isnative:
        return False
    if dtype.name in (_SIMPLE.get(name), _OF_ML_DTYPES.get(name)):
        return True
    is_bits = dtype.kind == "u" or (dtype.type is numpy().void and dtype.names is None and dtype.subdtype is None)
    return raw and name not in _SIMPLE and is_bits and dtype.itemsize * 8 == max(8, bits_of(name))


def dtype_name(dtype: Any) -> str:
    """The library's name of a dtype, which may be given as that name, a NumPy or torch dtype, or a Python type.

    A string is read as one of the library's names if it is one: "i8" has 8 bits and "f4" has 4, while NumPy's short codes
    count bytes. NumPy's dtypes and long names ("int64") are never ambiguous.

    >>> import reshard
    >>> reshard.dtype_name("float32"), reshard.dtype_name(int), reshard.dtype_name("bf16")
    ('f32', 'i64', 'bf16')
    """
    if dtype is None:  # NumPy would take it for float64
        raise TypeError("a dtype is needed, such as \"f32\"")
    spelt = dtype.lower() if isinstance(dtype, str) else str(dtype)
    spelt = spelt[len("torch."):] if spelt.startswith("torch.") else spelt
    for names in (_OF_ML_DTYPES, _SIMPLE):
        for name, other in names.items():
            if spelt in (name, other):
                return name
    if spelt in _native.DTYPES:
        return spelt
    np = numpy()
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise NotFound("there is no dtype %r" % (dtype,)) from None
    if not found.isnative:
        raise Unsupported("elements of %s are not in this machine's byte order" % found.str)
    for names in (_SIMPLE, _OF_ML_DTYPES):
        for name, other in names.items():
            if found.name == other:
                return name
    raise Unsupported("NumPy's %s has no counterpart in the library" % found)


def dtype_number(dtype: Any) -> int:
    return int(_native.DTYPES[dtype_name(dtype)][0])
