# SPDX-License-Identifier: Apache-2.0
"""The part of a checkpoint that one rank of a mesh holds, read on access or a little ahead."""
import threading
from collections.abc import Mapping as MappingClass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _native
from ._checkpoint import Checkpoint
from ._conversion import ConversionTensor, Cuts
from ._dtypes import bits_of, is_held_by, numpy, numpy_dtype
from ._errors import Error, Invalid, NotFound, Range, Unsupported
from ._exec import check_apart, is_array, range_of
from ._layout import Layout, ShardInfo, Spec
from ._library import encode, lib, make, read_struct, whole_number
from ._options import SHARD_OPTIONS, takes
from ._stored import RankTensor
from ._work import Progress

#: How many bytes to read beyond the requested tensor: at first, and at most.
_AHEAD_BYTES, _AHEAD_BYTES_MAX = 32 << 20, 128 << 20


class _Held(NamedTuple):
    """A tensor that a rank holds. The layout is that of its padded shape, or of its bytes if it cannot be cut."""

    source: int
    dtype: str
    layout: Layout
    shards: Tuple[ShardInfo, ...]
    opaque: bool


class _Ahead:
    """Decides which tensors to read ahead, and keeps those that were.

    A caller that asks for one tensor after the other, as dict(shard) does, is likely to ask for the next ones too, and
    reading several in one call is faster than one call for each. So a request for the first tensor, or for the one that
    follows the previous request, reads _AHEAD_BYTES more, later up to _AHEAD_BYTES_MAX, which bounds the memory that this
    takes. Any other request drops what is kept, because the sequence may be over. Once a second thread reads from the shard,
    nothing is read ahead any more: threads that share the tensors between them would get in each other's way.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._places = {name: i for i, name in enumerate(self._names)}
        self._thread: Optional[int] = None
        self._next, self._bytes = 0, 0
        self._found: Dict[str, Any] = {}

    def take(self, name: str) -> Tuple[Any, int]:
        """The tensor if it was read ahead, else None, and how many bytes to read beyond it."""
        place, thread = self._places[name], threading.get_ident()
        if self._thread is None:
            self._thread = thread
        elif self._thread != thread:
            self.stop()
        follows = place == self._next and self._thread == thread
        self._next = place + 1
        if not follows:
            self._found, self._bytes = {}, 0
            return None, 0
        found = self._found.pop(name, None)
        if found is None:
            self._bytes = min(4 * self._bytes, _AHEAD_BYTES_MAX) or _AHEAD_BYTES
        return found, self._bytes

    def list_next(self, name: str) -> Iterator[str]:
        """The names after this one."""
        for place in range(self._places[name] + 1, len(self._names)):
            yield self._names[place]

    def keep(self, found: Dict[str, Any]) -> None:
        if self._thread == threading.get_ident():
            self._found = found

    def stop(self) -> None:
        self._thread, self._found = 0, {}  # no thread has the number 0


def _mesh_of(mesh: Any) -> Any:
    """The mesh as a text, or as {name: spec}."""
    if isinstance(mesh, (str, MappingClass)):
        return mesh
    if isinstance(mesh, Spec):
        return repr(mesh)
    raise TypeError('a mesh ("tp=4"), a spec ("4: S(0)") or {name: spec} says how tensors are cut, not %r' % (mesh,))


class Shard(Mapping[str, Any]):
    """The part of a checkpoint that a rank of a mesh holds: a mapping from names to arrays, which are read on access.

    Made by `Checkpoint.shard`. If the rank holds several shards of a tensor, its value is a list of arrays. `dict(shard)`
    reads everything; so does `shard.read()`, which shows its progress. If tensors are accessed in order, several are read
    at a time, up to 128 MiB beyond the one that was asked for.

    >>> import numpy, reshard, tempfile
    >>> path = tempfile.mkdtemp() + "/model.npz"
    >>> numpy.savez(path, a=numpy.arange(6.0).reshape(2, 3), b=numpy.ones(4, "f4"))
    >>> mine = reshard.open(path).shard({"a": "3: S(1)", "b": "2: S(0)"}, rank=2)
    >>> list(mine), mine.nbytes, mine["a"].tolist()
    (['a'], 16, [[2.0], [5.0]])
    """

    @takes("CONVERT", "planning", only=SHARD_OPTIONS)
    def __init__(self, checkpoint: Checkpoint, mesh: Union[str, Mapping[str, Any]], rank: int, **options: Any) -> None:
        self.checkpoint, self.mesh, self.rank = checkpoint, _mesh_of(mesh), whole_number(rank, "a rank")
        #: Which rules cut the tensors, and why these were chosen.
        self.rules = ""
        self._layouts: Dict[Any, Tuple[Layout, Tuple[ShardInfo, ...]]] = {}
        self._held: Dict[str, _Held] = {}
        by_spec = not isinstance(self.mesh, str) or ":" in self.mesh
        if by_spec and options.get("rules") is not None:
            raise Invalid("a spec already says how tensors are cut, so it cannot be combined with rules")
        cuts = Cuts(checkpoint, to=None if by_spec else str(self.mesh), **options)
        if isinstance(self.mesh, str):
            self._check_rank(self.mesh, by_spec)
        if not by_spec:
            self.rules = cuts.rules
        tensors = cuts.tensors
        if isinstance(mesh, MappingClass):
            unknown = sorted(set(mesh) - {tensor.name for tensor in tensors})
            if unknown:
                raise NotFound('%s: has no tensor "%s"' % (checkpoint.path, unknown[0]))
        with checkpoint._use() as pointer:
            for tensor in tensors:
                self._hold(pointer, tensor, self._spec_of(tensor))
        self._ahead = _Ahead(self._held)

    def _check_rank(self, mesh: str, is_spec: bool) -> None:
        """Refuses a rank outside the mesh, which would hold nothing. With {name: spec}, each tensor may be on other ranks."""
        spec = Spec(mesh) if is_spec else None
        pointer = spec._mesh if spec else make(lib.reshard_mesh_parse, None, encode(mesh, "a mesh"))
        inside = -2**31 <= self.rank < 2**31 and (not pointer or lib.reshard_mesh_position_of(pointer, self.rank) >= 0)
        if spec is None:
            lib.reshard_mesh_release(pointer)
        if not inside:
            raise Range("rank %d is not in the %s %s" % (self.rank, "spec" if is_spec else "mesh", mesh))

    def _spec_of(self, tensor: ConversionTensor) -> Any:
        if isinstance(self.mesh, MappingClass):
            return self.mesh.get(tensor.name)
        return self.mesh if ":" in self.mesh else tensor.cut

    def _hold(self, pointer: int, tensor: ConversionTensor, spec: Any) -> None:
        if spec is None:
            return
        stored = read_struct(_native.reshard_stored_tensor, lib.reshard_checkpoint_tensor, pointer, tensor.source)
        shape = (stored.bytes,) if stored.opaque else tensor.padded_shape or tensor.shape
        key = (repr(spec), shape)
        if key not in self._layouts:
            try:
                layout = spec if isinstance(spec, Layout) else Layout(spec, shape)
            except Error as error:
                raise type(error)('tensor "%s": %s' % (tensor.name, error)) from None
            self._layouts[key] = (layout, tuple(layout.shards(self.rank)))
        layout, shards = self._layouts[key]
        if shards:
            self._held[tensor.name] = _Held(tensor.source, tensor.dtype, layout, shards, bool(stored.opaque))

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __repr__(self) -> str:
        return "<rank %d of %s: %d tensors of %r>" % (self.rank, self.mesh, len(self), self.checkpoint)

    def _find(self, name: str) -> _Held:
        if name not in self._held:
            raise NotFound('rank %d of %s holds no tensor "%s"' % (self.rank, self.mesh, name))
        return self._held[name]

    def layout(self, name: str) -> Layout:
        """How a tensor is cut over all ranks."""
        return self._find(name).layout

    def dtype(self, name: str) -> str:
        """The library's name of a tensor's dtype: "bf16"."""
        return self._find(name).dtype

    def shape(self, name: str) -> Tuple[int, ...]:
        """The shape of this rank's (first) shard of a tensor, which is not read for it."""
        return self._find(name).shards[0].shape

    @property
    def nbytes(self) -> int:
        """The bytes of everything that this rank holds."""
        return sum(map(_count_bytes, self._held.values()))

    def __getitem__(self, name: str) -> Any:
        self._find(name)
        self.checkpoint._live()
        if self.checkpoint.mmap:  # views need no reading ahead
            return self._read((name,))[name]
        found, ahead = self._ahead.take(name)
        if found is not None:
            return found
        names = [name]
        for following in self._ahead.list_next(name):
            ahead -= _count_bytes(self._held[following])
            if ahead < 0:
                break
            names.append(following)
        if len(names) > 1:
            try:
                several = self._read(names)
                found = several.pop(name)
                self._ahead.keep(several)
                return found
            except (Error, MemoryError):
                self._ahead.stop()  # the error may be about a tensor that nobody asked for
        return self._read((name,))[name]

    def read(self, names: Optional[Iterable[str]] = None, *, threads: int = 0, trace: Any = None,
             progress: Progress = "auto") -> Dict[str, Any]:
        """Reads all tensors, or the named ones, in one go, and returns {name: array}.

        threads: 0 for as many as there are processors, up to 8. trace: a file (or a Trace) to record what each thread did
        when.
        """
        if isinstance(names, str):
            raise TypeError("names must be a list of names, not the single name %r" % names)
        return self._read(list(self if names is None else dict.fromkeys(names)), threads=threads, trace=trace,
                          progress=progress)

    def _read(self, names: Sequence[str], **how: Any) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        tensors: List[RankTensor] = []
        np = numpy()
        for name in names:
            held = self._find(name)
            kind = self._type(name, held)
            found[name] = self._read_without_copy(name, held, kind)
            if found[name] is None:
                arrays = [np.empty(shard.shape, kind) for shard in held.shards]
                found[name] = arrays[0] if len(arrays) == 1 else arrays
                tensors.append(RankTensor(held.source, held.layout, held.dtype, arrays))
        self.checkpoint._read_rank(self.rank, tensors, **how)
        return found

    def _type(self, name: str, held: _Held) -> Any:
        """The dtype of its arrays. Raises Unsupported if NumPy has none."""
        try:
            return numpy().dtype("uint8") if held.opaque else numpy_dtype(held.dtype, raw=self.checkpoint.raw)
        except Unsupported as error:
            raise Unsupported('tensor "%s": %s' % (name, error)) from None

    def _read_without_copy(self, name: str, held: _Held, kind: Any) -> Any:
        """An opaque tensor, or a view. None for tensors that are read as shards."""
        if not held.opaque and not self.checkpoint.mmap:
            return None
        stored = self.checkpoint._tensor_at(held.source)
        if not held.opaque:
            return self._view(held, stored, kind)
        if held.shards[0].shape != stored._carried:
            raise Invalid('tensor "%s" cannot be cut as it is stored' % name)
        return stored[...]

    def _view(self, held: _Held, stored: Any, kind: Any) -> Any:
        """A view of a mapped file, if one holds the shard as it is."""
        if held.dtype != stored.dtype or len(held.shards) != 1 \
                or len(held.shards[0].pieces) != 1:
            return None
        shard, = held.shards
        piece, = shard.pieces
        box = tuple((at, at + n) for at, n in zip(piece.offset, piece.size))
        inside = all(high <= length for (_, high), length in zip(box, stored.shape))
        if not inside or piece.size != shard.shape:
            return None
        return stored._view_box(box, shard.shape, kind)

    def load(self, out: Mapping[str, Any], *, threads: int = 0, trace: Any = None, progress: Progress = None) -> None:
        """Reads into existing arrays, {name: array}, which are C-contiguous, match this rank's shards in shape and dtype, and do
        not share memory. Unsigned integers are taken for bf16 and the like only if the checkpoint was opened with raw=True."""
        if not isinstance(out, MappingClass):
            raise TypeError("the arrays to read into must be {name: array}, not a %s" % type(out).__name__)
        tensors = []
        for name, array in out.items():
            held = self._find(name)
            if not is_array(array):
                raise TypeError('tensor "%s" can only be read into a NumPy array, not into a %s' % (name, type(array).__name__))
            if held.opaque or len(held.shards) != 1:
                raise Invalid('tensor "%s" cannot be read into one array' % name)
            tensors.append(self._wanted(name, array))
        check_apart([range_of(array, True, 'tensor "%s"' % name) for name, array in out.items() if array.nbytes])
        self.checkpoint._read_rank(self.rank, tensors, threads=threads, trace=trace, progress=progress)

    def _wanted(self, name: str, array: Any) -> RankTensor:
        """A tensor with the array for its shard, which is checked here."""
        held = self._find(name)
        shape = held.shards[0].shape
        is_held = is_held_by(held.dtype, array.dtype, self.checkpoint.raw)
        if not is_held or tuple(array.shape) != shape or not array.flags.c_contiguous or not array.flags.writeable:
            raise Invalid('tensor "%s": the array must be C-contiguous and writeable, of shape %s and dtype %s, not %s of %s%s' %
                          (name, shape, held.dtype, tuple(array.shape), array.dtype,
                           "; raw=True of reshard.open lets it hold plain bits" if not is_held and is_held_by(held.dtype, array.dtype) else ""))
        return RankTensor(held.source, held.layout, held.dtype, [array])


def _count_bytes(held: _Held) -> int:
    total = 0
    for shard in held.shards:
        count = 1 if held.opaque else bits_of(held.dtype) // 8
        for n in shard.shape:
            count *= n
        total += count
    return total
