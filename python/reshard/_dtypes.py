# SPDX-License-Identifier: Apache-2.0
"""Element types: the library's names ("bf16"), NumPy's dtypes, and how they correspond.

NumPy has no bf16 and no fp8. If the package ml_dtypes is installed, its types are used. Otherwise such elements are
unsigned integers of the same width, and the caller says what they are when handing them back (`dtype="bf16"`). Elements
of 4 and 6 bits are always plain bytes.
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


def numpy_dtype(name: str) -> Any:
    """The NumPy dtype that corresponds to one of the library's.

    >>> import reshard
    >>> reshard.numpy_dtype("f32")
    dtype('float32')
    """
    np = numpy()
    if name in _SIMPLE:
        return np.dtype(_SIMPLE[name])
    name = dtype_name(name)
    module = _ml_dtypes() if name in _OF_ML_DTYPES else None
    if module is not None and hasattr(module, _OF_ML_DTYPES[name]):
        return np.dtype(getattr(module, _OF_ML_DTYPES[name]))
    return np.dtype(_SIMPLE.get(name, "uint%d" % max(8, bits_of(name))))


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
