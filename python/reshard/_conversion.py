# SPDX-License-Identifier: Apache-2.0
"""Conversions of a checkpoint to another split, format or dtype, and the formats and families that the library knows."""
import ctypes
import time
from ctypes import byref, string_at
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _native
from ._checkpoint import Checkpoint, list_lines
from ._dtypes import NAMES, numpy
from ._errors import Range
from ._library import Handle, decode, encode, lib, make, read_struct
from ._options import CUT_OPTIONS, choose, fill, opening, takes
from ._trace import Trace, tracing
from ._work import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._native import ConvertOptions, PlanningOptions, RunningOptions

# ---- planning ---------------------------------------------------------------------------------

class ConversionTensor(NamedTuple):
    """A tensor as a conversion writes it. cut: its spec, which applies to padded_shape; None if it is not cut. rule: the
    line of the rules that decided this. local_shape: that of the first rank that holds some of it, padding included."""

    name: str
    source: int
    dtype: str
    shape: Tuple[int, ...]
    cut: Optional[str]
    padded_shape: Optional[Tuple[int, ...]]
    rule: Optional[str]
    local_shape: Optional[Tuple[int, ...]]


def _read_tensor(function: Any, pointer: Any, index: int) -> ConversionTensor:
    found = read_struct(_native.reshard_conversion_tensor, function, pointer, index)
    rule = None if found.rule_file is None else "%s:%d" % (decode(found.rule_file), found.rule_line)
    return ConversionTensor(decode(string_at(found.name, found.name_bytes)), found.source, NAMES[found.dtype],
                            tuple(found.shape[:found.ndim]), None if found.cut is None else decode(found.cut),
                            tuple(found.padded_shape[:found.ndim]) if found.padded_shape else None, rule,
                            tuple(found.local_shape[:found.local_ndim]) if found.local_shape else None)


class Cuts(Handle):
    """How the tensors of a checkpoint would be named, cast and cut by rules, without an output.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.save(folder + "/w.npy", numpy.zeros((8, 4), "f4"))
    >>> [(tensor.name, tensor.cut, tensor.rule) for tensor in reshard.Cuts(reshard.open(folder + "/w.npy"), to="fsdp=2").tensors]
    [('w', 'fsdp=2: S(0)', 'fsdp:3')]
    """

    _release = "reshard_cuts_destroy"

    @takes("CONVERT", "planning", only=CUT_OPTIONS)
    def __init__(self, checkpoint: Checkpoint, **options: Any) -> None:
        super().__init__(None)
        with checkpoint._use() as source:
            self._pointer = make(lib.reshard_cuts_create, source, byref(fill("CONVERT", "planning", options)))
            found = read_struct(_native.reshard_cuts_info, lib.reshard_cuts_get_info, self._pointer)
            #: Which rules cut the tensors, and why these were chosen; "" if there are none.
            self.rules = decode(found.rules)
            #: The tensors, ordered by name.
            self.tensors = [_read_tensor(lib.reshard_cuts_get_tensor, self._pointer, i)
                            for i in range(found.tensor_count)]
        self._need(checkpoint)


class Conversion(Handle):
    """A planned conversion, which can be inspected before it runs.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.save(folder + "/w.npy", numpy.zeros((8, 4), "f4"))
    >>> conversion = reshard.Conversion(reshard.open(folder + "/w.npy"), to="fsdp=2", rules="fsdp", dtype="bf16")
    >>> conversion.tensors
    [ConversionTensor(name='w', source=0, dtype='bf16', shape=(8, 4), cut='fsdp=2: S(0)', padded_shape=(8, 4), rule='fsdp:3', local_shape=(4, 4))]
    >>> conversion.run(folder + "/out", no_sync=True).bytes_written
    64
    """

    _release = "reshard_conversion_destroy"

    @takes("CONVERT", "planning")
    def __init__(self, checkpoint: Checkpoint, *, trace: Optional[Trace] = None, progress: Progress = None,
                 **planning: "Unpack[PlanningOptions]") -> None:
        super().__init__(None)
        self._checkpoint = checkpoint
        options = fill("CONVERT", "planning", planning)
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
    def naming(self) -> str:
        """With as_: the naming of the checkpoint, and as what it is written by which map; else ""."""
        return decode(self._stats.naming)

    @property
    def notes(self) -> List[str]:
        """What is left out or may be unexpected, one line each. The checkpoint has notes of its own."""
        with self._checkpoint._use():
            return list_lines(lib.reshard_conversion_note, self._pointer, _native.RESHARD_NOTE)

    @property
    def warnings(self) -> List[str]:
        """What is probably wrong, one line each, such as shapes that config.json contradicts."""
        with self._checkpoint._use():
            return list_lines(lib.reshard_conversion_note, self._pointer, _native.RESHARD_WARNING)

    @property
    def tensors(self) -> List[ConversionTensor]:
        """The tensors that will be written, ordered by name."""
        count = self._stats.tensor_count
        with self._checkpoint._use():
            return [_read_tensor(lib.reshard_conversion_get_tensor, self._pointer, i) for i in range(count)]

    @property
    def matrix(self) -> Any:
        """Bytes that go from each file of the source (row) to each file of the target (column)."""
        np, stats = numpy(), self._stats
        found = np.zeros((stats.source_file_count, stats.target_file_count), np.uint64)
        with self._checkpoint._use():
            lib.reshard_conversion_get_matrix(self._pointer, found.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64)))
        return found

    @takes("CONVERT", "running")
    def run(self, target: Any, *, progress: Progress = "auto", **running: "Unpack[RunningOptions]") -> "ConversionReport":
        """Writes the target, all or nothing: it does not exist until it is complete."""
        options, began = fill("CONVERT", "running", running), time.monotonic()
        report = _native.reshard_conversion_report(size=ctypes.sizeof(_native.reshard_conversion_report))
        path = encode(target, "a path")
        with self._checkpoint._use():
            self._checkpoint._context.run(
                lambda: lib.reshard_conversion_run(self._pointer, path, byref(options), byref(report)), progress)
        return self._report(report, time.monotonic() - began)

    def _report(self, found: Any, seconds: float) -> "ConversionReport":
        stats = self._stats
        figures: Dict[str, Any] = {name: getattr(found, name) for name, _ in found._fields_ if name != "size"}
        figures.update(source_digest=decode(found.source_digest), digest=decode(found.digest))
        return ConversionReport(rules=decode(stats.rules), notes=tuple(self._checkpoint.notes + self.notes),
                                warnings=tuple(self._checkpoint.warnings + self.warnings), format=decode(stats.format),
                                tensors=stats.tensor_count, files=stats.written_file_count, memory_bytes=stats.memory_bytes,
                                threads=stats.threads, ranks=stats.ranks, seconds=seconds, **figures)

    def _plan_report(self, target: Any) -> "ConversionReport":
        """What a run would do."""
        stats = self._stats
        return self._report(_native.reshard_conversion_report(bytes_read=stats.bytes_read, bytes_written=stats.bytes_written,
                                                              bytes_shared=stats.bytes_shared), self.estimate(target))

    def estimate(self, target: Any) -> float:
        """Estimates how many seconds a run to this target would take, after a short test of the disk."""
        seconds = ctypes.c_double()
        path = encode(target, "a path")
        with self._checkpoint._use():
            self._checkpoint._context.run(
                lambda: lib.reshard_conversion_estimate(self._pointer, path, None, byref(seconds)))
        return seconds.value


class ConversionReport(NamedTuple):
    """What a conversion has done, with the names of `reshard convert --json`. Digests are "" if some bytes did not pass through
    memory."""

    bytes_read: int
    bytes_written: int
    bytes_shared: int
    bytes_resumed: int
    bytes_verified: int
    source_digest: str
    digest: str
    rules: str
    notes: Tuple[str, ...]
    crcs_unchecked: int  # checksums in the source that were not looked at; with verify there are none
    bytes_digested: int
    tensors_digested: int
    values_overflowed: int  # finite in the source, but not after a cast
    warnings: Tuple[str, ...]
    format: str
    tensors: int
    files: int
    memory_bytes: int  # for blocks in flight
    threads: int
    ranks: int
    seconds: float  # of a dry run: estimated


@takes("CONVERT")
def convert(source: Any, target: Any, *, progress: Progress = "auto", **options: "Unpack[ConvertOptions]") -> ConversionReport:
    """Writes a checkpoint in another split, format or dtype: `reshard convert` as a call.

    The target does not exist until it is complete and on disk. Ctrl-C leaves target.partial, which resume=True continues.
    dtype: "bf16", or {pattern: dtype}. set, rename: {key: value}. Sizes are in bytes. trace: a file, or a Trace. With dry_run,
    nothing is written, and the report says what would be. as_: the naming to write ("hf5"; `namings()` lists them), by the maps
    that come with reshard or by a file, map.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/model.npz", a=numpy.ones((4, 4), "f4"), b=numpy.arange(3))
    >>> report = reshard.convert(folder + "/model.npz", folder + "/bf16", dtype="bf16", no_sync=True)
    >>> report.bytes_read, report.bytes_written
    (88, 56)
    """
    with tracing(options.get("trace"), options.get("trace_events", 0)) as recorder, \
            Checkpoint(source, unreadable=True, progress=progress, **opening(options)) as checkpoint:
        conversion = Conversion(checkpoint, trace=recorder, progress=progress, **choose(options, "CONVERT", "planning"))
        if options.get("dry_run"):
            return conversion._plan_report(target)
        return conversion.run(target, progress=progress, **choose(options, "CONVERT", "running"))


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


def namings() -> Dict[str, str]:
    """The namings of models that convert(as_=) takes: {name: what it is}.

    >>> import reshard
    >>> "hf5" in reshard.namings()
    True
    """
    return {decode(one.name): decode(one.summary) for one in _list_structs(_native.reshard_naming, lib.reshard_naming_at)}
