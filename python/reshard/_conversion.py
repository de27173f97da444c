# SPDX-License-Identifier: Apache-2.0
"""Conversions of a checkpoint to another split, format or dtype, and the formats and families that the library knows."""
import ctypes
from collections.abc import Mapping as MappingClass
from ctypes import byref, string_at
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _native
from ._checkpoint import Checkpoint, list_lines, set_list
from ._dtypes import NAMES, dtype_name, numpy
from ._errors import Range
from ._library import Handle, byte_count, decode, encode, encode_list, encode_optional, lib, make, read_struct, thread_count
from ._trace import Trace, tracing
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


def _texts(given: Union[str, Sequence[str]]) -> List[str]:
    return [given] if isinstance(given, str) else list(given)


class ConversionTensor(NamedTuple):
    """A tensor as a conversion writes it. cut: its spec, which applies to padded_shape; None if it is not cut. rule: the
    line of the rules that decided this."""

    name: str
    source: int
    dtype: str
    shape: Tuple[int, ...]
    cut: Optional[str]
    padded_shape: Optional[Tuple[int, ...]]
    rule: Optional[str]


class Conversion(Handle):
    """A planned conversion, which can be inspected before it runs.

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
                 threads: int = 0, trace: Optional[Trace] = None, progress: Progress = None) -> None:
        super().__init__(None)
        self._checkpoint = checkpoint
        lists = {"set": set_list(sets), "dtype": _dtype_texts(dtype), "include": _texts(include), "exclude": _texts(exclude),
                 "rename": ["%s=%s" % pair for pair in (rename or {}).items()]}
        options = _native.reshard_conversion_options(size=ctypes.sizeof(_native.reshard_conversion_options))
        options.to, options.rules = encode_optional(to, "a mesh"), encode_optional(rules, "rules")
        options.format, options.only = encode_optional(format, "a format"), encode_optional(only, "a name")
        options.shard_bytes_max = byte_count(shard_bytes, "shard_bytes")
        options.memory_bytes_max = byte_count(memory_bytes, "memory_bytes")
        options.threads = thread_count(threads)
        options.all = int(all)
        for name, texts in lists.items():
            setattr(options, name + "_count", len(texts))
            setattr(options, name + "s", encode_list(texts, name))
        if trace is not None:
            options.trace = trace._pointer
            self._need(trace)
        context = checkpoint._context
        with checkpoint._use() as source:
            self._pointer = context.run(
                lambda: make(lib.reshard_conversion_create, context._pointer, source, byref(options)), progress)

    @property
    def _stats(self) -> Any:
        with self._checkpoint._use():  # the conversion uses the checkpoint, here and below
            return read_struct(_native.reshard_conversion_stats, lib.reshard_conversion_get_stats, self._pointer)

    @property
    def rules(self) -> str:
        """Which rules cut the tensors, and why these were chosen; "" if there are none."""
        return decode(self._stats.rules)

    @property
    def notes(self) -> List[str]:
        """What is left out or may be unexpected, one line each. The checkpoint has notes of its own."""
        with self._checkpoint._use():
            return list_lines(lib.reshard_conversion_note, self._pointer)

    @property
    def tensors(self) -> List[ConversionTensor]:
        """The tensors that will be written, ordered by name."""
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
        """Bytes that go from each file of the source (row) to each file of the target (column)."""
        np, stats = numpy(), self._stats
        found = np.zeros((stats.source_file_count, stats.target_file_count), np.uint64)
        with self._checkpoint._use():
            lib.reshard_conversion_get_matrix(self._pointer, found.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64)))
        return found

    def run(self, target: Any, *, resume: bool = False, verify: bool = False, link: bool = False, sync: bool = True,
            journal_bytes: int = 0, progress: Progress = "auto") -> "ConversionReport":
        """Writes the target, all or nothing: it does not exist until it is complete."""
        options = _native.reshard_conversion_run_options(
            size=ctypes.sizeof(_native.reshard_conversion_run_options), resume=int(resume), verify=int(verify), link=int(link),
            no_sync=int(not sync), journal_bytes=byte_count(journal_bytes, "journal_bytes"))
        report = _native.reshard_conversion_report(size=ctypes.sizeof(_native.reshard_conversion_report))
        path = encode(target, "a path")
        with self._checkpoint._use():
            self._checkpoint._context.run(
                lambda: lib.reshard_conversion_run(self._pointer, path, byref(options), byref(report)), progress)
        return ConversionReport(report.bytes_read, report.bytes_written, report.bytes_shared, report.bytes_resumed,
                                report.bytes_verified, decode(report.source_digest), decode(report.digest), self.rules,
                                tuple(self._checkpoint.notes + self.notes))

    def estimate(self, target: Any) -> float:
        """Estimates how many seconds a run to this target would take, after a short test of the disk."""
        seconds = ctypes.c_double()
        path = encode(target, "a path")
        with self._checkpoint._use():
            self._checkpoint._context.run(
                lambda: lib.reshard_conversion_estimate(self._pointer, path, None, byref(seconds)))
        return seconds.value


class ConversionReport(NamedTuple):
    """What a conversion has done. Digests are "" if some bytes did not pass through memory."""

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
            verify: bool = False, link: bool = False, sync: bool = True, trace: Any = None,
            progress: Progress = "auto") -> ConversionReport:
    """Writes a checkpoint in another split, format or dtype: `reshard convert` as a call.

    to: the mesh to split over ("tp=4"); None: whole tensors. rules: a family or a file; None: found from config.json or the
    tensors' names. dtype: "bf16", or {pattern: dtype}. mesh, mesh_rules: how a source of plain rank files is split. The
    target does not exist until it is complete and on disk. Ctrl-C leaves target.partial, which resume=True continues. trace:
    a file (or a Trace) to record what each thread did when.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/model.npz", a=numpy.ones((4, 4), "f4"), b=numpy.arange(3))
    >>> report = reshard.convert(folder + "/model.npz", folder + "/bf16", dtype="bf16", sync=False)
    >>> report.bytes_read, report.bytes_written
    (88, 56)
    """
    opening_rules = mesh_rules if mesh_rules is not None else rules
    with tracing(trace) as recorder, \
            Checkpoint(source, mesh=mesh, rules=opening_rules, sets=sets, unlisted=unlisted, padding=padding,
                       keep_names=mesh_rules is None and rules is not None, progress=progress) as checkpoint:
        conversion = Conversion(checkpoint, to=to, rules=rules, sets=sets, dtype=dtype, format=format, include=include,
                                exclude=exclude, rename=rename, only=only, all=all, shard_bytes=shard_bytes,
                                memory_bytes=memory_bytes, threads=threads, trace=recorder, progress=progress)
        return conversion.run(target, resume=resume, verify=verify, link=link, sync=sync, progress=progress)


# ---- what the library knows -------------------------------------------------------------------

class Format(NamedTuple):
    """A checkpoint format."""

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
    """The built-in rules: {name of the family: text of its rules}.

    >>> import reshard
    >>> "llama" in reshard.families()
    True
    """
    return {decode(one.name): decode(one.text) for one in _list_structs(_native.reshard_family, lib.reshard_family_at)}
