# SPDX-License-Identifier: Apache-2.0
"""Groups: ranks that can talk. `run` makes threads the ranks, `reshard.mpi.group` takes those of MPI.

Calls take arrays of any kind (NumPy, the buffer protocol, `__array_interface__`, DLPack on the CPU) and return NumPy arrays
that own their memory. If a rank raises, the calls of the others raise GroupBroken, and `run` raises the first exception.
"""
import ctypes
import hashlib
import struct
import threading
import weakref
from ctypes import byref, c_void_p
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _native
from ._dtypes import dtype_name, numpy, numpy_dtype
from ._errors import GroupBroken, Invalid, Mismatch, Unsupported, error_fields
from ._exec import Exec, as_array, prepare
from ._layout import Layout, Shape, Spec
from ._library import Handle, lib, rank_count, rank_number, whole_number
from ._plan import Plan, PlanTensor

_SpecLike = Union[str, Spec, Layout]
_DIMENSIONS_MAX = 64  # NumPy's limit
_EXECS_MAX = 64  # that a group keeps for redistribute, as the library does for tensors


def _pointer_of(array: Any) -> c_void_p:
    return c_void_p(array.ctypes.data)




class Group(Handle):
    """Ranks that can talk; this object is one of them. All ranks make the same calls in the same order.

    >>> import numpy, reshard
    >>> def body(group):
    ...     rows = numpy.full((1, 4), group.rank)
    ...     return group.redistribute(rows, "2: S(0)", "2: S(1)", shape=(2, 4)).tolist(), int(group.all_reduce(group.rank))
    >>> reshard.run(2, body)
    [([[0, 0], [1, 1]], 1), ([[0, 0], [1, 1]], 1)]
    """

    _release = "reshard_group_release"

    def __init__(self, pointer: int, made: Any = None) -> None:
        """Takes over a reference to the library's group. made: where to list what was made with it, as its sub-groups do."""
        super().__init__(pointer)
        self._execs: Dict[Any, "Exec"] = {}
        self._made: "weakref.WeakSet[Handle]" = weakref.WeakSet() if made is None else made

    def _live(self) -> int:
        if self._pointer is None:
            raise ValueError("the group is closed")
        return self._pointer

    def close(self) -> None:
        """Releases the group. Over MPI, all ranks have to do so before MPI is finalized."""
        self._execs = {}
        self.__del__()

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, _kind: Any, error: Any, _trace: Any) -> None:
        if error is not None and self._pointer is not None:  # so that nobody waits for this rank
            self.break_("%s: %s" % (type(error).__name__, error))
        self.close()

    def break_(self, why: str) -> None:
        """Breaks the group on purpose: from now on, every call of every rank raises GroupBroken with this text."""
        lib.reshard_group_break(self._live(), why.encode("utf-8", "replace").replace(b"\0", b" "))

    def agree(self, error: Optional[BaseException] = None) -> None:
        """Raises on all ranks if one of them passes an exception, with the text of the lowest such rank."""
        status = 0
        if error is not None:
            status = getattr(error, "status", 0) or _native.RESHARD_ERR_INVALID
            lib.reshard_error_put(byref(error_fields(status, error)))
        lib.reshard_group_agree(self._live(), status)

    def __repr__(self) -> str:
        if self._pointer is None:
            return "<closed group>"
        return "<rank %d of %d, %s>" % (self.rank, self.size, self.transport)

    @property
    def rank(self) -> int:
        """This rank."""
        return int(lib.reshard_group_rank(self._live()))

    @property
    def size(self) -> int:
        """The number of ranks."""
        return int(lib.reshard_group_size(self._live()))

    @property
    def transport(self) -> str:
        """The name of the transport: "threads", "mpi", .."""
        return str(lib.reshard_group_transport_name(self._live()).decode("ascii"))

    def barrier(self) -> None:
        """Returns once all ranks have called it."""
        lib.reshard_group_barrier(self._live())

    def subset(self, ranks: Sequence[int]) -> Optional["Group"]:
        """A group of some of the ranks, in this order; None on the other ranks. All ranks of this group call it."""
        pointer = c_void_p()
        listed = (ctypes.c_int32 * max(1, len(ranks)))(*map(rank_number, ranks))
        lib.reshard_group_subset(self._live(), len(ranks), listed, byref(pointer))
        if pointer.value is None:
            return None
        part = Group(pointer.value, self._made)
        self._made.add(part)
        return part

    # ---- resharding ----

    def redistribute(self, array: Any, source: _SpecLike, target: _SpecLike, *, shape: Optional[Shape] = None,
                     dtype: Any = None, target_dtype: Any = None, verify: bool = False, raw: bool = False) -> Any:
        """Moves a tensor from one split to another: takes this rank's shard of the first, and returns that of the second.

        array: None on a rank that has no shard, and a list if it has several; the same holds for the result. shape: of the
        whole tensor. Without it, the shape is found from the shards if the spec makes that possible. raw: a rank that passes no
        bf16 as uint16 may get it, where NumPy has no such type. The last 64 plans are kept, so the same call again costs no
        planning.
        """
        key: Any = None
        needs_shape = shape is None and not isinstance(source, Layout)
        present = self._gather_arrays(array, dtype) if needs_shape or dtype is None else []
        try:
            if needs_shape:
                shape, dtype = self._find_shape(present, source)
            elif dtype is None:
                dtype = present[0][1][1]
            move = self._describe(source, target, shape, dtype, target_dtype)
            key, wrong = (repr(move), verify), None
            sources, wanted = ([(move, shard) for shard in layout.shards(self.rank)] for layout in (move.source, move.target))
            arrays, targets = prepare(self.rank, sources, wanted, array, None, raw)
        except (GroupBroken, _AgreedError):
            raise
        except Exception as error:
            wrong = error
        self._compare(key, wrong)
        exec_ = self._execs.pop(key, None) or Exec(self, Plan([move]), verify=verify)
        self._execs[key] = exec_  # the last one is the one used last, on all ranks
        if len(self._execs) > _EXECS_MAX:
            del self._execs[next(iter(self._execs))]
        return exec_._run(arrays, targets)

    def _describe(self, source: Any, target: Any, shape: Optional[Shape], dtype: Any, target_dtype: Any) -> PlanTensor:
        source = source if isinstance(source, Layout) else Layout(source, shape)  # type: ignore[arg-type]
        target = target if isinstance(target, Layout) else Layout(target, source.shape)
        name = dtype_name(dtype)
        return PlanTensor("", source, target, name, name if target_dtype is None else dtype_name(target_dtype))

    def _compare(self, key: Any, wrong: Optional[BaseException]) -> None:
        """Raises on all ranks if one of them has found something wrong, or asks for another move than rank 0. So all ranks
        also agree on whether the plan is kept from an earlier call."""
        mine = bytes(16) if wrong is not None else hashlib.sha256(repr(key).encode("utf-8")).digest()[:16]
        everything = ctypes.create_string_buffer(16 * self.size)
        lib.reshard_group_gather_bytes(self._live(), mine, 16, everything)
        found = [everything.raw[16 * i:16 * i + 16] for i in range(self.size)]
        if bytes(16) in found:
            self.agree(wrong)
        for rank, one in enumerate(found):
            if one != found[0]:
                raise Mismatch("rank %d asks for a different move than rank 0" % rank)

    def _gather_arrays(self, array: Any, dtype: Any) -> List[Any]:
        """[(rank, (shape, dtype))] of all ranks that have an array. Raises on all of them if one cannot use its own."""
        mine: Optional[Tuple[Any, str]] = None
        wrong: Optional[BaseException] = None
        try:
            if array is not None:
                dense, name = as_array(_first(array), dtype)
                mine = (dense.shape, name)
        except Exception as error:
            wrong = error
        found = self.gather_objects((wrong is not None, mine))
        if any(failed for failed, _ in found):
            self.agree(wrong)
        present = [(rank, one) for rank, (_, one) in enumerate(found) if one is not None]
        if not present:
            raise _AgreedError("no rank has an array")
        for rank, (_, name) in present:
            if name != present[0][1][1]:
                raise Mismatch("rank %d has elements of %s, but rank %d of %s" % (rank, name, present[0][0], present[0][1][1]))
        return present

    def _find_shape(self, present: List[Any], source: _SpecLike) -> Tuple[Tuple[int, ...], Any]:
        """Finds the shape of the whole tensor by trial: the spec applied to it must give the shapes of all shards."""
        shape = list(present[0][1][0])
        spec = source if isinstance(source, Spec) else Spec(source)  # type: ignore[arg-type]
        for d in range(len(shape)):
            for total in _candidates([shapes[0][d] for _, shapes in present]):
                trial = shape[:d] + [total] + shape[d + 1:]
                if self._fits(spec, trial, present, d):
                    shape[d] = total
                    break
        if not all(self._fits(spec, shape, present, d) for d in range(len(shape))):
            raise _AgreedError("the shape of the whole tensor cannot be found from the shards of %r: pass shape=" % spec)
        return tuple(shape), present[0][1][1]

    def _fits(self, spec: Spec, shape: Sequence[int], present: Sequence[Any], d: int) -> bool:
        try:
            layout = Layout(spec, shape)
        except ValueError:
            return False
        for rank, (local, _) in present:
            shards = layout.shards(rank)
            if not shards or len(shards[0].shape) != len(local) or shards[0].shape[d] != local[d]:
                return False
        return True

    # ---- small things ----

    def gather_objects(self, mine: Any) -> List[Any]:
        """The values of all ranks, by rank. For small Python values that `repr` can write: numbers, strings, tuples of them."""
        import ast
        try:
            ast.literal_eval(repr(mine))
        except (ValueError, SyntaxError):
            raise Invalid("%r is not a value that can be read back from its repr" % (mine,)) from None
        text = repr(mine).encode("utf-8")
        length = ctypes.c_int64(len(text))
        lengths = (ctypes.c_int64 * self.size)()
        lib.reshard_group_gather_bytes(self._live(), byref(length), 8, lengths)
        most = max(lengths)
        everything = ctypes.create_string_buffer(most * self.size)
        lib.reshard_group_gather_bytes(self._live(), text.ljust(most, b" "), most, everything)
        return [ast.literal_eval(everything.raw[i * most:i * most + n].decode("utf-8")) for i, n in enumerate(lengths)]

    # ---- collectives ----

    def _number(self, reduction: str) -> int:
        if reduction not in _native.REDUCTIONS:
            raise Invalid("there is no reduction %r, only %s" % (reduction, ", ".join(_native.REDUCTIONS)))
        return int(_native.REDUCTIONS[reduction])

    def _compare_shapes(self, what: str, shape: Sequence[int]) -> None:
        """Raises unless all ranks pass the same shape. The library compares only the number of elements, as in 2x3 and 3x2."""
        form = "%dq" % (_DIMENSIONS_MAX + 1)
        mine = struct.pack(form, len(shape), *shape, *[0] * (_DIMENSIONS_MAX - len(shape)))
        everything = ctypes.create_string_buffer(len(mine) * self.size)
        lib.reshard_group_gather_bytes(self._live(), mine, len(mine), everything)
        found = [numbers[1:1 + numbers[0]] for numbers in struct.iter_unpack(form, everything.raw)]
        for rank, one in enumerate(found):
            if one != found[0]:
                raise Mismatch("%s: the array of rank %d has the shape %s, but rank 0 has %s" % (what, rank, one, found[0]))

    def _exchange(self, kind: int, dtype: str, source: Any, target: Any, **fields: Any) -> None:
        exchange = _native.reshard_exchange(size=ctypes.sizeof(_native.reshard_exchange), kind=kind, dtype=_native.DTYPES[dtype][0],
                                            source=None if source is None else _pointer_of(source), target=_pointer_of(target),
                                            **fields)
        lib.reshard_exchange_run(None, self._live(), byref(exchange), None)

    def all_reduce(self, array: Any, reduction: str = "sum", *, dtype: Any = None) -> Any:
        """The sum (or avg, prod, min, max, band, bor, bxor) of all ranks' arrays, on all ranks. The arrays have one shape."""
        source, name = as_array(array, dtype)
        self._compare_shapes("all_reduce", source.shape)
        target = numpy().empty_like(source)
        self._exchange(_native.RESHARD_ALL_REDUCE, name, source, target, count=source.size, reduction=self._number(reduction))
        return target

    def all_gather(self, array: Any, *, dtype: Any = None) -> Any:
        """All ranks' arrays, joined along the first dimension, whose length may differ from rank to rank."""
        source, name = as_array(array, dtype)
        source = source.reshape(1) if source.ndim == 0 else source
        rows = self.gather_objects((source.shape[0], source.shape[1:]))
        for rank, (_, other) in enumerate(rows):
            if other != rows[0][1]:
                raise Mismatch("all_gather: rank %d has rows of shape %s, but rank 0 has rows of shape %s" % (rank, other, rows[0][1]))
        width = 1
        for n in source.shape[1:]:
            width *= n
        counts = (ctypes.c_int64 * self.size)(*[count * width for count, _ in rows])
        target = numpy().empty((sum(count for count, _ in rows), *source.shape[1:]), source.dtype)
        self._exchange(_native.RESHARD_ALL_GATHER, name, source, target, count=source.size, counts=counts)
        return target

    def reduce_scatter(self, array: Any, reduction: str = "sum", *, dtype: Any = None) -> Any:
        """This rank's part of the reduction: an equal number of rows along the first dimension for each rank."""
        source, name = as_array(array, dtype)
        if source.ndim == 0 or source.shape[0] % self.size:
            raise Invalid("%s rows cannot be divided among %d ranks" % (source.shape[0] if source.ndim else "no", self.size))
        self._compare_shapes("reduce_scatter", source.shape)
        target = numpy().empty((source.shape[0] // self.size, *source.shape[1:]), source.dtype)
        self._exchange(_native.RESHARD_REDUCE_SCATTER, name, source, target, count=target.size, reduction=self._number(reduction))
        return target

    def broadcast(self, array: Any, root: int = 0, *, dtype: Any = None, raw: bool = False) -> Any:
        """The root's array, on all ranks. The other ranks pass None. raw: they may get bf16 as uint16, where NumPy has no such
        type."""
        np = numpy()
        root = whole_number(root, "the root")
        mine = as_array(array, dtype) if self.rank == root else None
        told = self.gather_objects((None if mine is None else (mine[0].shape, mine[1]), _lacking(raw)))
        if not 0 <= root < self.size or told[root][0] is None:
            raise Invalid("rank %d has nothing to broadcast" % root)
        shape, name = told[root][0]
        for rank, (_, lacking) in enumerate(told):
            if rank != root and name in lacking:
                raise Unsupported("rank %d cannot take %s, for which NumPy has no type: install ml_dtypes there, or pass raw=True for its "
                                  "bits" % (rank, name))
        target = np.empty(shape, mine[0].dtype if mine is not None else numpy_dtype(name, raw=raw))
        self._exchange(_native.RESHARD_BROADCAST, name, None if mine is None else mine[0], target, count=target.size, root=root)
        return target

    def all_to_all(self, array: Any, *, dtype: Any = None) -> Any:
        """Sends block r of the rows to rank r. Block r of the result is what rank r sent. All blocks have the same size."""
        source, name = as_array(array, dtype)
        if source.ndim == 0 or source.shape[0] % self.size:
            raise Invalid("%s rows cannot be divided among %d ranks" % (source.shape[0] if source.ndim else "no", self.size))
        self._compare_shapes("all_to_all", source.shape)
        counts = (ctypes.c_int64 * self.size)(*[source.size // self.size] * self.size)
        target = numpy().empty_like(source)
        self._exchange(_native.RESHARD_ALL_TO_ALL_SINGLE, name, source, target, send_counts=counts, receive_counts=counts)
        return target

    def send(self, array: Any, rank: int, *, dtype: Any = None) -> None:
        """Sends an array to another rank, which calls `receive` with the same size and dtype."""
        source, name = as_array(array, dtype)
        lib.reshard_send(None, self._live(), _native.DTYPES[name][0], rank_number(rank), source.size, _pointer_of(source), None)

    def receive(self, shape: Any, dtype: Any, rank: int, *, raw: bool = False) -> Any:
        """Receives the array that another rank sends. raw: bf16 may come as uint16, where NumPy has no such type."""
        name = dtype_name(dtype)
        target = numpy().empty(shape, numpy_dtype(name, raw=raw))
        lib.reshard_receive(None, self._live(), _native.DTYPES[name][0], rank_number(rank), target.size, _pointer_of(target), None)
        return target


def _lacking(raw: bool) -> List[str]:
    """The dtypes that this rank cannot take, because NumPy has no type for them."""
    found = []
    for name in [] if raw else _native.DTYPES:
        try:
            numpy_dtype(name)
        except Unsupported:
            found.append(name)
    return found


def _first(array: Any) -> Any:
    return array[0] if isinstance(array, list) and array and hasattr(array[0], "shape") else array


def _candidates(lengths: Sequence[int]) -> List[int]:
    """Possible lengths of a dimension: the sum of the ranks' lengths, divided by the number of ranks that hold each part."""
    total = sum(lengths)
    return [total // copies for copies in range(1, len(lengths) + 1) if total % copies == 0]


class _AgreedError(Invalid):
    """An error that all ranks find in the same way, so that they need not agree on it."""


# ---- ranks as threads -------------------------------------------------------------------------

def run(size: int, body: Callable[[Group], Any]) -> List[Any]:
    """Runs body(group) on ranks that are threads of this process, and returns the results by rank.

    If one raises, the others' calls on the group fail, and the first exception is raised here. Ctrl-C breaks the group too:
    ranks that wait end at once, the others when they next communicate. NumPy and the library release the GIL while they work,
    but Python code in between does not run in parallel.

    >>> import reshard
    >>> reshard.run(3, lambda group: int(group.all_reduce(group.rank + 1)))
    [6, 6, 6]
    """
    size = rank_count(size)
    results: List[Any] = [None] * size if size > 0 else []
    raised: List[BaseException] = []
    lock = threading.Lock()
    present: List[int] = []  # the library's groups of ranks that have begun and not yet ended
    stopped: List[bool] = []

    def stop() -> None:
        # A group is used by its own thread only, but breaking it is what another rank may do at any time.
        with lock:
            stopped.append(True)
            if present:
                lib.reshard_group_break(present[0], b"interrupted")

    def call(_user: Any, pointer: int) -> int:
        group = None
        try:
            with lock:
                present.append(pointer)
            if stopped:  # before any rank was present
                raise KeyboardInterrupt
            group = Group(lib.reshard_group_retain(pointer))
            results[group.rank] = body(group)
            return 0
        except BaseException as error:
            with lock:
                raised.append(error)
            text = "%s: %s" % (type(error).__name__, error)
            lib.reshard_group_break(pointer, text.encode("utf-8", "replace"))
            return int(_native.RESHARD_ERR_GROUP_BROKEN)
        finally:
            if group is not None:  # the ranks end here, so what was kept of them must say so when it is used
                for handle in list(group._made):
                    handle.__del__()
                group.close()
            with lock:
                present.remove(pointer)

    callback = _native.reshard_rank_fn(call)
    try:
        _run_beside(lambda: lib.reshard_group_run(None, size, callback, None), stop)
    except GroupBroken:
        if not raised:
            raise
    if raised:
        # Raise what broke the group, not the GroupBroken of the other ranks.
        causes = [error for error in raised if not isinstance(error, GroupBroken)]
        raise (causes or raised)[0]
    return results


def _run_beside(work: Callable[[], Any], stop: Callable[[], None]) -> Any:
    """Runs on another thread, so that Ctrl-C is noticed here."""
    from ._work import Context
    return Context().run(work, None, stop)
