# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints into torch tensors, and writes torch tensors to checkpoints."""
import ctypes
from ctypes import byref, c_void_p
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch
import torch.distributed as dist

from .. import _native
from .._checkpoint import Checkpoint
from .._dtypes import dtype_name, dtype_number, numpy
from .._errors import Invalid, Mismatch
from .._exec import check_apart, range_of, settled
from .._layout import Layout, Spec
from .._library import encode, lib
from .._stored import RankTensor
from .._work import Progress
from . import _agree, _shapes
from ._dtensor import is_dtensor, spec_of_dtensor
from ._group import Group
from ._redistribute import torch_dtype
from ._sharded import _parts, spec_of_sharded

_SIGNED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _is_sharded(tensor: Any) -> bool:
    return hasattr(tensor, "local_shards") and hasattr(tensor, "sharding_spec")


def _world() -> Tuple[int, int]:
    there = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if there else (0, 1)


# ---- reading ------------------------------------------------------------------------------------

def as_torch(array: Any, dtype: str) -> Any:
    """A tensor that shares the memory of an array. It goes through an integer dtype of the same width, because torch lacks
    some of NumPy's dtypes and NumPy some of torch's."""
    wanted = torch_dtype(dtype)
    if dtype in ("bool", "c64", "c128"):
        return torch.from_numpy(array)
    return torch.from_numpy(array.view("uint8" if array.itemsize == 1 else "i%d" % array.itemsize)).view(wanted)


def as_array(tensor: Any) -> Any:
    """The other way round, for dense CPU tensors."""
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():
        raise Invalid("a tensor of shape %s is a conjugate, negative or zero that torch has only noted: pass a clone" % (tuple(tensor.shape),))
    if tensor.numel() and tensor.device.type == "cpu" and not tensor.data_ptr():
        raise Invalid("a tensor of shape %s has no memory to read into" % (tuple(tensor.shape),))
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise Invalid("a tensor of shape %s on %s: files can only be read into dense CPU tensors" % (tuple(tensor.shape), tensor.device))
    plain = tensor.detach()
    return plain.numpy() if plain.is_complex() or plain.dtype == torch.bool else plain.view(_SIGNED[plain.element_size()]).numpy()


class TorchTensor:
    """A stored tensor whose boxes are read as torch tensors."""

    def __init__(self, stored: Any) -> None:
        self.stored = stored

    def __getitem__(self, key: Any) -> Any:
        found = self.stored._index_as(key, self.stored._type(True))
        if self.stored.opaque:  # plain bytes
            return torch.from_numpy(found)
        return as_torch(numpy().asarray(found), self.stored.dtype)  # an index made only of numbers gives a scalar

    def __repr__(self) -> str:
        return repr(self.stored)

    @property
    def dtype(self) -> Any:
        return torch.uint8 if self.stored.opaque else torch_dtype(self.stored.dtype)

    @property
    def shape(self) -> Any:
        return torch.Size(self.stored.shape)


class TorchCheckpoint(Mapping[str, TorchTensor]):
    """A checkpoint as a mapping from names to TorchTensor. Made by `Checkpoint.torch`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def __getitem__(self, name: str) -> TorchTensor:
        return TorchTensor(self.checkpoint[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.checkpoint)

    def __len__(self) -> int:
        return len(self.checkpoint)


def _targets(out: Mapping[str, Any], split: Any, rank: int) -> Tuple[Any, Dict[str, List[Any]]]:
    """How the given tensors are split, and the local tensors to fill."""
    specs: Dict[str, Any] = {}
    parts: Dict[str, List[Any]] = {}
    for name, tensor in out.items():
        if is_dtensor(tensor):
            specs[name], parts[name] = spec_of_dtensor(tensor), [tensor.to_local()]
        elif _is_sharded(tensor):
            shards = sorted(tensor.local_shards(), key=lambda shard: list(shard.metadata.shard_offsets))
            specs[name], parts[name] = spec_of_sharded(tensor), [shard.tensor for shard in shards]
        else:
            specs[name] = "1[%d]: R" % rank if split is None else split.get(name) if isinstance(split, Mapping) else None
            parts[name] = _shapes.as_shards(tensor)
    by_rules = isinstance(split, str) and all(spec is None for spec in specs.values())
    return (split if by_rules else {name: spec for name, spec in specs.items() if spec is not None}), parts


def load(path: Any, split: Any = None, *, rank: Optional[int] = None, out: Optional[Mapping[str, Any]] = None, dtype: Any = None,
         rules: Optional[str] = None, mmap: bool = False, trace: Any = None, progress: Progress = None,
         **opening: Any) -> Dict[str, Any]:
    """Local. This rank's part of a checkpoint, whatever its format and split, as {name: tensor}.

    split: a mesh ("tp=4": by the rules of the model's family), a spec for all tensors, {name: spec}, or None for whole
    tensors. rank: by default that in the default process group, or 0. out: tensors to fill, which are then the only ones
    that are read; DTensors and ShardedTensors know how they are split. mmap: where the split allows, tensors over mapped
    files, which are read when they are touched and never written back. trace: a file (or a Trace) to record what each
    thread did when. opening: the options of reshard.open.
    """
    rank = _world()[0] if rank is None else rank
    with Checkpoint(path, mmap=mmap, rules=None, raw=True, progress=progress, **opening) as checkpoint:
        parts: Dict[str, List[Any]] = {}
        if out is not None:
            split, parts = _targets(out, split, rank)
            dtype = {name: dtype_name(given[0].dtype) for name, given in parts.items()
                     if given and name in checkpoint and dtype_name(given[0].dtype) != checkpoint[name].dtype}
        shard = checkpoint.shard("1[%d]: R" % rank if split is None else split, rank, rules=rules, dtype=dtype)
        if out is None:
            return {name: _tensors(found, shard.dtype(name)) for name, found in shard.read(trace=trace, progress=progress).items()}
        wanted = {name: _wanted(shard, name, given) for name, given in parts.items() if given or name in shard}
        tied = _take_tied(wanted)
        checkpoint._read_rank(rank, list(wanted.values()), trace=trace, progress=progress)
        for name, tensor in tied.items():
            _check_tied(checkpoint, rank, name, tensor)
    return dict(out)


def _take_tied(wanted: Dict[str, RankTensor]) -> Dict[str, RankTensor]:
    """Takes out the tensors that have exactly the memory of an earlier one, as tied weights do. Other overlaps are refused."""
    tied: Dict[str, RankTensor] = {}
    seen = set()
    for name, tensor in list(wanted.items()):
        place = tuple((array.ctypes.data, array.nbytes) for array in tensor.arrays if array.nbytes)
        if place and place in seen:
            tied[name] = wanted.pop(name)
        seen.add(place)
    check_apart([range_of(array, True, name) for name, tensor in wanted.items() for array in tensor.arrays if array.nbytes])
    return tied


def _check_tied(checkpoint: Checkpoint, rank: int, name: str, tensor: RankTensor) -> None:
    """One memory cannot hold two values: the checkpoint must have the same for both names."""
    np = numpy()
    again = [np.empty_like(array) for array in tensor.arrays]
    checkpoint._read_rank(rank, [tensor._replace(arrays=again)])
    if not all(np.array_equal(one.reshape(-1).view("u1"), two.reshape(-1).view("u1")) for one, two in zip(tensor.arrays, again)):
        raise Mismatch('tensor "%s" shares its memory with another one, but the checkpoint has different values for the two' % name)


def _tensors(found: Any, dtype: str) -> Any:
    return [as_torch(each, dtype) for each in found] if isinstance(found, list) else as_torch(found, dtype)


def _wanted(shard: Any, name: str, given: List[Any]) -> RankTensor:
    held = shard._find(name)
    wanted = [each.shape for each in held.shards]
    whole = _parts(held.layout, shard.rank, given, torch_dtype(held.dtype)) if len(given) < len(wanted) else given
    for each in whole:
        if dtype_name(each.dtype) != held.dtype:
            raise Mismatch('tensor "%s": a part of %s among parts of %s' % (name, each.dtype, held.dtype))
    if [tuple(each.shape) for each in whole] != wanted:
        raise Mismatch('tensor "%s": shapes %s, but %r gives this rank %s' %
                       (name, [tuple(each.shape) for each in given], held.layout, wanted))
    return RankTensor(held.source, held.layout, held.dtype, [as_array(each) for each in whole])


# ---- writing ------------------------------------------------------------------------------------

def _describe(tensors: Mapping[str, Any], split: Any, size: int) -> Tuple[Dict[str, Any], Dict[str, str], Dict[str, Any]]:
    """The local tensors, the spec of each as text, and those whole shapes that are known."""
    parts: Dict[str, Any] = {}
    specs: Dict[str, str] = {}
    shapes: Dict[str, Any] = {}
    for name, tensor in tensors.items():
        if is_dtensor(tensor):
            parts[name], specs[name], shapes[name] = tensor.to_local(), repr(spec_of_dtensor(tensor)), tuple(tensor.shape)
        elif _is_sharded(tensor):
            shards = sorted(tensor.local_shards(), key=lambda shard: list(shard.metadata.shard_offsets))
            specs[name], shapes[name] = repr(spec_of_sharded(tensor)), tuple(tensor.metadata().size)
            parts[name] = _parts(Layout(specs[name], shapes[name]), dist.get_rank(tensor._process_group),
                                 [shard.tensor for shard in shards], tensor.metadata().tensor_properties.dtype)
        else:
            parts[name] = tensor
            specs[name] = repr(_shapes.spec_for(split, name)) if split is not None else "%d: R" % size
    return parts, specs, shapes


def save(tensors: Mapping[str, Any], path: Any, split: Any = None, group: Any = None, *,
         shapes: Optional[Mapping[str, Any]] = None, sync: bool = True) -> None:
    """Collective over the group. Writes a new distributed checkpoint in safetensors files, each part once.

    tensors: {name: local tensor}. DTensors and ShardedTensors know how they are split; others are split by `split` (one
    spec, or {name: spec}), or are the same on all ranks if it is None. All or nothing: the folder does not exist until
    everything is on disk. Tensors on other devices are copied to the CPU first.
    """
    size = dist.get_world_size(group)
    everyone = _agree.attempt(group, lambda: _offer(tensors, split, size, shapes))
    mine: Dict[str, List[Any]] = {}

    def prepare() -> Any:
        # Here, where all ranks learn of an error, and not while they write together.
        for name, part in _describe(tensors, split, size)[0].items():
            mine[name] = [settled(each.detach()).cpu().contiguous() for each in _shapes.as_shards(part)]
        return _join(everyone)

    listed = _agree.attempt(group, prepare)[dist.get_rank(group)]
    made = Group(group)
    _agree.attempt(group, lambda: _write(made, encode(path, "a path"), listed, mine, dist.get_rank(group), sync))


def _offer(tensors: Mapping[str, Any], split: Any, size: int, shapes: Any) -> Tuple[Any, Dict[str, str], Dict[str, Any]]:
    parts, specs, known = _describe(tensors, split, size)
    known.update({name: tuple(shape) for name, shape in (shapes or {}).items()})
    return _shapes.describe(parts), specs, known


def _join(everyone: List[Any]) -> List[Tuple[str, str, Tuple[int, ...], str]]:
    """(name, spec, shape, dtype) of all tensors, with the same result on all ranks."""
    specs: Dict[str, str] = {}
    shapes: Dict[str, Any] = {}
    for rank, (_, theirs, known) in enumerate(everyone):
        shapes.update(known)
        for name, spec in theirs.items():
            if specs.setdefault(name, spec) != spec:
                raise Mismatch("%s: rank %d has it split as %s, another as %s" % (name, rank, spec, specs[name]))
    found = _shapes.find_shapes([each[0] for each in everyone], specs, shapes)
    return [(name, specs[name], shape, dtype) for name, (shape, dtype) in found.items()]


def _write(group: Group, path: bytes, listed: List[Any], mine: Dict[str, List[Any]], rank: int, sync: bool) -> None:
    table = (_native.reshard_live_tensor * max(1, len(listed)))()
    kept: List[Any] = []
    for i, (name, spec, shape, dtype) in enumerate(listed):
        layout = Layout(Spec(spec), shape)
        shards = layout.shards(rank)
        given = mine.get(name, [])
        memory = (c_void_p * max(1, len(shards)))(*[each.data_ptr() for each in given])
        table[i] = _native.reshard_live_tensor(encode(name, "a name"), dtype_number(dtype), layout._pointer, memory)
        kept.append((layout, given, memory))
    options = _native.reshard_checkpoint_save_options(size=ctypes.sizeof(_native.reshard_checkpoint_save_options), no_sync=int(not sync))
    group.run(lambda: lib.reshard_checkpoint_save(None, group._pointer, path, len(listed), table, byref(options)))
    del kept
