# SPDX-License-Identifier: Apache-2.0
"""Plans: which boxes have to move to get from one split to another, who sends them, and in which order."""
import ctypes
from ctypes import POINTER, byref
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _native
from ._dtypes import NAMES, dtype_name, dtype_number, numpy
from ._errors import Invalid
from ._layout import Layout, Shape, Spec, draw_svg
from ._library import Handle, byte_count, encode, lib, make, rank_number, read_struct, read_text, whole_number
from ._work import Context


class PlanTensor(NamedTuple):
    """One tensor of a plan: its layout and dtype at both ends."""

    name: str
    source: Layout
    target: Layout
    source_dtype: str
    target_dtype: str


class PlanStats(NamedTuple):
    """The figures of a whole plan."""

    bytes_total: int
    bytes_moved: int
    bytes_kept: int
    moves: int
    records: int
    bytes_in_max: int
    bytes_out_max: int
    staging_bytes_peak: int
    stages: int


class StreamMove(NamedTuple):
    """One box of the byte stream between two ranks. On each side, element x of the box lies `at` + sum of x[d] * strides[d]
    elements into the shard. In the stream the box is dense and begins at byte `offset`."""

    link: int
    offset: int
    bytes: int
    size: Tuple[int, ...]
    source_shard: int
    source_at: int
    source_strides: Tuple[int, ...]
    target_shard: int
    target_at: int
    target_strides: Tuple[int, ...]
    kind: int
    source_rank: int
    contributor: int
    contributor_count: int
    reduction: int
    divisor: int


def _layout(spec: Union[str, Spec, Layout], shape: Any) -> Layout:
    return spec if isinstance(spec, Layout) else Layout(spec, shape)


def _options(balance: str, relabel: bool, single_stage: bool, staging_bytes: int) -> Any:
    kinds = {"rule": _native.RESHARD_BALANCE_RULE, "exact": _native.RESHARD_BALANCE_EXACT}
    if balance not in kinds:
        raise Invalid('balance must be "rule" or "exact", not %r' % (balance,))
    return _native.reshard_plan_options(size=ctypes.sizeof(_native.reshard_plan_options), balance=kinds[balance],
                                        relabel=int(relabel), single_stage=int(single_stage),
                                        staging_bytes_max=byte_count(staging_bytes, "staging_bytes"))


class Plan(Handle):
    """The moves from one split of some tensors to another. Made by `plan` and `plan_tensors`. Immutable; holds no data.

    >>> import reshard
    >>> plan = reshard.plan((8, 8), "f32", "2: S(0)", "2: S(1)")
    >>> plan
    8x8 f32: 2: S(0) -> 2: S(1)
    >>> plan.matrix.tolist()
    [[64, 64], [64, 64]]
    >>> plan.stats.bytes_moved, plan.check()
    (128, True)
    """

    _release = "reshard_plan_release"

    def __init__(self, tensors: List[PlanTensor], *, balance: str = "rule", relabel: bool = False,
                 single_stage: bool = False, staging_bytes: int = 0) -> None:
        super().__init__(None)
        count = len(tensors)
        if count == 0:
            raise Invalid("a plan needs at least one tensor")
        names = [encode(tensor.name, "a name") for tensor in tensors]
        sources = (_native.reshard_plan_tensor * count)()
        targets = (_native.reshard_plan_tensor * count)()
        links = (_native.reshard_link * count)()
        for i, tensor in enumerate(tensors):
            sources[i] = _native.reshard_plan_tensor(names[i], tensor.source._pointer, dtype_number(tensor.source_dtype))
            targets[i] = _native.reshard_plan_tensor(names[i], tensor.target._pointer, dtype_number(tensor.target_dtype))
            links[i] = lib.reshard_link_whole(i, i)
        options = _options(balance, relabel, single_stage, staging_bytes)
        self._context = Context()
        self._pointer = self._context.run(lambda: make(lib.reshard_plan_create, self._context._pointer, count, sources, count,
                                                       targets, count, links, byref(options)))
        self.tensors: Tuple[PlanTensor, ...] = tuple(tensors)

    def adjoint(self) -> "Plan":
        """The transposed plan, from the target's split to the source's. It adds up what this plan copies."""
        made = Plan.__new__(Plan)
        Handle.__init__(made, None)
        made._context = Context()
        made._pointer = make(lib.reshard_plan_adjoint, self._pointer)
        made.tensors = tuple(PlanTensor(tensor.name, tensor.target, tensor.source, tensor.target_dtype, tensor.source_dtype)
                             for tensor in self.tensors)
        return made

    @property
    def _info(self) -> Any:
        return read_struct(_native.reshard_plan_info, lib.reshard_plan_get_info, self._pointer)

    @property
    def is_adjoint(self) -> bool:
        return bool(self._info.is_adjoint)

    def __repr__(self) -> str:
        first = self.tensors[0]
        shape = "x".join(map(str, first.source.shape)) or "scalar"
        more = " and %d more" % (len(self.tensors) - 1) if len(self.tensors) > 1 else ""
        return "%s %s: %r -> %r%s" % (shape, first.source_dtype, first.source.spec, first.target.spec, more)

    def _repr_html_(self) -> Optional[str]:
        return draw_svg(lib.reshard_plan_draw, self._pointer)

    @property
    def stage_count(self) -> int:
        return int(self._info.stage_count)

    @property
    def rank_count(self) -> int:
        """One more than the highest rank in any layout."""
        return int(self._info.rank_count)

    @property
    def digest(self) -> str:
        """A digest of everything that the plan was made from. It is equal on two ranks if and only if their plans are."""
        return "%016x%016x" % tuple(self._info.digest)

    @property
    def stats(self) -> PlanStats:
        """The plan's figures. Goes through all ranks, as `matrix` and `check` do, and can be stopped with Ctrl-C."""
        found = self._get_stats(None)
        return PlanStats(*[getattr(found, name) for name in PlanStats._fields])

    @property
    def matrix(self) -> Any:
        """Bytes from each rank (row) to each rank (column), over all stages. The diagonal is what stays in place."""
        np, count = numpy(), self.rank_count
        found = np.zeros((count, count), np.uint64)
        self._get_stats(found.ctypes.data_as(POINTER(ctypes.c_uint64)))
        return found

    def _get_stats(self, matrix: Any) -> Any:
        stats = _native.reshard_plan_stats(size=ctypes.sizeof(_native.reshard_plan_stats))
        self._context.run(lambda: lib.reshard_plan_get_stats(self._pointer, byref(stats), matrix))
        return stats

    def check(self) -> bool:
        """Proves that every target element arrives exactly once. Raises Check if it does not."""
        self._context.run(lambda: lib.reshard_plan_check(self._pointer))
        return True

    def target_layout(self, tensor: int = 0) -> Layout:
        """The target layout as planned. With relabel=True its ranks may differ from those that were given."""
        if not 0 <= tensor < len(self.tensors):
            raise IndexError("there is no tensor %d in a plan of %d tensors" % (tensor, len(self.tensors)))
        return Layout._of(lib.reshard_layout_retain(lib.reshard_plan_target_layout(self._pointer, tensor)))

    def part(self, rank: int) -> "Part":
        """The part of the plan that one rank carries out."""
        return Part(self, rank)


class StageLink(NamedTuple):
    """What one stage does with one tensor: between which layouts it goes. Intermediate layouts exist only between stages."""

    tensor: int
    source: int
    target: int
    source_is_intermediate: bool
    target_is_intermediate: bool
    source_dtype: str
    target_dtype: str


class Part(Handle):
    """The part of a plan that one rank carries out: its moves, and the byte streams between it and other ranks.

    >>> import reshard
    >>> part = reshard.plan((4, 4), "f32", "2: S(0)", "2: S(1)").part(1)
    >>> [(move.size, move.source_at, move.bytes) for move in part.stream(0, 0, sending=True)]
    [((2, 2), 0, 16)]
    """

    _release = "reshard_part_destroy"

    def __init__(self, plan: Plan, rank: int) -> None:
        super().__init__(None)
        self.plan, self.rank = plan, rank_number(rank)
        self._need(plan)
        self._pointer = make(lib.reshard_part_create, None, plan._pointer, self.rank)

    def _stage(self, stage: int) -> int:
        if not 0 <= whole_number(stage, "a stage") < self.plan.stage_count:
            raise IndexError("there is no stage %d in a plan of %d stages" % (stage, self.plan.stage_count))
        return stage

    def __repr__(self) -> str:
        return read_text(lib.reshard_part_text, self._pointer)

    def links(self, stage: int) -> List[StageLink]:
        """The links of a stage. StreamMove.link is an index into this list."""
        found = []
        for i in range(lib.reshard_plan_stage_link_count(self.plan._pointer, self._stage(stage))):
            link = read_struct(_native.reshard_stage_link, lib.reshard_plan_stage_link, self.plan._pointer, stage, i)
            found.append(StageLink(link.link, link.source, link.target, bool(link.source_is_intermediate),
                                   bool(link.target_is_intermediate), NAMES.get(link.source_dtype, "?"),
                                   NAMES.get(link.target_dtype, "?")))
        return found

    def keeps(self, stage: int) -> List[StreamMove]:
        """The moves within this rank, including fills. Their offsets are 0."""
        found = []
        start = (ctypes.c_int64 * _native.RESHARD_FACTORS_MAX)()
        for i in range(lib.reshard_plan_stage_link_count(self.plan._pointer, self._stage(stage))):
            moves = lib.reshard_part_link(self._pointer, stage, i).contents.keeps
            for k in range(moves.count):
                for single in range(lib.reshard_move_count(byref(moves.items[k]))):
                    move = _native.reshard_move()
                    lib.reshard_move_single(byref(moves.items[k]), self.rank, single, byref(move), start)
                    found.append(_read_move(move, i, 0, 0))
        return found

    def stream(self, stage: int, peer: int, sending: bool) -> List[StreamMove]:
        """The moves between this rank and another, in an order that is the same on both ends."""
        found = POINTER(_native.reshard_stream)()
        lib.reshard_stream_create(self._pointer, self._stage(stage), rank_number(peer), int(sending), byref(found))
        try:
            stream = found.contents
            return [_read_move(stream.moves[i], stream.links[i], stream.offsets[i],
                               stream.offsets[i + 1] - stream.offsets[i]) for i in range(stream.count)]
        finally:
            lib.reshard_stream_destroy(found)


def _read_move(move: Any, link: int, offset: int, count: int) -> StreamMove:
    n = move.ndim
    has_source = move.kind != _native.RESHARD_MOVE_FILL
    return StreamMove(link, offset, count, tuple(move.size[:n]), move.source_shard, move.source_at,
                      tuple(move.source_strides[:n]) if has_source else (), move.target_shard, move.target_at,
                      tuple(move.target_strides[:n]), move.kind, move.source_rank, move.contributor,
                      move.contributor_count, move.reduction, move.divisor)


def plan(shape: Shape, dtype: Any, source: Union[str, Spec, Layout], target: Union[str, Spec, Layout], *,
         target_dtype: Any = None, balance: str = "rule", relabel: bool = False, single_stage: bool = False,
         staging_bytes: int = 0) -> Plan:
    """Plans one tensor from one split to another.

    >>> import reshard
    >>> reshard.plan((1024, 1024), "bf16", "4: P(sum)", "dp=2,tp=2: R, S(1)").stage_count
    2
    """
    tensor = PlanTensor("", _layout(source, shape), _layout(target, shape), dtype_name(dtype),
                        dtype_name(target_dtype if target_dtype is not None else dtype))
    return Plan([tensor], balance=balance, relabel=relabel, single_stage=single_stage, staging_bytes=staging_bytes)


def plan_tensors(tensors: Mapping[str, Tuple[Shape, Any]], source: Union[str, Mapping[str, Any]],
                 target: Union[str, Mapping[str, Any]], *, target_dtype: Any = None, balance: str = "rule",
                 relabel: bool = False, single_stage: bool = False, staging_bytes: int = 0) -> Plan:
    """Plans many tensors at once, given as {name: (shape, dtype)}, with one spec for all of them or {name: spec}.

    >>> import reshard
    >>> plan = reshard.plan_tensors({"a": ((8, 8), "f32"), "b": ((8,), "bf16")}, "2: S(0)", {"a": "2: S(1)", "b": "2: R"})
    >>> len(plan.tensors), plan.stats.bytes_total
    (2, 288)
    """

    def spec_of(specs: Any, name: str) -> Any:
        if not isinstance(specs, Mapping):
            return specs
        if name not in specs:
            raise Invalid("there is no spec for the tensor %r" % name)
        return specs[name]

    listed = []
    for name, (shape, dtype) in tensors.items():
        listed.append(PlanTensor(name, _layout(spec_of(source, name), shape), _layout(spec_of(target, name), shape),
                                 dtype_name(dtype), dtype_name(target_dtype if target_dtype is not None else dtype)))
    return Plan(listed, balance=balance, relabel=relabel, single_stage=single_stage, staging_bytes=staging_bytes)
