# SPDX-License-Identifier: Apache-2.0
"""What one rank copies, sends and receives, round by round.

A plan lists the boxes between each pair of ranks in an order that both ends know. Here that list is cut into messages of a
bounded size; message k between two ranks is sent in round k. Where the cuts fall depends only on the plan and the size, so
both ends find the same cuts without communicating, and no rank ever waits for a message that is not sent.

Within a message, wide elements come first. So every element is aligned, and no padding is sent.
"""
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .. import _native
from .._dtypes import bits_of
from .._plan import Part, StageLink, StreamMove


class Fold(NamedTuple):
    """How an arriving value is combined with others: in the order of contributors, then of ranks."""

    kind: int
    contributor: int
    contributor_count: int
    reduction: int
    divisor: int


class Copy(NamedTuple):
    """A box that is copied between a shard's memory and a message. Element x lies at `at` + sum of x[d] * strides[d] in the
    shard. In the message the box is dense and begins at byte `start`."""

    link: int
    shard: int
    at: int
    size: Tuple[int, ...]
    strides: Tuple[int, ...]
    start: int
    fold: Optional[Fold]


class Message(NamedTuple):
    peer: int
    bytes: int
    copies: List[Copy]


class Round(NamedTuple):
    sends: List[Message]
    receives: List[Message]


class Stage(NamedTuple):
    links: List[StageLink]
    wires: List[str]  # the dtype in which each link is sent: the narrower one of its two ends
    keeps: List[StreamMove]
    rounds: List[Round]


class _Piece(NamedTuple):
    link: int
    shard: int
    at: int
    size: Tuple[int, ...]
    strides: Tuple[int, ...]
    bytes: int
    width: int
    fold: Optional[Fold]


def fold_of(move: StreamMove) -> Optional[Fold]:
    if move.kind not in (_native.RESHARD_MOVE_COMBINE, _native.RESHARD_MOVE_ADD):
        return None
    return Fold(move.kind, move.contributor, move.contributor_count, move.reduction, move.divisor)


def _volume(size: Tuple[int, ...]) -> int:
    product = 1
    for n in size:
        product *= n
    return product


def _halve(piece: _Piece, limit: int) -> Iterator[_Piece]:
    """Cuts a box along its outermost dimensions until each part fits into a message."""
    if piece.bytes <= limit:
        yield piece
        return
    d = next(i for i, n in enumerate(piece.size) if n > 1)
    row = piece.bytes // piece.size[d]
    step = max(1, limit // row)
    for first in range(0, piece.size[d], step):
        count = min(step, piece.size[d] - first)
        part = piece._replace(at=piece.at + first * piece.strides[d], bytes=count * row,
                              size=piece.size[:d] + (count,) + piece.size[d + 1:])
        yield from _halve(part, limit)


def _merge(pieces: List[_Piece]) -> Iterator[_Piece]:
    """Joins equal boxes at equal distances into one box with one more dimension. Tensors that are dealt out in small blocks
    are then copied by a few calls instead of thousands."""
    run: List[_Piece] = []

    def joined() -> _Piece:
        first = run[0]
        if len(run) == 1:
            return first
        return first._replace(size=(len(run),) + first.size, strides=(run[1].at - first.at,) + first.strides,
                              bytes=first.bytes * len(run))

    for piece in pieces:
        if run and piece.at > run[-1].at and piece == run[0]._replace(at=piece.at) and (
                len(run) == 1 or piece.at - run[-1].at == run[1].at - run[0].at):
            run.append(piece)
            continue
        if run:
            yield joined()
        run = [piece]
    if run:
        yield joined()


def _message(peer: int, pieces: List[_Piece]) -> Message:
    start, copies = 0, []
    for piece in _merge(sorted(pieces, key=lambda piece: -piece.width)):
        copies.append(Copy(piece.link, piece.shard, piece.at, piece.size, piece.strides, start, piece.fold))
        start += piece.bytes
    return Message(peer, start, copies)


def cut_stream(peer: int, moves: List[StreamMove], widths: List[int], limit: int, sending: bool) -> List[Message]:
    """The messages between two ranks. Each is filled until the next piece does not fit."""
    messages: List[Message] = []
    filled: List[_Piece] = []
    room = limit
    for move in moves:
        shard, at, strides = ((move.source_shard, move.source_at, move.source_strides) if sending else
                              (move.target_shard, move.target_at, move.target_strides))
        width = widths[move.link]
        whole = _Piece(move.link, shard, at, move.size, strides, _volume(move.size) * width, width,
                       None if sending else fold_of(move))
        for piece in _halve(whole, limit):
            if piece.bytes > room:
                messages.append(_message(peer, filled))
                filled, room = [], limit
            filled.append(piece)
            room -= piece.bytes
    if filled:
        messages.append(_message(peer, filled))
    return messages


def wire_dtype(link: StageLink) -> str:
    return link.target_dtype if bits_of(link.target_dtype) < bits_of(link.source_dtype) else link.source_dtype


def read_streams(part: Part, ranks: int) -> List[Dict[Tuple[int, bool], List[StreamMove]]]:
    """For each stage, the moves to and from each peer that has any: {(peer, sending): moves}."""
    stages = []
    for stage in range(part.plan.stage_count):
        found = {}
        for peer in range(ranks):
            for sending in (True, False):
                moves = part.stream(stage, peer, sending) if peer != part.rank else []
                if moves:
                    found[peer, sending] = moves
        stages.append(found)
    return stages


def busiest(streams: List[Dict[Tuple[int, bool], Any]]) -> int:
    """The largest number of messages that this rank sends, or receives, in one round."""
    return max([0] + [sum(1 for _, way in stage if way == sending) for stage in streams for sending in (True, False)])


def make_stages(part: Part, streams: List[Dict[Tuple[int, bool], List[StreamMove]]], limit: int) -> List[Stage]:
    """Everything that this rank does. limit: the largest message in bytes, which holds at least the widest element."""
    stages = []
    for number, found in enumerate(streams):
        links = part.links(number)
        wires = [wire_dtype(link) for link in links]
        widths = [bits_of(wire) // 8 for wire in wires]
        rounds: List[Round] = []
        for (peer, sending), moves in sorted(found.items()):
            for k, message in enumerate(cut_stream(peer, moves, widths, limit, sending)):
                if k == len(rounds):
                    rounds.append(Round([], []))
                (rounds[k].sends if sending else rounds[k].receives).append(message)
        stages.append(Stage(links, wires, part.keeps(number), rounds))
    return stages
