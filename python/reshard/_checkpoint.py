# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: models on disk as mappings from names to tensors, read where they lie."""
import ctypes
import os
import threading
from contextlib import contextmanager
from ctypes import byref, c_int64, c_size_t, c_void_p, string_at
from operator import getitem
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _native
from ._dtypes import NAMES, bits_of, dtype_name, dtype_number, numpy, numpy_dtype
from ._errors import Invalid, Io, NotFound, Range, Unsupported
from ._layout import Layout, ShardInfo
from ._library import Handle, decode, encode, encode_list, encode_optional, lib, make, read_struct
from ._work import SHORT_BYTES, Context, Progress

if TYPE_CHECKING:
    from ._conversion import Shard

Index = Tuple[Tuple[int, int], ...]  # from and to along each dimension


# ---- boxes ------------------------------------------------------------------------------------

def _plain(item: Any) -> Any:
    """An index of one dimension: a slice or an int."""
    if isinstance(item, slice):
        return item
    if isinstance(item, bool) or not hasattr(item, "__index__") or len(getattr(item, "shape", ())):
        raise TypeError("a stored tensor is read by slices and numbers, not by %s: read it, then index the array" %
                        type(item).__name__)
    return item.__index__()


def resolve_index(key: Any, shape: Sequence[int]) -> Tuple[Index, Tuple[Any, ...]]:
    """What to read, and how to index it afterwards: numbers drop their dimension, and steps are taken in memory.

    >>> resolve_index((slice(2, 9, 2), -1), (6, 4))
    (((2, 5), (3, 4)), (slice(None, None, 2), 0))
    >>> resolve_index(..., (6, 4))
    (((0, 6), (0, 4)), (slice(None, None, None), slice(None, None, None)))
    """
    items = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can have one Ellipsis")
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


# ---- one tensor -------------------------------------------------------------------------------

class StoredPiece(NamedTuple):
    """A box of a tensor and where it lies: the file, the byte of its first element, steps in elements."""

    file: str
    at: int
    offset: Tuple[int, ...]
    size: Tuple[int, ...]
    strides: Tuple[int, ...]


class StoredTensor:
    """A tensor of a checkpoint. Indexing reads a box; nothing is read before.

    `ck[name][...]` is all of it, `ck[name][0:1000]` some rows; numbers, Ellipsis and negative ones work as in NumPy, and
    steps too, though what lies between is read. `numpy.asarray(ck[name])` reads it all.

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
        #: The library's name of its dtype: "bf16".
        self.dtype: str = NAMES[found.dtype]
        self.shape: Tuple[int, ...] = shape
        self.nbytes: int = found.bytes
        #: True if it cannot be cut (elements smaller than a byte, more than 8 dimensions): it is read as a line of bytes.
        self.opaque: bool = bool(found.opaque)
        self._piece_count: int = found.piece_count

    def __repr__(self) -> str:
        return "<%s: %s %s>" % (self.name, self.dtype, "x".join(map(str, self.shape)) or "scalar")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
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
        """What its arrays have. Opaque ones are bytes."""
        return numpy().dtype("uint8") if self.opaque else numpy_dtype(self.dtype)

    @property
    def _carried(self) -> Tuple[int, ...]:
        return (self.nbytes,) if self.opaque else self.shape

    @property
    def layout(self) -> Layout:
        """Which file holds which box: the ranks are `checkpoint.files`."""
        with self._checkpoint._use() as pointer:
            return Layout._of(make(lib.reshard_checkpoint_layout, pointer, self._index))

    @property
    def pieces(self) -> List[StoredPiece]:
        """Where it lies. Copies are left out."""
        files, n = self._checkpoint.files, len(self._carried)
        return [StoredPiece(files[piece.file], piece.at, tuple(piece.box.offset[:n]), tuple(piece.box.size[:n]),
                            tuple(piece.strides[:n])) for piece in self._pieces()]

    def _pieces(self) -> Iterator[Any]:
        for i in range(self._piece_count):
            with self._checkpoint._use() as pointer:
                found = read_struct(_native.reshard_stored_piece, lib.reshard_checkpoint_piece, pointer, self._index, i)
            yield found

    def __getitem__(self, key: Any) -> Any:
        box, after = resolve_index(key, self._carried)
        found = self._read_box(box)
        if any(isinstance(item, slice) and item.step is not None for item in after):
            return found[after].copy()  # what lies between does not stay in memory
        return found[after] if any(item == 0 for item in after if not isinstance(item, slice)) else found

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        found = self[...]
        return found if dtype is None else found.astype(dtype)

    def read(self, dtype: Any = None) -> Any:
        """All of it as an array; with a dtype, cast while it is read ("bf16" to "f32" and the like)."""
        if dtype is None or dtype_name(dtype) == self.dtype:
            return self[...]
        layout = Layout("1: R", self.shape)
        return self._checkpoint._read_rank(self._index, layout, 0, dtype_name(dtype), layout.shards(0))[0]

    def _read_box(self, box: Index) -> Any:
        np = numpy()
        shape = tuple(high - low for low, high in box)
        if self._checkpoint.mmap:
            view = self._view_box(box, shape)
            if view is not None:
                return view
        found = np.empty(shape, self.numpy_dtype)
        self._fill(found, box)
        return found

    def _fill(self, array: Any, box: Index) -> None:
        """Reads a box into a dense array, in parts, so that Ctrl-C is noticed between them."""
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

    def _view_box(self, box: Index, shape: Tuple[int, ...]) -> Any:
        """The box as a view of a mapped file, if one piece holds all of it; else None."""
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
            item = self.numpy_dtype.itemsize
            at = piece.at + item * sum((low - offset) * stride for (low, _), offset, stride
                                       in zip(box, piece.box.offset[:n], piece.strides[:n]))
            strides = tuple(item * stride for stride in piece.strides[:n])
            return numpy().ndarray(shape, self.numpy_dtype, memory, at, strides)
        return None


class _MappedFile:
    """A private mapping, which arrays keep alive. Writing changes this process's copy of a page alone."""

    def __init__(self, checkpoint: int, file: int) -> None:
        memory, count = c_void_p(), c_size_t()
        lib.reshard_checkpoint_map_file(checkpoint, file, byref(memory), byref(count))
        self._memory, self._bytes = memory.value, count.value
        self.__array_interface__ = {"shape": (count.value,), "typestr": "|u1", "data": (memory.value, False), "version": 3}

    def __del__(self) -> None:
        memory = getattr(self, "_memory", None)
        if memory and lib is not None:
            lib.reshard_checkpoint_unmap_file(memory, self._bytes)


# ---- all of them ------------------------------------------------------------------------------

class Checkpoint(Handle, Mapping[str, StoredTensor]):
    """An open checkpoint: a mapping from names to tensors. Made by `reshard.open`; a context manager.

    Names are sorted. Arrays that were read are the caller's own. With mmap=True, boxes that lie in one file are
    copy-on-write views of it, which stay valid after `close()`; a file that is cut shorter meanwhile ends the process when
    what is gone is touched, as everywhere with mappings. Several threads may read at once. A copy, or one that was pickled
    for another process, opens the files again.

    >>> import numpy, reshard, tempfile
    >>> path = tempfile.mkdtemp() + "/model.npz"
    >>> numpy.savez(path, a=numpy.arange(6.0).reshape(2, 3), b=numpy.ones(4, "f4"))
    >>> with reshard.open(path) as ck:
    ...     ck.format, len(ck), {name: tensor.shape for name, tensor in ck.items()}
    ('npy', 2, {'a': (2, 3), 'b': (4,)})
    """

    _release = "reshard_checkpoint_destroy"

    def __init__(self, path: Any, *, mesh: Optional[str] = None, rules: Optional[str] = None,
                 sets: Optional[Mapping[str, Any]] = None, unlisted: str = "skip", padding: str = "zero",
                 keep_names: bool = False, mmap: bool = False, progress: Progress = None) -> None:
        super().__init__(None)
        self.path = path
        self.mmap = bool(mmap)
        self._context = Context()
        self._maps: Dict[int, Any] = {}
        self._idle = threading.Condition(threading.Lock())
        self._threads: List[int] = []  # threads with a call under way
        self._opened_with = dict(mesh=mesh, rules=rules, sets=None if sets is None else dict(sets), unlisted=unlisted,
                                 padding=padding, keep_names=keep_names, mmap=mmap)
        options, kept = opening_options(mesh, rules, sets, unlisted, padding, keep_names)
        spelt = encode(path, "a path")
        self._pointer = self._context.run(
            lambda: make(lib.reshard_checkpoint_open, self._context._pointer, spelt, byref(options)), progress)
        del kept

    def _live(self) -> int:
        if self._pointer is None or self._ended:
            raise ValueError("the checkpoint %s is closed" % (self.path,))
        return self._pointer

    @contextmanager
    def _use(self) -> Iterator[int]:
        """The pointer, for calls that may take long: close() waits until they are done."""
        with self._idle:
            pointer = self._live()
            self._threads.append(threading.get_ident())
        try:
            yield pointer
        finally:
            with self._idle:
                self._threads.remove(threading.get_ident())
                self._idle.notify_all()

    def close(self) -> None:
        """Closes its files, after reads of other threads. Arrays and views that were read stay valid."""
        with self._idle:
            if threading.get_ident() in self._threads or self._context.is_called():
                raise ValueError("the checkpoint %s cannot be closed while it is at work for this thread" % (self.path,))
            pointer, self._pointer = self._pointer, None  # so that no new reads begin
            try:
                while self._threads:
                    self._idle.wait()
            finally:  # after Ctrl-C it is as open as before
                self._pointer = pointer
            self._maps = {}
            self.__del__()

    def __reduce__(self) -> Any:
        # Another process, such as a worker that loads data, opens it again.
        self._live()
        return _reopen, (type(self), os.path.abspath(os.fsdecode(self.path)), self._opened_with)

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._pointer is None or self._ended:
            return "<closed checkpoint %s>" % (self.path,)
        return "<%s checkpoint %s: %d tensors, %d bytes in %d files>" % (self.format, self.path, len(self), self.nbytes,
                                                                      len(self.files))

    # ---- asking ----

    @property
    def format(self) -> str:
        """Its format, as `reshard.formats()` calls it."""
        with self._use() as pointer:
            return decode(lib.reshard_checkpoint_format(pointer))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each element counted once."""
        with self._use() as pointer:
            return int(lib.reshard_checkpoint_bytes(pointer))

    @property
    def files(self) -> List[str]:
        """The files that hold its tensors, relative to its folder."""
        with self._use() as pointer:
            return [decode(lib.reshard_checkpoint_file_name(pointer, i))
                    for i in range(lib.reshard_checkpoint_file_count(pointer))]

    @property
    def notes(self) -> List[str]:
        """What could not be determined or was left out, a line each."""
        with self._use() as pointer:
            return list_lines(lib.reshard_checkpoint_note, pointer)

    @property
    def others(self) -> Dict[str, Optional[str]]:
        """What is no tensor, such as a step count: its value in short, as text; None if that is not known."""
        found: Dict[str, Optional[str]] = {}
        with self._use() as pointer:
            while True:
                try:
                    value = read_struct(_native.reshard_stored_value, lib.reshard_checkpoint_value, pointer, len(found))
                except Range:  # behind the last one
                    return found
                name = decode(string_at(value.name, value.name_bytes))
                found[name] = None if value.text is None else decode(value.text)

    def __len__(self) -> int:
        with self._use() as pointer:
            return int(lib.reshard_checkpoint_tensor_count(pointer))

    def __iter__(self) -> Iterator[str]:
        for i in range(len(self)):
            with self._use() as pointer:
                found = read_struct(_native.reshard_stored_tensor, lib.reshard_checkpoint_tensor, pointer, i)
                name = decode(string_at(found.name, found.name_bytes))
            yield name

    def _find(self, name: str) -> int:
        if not isinstance(name, str):
            raise TypeError("tensors are found by name, not by %r" % (name,))
        spelt, index = name.encode("utf-8", "surrogateescape"), c_int64()
        with self._use() as pointer:
            lib.reshard_checkpoint_find(pointer, spelt, len(spelt), byref(index))
        return index.value

    def __getitem__(self, name: str) -> StoredTensor:
        return StoredTensor(self, self._find(name))

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._find(name) >= 0
        except NotFound:
            return False

    # ---- reading ----

    def _map(self, file: int) -> Any:
        """A mapped file as an array of bytes; None if it cannot be mapped."""
        if file not in self._maps:
            try:
                with self._use() as pointer:
                    self._maps[file] = numpy().asarray(_MappedFile(pointer, file))
            except (Unsupported, Io):
                self._maps[file] = None
        return self._maps[file]

    def _tensor_at(self, index: int) -> StoredTensor:
        return StoredTensor(self, index)

    def _read_rank(self, index: int, layout: Layout, rank: int, dtype: str, shards: Sequence[ShardInfo]) -> List[Any]:
        """The shards of a rank as new arrays."""
        np = numpy()
        arrays = [np.empty(shard.shape, numpy_dtype(dtype)) for shard in shards]
        self._read_rank_into(index, layout, rank, dtype, shards, arrays, "")
        return arrays

    def _read_rank_into(self, index: int, layout: Layout, rank: int, dtype: str, shards: Sequence[ShardInfo],
                        arrays: Sequence[Any], name: str) -> None:
        for shard, array in zip(shards, arrays):
            fits = tuple(array.shape) == shard.shape and array.dtype.itemsize * 8 == bits_of(dtype)
            if not fits or not array.flags.c_contiguous or not array.flags.writeable:
                raise Invalid('tensor "%s": the array must be C-contiguous and writeable, of shape %s and %d bits' %
                              (name, shard.shape, bits_of(dtype)))
        memory = (c_void_p * max(1, len(arrays)))(*[array.ctypes.data for array in arrays])
        kind = dtype_number(dtype)
        with self._use() as pointer:
            def read() -> None:
                lib.reshard_checkpoint_read_shards(pointer, index, layout._pointer, rank, kind, memory)
            if sum(array.nbytes for array in arrays) > SHORT_BYTES:
                self._context.run(read)
            else:
                read()

    @property
    def torch(self) -> Any:
        """The same checkpoint with tensors of PyTorch in place of arrays: `ck.torch["lm_head.weight"][0:1000]`."""
        from .torch._files import TorchCheckpoint  # which needs PyTorch
        return TorchCheckpoint(self)

    def shard(self, mesh: Union[str, Mapping[str, Any]], rank: int, *, rules: Optional[str] = None,
              sets: Optional[Mapping[str, Any]] = None, dtype: Any = None, include: Union[str, Sequence[str]] = (),
              exclude: Union[str, Sequence[str]] = ()) -> "Shard":
        """What a rank of a mesh holds: a mapping from names to arrays that are read when they are asked for.

        mesh: "tp=8", with the rules of the model's family, which config.json or the names tell; rules names another
        family or a file. A whole spec ("8: S(0)") cuts every tensor alike instead, and {name: spec} each in its own way.
        dtype: "bf16", or {pattern: dtype}.

        >>> import numpy, reshard, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> numpy.save(folder + "/w.npy", numpy.arange(8, dtype="f4").reshape(2, 4))
        >>> mine = reshard.open(folder + "/w.npy").shard("4: S(1)", rank=3)
        >>> mine.shape("w"), mine["w"].tolist()
        ((2, 1), [[3.0], [7.0]])
        """
        from . import _conversion  # which stands on this module
        return _conversion.Shard(self, mesh, rank, rules=rules, sets=sets, dtype=dtype, include=include, exclude=exclude)

    def digest(self, *, threads: int = 0, check_copies: bool = False, progress: Progress = "auto") -> "Digests":
        """Digests of the tensors and of the whole, which do not depend on how it is split."""
        options = _native.reshard_digest_options(size=ctypes.sizeof(_native.reshard_digest_options), threads=threads,
                                                 check_copies=int(check_copies))
        found, names = ctypes.POINTER(_native.reshard_digests)(), list(self)
        with self._use() as pointer:
            self._context.run(lambda: lib.reshard_checkpoint_digest(pointer, byref(options), byref(found)), progress)
        try:
            tensors = {name: decode(found.contents.tensors[i].value) for i, name in enumerate(names)}
            return Digests(decode(found.contents.checkpoint), tensors)
        finally:
            lib.reshard_digests_destroy(found)


class Digests(NamedTuple):
    """Of a checkpoint, and of each of its tensors by name; 32 hexadecimal digits each."""

    checkpoint: str
    tensors: Dict[str, str]


def _reopen(kind: Any, path: str, options: Dict[str, Any]) -> Any:
    return kind(path, **options)


def list_lines(function: Any, *arguments: Any) -> List[str]:
    lines: List[str] = []
    while True:
        line = function(*arguments, len(lines))
        if line is None:
            return lines
        lines.append(decode(line))


def set_list(sets: Optional[Mapping[str, Any]]) -> List[str]:
    return ["%s=%s" % (key, value) for key, value in (sets or {}).items()]


def opening_options(mesh: Optional[str], rules: Optional[str], sets: Optional[Mapping[str, Any]], unlisted: str,
                    padding: str, keep_names: bool) -> Tuple[Any, Any]:
    """The options, and what has to live as long."""
    texts = set_list(sets)
    kept = encode_list(texts, "a value for rules")
    options = _native.reshard_checkpoint_options(size=ctypes.sizeof(_native.reshard_checkpoint_options))
    setattr(options, "from", encode_optional(mesh, "a mesh"))
    options.rules = encode_optional(rules, "rules")
    options.set_count, options.sets = len(texts), kept
    options.keep_names = int(keep_names)
    options.unlisted, options.padding = encode(unlisted), encode(padding)
    return options, kept


def open(path: Any, *, mesh: Optional[str] = None, rules: Optional[str] = None, sets: Optional[Mapping[str, Any]] = None,
         unlisted: str = "skip", padding: str = "zero", keep_names: bool = False, mmap: bool = False,
         progress: Progress = None) -> Checkpoint:
    """Opens a checkpoint: a folder or a file, of any format that `reshard convert` reads. Only headers are read.

    mesh, rules, sets: how plain rank files are split ("tp=4"). unlisted: what becomes of tensors that an index does not
    name ("skip", "take", "refuse"). padding: whether padded rows must be zero ("zero", "any"). mmap: boxes that lie in one
    file are copy-on-write views.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.save(folder + "/weights.npy", numpy.arange(12, dtype="f4").reshape(3, 4))
    >>> with reshard.open(folder + "/weights.npy") as ck:
    ...     ck["weights"], ck["weights"][1:, 2].tolist()
    (<weights: f32 3x4>, [6.0, 10.0])
    """
    return Checkpoint(path, mesh=mesh, rules=rules, sets=sets, unlisted=unlisted, padding=padding, keep_names=keep_names,
                      mmap=mmap, progress=progress)
