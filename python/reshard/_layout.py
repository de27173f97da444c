# SPDX-License-Identifier: Apache-2.0
"""Specs and layouts: how a tensor is split, and who holds which box of it."""
import ctypes
import math
from ctypes import POINTER, byref, c_int64
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _native
from ._dtypes import numpy
from ._errors import Error, Range
from ._library import Handle, decode, encode, lib, make, rank_number, read_struct, read_text, whole_number

Shape = Union[Sequence[int], str, int]


def read_shape(shape: Shape) -> Tuple[int, ...]:
    """A shape as a tuple. It may be given as numbers, as a single number, or as text ("1024x512", "scalar")."""
    if isinstance(shape, str):
        ndim, found = ctypes.c_int32(), (c_int64 * _native.RESHARD_NDIM_MAX)()
        lib.reshard_shape_parse(encode(shape, "a shape"), byref(ndim), found)
        return tuple(found[:ndim.value])
    given: Any = shape if hasattr(shape, "__iter__") else (shape,)
    numbers = tuple(whole_number(n, "a length", 0) for n in given)
    if len(numbers) > _native.RESHARD_NDIM_MAX:
        raise Range("%d dimensions; at most %d can be split" % (len(numbers), _native.RESHARD_NDIM_MAX))
    return numbers


def shape_array(shape: Sequence[int]) -> Any:
    return (c_int64 * max(1, len(shape)))(*shape)


def draw_svg(function: Any, pointer: Any) -> Optional[str]:
    """A picture for notebooks; None if there is none, so that the notebook shows the text."""
    options = _native.reshard_draw_options(size=ctypes.sizeof(_native.reshard_draw_options), form=_native.RESHARD_DRAW_SVG)
    try:
        return read_text(function, pointer, byref(options))
    except Error:
        return None


class Spec(Handle):
    """How a tensor is split over ranks, without its shape. `repr` gives the canonical text, which can be parsed again.

    >>> import reshard
    >>> spec = reshard.Spec("dp=2, tp=4: R, S(-1)")
    >>> spec
    dp=2,tp=4: R, S(-1)
    >>> spec.axes
    {'dp': 2, 'tp': 4}
    >>> spec == "dp=2,tp=4:R,S(-1)"
    True
    """

    _release = "reshard_spec_release"

    def __init__(self, text: Union[str, "Spec"]) -> None:
        super().__init__(None)
        if not isinstance(text, (str, Spec)):
            raise TypeError("a spec is a text such as \"4: S(0)\", not %r" % (text,))
        self._pointer = make(lib.reshard_spec_parse, None, encode(str(text), "a spec"))

    @classmethod
    def _of(cls, pointer: int) -> "Spec":
        """Takes over a reference."""
        spec = cls.__new__(cls)
        spec._pointer = pointer
        return spec

    def __repr__(self) -> str:
        return read_text(lib.reshard_spec_text, self._pointer)

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            try:
                other = Spec(other)
            except Error:
                return False
        return isinstance(other, Spec) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce__(self) -> Any:
        return Spec, (repr(self),)

    @property
    def axes(self) -> "dict[str, int]":
        """The sizes of the mesh's axes by name. An axis without a name goes by its number. Empty for a list of boxes."""
        if not self._mesh:
            return {}
        mesh = read_struct(_native.reshard_mesh_info, lib.reshard_mesh_get_info, self._mesh)
        return {decode(mesh.names[i]) or str(i): mesh.sizes[i] for i in range(mesh.axis_count)}

    @property
    def _mesh(self) -> Any:
        """The mesh, which lives as long as the spec; None for a list of boxes."""
        return read_struct(_native.reshard_spec_info, lib.reshard_spec_get_info, self._pointer).mesh

    @property
    def _cuts(self) -> "list[Any]":
        """The cuts, which live as long as the spec."""
        found = read_struct(_native.reshard_spec_info, lib.reshard_spec_get_info, self._pointer)
        return [found.cuts[i] for i in range(found.cut_count)]

    @property
    def ranks(self) -> Any:
        """The ranks of the mesh, as an array with one dimension for each axis.

        >>> import reshard
        >>> reshard.Spec("2,2[3,1,0,2]: R, S(0)").ranks
        array([[3, 1],
               [0, 2]], dtype=int32)
        """
        np, mesh, sizes = numpy(), self._mesh, tuple(self.axes.values())
        if not mesh:
            return np.zeros(0, np.int32)
        ranks = [lib.reshard_mesh_rank_at(mesh, i) for i in range(math.prod(sizes))]
        return np.array(ranks, np.int32).reshape(sizes)


class Piece(NamedTuple):
    """A box of the whole tensor, and where it lies in its shard: `at` elements from the start, with these strides in
    elements."""

    offset: Tuple[int, ...]
    size: Tuple[int, ...]
    at: int
    strides: Tuple[int, ...]


class ShardInfo(NamedTuple):
    """One local buffer of a rank: a dense shape, filled by pieces of the tensor."""

    rank: int
    index: int  # type: ignore[assignment]  # tuples have a method with this name
    shape: Tuple[int, ...]
    offset: Tuple[int, ...]
    pieces: Tuple[Piece, ...]
    partial: bool


class Boxes(NamedTuple):
    """All boxes of a layout as arrays: the rank that holds each, its offset and its size."""

    ranks: Any
    offsets: Any
    sizes: Any


def _read_shard(shard: Any, ndim: int) -> ShardInfo:
    pieces = tuple(Piece(tuple(piece.box.offset[:ndim]), tuple(piece.box.size[:ndim]), piece.at,
                         tuple(piece.strides[:ndim])) for piece in shard.pieces[:shard.piece_count])
    return ShardInfo(shard.rank, shard.index, tuple(shard.shape[:shard.ndim]), tuple(shard.offset[:ndim]), pieces,
                     bool(shard.partial))


class Layout(Handle):
    """A spec and a shape: who holds which box of a tensor.

    >>> import reshard
    >>> layout = reshard.Layout("3: S(0)", (10, 4))
    >>> layout
    3: S(0) of 10x4
    >>> layout.shards(2)[0].shape
    (2, 4)
    >>> layout.boxes.offsets.tolist()
    [[0, 0], [4, 0], [8, 0]]
    """

    _release = "reshard_layout_release"

    def __init__(self, spec: Union[str, Spec], shape: Shape) -> None:
        super().__init__(None)
        self.shape: Tuple[int, ...] = read_shape(shape)
        self.spec: Spec = spec if isinstance(spec, Spec) else Spec(spec)
        self._pointer = make(lib.reshard_layout_create, None, self.spec._pointer, len(self.shape), shape_array(self.shape))

    @classmethod
    def _of(cls, pointer: int) -> "Layout":
        """Takes over a reference."""
        layout = cls.__new__(cls)
        layout._pointer = pointer
        found = read_struct(_native.reshard_layout_info, lib.reshard_layout_get_info, pointer)
        layout.shape = tuple(found.shape[:found.ndim])
        layout.spec = Spec._of(lib.reshard_spec_retain(found.spec))
        return layout

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return "%r of %s" % (self.spec, "x".join(map(str, self.shape)) or "scalar")

    def _repr_html_(self) -> Optional[str]:
        return draw_svg(lib.reshard_layout_draw, self._pointer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and bool(lib.reshard_layout_equals(self._pointer, other._pointer))

    def __hash__(self) -> int:
        return hash(self.shape)

    def __reduce__(self) -> Any:
        return Layout, (repr(self.spec), self.shape)

    @property
    def rank_count(self) -> int:
        """The number of ranks that hold something."""
        return int(read_struct(_native.reshard_layout_info, lib.reshard_layout_get_info, self._pointer).rank_count)

    @property
    def ranks(self) -> Any:
        """The ranks that hold something, in increasing order."""
        return numpy().array([lib.reshard_layout_rank_at(self._pointer, i) for i in range(self.rank_count)], "int32")

    def _list(self, rank: int) -> List[ShardInfo]:
        found = POINTER(_native.reshard_shards)()
        lib.reshard_layout_shards(self._pointer, rank, byref(found))
        try:
            return [_read_shard(found.contents.items[i], self.ndim) for i in range(found.contents.count)]
        finally:
            lib.reshard_shards_destroy(found)

    def shards(self, rank: int) -> List[ShardInfo]:
        """The shards of a rank: one, several or none."""
        return self._list(rank_number(rank))

    def all_shards(self) -> List[ShardInfo]:
        """The shards of all ranks, ordered by rank."""
        return self._list(_native.RESHARD_ALL_RANKS)

    @property
    def boxes(self) -> Boxes:
        """The boxes of all ranks, ordered by rank, as arrays of int32 and int64."""
        np = numpy()
        found = [(shard.rank, piece) for shard in self.all_shards() for piece in shard.pieces]
        table = (len(found), self.ndim)
        return Boxes(np.array([rank for rank, _ in found], np.int32),
                     np.array([piece.offset for _, piece in found], np.int64).reshape(table),
                     np.array([piece.size for _, piece in found], np.int64).reshape(table))
