# SPDX-License-Identifier: Apache-2.0
"""Plans carried out on a group, with arrays as sources and targets."""
import ctypes
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Iterable, List, Sequence, Set, Tuple

from . import _native
from ._dtypes import dtype_name, is_held_by, numpy, numpy_dtype
from ._errors import Error, Invalid
from ._layout import ShardInfo
from ._library import Handle, lib, make
from ._plan import Plan, PlanTensor

if TYPE_CHECKING:
    from ._group import Group


def settled(tensor: Any) -> Any:
    """A tensor of PyTorch whose memory holds its values. Conjugates, negatives and zeros that torch has only noted are worked
    out, because what reads the memory does not see the note. Anything else is returned as it is."""
    if not hasattr(tensor, "resolve_neg") or not hasattr(tensor, "data_ptr"):
        return tensor
    if str(tensor.layout) != "torch.strided":
        raise Invalid("a tensor of shape %s is stored as %s: only dense ones can be moved or saved" % (tuple(tensor.shape), tensor.layout))
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor._is_zerotensor():
        tensor = tensor.clone()
    if tensor.numel() and not tensor.data_ptr():
        raise Invalid("a tensor of shape %s on %s has no memory: it was freed, or has no values" % (tuple(tensor.shape), tensor.device))
    return tensor


def check_apart(ranges: Iterable[Tuple[int, int, bool, str]]) -> None:
    """Refuses results that share memory with a source or another result, which they would overwrite. ranges: the addresses of
    the first byte and the end, whether it is a result, and what to call it."""
    end, target_end = (0, ""), (0, "")
    for start, stop, is_target, name in sorted(ranges):
        other_end, other = end if is_target else target_end
        if start < other_end:
            raise Invalid("%s and %s share memory: results must not overlap the sources or each other" % (other, name))
        end = max(end, (stop, name))
        target_end = max(target_end, (stop, name)) if is_target else target_end


def range_of(array: Any, is_target: bool, name: str) -> Tuple[int, int, bool, str]:
    """What check_apart takes, for a dense array."""
    return array.ctypes.data, array.ctypes.data + array.nbytes, is_target, name


def as_array(given: Any, dtype: Any = None) -> Tuple[Any, str]:
    """The argument as a dense array, copied only if it is not dense, and the library's name of its dtype. dtype: what the
    elements are if NumPy cannot know ("bf16" held as uint16)."""
    np = numpy()
    given = settled(given)
    if np.ma.is_masked(given):
        raise Invalid("a masked array of shape %s: the mask would be lost; give it values first (.filled(0))" % (np.shape(given),))
    if hasattr(given, "__dlpack__") and not hasattr(given, "__array_interface__"):
        given = np.from_dlpack(given)
    array = np.ascontiguousarray(given).reshape(np.shape(given))
    name = dtype_name(array.dtype if dtype is None else dtype)
    if not is_held_by(name, array.dtype):
        raise Invalid("elements of %s are not %s: convert them first" % (array.dtype.str if not array.dtype.isnative else array.dtype, name))
    return array, name


_Places = Sequence[Tuple[PlanTensor, ShardInfo]]


def prepare(rank: int, sources: _Places, targets: _Places, given: Any, out: Any, raw: bool) -> Tuple[List[Any], List[Any]]:
    """The arrays to read from and those to write to, one for each shard. A rank that passes plain bits for a dtype that NumPy
    lacks gets plain bits back; any other has to ask for them (raw)."""
    np = numpy()
    listed = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    if len(listed) != len(sources):
        raise Invalid("rank %d has %d shards of the source, but passes %d" % (rank, len(sources), len(listed)))
    arrays = []
    for (tensor, shard), one in zip(sources, listed):
        array, _ = as_array(one, tensor.source_dtype)
        if array.shape != shard.shape:
            raise Invalid("rank %d: its shard of the source has the shape %s, not %s" % (rank, shard.shape, array.shape))
        arrays.append(array)
    kinds = {tensor.source_dtype: array.dtype for (tensor, _), array in zip(sources, arrays)}
    if out is not None:
        results = list(out) if isinstance(out, (list, tuple)) else [out]
        _check_out(rank, targets, results, {tensor.target_dtype for tensor, _ in targets} if raw else set(kinds))
        check_apart([range_of(array, False, "a source of rank %d" % rank) for array in arrays if array.nbytes] +
                    [range_of(array, True, "a result of rank %d" % rank) for array in results if array.nbytes])
        return arrays, results
    return arrays, [np.empty(shard.shape, kinds[tensor.target_dtype] if tensor.target_dtype in kinds else
                             numpy_dtype(tensor.target_dtype, raw=raw)) for tensor, shard in targets]


def is_array(given: Any) -> bool:
    return all(hasattr(given, field) for field in ("shape", "dtype", "flags", "ctypes"))


def _check_out(rank: int, targets: _Places, out: List[Any], raw: Set[str]) -> None:
    """raw: the dtypes that may be held as plain bits."""
    if len(out) != len(targets):
        raise Invalid("rank %d has %d shards of the target, but passes %d" % (rank, len(targets), len(out)))
    for (tensor, shard), array in zip(targets, out):
        if not is_array(array):
            raise TypeError("results can only be written into NumPy arrays, not into a %s" % type(array).__name__)
        fits = tuple(array.shape) == shard.shape and is_held_by(tensor.target_dtype, array.dtype, tensor.target_dtype in raw)
        if not fits or not array.flags.c_contiguous or not array.flags.writeable:
            raise Invalid("rank %d: a target must be C-contiguous and writeable, of shape %s and dtype %s, not %s of %s" %
                          (rank, shard.shape, tensor.target_dtype, tuple(array.shape), array.dtype))


class Exec(Handle):
    """A plan bound to a group. It can be called many times: it takes this rank's source shards and returns its target shards.

    All ranks of the group make it together, and call it together. A rank that raises before its call leaves the others
    waiting, unless the exception breaks the group, as in `run` and in `with group:`.

    >>> import numpy, reshard
    >>> plan = reshard.plan((4, 2), "f32", "2: S(0)", "2: R")
    >>> def body(group):
    ...     move = reshard.Exec(group, plan)
    ...     return [float(move(numpy.full((2, 2), 10 * i + group.rank, "f4")).sum()) for i in range(2)]
    >>> reshard.run(2, body)
    [[4.0, 84.0], [4.0, 84.0]]
    """

    _release = "reshard_exec_destroy"

    def __init__(self, group: "Group", plan: Plan, *, verify: bool = False, messages_only: bool = False, raw: bool = False) -> None:
        """raw: results of a dtype that NumPy lacks may be plain bits (bf16 as uint16), also where the sources are not."""
        super().__init__(None)
        self._raw = bool(raw)
        # No reference to the group, which may have one to this exec. The library keeps what it needs.
        self.plan = plan
        self._need(plan)
        self._rank = group.rank
        options = _native.reshard_exec_options(size=ctypes.sizeof(_native.reshard_exec_options), verify=int(verify),
                                               messages_only=int(messages_only))
        self._pointer = make(lib.reshard_exec_create, None, plan._pointer, group._live(), byref(options))
        self._sources = [(tensor, shard) for tensor in plan.tensors for shard in tensor.source.shards(self._rank)]
        self._targets = [(tensor, shard) for i, tensor in enumerate(plan.tensors)
                         for shard in plan.target_layout(i).shards(self._rank)]
        group._made.add(self)

    def __call__(self, sources: Any = None, out: Any = None) -> Any:
        """Takes this rank's source shards (a list if there are several) and returns its target shards. out: arrays for them,
        which must not share memory with sources of any rank."""
        return self._run(*prepare(self._rank, self._sources, self._targets, sources, out, self._raw))

    def _run(self, sources: Sequence[Any], targets: Sequence[Any]) -> Any:
        if self._pointer is None:
            raise ValueError("the ranks that made this Exec have ended")
        given = (c_void_p * max(1, len(sources)))(*[array.ctypes.data for array in sources])
        wanted = (c_void_p * max(1, len(targets)))(*[array.ctypes.data for array in targets])
        try:
            lib.reshard_exec_start(self._pointer, given, wanted)
            lib.reshard_exec_wait(self._pointer)
        except Error:
            raise  # nothing is under way
        except BaseException:  # Ctrl-C, perhaps between the two: the arrays belong to the run until it is over
            lib.reshard_exec_wait(self._pointer)
            raise
        if not targets:
            return None
        return targets[0] if len(targets) == 1 else targets
