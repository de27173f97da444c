# SPDX-License-Identifier: Apache-2.0
"""Whether checkpoints hold the same tensors: comparisons byte by byte, and digests."""
import ctypes
from ctypes import byref, string_at
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Tuple

from . import _native
from ._checkpoint import Checkpoint, list_lines
from ._errors import Check, Invalid
from ._library import decode, lib, make, read_struct
from ._options import choose, fill, opening, takes
from ._work import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._native import DigestOptions, VerifyOptions


class Distance(NamedTuple):
    """How far apart the numbers of two tensors are. Complex elements count as two numbers. The last four are of numbers that are
    finite on both sides, and NaN where they are not defined, as a cosine with zeros is not."""

    numbers: int
    differing: int
    nan: Tuple[int, int]
    infinite: Tuple[int, int]
    unlike: int
    max_abs: float
    mean_abs: float
    relative_l2: float
    cosine: float


class Difference(NamedTuple):
    """A tensor in which two checkpoints differ. kind: "only in a", "only in b", "dtype", "shape" or "bytes". For bytes, the
    first element that differs and both values as text. distance: with stats or a tolerance, if both have numbers and one
    shape. origin, origin_element: if a map made A's tensor, the name of the tensor in A that has the element, and where."""

    kind: str
    name: str
    element: Optional[Tuple[int, ...]]
    a: str
    b: str
    distance: Optional[Distance] = None
    origin: Optional[str] = None
    origin_element: Optional[Tuple[int, ...]] = None


class Comparison(NamedTuple):
    """The result of comparing two checkpoints."""

    tensors_compared: int
    bytes_compared: int
    tensors_left_out: int
    tensors_dropped: int
    differences: Tuple[Difference, ...]
    digest_a: str  # as they are stored, if digests were compared; otherwise ""
    digest_b: str
    within: Tuple[Difference, ...] = ()
    notes: Tuple[str, ...] = ()  # by which map names were matched, and what it leaves out

    @property
    def same(self) -> bool:
        """Whether both checkpoints hold the same tensors; those of `within` pass because of the tolerance."""
        return not self.differences


_KINDS = {_native.RESHARD_DIFFERENCE_ONLY_IN_A: "only in a", _native.RESHARD_DIFFERENCE_ONLY_IN_B: "only in b",
          _native.RESHARD_DIFFERENCE_DTYPE: "dtype", _native.RESHARD_DIFFERENCE_SHAPE: "shape",
          _native.RESHARD_DIFFERENCE_BYTES: "bytes"}


def _read_difference(pointer: int, index: int) -> Difference:
    found = read_struct(_native.reshard_difference, lib.reshard_comparison_get_difference, pointer, index)
    distance = None
    if found.measured:
        distance = Distance(found.number_count, found.numbers_differing, (found.nan_count[0], found.nan_count[1]),
                            (found.infinite_count[0], found.infinite_count[1]), found.unlike_count, found.largest, found.mean, found.relative_l2, found.cosine)
    has_element = found.kind == _native.RESHARD_DIFFERENCE_BYTES and found.ndim >= 0
    return Difference(_KINDS.get(found.kind, "?"), decode(string_at(found.name, found.name_bytes)),
                      tuple(found.element[:found.ndim]) if has_element else None, decode(found.value_a), decode(found.value_b),
                      distance, decode(string_at(found.origin, found.origin_bytes)) if found.origin else None,
                      tuple(found.origin_element[:found.origin_ndim]) if found.origin and found.origin_ndim >= 0 else None)


@takes("VERIFY")
def compare(a: Any, b: Any, *, tolerance_l2: float = 0.0, progress: Progress = "auto", **options: "Unpack[VerifyOptions]") -> Comparison:
    """Compares two checkpoints byte by byte, whatever their splits and formats are, or by their digests: `reshard verify` as a
    call. They are given as paths or opened, and options that say how to read are about paths. With the options of a
    conversion, A is taken as the conversion would leave it. `stats` measures how far apart the tensors are that differ. A tensor
    passes if no number differs by more than `tolerance`, and its relative L2 distance is at most `tolerance_l2` (0: no such
    bound), whatever its dtype.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/a.npz", w=numpy.arange(6).reshape(2, 3))
    >>> numpy.savez(folder + "/b.npz", w=numpy.array([[0, 1, 2], [3, 9, 5]]))
    >>> reshard.compare(folder + "/a.npz", folder + "/b.npz").differences
    (Difference(kind='bytes', name='w', element=(1, 1), a='4', b='9', distance=None, origin=None, origin_element=None),)
    >>> reshard.compare(folder + "/a.npz", folder + "/b.npz", stats=True).differences[0].distance.max_abs
    5.0
    >>> reshard.compare(folder + "/a.npz", folder + "/b.npz", tolerance=5).same
    True
    """
    for one, keywords in ((a, ("from_", "from_rules")), (b, ("from_b", "rules_b"))):
        given = [keyword for keyword in keywords if options.get(keyword) is not None]
        if given and isinstance(one, Checkpoint):
            raise Invalid("%s= says how to open a path, but the checkpoint %s is open already" % (given[0], one.path))
    opened = [one if isinstance(one, Checkpoint) else Checkpoint(one, **opening(options, b=bool(i))) for i, one in enumerate((a, b))]
    conversion, comparing = fill("VERIFY", "planning", options), fill("VERIFY", "comparing", options)
    comparing.conversion = ctypes.pointer(conversion)
    comparing.tolerance, comparing.tolerance_l2 = options.get("tolerance") or 0.0, tolerance_l2
    with opened[0]._use() as first, opened[1]._use() as second:
        pointer = opened[0]._context.run(
            lambda: make(lib.reshard_checkpoint_compare, first, second, byref(comparing)), progress)
    try:
        counts = read_struct(_native.reshard_comparison_stats, lib.reshard_comparison_get_stats, pointer)
        listed = tuple(_read_difference(pointer, i) for i in range(counts.difference_count + counts.tensors_within))
        return Comparison(counts.tensors_compared, counts.bytes_compared, counts.tensors_left_out, counts.tensors_dropped,
                          listed[:counts.difference_count],
                          decode(counts.digest_a), decode(counts.digest_b), listed[counts.difference_count:],
                          tuple(list_lines(lib.reshard_comparison_note, pointer)))
    finally:
        lib.reshard_comparison_destroy(pointer)
        for one, given in zip(opened, (a, b)):
            if one is not given:
                one.close()


@takes("VERIFY")
def verify(a: Any, b: Any, *, tolerance_l2: float = 0.0, progress: Progress = "auto", **options: "Unpack[VerifyOptions]") -> Comparison:
    """Like `compare`, but raises Check if the two differ.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/a.npz", w=numpy.arange(6))
    >>> report = reshard.convert(folder + "/a.npz", folder + "/b", no_sync=True)
    >>> reshard.verify(folder + "/a.npz", folder + "/b").tensors_compared
    1
    """
    found = compare(a, b, tolerance_l2=tolerance_l2, progress=progress, **options)
    if found.differences:
        first = found.differences[0]
        where = "" if first.element is None else " at %s: %s and %s" % (list(first.element), first.a, first.b)
        raise Check('tensors that differ: %d, the first is "%s" (%s%s)' % (len(found.differences), first.name, first.kind, where))
    return found


@takes("DIGEST")
def digest(path: Any, *, check_copies: bool = False, progress: Progress = "auto", **options: "Unpack[DigestOptions]") -> str:
    """The digest of a checkpoint, which does not depend on its split. `Checkpoint.digest` also gives those of its tensors.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/a.npz", w=numpy.arange(6))
    >>> len(reshard.digest(folder + "/a.npz"))
    32
    """
    is_seen = any(options.get(keyword) is not None for keyword in ("as_", "map", "dequantize"))
    with Checkpoint(path, **choose(options, "DIGEST", "opening")) as opened:
        checkpoint = opened.named(**choose(options, "DIGEST", "viewing")) if is_seen else opened
        return checkpoint.digest(check_copies=check_copies, progress=progress,
                                 **choose(options, "DIGEST", "digesting", "")).checkpoint
