# SPDX-License-Identifier: Apache-2.0
"""Tensors of a checkpoint, read box by box from its files."""
from ctypes import byref, c_size_t, c_void_p, string_at
from operator import getitem
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import _native
from ._dtypes import NAMES, dtype_name, is_held_by, numpy, numpy_dtype
from ._errors import Invalid, Unsupported
from ._layout import Layout
from ._library import decode, lib, make, read_struct
from ._work import SHORT_BYTES

if TYPE_CHECKING:
    from ._checkpoint import Checkpoint

Index = Tuple[Tuple[int, int], ...]  # first and end along each dimension


# ---- boxes ------------------------------------------------------------------------------------

def _plain(item: Any) -> Any:
    """An index along one dimension, as a slice or an int."""
    if isinstance(item, slice):
        return item
    if isinstance(item, bool) or not hasattr(item, "__index__") or len(getattr(item, "shape", ())):
        raise TypeError("a stored tensor is indexed by slices and numbers, not by %s: read it, then index the array" %
                        type(item).__name__)
    return item.__index__()


def resolve_index(key: Any, shape: Sequence[int]) -> Tuple[Index, Tuple[Any, ...]]:
    """The box to read, and how to index it afterwards: numbers drop their dimension, and steps are taken in memory.

    >>> resolve_index((slice(2, 9, 2), -1), (6, 4))
    (((2, 5), (3, 4)), (slice(None, None, 2), 0))
    >>> resolve_index(..., (6, 4))
    (((0, 6), (0, 4)), (slice(None, None, None), slice(None, None, None)))
    """
    items = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can have only one Ellipsis")
    missing = len(shape) - (len(items) - len(dots))
    if missing < 0:
        raise IndexError("%d indices for a tensor of %d dimensions" % (len(items) - len(dots), len(shape)))
    at = dots[0] if dots else len(items)
    items[at:at + len(dots)] = [slice(None)] * missing
    box: List[Tuple[int, int]] = []
    after: List[Any] = []
    for item, length in zip(items, shape):
        item = _plain(item)
        if isinstance(item, int):
            place = item + length if item < 0 else item
            if not 0 <= place < length:
                raise IndexError("index %d is out of bounds for a dimension of %d" % (item, length))
            box.append((place, place + 1))
            after.append(0)
            continue
        wanted = range(*item.indices(length))
        low, high = (min(wanted), max(wanted) + 1) if len(wanted) else (0, 0)
        box.append((low, high))
        after.append(slice(None, None, None if wanted.step == 1 else wanted.step))
    return tuple(box), tuple(after)


class RankTensor(NamedTuple):
    """A rank's part of a tensor of the checkpoint: its layout, and a dense array to read each shard into."""

    source: int
    layout: Layout
    dtype: str
    arrays: Sequence[Any]


# ---- one tensor -------------------------------------------------------------------------------

class StoredPiece(NamedTuple):
    """A box of a tensor and where it is stored: the file, the byte of its first element, and strides in elements."""

    file: str
    at: int
    offset: Tuple[int, ...]
    size: Tuple[int, ...]
    strides: Tuple[int, ...]


class StoredTensor:
    """A tensor of a checkpoint. Nothing is read until it is indexed.

    `ck[name][...]` reads all of it, `ck[name][0:1000]` some rows. Numbers, negative ones too, and Ellipsis work as in
    NumPy. So do steps, but the elements between are read as well. `numpy.asarray(ck[name])` reads all of it.

    >>> import numpy, reshard, tempfile
    >>> path = tempfile.mkdtemp() + "/model.npz"
    >>> numpy.savez(path, a=numpy.arange(6.0).reshape(2, 3), b=numpy.ones(4, "f4"))
    >>> tensor = reshard.open(path)["a"]
    >>> tensor.shape, tensor.dtype, tensor[1, ::2].tolist(), tensor.read("f32").dtype
    ((2, 3), 'f64', [3.0, 5.0], dtype('float32'))
    """

    def __init__(self, checkpoint: "Checkpoint", index: int) -> None:
        self._checkpoint, self._index = checkpoint, index
        with checkpoint._use() as pointer:
            found = read_struct(_native.reshard_stored_tensor, lib.reshard_checkpoint_tensor, pointer, index)
            self.name: str = decode(string_at(found.name, found.name_bytes))
            shape = tuple(found.shape[:found.ndim])
        #: The library's name of the dtype: "bf16".
        self.dtype: str = NAMES[found.dtype]
        self.shape: Tuple[int, ...] = shape
        self.nbytes: int = found.bytes
        #: The quantised type that the file has it in ("Q4_K"), if that is not its dtype; else None.
        self.stored_as: Optional[str] = decode(found.stored_as) if found.stored_as else None
        #: True if it says again, in another dtype, what others say (16-bit weights in ZeRO's files). Converted only if asked for.
        self.is_aside: bool = bool(found.is_aside)
        #: True if it cannot be cut (elements smaller than a byte, more than 8 dimensions). It is then read as plain bytes.
        self.opaque: bool = bool(found.opaque)
        self._piece_count: int = found.piece_count

    def __repr__(self) -> str:
        return "<%s: %s %s>" % (self.name, self.dtype, "x".join(map(str, self.shape)) or "scalar")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    def __reduce__(self) -> Any:
        return getitem, (self._checkpoint, self.name)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    @property
    def numpy_dtype(self) -> Any:
        """The dtype of arrays read from it: uint8 if it is opaque. Raises Unsupported if NumPy has none, as for bf16 without
        ml_dtypes, unless the checkpoint was opened with raw=True."""
        return self._type(self._checkpoint.raw)

    def _type(self, raw: bool) -> Any:
        try:
            return numpy().dtype("uint8") if self.opaque else numpy_dtype(self.dtype, raw=raw)
        except Unsupported as error:
            raise Unsupported('tensor "%s": %s' % (self.name, error)) from None

    @property
    def _carried(self) -> Tuple[int, ...]:
        return (self.nbytes,) if self.opaque else self.shape

    @property
    def layout(self) -> Layout:
        """Which file holds which box. Rank i is `checkpoint.files[i]`."""
        with self._checkpoint._use() as pointer:
            return Layout._of(make(lib.reshard_checkpoint_layout, pointer, self._index))

    @property
    def pieces(self) -> List[StoredPiece]:
        """Where it is stored, without copies."""
        files, n = self._checkpoint.files, len(self._carried)
        return [StoredPiece(files[piece.file], piece.at, tuple(piece.box.offset[:n]), tuple(piece.box.size[:n]),
                            tuple(piece.strides[:n])) for piece in self._pieces()]

    def _pieces(self) -> Iterator[Any]:
        for i in range(self._piece_count):
            with self._checkpoint._use() as pointer:
                found = read_struct(_native.reshard_stored_piece, lib.reshard_checkpoint_piece, pointer, self._index, i)
            yield found

    def __getitem__(self, key: Any) -> Any:
        return self._index_as(key, self.numpy_dtype)

    def _index_as(self, key: Any, kind: Any) -> Any:
        box, after = resolve_index(key, self._carried)
        found = self._read_box(box, kind)
        if any(isinstance(item, slice) and item.step is not None for item in after):
            return found[after].copy()  # so that the elements between are freed
        return found[after] if any(item == 0 for item in after if not isinstance(item, slice)) else found

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        kind = self._type(True)
        wanted = self.numpy_dtype if dtype is None else numpy().dtype(dtype)
        is_number = self.opaque or is_held_by(self.dtype, kind, raw=False)
        if not is_number and not (wanted == kind and self._checkpoint.raw):  # NumPy would cast the bits, not the numbers
            if copy is False:
                raise Invalid("%s cannot become an array of %s without a copy" % (self.name, wanted))
            return self.read(wanted)
        box, _ = resolve_index(..., self._carried)
        view = self._view_box(box, self._carried, kind) if self._checkpoint.mmap else None
        if copy is False and (view is None or view.dtype != wanted):
            raise Invalid("%s cannot become an array of %s without a copy" % (self.name, wanted))
        if view is None:
            return self._read_box(box, kind).astype(wanted, copy=False)
        return view.astype(wanted, copy=bool(copy))

    def read(self, dtype: Any = None, *, raw: Optional[bool] = None) -> Any:
        """The whole tensor as an array. With a dtype, it is cast while it is read ("bf16" to "f32", for example). raw: as in
        `reshard.open`, whose choice is the default."""
        raw = self._checkpoint.raw if raw is None else raw
        if dtype is None or dtype_name(dtype) == self.dtype:
            return self._index_as(..., self._type(raw))
        found = numpy().empty(self.shape, numpy_dtype(dtype_name(dtype), raw=raw))
        wanted = RankTensor(self._index, Layout("1: R", self.shape), dtype_name(dtype), [found])
        self._checkpoint._read_rank(0, [wanted])
        return found

    def _read_box(self, box: Index, kind: Any) -> Any:
        np = numpy()
        shape = tuple(high - low for low, high in box)
        if self._checkpoint.mmap:
            view = self._view_box(box, shape, kind)
            if view is not None:
                return view
        found = np.empty(shape, kind)
        self._fill(found, box)
        return found

    def _fill(self, array: Any, box: Index) -> None:
        """Reads a box into a dense array, in parts so that Ctrl-C is noticed between them."""
        if array.nbytes <= SHORT_BYTES or not box:
            wanted = _native.reshard_box(ndim=len(box))
            wanted.offset[:len(box)] = [low for low, _ in box]
            wanted.size[:len(box)] = [high - low for low, high in box]
            with self._checkpoint._use() as pointer:
                lib.reshard_checkpoint_read(pointer, self._index, byref(wanted), array.ctypes.data_as(c_void_p), array.nbytes)
            return
        # Parts are cut along the first dimension that has more than one row, so that each is dense.
        d = next(i for i, (low, high) in enumerate(box) if high - low > 1)
        low, high = box[d]
        rows = max(1, SHORT_BYTES * (high - low) // array.nbytes)
        for first in range(low, high, rows):
            last = min(first + rows, high)
            part = array[(slice(None),) * d + (slice(first - low, last - low),)]
            self._fill(part, box[:d] + ((first, last),) + box[d + 1:])

    def _view_box(self, box: Index, shape: Tuple[int, ...], kind: Any) -> Any:
        """The box as a view of a mapped file if one piece holds all of it, else None."""
        if 0 in shape:
            return None
        n = len(box)
        for piece in self._pieces():
            inside = all(offset <= low and high <= offset + size for (low, high), offset, size
                         in zip(box, piece.box.offset[:n], piece.box.size[:n]))
            if not inside:
                continue
            memory = self._checkpoint._map(piece.file)
            if memory is None:
                return None
            item = kind.itemsize
            at = piece.at + item * sum((low - offset) * stride for (low, _), offset, stride
                                       in zip(box, piece.box.offset[:n], piece.strides[:n]))
            strides = tuple(item * stride for stride in piece.strides[:n])
            return numpy().ndarray(shape, kind, memory, at, strides)
        return None


class MappedFile:
    """A private mapping of a file, which arrays keep alive. Writing changes only this process's copy of a page."""

    def __init__(self, checkpoint: int, file: int) -> None:
        memory, count = c_void_p(), c_size_t()
        lib.reshard_checkpoint_map_file(checkpoint, file, byref(memory), byref(count))
        self._memory, self._bytes = memory.value, count.value
        self.__array_interface__ = {"shape": (count.value,), "typestr": "|u1", "data": (memory.value, False), "version": 3}

    def __del__(self) -> None:
        memory = getattr(self, "_memory", None)
        if memory and lib is not None:
            lib.reshard_checkpoint_unmap_file(memory, self._bytes)
