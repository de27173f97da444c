# SPDX-License-Identifier: Apache-2.0
"""Redistribute: moves many tensors from one split to another, over an existing process group."""
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import torch
import torch.distributed as dist

from .. import _native
from .._dtypes import dtype_name
from .._errors import Check, Invalid, Mismatch, MemoryLimit, Unsupported
from .._exec import check_apart, settled
from .._layout import Layout
from .._library import byte_count, lib
from .._plan import Plan, PlanTensor, StreamMove
from . import _agree, _memory, _shapes, _verify, _wire
from ._reduce import divide, fill_value, reduce_into
from ._schedule import Copy, Fold, Message, Stage, busiest, fold_of, make_stages, read_streams

#: The default limit for the bytes of messages that a rank holds at a time.
CAP = 64 << 20

_TORCH = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
          "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "c64": torch.complex64,
          "c128": torch.complex128}
for _name, _other in (("f8_e4m3", "float8_e4m3fn"), ("f8_e5m2", "float8_e5m2"), ("u16", "uint16"), ("u32", "uint32"),
                      ("u64", "uint64")):
    if hasattr(torch, _other):  # torch 2.x has them
        _TORCH[_name] = getattr(torch, _other)


def torch_dtype(name: str) -> Any:
    if name not in _TORCH:
        raise Unsupported("torch %s has no dtype for %s" % (torch.__version__, name))
    return _TORCH[name]


def backend_device(group: Any, device: Any) -> Any:
    """The device on which the group's backend exchanges tensors."""
    if dist.get_backend(group) == "nccl":
        return device if device.type == "cuda" else torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


class _Waiting:
    """A value that has arrived and waits for its turn, because sums depend on the order of their terms."""

    def __init__(self, fold: Fold, source_rank: int, copy: Copy, values: Any) -> None:
        self.fold, self.copy, self.values = fold, copy, values
        self.key = (fold.contributor, source_rank, copy.link, copy.shard, copy.at)


class Redistribute:
    """Moves tensors from one split to another. It can be called many times.

    Collective over `group`: every rank makes it and calls it, even one that holds nothing. `tensors` is {name: local
    tensor}, with a list of local tensors where a rank holds several parts. `source` and `target` are one spec for all
    tensors or {name: spec}, over ranks of the group. The plan is made once; each call sends the current values.

        move = reshard.torch.Redistribute(mine, "4: S(0)", "4: S(1)")
        theirs = move()             # {name: local tensor}
        move(out=theirs)            # again, into the same memory

    dtype: the dtype at the target, for all tensors or {name: dtype}. shapes: {name: whole shape}, for splits from which it
    cannot be found. cap: the bytes of messages that a rank holds at a time; the lowest cap of all ranks counts. Sums of
    partial tensors hold the terms that have arrived in addition. verify: each call ends with a check that does not rely on
    the plan. shm: "auto" sends through shared memory if all ranks are on one machine with their tensors in its memory, "off"
    never does, "on" fails if it cannot. device: of the results, on ranks that pass no tensor.
    """

    def __init__(self, tensors: Mapping[str, Any], source: Any, target: Any, group: Any = None, *, dtype: Any = None,
                 shapes: Optional[Mapping[str, Any]] = None, cap: int = CAP, verify: bool = False, shm: str = "auto",
                 device: Any = None, balance: str = "rule") -> None:
        self.group, self.tensors, self.verify = group, tensors, verify
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise Invalid("this process is not a member of the group")
        everyone = _agree.attempt(group, lambda: (self._describe(tensors, device), byte_count(cap, "a cap"), shm, _wire.machine()))
        self.device = self._device(tensors, device)
        self.cap = min(each[1] for each in everyone)
        self._plan(lambda: self._make_plan([each[0][0] for each in everyone], source, target, dtype, shapes, balance))
        on_cpu = all(each[0][1] for each in everyone)
        one_machine = len({each[3] for each in everyone}) == 1 and everyone[0][3] is not None
        self._shm = {each[2] for each in everyone}
        self._can_share = on_cpu and one_machine
        self._open_wire()
        self._flag = _agree.Flag(group, backend_device(group, self.device))
        self._transpose: Optional["Redistribute"] = None

    # ---- set-up ------------------------------------------------------------------------------------

    def _describe(self, tensors: Mapping[str, Any], device: Any) -> Tuple[Dict[str, _shapes.Local], bool]:
        return _shapes.describe(tensors), self._device(tensors, device).type == "cpu"

    @staticmethod
    def _device(tensors: Mapping[str, Any], device: Any) -> Any:
        found = {shard.device for value in tensors.values() for shard in _shapes.as_shards(value)}
        if len(found) > 1:
            raise Invalid("the tensors are on different devices: %s" % ", ".join(sorted(map(str, found))))
        if found and device is not None and torch.device(device) not in found:
            raise Invalid("the tensors are on %s, not on %s" % (found.pop(), device))
        return found.pop() if found else torch.device(device if device is not None else "cpu")

    def _make_plan(self, everyone: List[Dict[str, _shapes.Local]], source: Any, target: Any, dtype: Any, shapes: Any,
                   balance: str) -> Plan:
        listed = []
        for name, (shape, here) in _shapes.find_shapes(everyone, source, shapes).items():
            there = dtype.get(name, here) if isinstance(dtype, Mapping) else dtype if dtype is not None else here
            listed.append(PlanTensor(name, Layout(_shapes.spec_for(source, name), shape),
                                     Layout(_shapes.spec_for(target, name), shape), here, dtype_name(there)))
        return Plan(listed, balance=balance)

    def _plan(self, make: Callable[[], Plan]) -> None:
        """Makes the plan and this rank's schedule. Raises on all ranks unless all have the same plan."""

        def prepare() -> Tuple[str, int]:
            self.plan = make()
            if self.plan.rank_count > self.size:
                raise Invalid("the splits name rank %d, but the group has %d ranks" % (self.plan.rank_count - 1, self.size))
            for tensor in self.plan.tensors:
                torch_dtype(tensor.target_dtype)
            if self.verify:
                self._check_verifiable()
            part = self.plan.part(self.rank)
            self._part, self._streams = part, read_streams(part, self.size)
            return self.plan.digest, busiest(self._streams)

        found = _agree.attempt(self.group, prepare)
        for rank, (digest, _) in enumerate(found):
            if digest != found[0][0]:
                raise Mismatch("ranks 0 and %d plan different moves: specs, dtypes or options are not the same" % rank)
        # Each half of the memory has room for one message for every peer of the busiest rank.
        limit = self.cap // 2 // max(1, max(peers for _, peers in found)) // _wire.ALIGNMENT * _wire.ALIGNMENT
        if limit == 0:
            raise MemoryLimit("a cap of %d bytes is too small for messages to %d ranks" %
                              (self.cap, max(peers for _, peers in found)))
        self.stages: List[Stage] = make_stages(self._part, self._streams, limit)
        del self._streams
        counts = _agree.gather(self.group, [len(stage.rounds) for stage in self.stages])
        self._rounds = [max(column) for column in zip(*counts)]

    def _check_verifiable(self) -> None:
        for tensor in self.plan.tensors:
            if tensor.source_dtype != tensor.target_dtype:
                raise Unsupported("%s: a change of dtype cannot be verified" % tensor.name)
            if any(shard.partial for layout in (tensor.source, tensor.target) for shard in layout.shards(self.rank)):
                raise Unsupported("%s: partial sums cannot be verified" % tensor.name)

    def _open_wire(self) -> None:
        asked = self._shm
        if not asked <= {"auto", "on", "off"}:
            raise Invalid('shm must be "auto", "on" or "off", not %r' % sorted(asked - {"auto", "on", "off"})[0])
        self._wire: Any = None
        if self._can_share and "off" not in asked:
            self._wire = _wire.share_memory(self.group, self.rank, self.stages, lambda value: _agree.gather(self.group, value))
        if self._wire is None and "on" in asked:
            raise Unsupported("shared memory needs all ranks on one machine, CPU tensors, and enough space for messages")
        if self._wire is None:
            self._wire = _wire.Messages(self.group, self.rank, self.stages, self.device)

    def transpose(self) -> "Redistribute":
        """Collective at the first call. The move for gradients, from the target split to the source split: it adds up what
        this one copies, and copies what this one adds up."""
        if self._transpose is None:
            made = Redistribute.__new__(Redistribute)
            for name in ("group", "rank", "size", "device", "cap", "_shm", "_can_share", "_flag"):
                setattr(made, name, getattr(self, name))
            made.tensors, made.verify, made._transpose = {}, False, None
            made._plan(self.plan.adjoint)
            made._open_wire()
            self._transpose = made
        return self._transpose

    # ---- what it is ----------------------------------------------------------------------------------

    @property
    def carrier(self) -> str:
        """How messages travel: "messages" or "shared memory"."""
        return str(self._wire.name)

    @property
    def bytes_sent(self) -> int:
        """The bytes that this rank sends in one call."""
        return sum(message.bytes for stage in self.stages for each in stage.rounds for message in each.sends)

    @property
    def buffer_bytes(self) -> int:
        """The memory that this rank holds for messages; never more than the cap."""
        memory = self._wire.memory
        return 0 if memory is None else int(memory.numel())

    @property
    def rounds(self) -> int:
        return sum(self._rounds)

    def __repr__(self) -> str:
        return "Redistribute(%r, by %s in %d rounds)" % (self.plan, self.carrier, self.rounds)

    # ---- carrying it out -----------------------------------------------------------------------------

    def __call__(self, tensors: Optional[Mapping[str, Any]] = None, out: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Collective. Moves `tensors` (by default those given to the constructor) into `out`, which must not share memory with
        them, or into new tensors. Returns {name: local tensor} for the target split on this rank."""
        results: Dict[str, Any] = {}

        def prepare() -> None:
            self._slots: Dict[Any, Any] = {("source", i): self._flats(tensor.name, tensor.source, tensor.source_dtype,
                                                      self.tensors if tensors is None else tensors)
                           for i, tensor in enumerate(self.plan.tensors)}
            results.update(self._make_results(out))
            if out is not None:
                self._check_apart()

        self._flag.attempt(prepare)
        try:
            before = self._weigh("source") if self.verify else None
            for number, stage in enumerate(self.stages):
                self._run_stage(stage, self._rounds[number])
            if before is not None:
                self._compare(before, self._weigh("target"))
        finally:
            self._slots = {}
        return results

    def differentiable(self, tensors: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Collective. Like a call, but gradients flow back through the results to `tensors`."""
        from ._gradient import apply
        return apply(self, self.tensors if tensors is None else tensors)

    def _flats(self, name: str, layout: Layout, dtype: str, tensors: Mapping[str, Any]) -> List[Any]:
        """This rank's shards as flat tensors, checked against the layout."""
        wanted = layout.shards(self.rank)
        shards = _shapes.as_shards(tensors[name]) if name in tensors else []
        if not shards and all(0 in shard.shape for shard in wanted):
            return [torch.empty(0, dtype=torch_dtype(dtype), device=self.device) for _ in wanted]
        found = [tuple(shard.shape) for shard in shards]
        if found != [shard.shape for shard in wanted]:
            raise Mismatch("%s: shapes %s, but %r gives this rank %s" % (name, found, layout, [each.shape for each in wanted]))
        for shard in shards:
            if dtype_name(shard.dtype) != dtype or shard.device != self.device:
                raise Mismatch("%s: %s on %s instead of %s on %s" % (name, shard.dtype, shard.device, dtype, self.device))
        return [settled(shard.detach()).contiguous().view(-1) for shard in shards]

    def _make_results(self, out: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
        results: Dict[str, Any] = {}
        for i, tensor in enumerate(self.plan.tensors):
            shards = tensor.target.shards(self.rank)
            if out is not None:
                flats = self._flats(tensor.name, tensor.target, tensor.target_dtype, out)
                given = _shapes.as_shards(out[tensor.name]) if tensor.name in out else []
                if any(shard.numel() and shard.detach().data_ptr() != flat.data_ptr() for shard, flat in zip(given, flats)):
                    raise Invalid("%s: results must be contiguous, and no conjugate or negative that torch has only noted" % tensor.name)
                made: List[Any] = given
            else:
                made = [_memory.empty(shard.shape, torch_dtype(tensor.target_dtype), self.device) for shard in shards]
                flats = [shard.view(-1) for shard in made]
            if self.plan.is_adjoint:  # its moves add to the target
                for flat in flats:
                    flat.zero_()
            self._slots["target", i] = flats
            if shards:
                results[tensor.name] = made[0] if len(shards) == 1 and len(made) == 1 else made
        plan = self.plan._info
        for i in range(plan.intermediate_count):
            layout = Layout._of(lib.reshard_layout_retain(plan.intermediates[i]))
            self._slots["intermediate", i] = layout
        return results

    def _check_apart(self) -> None:
        """Checks that no result shares memory with a source or another result, which it would overwrite."""
        check_apart((flat.data_ptr(), flat.data_ptr() + flat.numel() * flat.element_size(), kind == "target", self.plan.tensors[i].name)
                    for (kind, i), flats in self._slots.items() if kind != "intermediate" for flat in flats if flat.numel())

    def _memory(self, link: Any, shard: int, source: bool) -> Any:
        kind = (("intermediate" if link.source_is_intermediate else "source") if source else
                ("intermediate" if link.target_is_intermediate else "target"))
        key = kind, link.source if source else link.target
        found = self._slots[key]
        if isinstance(found, Layout):  # an intermediate, allocated when it is first used
            dtype = torch_dtype(link.source_dtype if source else link.target_dtype)
            fresh = torch.zeros if self.plan.is_adjoint else torch.empty
            found = [fresh(each.shape, dtype=dtype, device=self.device).view(-1) for each in found.shards(self.rank)]
            self._slots[key] = found
        return found[shard]

    def _run_stage(self, stage: Stage, rounds: int) -> None:
        waiting: List[_Waiting] = []

        def pack(message: Message, buffer: Any) -> None:
            for copy in message.copies:
                memory = self._memory(stage.links[copy.link], copy.shard, True)
                self._box(buffer, copy, stage.wires[copy.link]).copy_(_view(memory, copy.at, copy.size, copy.strides))

        def unpack(message: Message, buffer: Any) -> None:
            for copy in message.copies:
                values = self._box(buffer, copy, stage.wires[copy.link])
                if copy.fold is not None:
                    waiting.append(_Waiting(copy.fold, message.peer, copy, values.clone()))
                else:
                    memory = self._memory(stage.links[copy.link], copy.shard, False)
                    _view(memory, copy.at, copy.size, copy.strides).copy_(values)

        def place(message: Message, sending: bool) -> Optional[Any]:
            copy = message.copies[0]
            if len(message.copies) > 1 or copy.fold is not None:
                return None
            memory = self._memory(stage.links[copy.link], copy.shard, sending)
            values = _view(memory, copy.at, copy.size, copy.strides)
            if memory.device != self._wire.memory.device or memory.dtype != torch_dtype(stage.wires[copy.link]) or not values.is_contiguous():
                return None
            return values.view(-1).view(torch.uint8)

        for k in range(rounds):
            self._wire.carry(stage.rounds[k] if k < len(stage.rounds) else None, pack, unpack, place)
            if k == 0:  # what stays here is copied while the first messages are under way
                self._keep_all(stage, waiting)
        if rounds == 0:
            self._keep_all(stage, waiting)
        self._wire.finish()
        for each in sorted(waiting, key=lambda each: each.key):
            self._apply(stage, each)

    @staticmethod
    def _box(buffer: Any, copy: Copy, wire: str) -> Any:
        dtype, count = torch_dtype(wire), 1
        for n in copy.size:
            count *= n
        width = torch.empty(0, dtype=dtype).element_size()
        return buffer[copy.start:copy.start + count * width].view(dtype).view(copy.size)

    def _keep_all(self, stage: Stage, waiting: List[_Waiting]) -> None:
        for keep in stage.keeps:
            self._keep(stage, keep, waiting)

    def _keep(self, stage: Stage, move: StreamMove, waiting: List[_Waiting]) -> None:
        link = stage.links[move.link]
        if move.kind == _native.RESHARD_MOVE_FILL:
            target = _view(self._memory(link, move.target_shard, False), move.target_at, move.size, move.target_strides)
            target.fill_(fill_value(move.reduction, target.dtype))
            return
        source = _view(self._memory(link, move.source_shard, True), move.source_at, move.size, move.source_strides)
        fold = fold_of(move)
        if fold is not None:
            copy = Copy(move.link, move.target_shard, move.target_at, move.size, move.target_strides, 0, fold)
            waiting.append(_Waiting(fold, self.rank, copy, source))
            return
        _view(self._memory(link, move.target_shard, False), move.target_at, move.size, move.target_strides).copy_(source)

    def _apply(self, stage: Stage, each: _Waiting) -> None:
        copy, fold = each.copy, each.fold
        target = _view(self._memory(stage.links[copy.link], copy.shard, False), copy.at, copy.size, copy.strides)
        values = each.values.to(target.dtype)
        if fold.kind == _native.RESHARD_MOVE_ADD:
            target.add_(values if fold.divisor <= 1 else values / fold.divisor)
            return
        if fold.contributor == 0:
            target.copy_(values)
        else:
            reduce_into(fold.reduction, target, values)
        if fold.contributor == fold.contributor_count - 1 and fold.divisor > 1:
            divide(target, fold.divisor)

    # ---- verifying -----------------------------------------------------------------------------------

    def _weigh(self, side: str) -> List[Dict[Any, int]]:
        return [_verify.weigh(tensor.source if side == "source" else tensor.target, self.rank, self._slots[side, i])
                for i, tensor in enumerate(self.plan.tensors)]

    def _compare(self, before: List[Dict[Any, int]], after: List[Dict[Any, int]]) -> None:
        found = _agree.gather(self.group, (before, after))
        for i, tensor in enumerate(self.plan.tensors):
            if (_verify.total(tensor.name, "source", [each[0][i] for each in found]) !=
                    _verify.total(tensor.name, "target", [each[1][i] for each in found])):
                raise Check("%s: what arrived is not what was sent" % tensor.name)


def _view(flat: Any, at: int, size: Tuple[int, ...], strides: Tuple[int, ...]) -> Any:
    return flat.as_strided(size, strides, flat.storage_offset() + at)
