# SPDX-License-Identifier: Apache-2.0
"""Plans carried out on a group, with arrays as sources and targets."""
import ctypes
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, List, Sequence, Tuple

from . import _native
from ._dtypes import dtype_name, numpy, numpy_dtype
from ._errors import Invalid
from ._layout import ShardInfo
from ._library import Handle, lib, make
from ._plan import Plan, PlanTensor

if TYPE_CHECKING:
    from ._group import Group


def as_array(given: Any, dtype: Any = None) -> Tuple[Any, str]:
    """The argument as a dense array, copied only if it is not dense, and the library's name of its dtype. dtype: what the
    elements are if NumPy cannot know ("bf16" held as uint16)."""
    np = numpy()
    if hasattr(given, "__dlpack__") and not hasattr(given, "__array_interface__"):
        given = np.from_dlpack(given)
    array = np.ascontiguousarray(given).reshape(np.shape(given))
    name = dtype_name(array.dtype if dtype is None else dtype)
    if array.dtype.itemsize != numpy_dtype(name).itemsize:
        raise Invalid("elements of %s are not %s" % (array.dtype, name))
    return array, name


_Places = Sequence[Tuple[PlanTensor, ShardInfo]]


def prepare(rank: int, sources: _Places, targets: _Places, given: Any, out: Any) -> Tuple[List[Any], List[Any]]:
    """The arrays to read from and those to write to, one for each shard."""
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
    if out is not None:
        return arrays, _check_out(rank, targets, list(out) if isinstance(out, (list, tuple)) else [out])
    kinds = {tensor.source_dtype: array.dtype for (tensor, _), array in zip(sources, arrays)}
    # A dtype that NumPy does not have (bf16) is held in the same way as in the source (uint16).
    return arrays, [np.empty(shard.shape, kinds.get(tensor.target_dtype, numpy_dtype(tensor.target_dtype)))
                    for tensor, shard in targets]


def _check_out(rank: int, targets: _Places, out: List[Any]) -> List[Any]:
    if len(out) != len(targets):
        raise Invalid("rank %d has %d shards of the target, but passes %d" % (rank, len(targets), len(out)))
    for (tensor, shard), array in zip(targets, out):
        fits = tuple(array.shape) == shard.shape and array.dtype.itemsize == numpy_dtype(tensor.target_dtype).itemsize
        if not fits or not array.flags.c_contiguous or not array.flags.writeable:
            raise Invalid("rank %d: a target must be C-contiguous and writeable, of shape %s and dtype %s" %
                          (rank, shard.shape, tensor.target_dtype))
    return out


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

    def __init__(self, group: "Group", plan: Plan, *, verify: bool = False, messages_only: bool = False) -> None:
        super().__init__(None)
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

    def __call__(self, sources: Any = None, out: Any = None) -> Any:
        """Takes this rank's source shards (a list if there are several) and returns its target shards. out: arrays for them."""
        return self._run(*prepare(self._rank, self._sources, self._targets, sources, out))

    def _run(self, sources: Sequence[Any], targets: Sequence[Any]) -> Any:
        given = (c_void_p * max(1, len(sources)))(*[array.ctypes.data for array in sources])
        wanted = (c_void_p * max(1, len(targets)))(*[array.ctypes.data for array in targets])
        lib.reshard_exec_start(self._pointer, given, wanted)
        lib.reshard_exec_wait(self._pointer)
        if not targets:
            return None
        return targets[0] if len(targets) == 1 else targets
