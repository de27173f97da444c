# SPDX-License-Identifier: Apache-2.0
"""Conversions: a checkpoint in another split, format or dtype; what a rank of a mesh would hold of it; comparisons."""
import ctypes
from collections.abc import Mapping as MappingClass
from ctypes import byref, string_at
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _native
from ._checkpoint import Checkpoint, list_lines, set_list
from ._dtypes import NAMES, bits_of, dtype_name, numpy
from ._errors import Check, Error, Invalid, NotFound, Range
from ._layout import Layout, ShardInfo, Spec
from ._library import Handle, decode, encode, encode_list, encode_optional, lib, make, read_struct, whole_number
from ._work import Progress

Dtypes = Union[None, str, Mapping[str, Any], Any]
Sets = Optional[Mapping[str, Any]]


# ---- planning ---------------------------------------------------------------------------------

def _dtype_texts(dtype: Dtypes) -> List[str]:
    if dtype is None:
        return []
    if isinstance(dtype, MappingClass):
        return ["%s=%s" % (pattern, dtype_name(kind)) for pattern, kind in dtype.items()]
    return [dtype_name(dtype)]


def _size(number: Any, what: str) -> int:
    if not 0 <= whole_number(number, what) < 2**63:
        raise Range("%s is a number of bytes, not %d" % (what, number))
    return int(number)


def _texts(given: Union[str, Sequence[str]]) -> List[str]:
    return [given] if isinstance(given, str) else list(given)


class ConversionTensor(NamedTuple):
    """A tensor as a conversion writes it. cut: its spec, which applies to padded_shape; None if it is not cut. rule: the
    line that says so."""

    name: str
    source: int
    dtype: str
    shape: Tuple[int, ...]
    cut: Optional[str]
    padded_shape: Optional[Tuple[int, ...]]
    rule: Optional[str]


class Conversion(Handle):
    """A conversion that is planned, and can be asked before it runs.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.save(folder + "/w.npy", numpy.zeros((8, 4), "f4"))
    >>> conversion = reshard.Conversion(reshard.open(folder + "/w.npy"), to="fsdp=2", rules="fsdp", dtype="bf16")
    >>> conversion.tensors
    [ConversionTensor(name='w', source=0, dtype='bf16', shape=(8, 4), cut='fsdp=2: S(0)', padded_shape=(8, 4), rule='fsdp:3')]
    >>> conversion.run(folder + "/out", sync=False).bytes_written
    64
    """

    _release = "reshard_conversion_destroy"

    def __init__(self, checkpoint: Checkpoint, *, to: Optional[str] = None, rules: Optional[str] = None, sets: Sets = None,
                 dtype: Dtypes = None, format: Optional[str] = None, include: Union[str, Sequence[str]] = (),
                 exclude: Union[str, Sequence[str]] = (), rename: Optional[Mapping[str, str]] = None,
                 only: Optional[str] = None, all: bool = False, shard_bytes: int = 0, memory_bytes: int = 0,
                 threads: int = 0, progress: Progress = None) -> None:
        super().__init__(None)
        self._checkpoint = checkpoint
        lists = {"set": set_list(sets), "dtype": _dtype_texts(dtype), "include": _texts(include), "exclude": _texts(exclude),
                 "rename": ["%s=%s" % pair for pair in (rename or {}).items()]}
        options = _native.reshard_conversion_options(size=ctypes.sizeof(_native.reshard_conversion_options))
        options.to, options.rules = encode_optional(to, "a mesh"), encode_optional(rules, "rules")
        options.format, options.only = encode_optional(format, "a format"), encode_optional(only, "a name")
        options.shard_bytes_max, options.memory_bytes_max = _size(shard_bytes, "shard_bytes"), _size(memory_bytes, "memory_bytes")
        options.threads = whole_number(threads, "threads")
        options.all = int(all)
        for name, texts in lists.items():
            setattr(options, name + "_count", len(texts))
            setattr(options, name + "s", encode_list(texts, name))
        context = checkpoint._context
        with checkpoint._use() as source:
            self._pointer = context.run(
                lambda: make(lib.reshard_conversion_create, context._pointer, source, byref(options)), progress)

    @property
    def _stats(self) -> Any:
        with self._checkpoint._use():  # which the conversion asks in turn; so below
            return read_struct(_native.reshard_conversion_stats, lib.reshard_conversion_get_stats, self._pointer)

    @property
    def rules(self) -> str:
        """Which rules cut the tensors, and why these; "" if none do."""
        return decode(self._stats.rules)

    @property
    def notes(self) -> List[str]:
        """What is left out, or is not as one may expect, a line each; the checkpoint has notes of its own."""
        with self._checkpoint._use():
            return list_lines(lib.reshard_conversion_note, self._pointer)

    @property
    def tensors(self) -> List[ConversionTensor]:
        """What will be written, by name."""
        count = self._stats.tensor_count
        with self._checkpoint._use():
            return [self._tensor(i) for i in range(count)]

    def _tensor(self, index: int) -> ConversionTensor:
        found = read_struct(_native.reshard_conversion_tensor, lib.reshard_conversion_get_tensor, self._pointer, index)
        rule = None if found.rule_file is None else "%s:%d" % (decode(found.rule_file), found.rule_line)
        return ConversionTensor(decode(string_at(found.name, found.name_bytes)), found.source, NAMES[found.dtype],
                                tuple(found.shape[:found.ndim]), None if found.cut is None else decode(found.cut),
                                tuple(found.padded_shape[:found.ndim]) if found.padded_shape else None, rule)

    @property
    def matrix(self) -> Any:
        """Bytes from each file of the source (row) to each file of the target (column)."""
        np, stats = numpy(), self._stats
        found = np.zeros((stats.source_file_count, stats.target_file_count), np.uint64)
        with self._checkpoint._use():
            lib.reshard_conversion_get_matrix(self._pointer, found.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64)))
        return found

    def run(self, target: Any, *, resume: bool = False, verify: bool = False, link: bool = False, sync: bool = True,
            journal_bytes: int = 0, progress: Progress = "auto") -> "ConversionReport":
        """Writes it. All or nothing: the target does not exist before it is complete."""
        options = _native.reshard_conversion_run_options(
            size=ctypes.sizeof(_native.reshard_conversion_run_options), resume=int(resume), verify=int(verify), link=int(link),
            no_sync=int(not sync), journal_bytes=journal_bytes)
        report = _native.reshard_conversion_report(size=ctypes.sizeof(_native.reshard_conversion_report))
        path = encode(target, "a path")
        with self._checkpoint._use():
            self._checkpoint._context.run(
                lambda: lib.reshard_conversion_run(self._pointer, path, byref(options), byref(report)), progress)
        return ConversionReport(report.bytes_read, report.bytes_written, report.bytes_shared, report.bytes_resumed,
                                report.bytes_verified, decode(report.source_digest), decode(report.digest), self.rules,
                                tuple(self._checkpoint.notes + self.notes))

    def estimate(self, target: Any) -> float:
        """About how many seconds a run to this target would take; tries the disk a little."""
        seconds = ctypes.c_double()
        path = encode(target, "a path")
        with self._checkpoint._use():
            self._checkpoint._context.run(
                lambda: lib.reshard_conversion_estimate(self._pointer, path, None, byref(seconds)))
        return seconds.value


class ConversionReport(NamedTuple):
    """What a conversion did. Digests are "" if some bytes did not pass through memory."""

    bytes_read: int
    bytes_written: int
    bytes_shared: int
    bytes_resumed: int
    bytes_verified: int
    source_digest: str
    digest: str
    rules: str
    notes: Tuple[str, ...]


def convert(source: Any, target: Any, *, to: Optional[str] = None, rules: Optional[str] = None, sets: Sets = None,
            dtype: Dtypes = None, format: Optional[str] = None, include: Union[str, Sequence[str]] = (),
            exclude: Union[str, Sequence[str]] = (), rename: Optional[Mapping[str, str]] = None, only: Optional[str] = None,
            all: bool = False, mesh: Optional[str] = None, mesh_rules: Optional[str] = None, unlisted: str = "skip",
            padding: str = "zero", shard_bytes: int = 0, memory_bytes: int = 0, threads: int = 0, resume: bool = False,
            verify: bool = False, link: bool = False, sync: bool = True, progress: Progress = "auto") -> ConversionReport:
    """Writes a checkpoint in another split, format or dtype: `reshard convert` as a call.

    to: the mesh to split over ("tp=4"); None: whole tensors. rules: a family or a file; None: by config.json or the names.
    dtype: "bf16", or {pattern: dtype}. mesh, mesh_rules: how a source of plain rank files is split. The target does not
    exist until it is complete and on disk; Ctrl-C leaves target.partial, which resume=True goes on with.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/model.npz", a=numpy.ones((4, 4), "f4"), b=numpy.arange(3))
    >>> report = reshard.convert(folder + "/model.npz", folder + "/bf16", dtype="bf16", sync=False)
    >>> report.bytes_read, report.bytes_written
    (88, 56)
    """
    opening_rules = mesh_rules if mesh_rules is not None else rules
    with Checkpoint(source, mesh=mesh, rules=opening_rules, sets=sets, unlisted=unlisted, padding=padding,
                    keep_names=mesh_rules is None and rules is not None, progress=progress) as checkpoint:
        conversion = Conversion(checkpoint, to=to, rules=rules, sets=sets, dtype=dtype, format=format, include=include,
                                exclude=exclude, rename=rename, only=only, all=all, shard_bytes=shard_bytes,
                                memory_bytes=memory_bytes, threads=threads, progress=progress)
        return conversion.run(target, resume=resume, verify=verify, link=link, sync=sync, progress=progress)


# ---- one rank ---------------------------------------------------------------------------------

class _Held(NamedTuple):
    """A tensor that a rank holds. layout: of its padded shape, or of its bytes if it cannot be cut."""

    source: int
    dtype: str
    layout: Layout
    shards: Tuple[ShardInfo, ...]
    opaque: bool


def _mesh_of(mesh: Any) -> Any:
    """A text, or {name: spec}."""
    if isinstance(mesh, (str, MappingClass)):
        return mesh
    if isinstance(mesh, Spec):
        return repr(mesh)
    raise TypeError('a mesh ("tp=4"), a spec ("4: S(0)") or {name: spec} says how tensors are cut, not %r' % (mesh,))


class Shard(Mapping[str, Any]):
    """What a rank of a mesh holds of a checkpoint: a mapping from names to arrays, read when they are asked for.

    `Checkpoint.shard` makes it. A rank that holds several shards of a tensor has a list of arrays. `dict(shard)` reads all.

    >>> import numpy, reshard, tempfile
    >>> path = tempfile.mkdtemp() + "/model.npz"
    >>> numpy.savez(path, a=numpy.arange(6.0).reshape(2, 3), b=numpy.ones(4, "f4"))
    >>> mine = reshard.open(path).shard({"a": "3: S(1)", "b": "2: S(0)"}, rank=2)
    >>> list(mine), mine.nbytes, mine["a"].tolist()
    (['a'], 16, [[2.0], [5.0]])
    """

    def __init__(self, checkpoint: Checkpoint, mesh: Union[str, Mapping[str, Any]], rank: int, *, rules: Optional[str] = None,
                 sets: Sets = None, dtype: Dtypes = None, include: Union[str, Sequence[str]] = (),
                 exclude: Union[str, Sequence[str]] = ()) -> None:
        self.checkpoint, self.mesh, self.rank = checkpoint, _mesh_of(mesh), whole_number(rank, "a rank")
        #: Which rules cut the tensors, and why these.
        self.rules = ""
        self._layouts: Dict[Any, Tuple[Layout, Tuple[ShardInfo, ...]]] = {}
        self._held: Dict[str, _Held] = {}
        by_spec = not isinstance(self.mesh, str) or ":" in self.mesh
        if by_spec and rules is not None:
            raise Invalid("a spec says how tensors are cut, so rules have nothing to say")
        conversion = Conversion(checkpoint, to=None if by_spec else str(self.mesh), rules=rules, sets=sets, dtype=dtype,
                                format="torch" if by_spec else "dcp", include=include, exclude=exclude, all=True)
        if isinstance(self.mesh, str):
            self._check_rank(self.mesh, by_spec)
        if not by_spec:
            self.rules = conversion.rules
        tensors = conversion.tensors
        if isinstance(mesh, MappingClass):
            unknown = sorted(set(mesh) - {tensor.name for tensor in tensors})
            if unknown:
                raise NotFound('%s: has no tensor "%s"' % (checkpoint.path, unknown[0]))
        for tensor in tensors:
            self._hold(tensor, self._spec_of(tensor))

    def _check_rank(self, mesh: str, is_spec: bool) -> None:
        """A rank that is not there would hold nothing, without a word. Of {name: spec}, each may be on other ranks."""
        spec = Spec(mesh) if is_spec else None
        pointer = lib.reshard_spec_mesh(spec._pointer) if spec else make(lib.reshard_mesh_parse, None, encode(mesh, "a mesh"))
        inside = -2**31 <= self.rank < 2**31 and (not pointer or lib.reshard_mesh_position_of(pointer, self.rank) >= 0)
        if spec is None:
            lib.reshard_mesh_release(pointer)
        if not inside:
            raise Range("rank %d is not of the %s %s" % (self.rank, "spec" if is_spec else "mesh", mesh))

    def _spec_of(self, tensor: ConversionTensor) -> Any:
        if isinstance(self.mesh, MappingClass):
            return self.mesh.get(tensor.name)
        return self.mesh if ":" in self.mesh else tensor.cut

    def _hold(self, tensor: ConversionTensor, spec: Any) -> None:
        if spec is None:
            return
        stored = self.checkpoint._tensor_at(tensor.source)
        shape = stored._carried if stored.opaque else tensor.padded_shape or tensor.shape
        key = (repr(spec), shape)
        if key not in self._layouts:
            try:
                layout = spec if isinstance(spec, Layout) else Layout(spec, shape)
            except Error as error:
                raise type(error)('tensor "%s": %s' % (tensor.name, error)) from None
            self._layouts[key] = (layout, tuple(layout.shards(self.rank)))
        layout, shards = self._layouts[key]
        if shards:
            self._held[tensor.name] = _Held(tensor.source, tensor.dtype, layout, shards, stored.opaque)

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
        """How a tensor is cut, over all ranks."""
        return self._find(name).layout

    def dtype(self, name: str) -> str:
        """The library's name of a tensor's dtype: "bf16"."""
        return self._find(name).dtype

    def shape(self, name: str) -> Tuple[int, ...]:
        """The shape of this rank's shard, without reading it."""
        return self._find(name).shards[0].shape

    @property
    def nbytes(self) -> int:
        """Bytes of all that this rank holds."""
        total = 0
        for held in self._held.values():
            width = 1 if held.opaque else bits_of(held.dtype) // 8
            for shard in held.shards:
                count = width
                for n in shard.shape:
                    count *= n
                total += count
        return total

    def __getitem__(self, name: str) -> Any:
        held = self._find(name)
        stored = self.checkpoint._tensor_at(held.source)
        if held.opaque:
            if held.shards[0].shape != stored._carried:
                raise Invalid('tensor "%s" cannot be cut as it is stored' % name)
            return stored[...]
        view = self._view(held, stored)
        if view is not None:
            return view
        arrays = self.checkpoint._read_rank(held.source, held.layout, self.rank, held.dtype, held.shards)
        return arrays[0] if len(arrays) == 1 else arrays

    def _view(self, held: _Held, stored: Any) -> Any:
        """A mapped file, where one holds the shard as it is."""
        if not self.checkpoint.mmap or held.dtype != stored.dtype or len(held.shards) != 1 \
                or len(held.shards[0].pieces) != 1:
            return None
        shard, = held.shards
        piece, = shard.pieces
        box = tuple((at, at + n) for at, n in zip(piece.offset, piece.size))
        inside = all(high <= length for (_, high), length in zip(box, stored.shape))
        if not inside or piece.size != shard.shape:
            return None
        return stored._view_box(box, shard.shape)

    def load(self, out: Mapping[str, Any]) -> None:
        """Reads into arrays that are there: {name: array} of the shapes and dtypes of this rank's shards, C-contiguous."""
        if not isinstance(out, MappingClass):
            raise TypeError("arrays to read into are {name: array}, not a %s" % type(out).__name__)
        for name, array in out.items():
            held = self._find(name)
            if not all(hasattr(array, field) for field in ("shape", "dtype", "flags", "ctypes")):
                raise TypeError('tensor "%s": it is read into a NumPy array, not into a %s' % (name, type(array).__name__))
            if held.opaque or len(held.shards) != 1:
                raise Invalid('tensor "%s" cannot be read into one array' % name)
            self.checkpoint._read_rank_into(held.source, held.layout, self.rank, held.dtype, held.shards, [array], name)


# ---- comparing --------------------------------------------------------------------------------

class Difference(NamedTuple):
    """Where two checkpoints differ. kind: "only in a", "only in b", "dtype", "shape" or "bytes"; for bytes the first element
    that differs, and both values as text."""

    kind: str
    name: str
    element: Optional[Tuple[int, ...]]
    a: str
    b: str


class Comparison(NamedTuple):
    """Of two checkpoints."""

    tensors_compared: int
    bytes_compared: int
    tensors_left_out: int
    tensors_dropped: int
    differences: Tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether both hold the same."""
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
    """Compares two checkpoints byte for byte, whatever their splits and formats are: paths, or open ones.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/a.npz", w=numpy.arange(6).reshape(2, 3))
    >>> numpy.savez(folder + "/b.npz", w=numpy.array([[0, 1, 2], [3, 9, 5]]))
    >>> reshard.compare(folder + "/a.npz", folder + "/b.npz").differences
    (Difference(kind='bytes', name='w', element=(1, 1), a='4', b='9'),)
    """
    opened = [one if isinstance(one, Checkpoint) else Checkpoint(one) for one in (a, b)]
    options = _native.reshard_comparison_options(size=ctypes.sizeof(_native.reshard_comparison_options),
                                                 ignore_dropped=int(ignore_dropped), threads=threads)
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
    """As `compare`, but raises Check if the two differ.

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
    """The digest of a checkpoint, which does not depend on how it is split; `Checkpoint.digest` has those of tensors.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/a.npz", w=numpy.arange(6))
    >>> len(reshard.digest(folder + "/a.npz"))
    32
    """
    with Checkpoint(path) as checkpoint:
        return checkpoint.digest(threads=threads, check_copies=check_copies, progress=progress).checkpoint


# ---- what the library knows -------------------------------------------------------------------

class Format(NamedTuple):
    """A format of checkpoints."""

    name: str
    description: str
    reads: bool
    writes: bool
    is_split: bool
    needs_mesh: bool


def _list_structs(kind: Any, function: Any) -> Iterator[Any]:
    index = 0
    while True:
        try:
            yield read_struct(kind, function, index)
        except Range:
            return
        index += 1


def formats() -> List[Format]:
    """The formats that the library knows.

    >>> import reshard
    >>> [form.name for form in reshard.formats() if form.name == "hf"]
    ['hf']
    """
    return [Format(decode(one.name), decode(one.description), bool(one.reads), bool(one.writes), bool(one.is_split),
                   bool(one.needs_mesh)) for one in _list_structs(_native.reshard_format, lib.reshard_format_at)]


def families() -> Dict[str, str]:
    """The built-in rules: the name of each family and its text.

    >>> import reshard
    >>> "llama" in reshard.families()
    True
    """
    return {decode(one.name): decode(one.text) for one in _list_structs(_native.reshard_family, lib.reshard_family_at)}
