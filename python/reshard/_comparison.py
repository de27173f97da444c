# SPDX-License-Identifier: Apache-2.0
"""Whether checkpoints hold the same tensors: comparisons byte by byte, and digests."""
import ctypes
from ctypes import byref, string_at
from typing import Any, NamedTuple, Optional, Tuple

from . import _native
from ._checkpoint import Checkpoint
from ._errors import Check
from ._library import decode, lib, make, read_struct, thread_count
from ._work import Progress


class Difference(NamedTuple):
    """A tensor in which two checkpoints differ. kind: "only in a", "only in b", "dtype", "shape" or "bytes". For bytes, the
    first element that differs and both values as text."""

    kind: str
    name: str
    element: Optional[Tuple[int, ...]]
    a: str
    b: str


class Comparison(NamedTuple):
    """The result of comparing two checkpoints."""

    tensors_compared: int
    bytes_compared: int
    tensors_left_out: int
    tensors_dropped: int
    differences: Tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether both checkpoints hold the same tensors."""
        return not self.differences


_KINDS = {_native.RESHARD_DIFFERENCE_ONLY_IN_A: "only in a", _native.RESHARD_DIFFERENCE_ONLY_IN_B: "only in b",
          _native.RESHARD_DIFFERENCE_DTYPE: "dtype", _native.RESHARD_DIFFERENCE_SHAPE: "shape",
          _native.RESHARD_DIFFERENCE_BYTES: "bytes"}


def _read_difference(pointer: int, index: int) -> Difference:
    found = read_struct(_native.reshard_difference, lib.reshard_comparison_get_difference, pointer, index)
    has_element = found.kind == _native.RESHARD_DIFFERENCE_BYTES and found.ndim >= 0
    return Difference(_KINDS.get(found.kind, "?"), decode(string_at(found.name, found.name_bytes)),
                      tuple(found.element[:found.ndim]) if has_element else None, decode(found.value_a), decode(found.value_b))


def compare(a: Any, b: Any, *, ignore_dropped: bool = False, threads: int = 0, progress: Progress = "auto") -> Comparison:
    """Compares two checkpoints, given as paths or opened, byte by byte, whatever their splits and formats are.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/a.npz", w=numpy.arange(6).reshape(2, 3))
    >>> numpy.savez(folder + "/b.npz", w=numpy.array([[0, 1, 2], [3, 9, 5]]))
    >>> reshard.compare(folder + "/a.npz", folder + "/b.npz").differences
    (Difference(kind='bytes', name='w', element=(1, 1), a='4', b='9'),)
    """
    opened = [one if isinstance(one, Checkpoint) else Checkpoint(one) for one in (a, b)]
    options = _native.reshard_comparison_options(size=ctypes.sizeof(_native.reshard_comparison_options),
                                                 ignore_dropped=int(ignore_dropped), threads=thread_count(threads))
    with opened[0]._use() as first, opened[1]._use() as second:
        pointer = opened[0]._context.run(
            lambda: make(lib.reshard_checkpoint_compare, first, second, byref(options)), progress)
    try:
        stats = read_struct(_native.reshard_comparison_stats, lib.reshard_comparison_get_stats, pointer)
        return Comparison(stats.tensors_compared, stats.bytes_compared, stats.tensors_left_out, stats.tensors_dropped,
                          tuple(_read_difference(pointer, i) for i in range(stats.difference_count)))
    finally:
        lib.reshard_comparison_destroy(pointer)
        for one, given in zip(opened, (a, b)):
            if one is not given:
                one.close()


def verify(a: Any, b: Any, *, ignore_dropped: bool = False, threads: int = 0, progress: Progress = "auto") -> Comparison:
    """Like `compare`, but raises Check if the two differ.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/a.npz", w=numpy.arange(6))
    >>> report = reshard.convert(folder + "/a.npz", folder + "/b", sync=False)
    >>> reshard.verify(folder + "/a.npz", folder + "/b").tensors_compared
    1
    """
    found = compare(a, b, ignore_dropped=ignore_dropped, threads=threads, progress=progress)
    if found.differences:
        first = found.differences[0]
        where = "" if first.element is None else " at %s: %s and %s" % (list(first.element), first.a, first.b)
        raise Check('%d tensors differ, the first is "%s" (%s%s)' % (len(found.differences), first.name, first.kind, where))
    return found


def digest(path: Any, *, threads: int = 0, check_copies: bool = False, progress: Progress = "auto") -> str:
    """The digest of a checkpoint, which does not depend on its split. `Checkpoint.digest` also gives those of its tensors.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/a.npz", w=numpy.arange(6))
    >>> len(reshard.digest(folder + "/a.npz"))
    32
    """
    with Checkpoint(path) as checkpoint:
        return checkpoint.digest(threads=threads, check_copies=check_copies, progress=progress).checkpoint
