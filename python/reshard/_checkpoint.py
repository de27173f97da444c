# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: models on disk, as mappings from names to tensors that are read on access."""
import ctypes
import os
import threading
import weakref
from contextlib import contextmanager
from ctypes import byref, c_int64, c_void_p, string_at
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _native
from ._dtypes import dtype_number, numpy
from ._errors import Io, NotFound, Range, Unsupported
from ._library import Handle, decode, encode, lib, make, read_struct, thread_count
from ._options import SHARD_OPTIONS, VIEW_OPTIONS, fill, takes
from ._stored import MappedFile, RankTensor, StoredTensor
from ._trace import tracing
from ._work import SHORT_BYTES, Context, Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._native import OpeningOptions
    from ._shard import Shard


#: Those that there are, by id, for the children of a fork. (Mappings have no hash.)
_all: "weakref.WeakValueDictionary[int, Checkpoint]" = weakref.WeakValueDictionary()


class Checkpoint(Handle, Mapping[str, StoredTensor]):
    """An open checkpoint: a mapping from names to tensors. Made by `reshard.open`; a context manager.

    Names are sorted. Arrays that were read belong to the caller. With mmap=True, boxes that lie in one file are
    copy-on-write views of it, which stay valid after `close()`. As with all mappings, if the file is truncated, touching
    the missing part kills the process. Several threads may read at once. A copy, or a checkpoint pickled for another
    process, opens the files again.

    >>> import numpy, reshard, tempfile
    >>> path = tempfile.mkdtemp() + "/model.npz"
    >>> numpy.savez(path, a=numpy.arange(6.0).reshape(2, 3), b=numpy.ones(4, "f4"))
    >>> with reshard.open(path) as ck:
    ...     ck.format, len(ck), {name: tensor.shape for name, tensor in ck.items()}
    ('npy', 2, {'a': (2, 3), 'b': (4,)})
    """

    _release = "reshard_checkpoint_destroy"

    @takes("DIGEST", "opening")
    def __init__(self, path: Any, *, keep_names: bool = False, mmap: bool = False, raw: bool = False,
                 unreadable: bool = False, progress: Progress = None, **options: "Unpack[OpeningOptions]") -> None:
        super().__init__(None)
        self.path = path
        self.mmap, self.raw = bool(mmap), bool(raw)
        self._context = Context()
        self._maps: Dict[int, Any] = {}
        self._begin_use()
        self._opened_with = dict(options, keep_names=keep_names, mmap=mmap, raw=raw, unreadable=unreadable)
        if options.get("config") is not None:
            self._opened_with["config"] = os.path.abspath(os.fsdecode(options["config"]))  # type: ignore[arg-type]
        made = fill("DIGEST", "opening", options)
        made.keep_names, made.unreadable = int(keep_names), int(unreadable)
        spelt = encode(path, "a path")
        self._pointer = self._context.run(
            lambda: make(lib.reshard_checkpoint_open, self._context._pointer, spelt, byref(made)), progress)

    def _begin_use(self) -> None:
        self._idle = threading.Condition(threading.Lock())
        self._threads: List[int] = []  # one item for each call under way
        _all[id(self)] = self

    def _forget_threads(self) -> None:
        """After a fork: only the thread that forked is here, and nobody else is using the checkpoint or holds its lock."""
        self._idle = threading.Condition(threading.Lock())
        self._threads = [thread for thread in self._threads if thread == threading.get_ident()]

    def _live(self) -> int:
        if self._pointer is None or self._ended:
            raise ValueError("the checkpoint %s is closed" % (self.path,))
        return self._pointer

    @contextmanager
    def _use(self) -> Iterator[int]:
        """The pointer, for calls that may take long. close() waits until they are done."""
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
        """Closes the files, once reads on other threads are done. Arrays and views that were read stay valid."""
        with self._idle:
            if threading.get_ident() in self._threads or self._context.is_called():
                raise ValueError("the checkpoint %s cannot be closed while this thread is using it" % (self.path,))
            pointer, self._pointer = self._pointer, None  # so that no new reads begin
            try:
                while self._threads:
                    self._idle.wait()
            finally:  # after Ctrl-C it is still open
                self._pointer = pointer
            self._maps = {}
            self.__del__()

    def __reduce__(self) -> Any:
        # Another process, such as a data loader's worker, opens the checkpoint again.
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
        """The name of its format in `reshard.formats()`."""
        with self._use() as pointer:
            return decode(_info(pointer).format)

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors. Each element counts once."""
        with self._use() as pointer:
            return int(_info(pointer).bytes)

    @property
    def files(self) -> List[str]:
        """The files that hold its tensors, relative to its folder."""
        with self._use() as pointer:
            return [decode(lib.reshard_checkpoint_file_name(pointer, i))
                    for i in range(_info(pointer).disk_file_count)]

    @property
    def notes(self) -> List[str]:
        """What could not be determined or was left out, one line each."""
        with self._use() as pointer:
            return list_lines(lib.reshard_checkpoint_note, pointer, _native.RESHARD_NOTE)

    @property
    def warnings(self) -> List[str]:
        """What may do harm or is probably wrong, one line each: pickles that would make Python call something (nothing was
        called), tensors that are the same on all ranks and would be joined."""
        with self._use() as pointer:
            return list_lines(lib.reshard_checkpoint_note, pointer, _native.RESHARD_WARNING)

    @property
    def others(self) -> Dict[str, Optional[str]]:
        """Values that are not tensors, such as a step count: {name: short text of the value, or None if it is not known}."""
        found: Dict[str, Optional[str]] = {}
        with self._use() as pointer:
            while True:
                try:
                    value = read_struct(_native.reshard_stored_value, lib.reshard_checkpoint_value, pointer, len(found))
                except Range:  # there are no more
                    return found
                name = decode(string_at(value.name, value.name_bytes))
                found[name] = None if value.text is None else decode(value.text)

    @property
    def unreadable(self) -> Dict[str, str]:
        """Tensors that cannot be read, if the checkpoint was opened with unreadable=True: {name: the reason}."""
        found: Dict[str, str] = {}
        with self._use() as pointer:
            while True:
                try:
                    one = read_struct(_native.reshard_unreadable_tensor, lib.reshard_checkpoint_unreadable, pointer, len(found))
                except Range:  # there are no more
                    return found
                found[decode(string_at(one.name, one.name_bytes))] = decode(one.reason)

    def __len__(self) -> int:
        with self._use() as pointer:
            return int(_info(pointer).tensor_count)

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
                    self._maps[file] = numpy().asarray(MappedFile(pointer, file))
            except (Unsupported, Io):
                self._maps[file] = None
        return self._maps[file]

    def _tensor_at(self, index: int) -> StoredTensor:
        return StoredTensor(self, index)

    def _read_rank(self, rank: int, tensors: Sequence[RankTensor], *, threads: int = 0, trace: Any = None,
                   progress: Progress = None) -> None:
        """Reads a rank's parts of these tensors in one call."""
        arrays = [array for tensor in tensors for array in tensor.arrays]
        memory = (c_void_p * max(1, len(arrays)))(*[array.ctypes.data for array in arrays])
        table, at = (_native.reshard_rank_tensor * max(1, len(tensors)))(), ctypes.addressof(memory)
        for entry, tensor in zip(table, tensors):
            entry.tensor, entry.layout, entry.dtype = tensor.source, tensor.layout._pointer, dtype_number(tensor.dtype)
            entry.shards = ctypes.cast(at, ctypes.POINTER(c_void_p))
            at += ctypes.sizeof(c_void_p) * len(tensor.arrays)
        options = _native.reshard_read_options(size=ctypes.sizeof(_native.reshard_read_options),
                                               threads=thread_count(threads))
        with tracing(trace) as recorder, self._use() as pointer:
            options.trace = None if recorder is None else recorder._pointer

            def read() -> None:
                lib.reshard_checkpoint_read_rank(pointer, rank, len(tensors), table, byref(options))
            if progress in (None, False) and sum(array.nbytes for array in arrays) <= SHORT_BYTES:
                read()
            else:
                self._context.run(read, progress)

    @property
    def torch(self) -> Any:
        """The same checkpoint, giving PyTorch tensors instead of arrays: `ck.torch["lm_head.weight"][0:1000]`."""
        from .torch._files import TorchCheckpoint  # needs PyTorch
        return TorchCheckpoint(self)

    @takes("DIGEST", "viewing", only=VIEW_OPTIONS)
    def named(self, as_: Optional[str] = None, **options: Any) -> "View":
        """The same checkpoint under another naming, one of `reshard.namings()`, or by a map of one's own: a mapping from the new
        names to tensors, each of which is put together while it is read. Nothing is converted.

        >>> import numpy, pathlib, reshard, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> numpy.savez(folder + "/a.npz", **{"up.weight": numpy.arange(4.0), "gate.weight": -numpy.arange(4.0)})
        >>> _ = pathlib.Path(folder + "/own.map").write_text("gate.weight [f], up.weight [f] = gate_up.weight [(f + f)]")
        >>> view = reshard.open(folder + "/a.npz").named(map=folder + "/own.map")
        >>> list(view), view["gate_up.weight"][2:6].tolist()
        (['gate_up.weight'], [-2.0, -3.0, 0.0, 1.0])
        """
        made: View = View(self, as_, **options)
        return made

    @takes("CONVERT", "planning", only=SHARD_OPTIONS)
    def shard(self, mesh: Union[str, Mapping[str, Any]], rank: int, **options: Any) -> "Shard":
        """The part that a rank of a mesh holds: a mapping from names to arrays, which are read on access.

        mesh: "tp=8" cuts by the rules of the model's family, which is found from config.json or the tensors' names, or by
        `rules`: another family, or a file. A whole spec ("8: S(0)") cuts every tensor in the same way instead, and {name:
        spec} cuts each in its own way.

        >>> import numpy, reshard, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> numpy.save(folder + "/w.npy", numpy.arange(8, dtype="f4").reshape(2, 4))
        >>> mine = reshard.open(folder + "/w.npy").shard("4: S(1)", rank=3)
        >>> mine.shape("w"), mine["w"].tolist()
        ((2, 1), [[3.0], [7.0]])
        """
        from . import _shard  # it imports this module
        made: "Shard" = _shard.Shard(self, mesh, rank, **options)
        return made

    def digest(self, *, threads: int = 0, sha256: bool = False, check_copies: bool = False,
               progress: Progress = "auto") -> "Digests":
        """Digests of the tensors and of the whole checkpoint, or SHA-256 hashes. They do not depend on the split."""
        options = _native.reshard_digest_options(size=ctypes.sizeof(_native.reshard_digest_options),
                                                 threads=thread_count(threads),
                                                 check_copies=int(check_copies))
        found: Any = ctypes.POINTER(_native.reshard_hashes if sha256 else _native.reshard_digests)()
        compute = lib.reshard_checkpoint_hash if sha256 else lib.reshard_checkpoint_digest
        names = {name: i for i, name in enumerate(self) if not self[name].is_aside}
        with self._use() as pointer:
            self._context.run(lambda: compute(pointer, byref(options), byref(found)), progress)
        try:
            tensors = {name: decode(found.contents.tensors[i].value) for name, i in names.items()}
            return Digests(decode(found.contents.checkpoint), tensors)
        finally:
            (lib.reshard_hashes_destroy if sha256 else lib.reshard_digests_destroy)(found)


def _forget_threads() -> None:
    for checkpoint in list(_all.values()):
        checkpoint._forget_threads()


os.register_at_fork(after_in_child=_forget_threads)


class View(Checkpoint):
    """A checkpoint under another naming. Made by `Checkpoint.named`.

    It has all that a checkpoint has, and keeps the files of its own open until it is closed, too. `notes` begin with the two
    namings and the maps between them. Tensors that a map computes have no `pieces` and no `layout`.

    >>> import numpy, pathlib, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.savez(folder + "/a.npz", w=numpy.arange(6.0).reshape(2, 3))
    >>> _ = pathlib.Path(folder + "/own.map").write_text("w [i j] = turned [j i]")
    >>> reshard.open(folder + "/a.npz").named(map=folder + "/own.map")["turned"][1:].tolist()
    [[1.0, 4.0], [2.0, 5.0]]
    """

    @takes("DIGEST", "viewing", only=VIEW_OPTIONS)
    def __init__(self, checkpoint: Checkpoint, as_: Optional[str] = None, **options: Any) -> None:
        Handle.__init__(self, None)
        self.path, self.mmap, self.raw = checkpoint.path, checkpoint.mmap, checkpoint.raw
        self._context = checkpoint._context
        self._maps: Dict[int, Any] = {}
        self._begin_use()
        self._checkpoint, self._named_with = checkpoint, dict(options, as_=as_)
        made = fill("DIGEST", "viewing", self._named_with)
        with checkpoint._use() as pointer:
            self._pointer = self._context.run(lambda: make(lib.reshard_checkpoint_view, pointer, byref(made)), None)
            self._need(checkpoint)

    def __reduce__(self) -> Any:
        self._live()
        return _view_again, (self._checkpoint, self._named_with)


class Digests(NamedTuple):
    """The digests of a checkpoint and of each of its tensors by name, of 32 hexadecimal digits each; hashes have 64."""

    checkpoint: str
    tensors: Dict[str, str]


def _reopen(kind: Any, path: str, options: Dict[str, Any]) -> Any:
    return kind(path, **options)


def _view_again(checkpoint: Checkpoint, options: Dict[str, Any]) -> View:
    return View(checkpoint, **options)


def _info(pointer: Any) -> Any:
    return read_struct(_native.reshard_checkpoint_info, lib.reshard_checkpoint_get_info, pointer)


def list_lines(function: Any, *arguments: Any) -> List[str]:
    lines: List[str] = []
    while True:
        line = function(*arguments, len(lines))
        if line is None:
            return lines
        lines.append(decode(line))


@takes("DIGEST", "opening")
def open(path: Any, *, keep_names: bool = False, mmap: bool = False, raw: bool = False, unreadable: bool = False,
         progress: Progress = None, **options: "Unpack[OpeningOptions]") -> Checkpoint:
    """Opens a checkpoint: a folder or a file in any format that `reshard convert` reads. Only headers are read.

    mmap: whether boxes that lie in one file become copy-on-write views of it. raw: whether elements that NumPy has no type
    for (bf16, fp8) are read as unsigned integers of the same width. Otherwise they need the package ml_dtypes, or a cast:
    `ck[name].read("f32")`. unreadable: whether tensors that cannot be read, such as sparse ones, are listed by `unreadable`
    instead of being an error. keep_names: whether tensors of rank files keep the names that name() in the rules would change.

    >>> import numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.save(folder + "/weights.npy", numpy.arange(12, dtype="f4").reshape(3, 4))
    >>> with reshard.open(folder + "/weights.npy") as ck:
    ...     ck["weights"], ck["weights"][1:, 2].tolist()
    (<weights: f32 3x4>, [6.0, 10.0])
    """
    return Checkpoint(path, keep_names=keep_names, mmap=mmap, raw=raw, unreadable=unreadable, progress=progress, **options)
