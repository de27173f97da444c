# SPDX-License-Identifier: Apache-2.0
"""How a tensor has to be cut, in plain arithmetic that shares nothing with the library.

    whole()               every rank has all of it
    cut(dim, unit)        equal shares, in whole units (heads) where a unit is given
    kv(dim, heads, unit)  the same for that many heads, copied where there are more ranks than heads
    parts(dim, ..)        several tensors behind each other, (length, heads or 0) each, every one cut
    halves(dim)           two of them
    vocabulary()          rows, after zero rows up to a multiple of 64
    blocks(dim, n)        whole blocks of n, of which the last ranks may have fewer

`experts` says whether dimension 0 is dealt to the ranks of ep besides.
"""
import math


class Cut:
    def __init__(self, kind, dim=0, unit=1, heads=0, lengths=(), experts=False):
        self.kind, self.dim, self.unit, self.heads, self.lengths, self.experts = kind, dim, unit, heads, lengths, experts

    def stacked(self):
        """The same for all experts in one tensor: a dimension in front, dealt out by ep."""
        return Cut(self.kind, self.dim + 1, self.unit, self.heads, self.lengths, True)


def whole():
    return Cut("whole")


def cut(dim, unit=1):
    return Cut("cut", dim, unit)


def kv(dim, heads, unit):
    return Cut("kv", dim, unit, heads)


def parts(dim, *lengths):
    return Cut("parts", dim, lengths=lengths)


def halves(dim):
    return Cut("halves", dim)


def vocabulary():
    return Cut("vocabulary")


def blocks(dim, n):
    return Cut("blocks", dim, n)


def shares(n, ranks, rank, heads=0):
    """Begin and end of an equal share; with heads, of one of so many, which neighbours have together."""
    pieces = min(heads, ranks) if heads else ranks
    step = -(-n // pieces)
    piece = rank * pieces // ranks
    return min(piece * step, n), min((piece + 1) * step, n)


def fits(how, shape, tp):
    """Whether so many ranks can have it."""
    if how.kind == "cut":
        return how.unit == 1 or (shape[how.dim] % how.unit == 0 and shape[how.dim] // how.unit % tp == 0)
    if how.kind == "kv":
        pieces = min(how.heads, tp)
        return shape[how.dim] // how.unit % pieces == 0 and tp % pieces == 0
    if how.kind == "parts":
        return all(heads % min(heads, tp) == 0 and tp % min(heads, tp) == 0 if heads else length % tp == 0
                   for length, heads in how.lengths)
    return how.kind != "halves" or tp == 1 or shape[how.dim] // 2 % tp == 0


def lines(how, shape, tp, rank):
    """[begin, end) of what the rank has along the dimension that is cut, piece by piece."""
    n = shape[how.dim]
    if how.kind == "parts":
        found, start = [], 0
        for length, heads in how.lengths:
            begin, end = shares(length, tp, rank, heads)
            found.append((start + begin, start + end))
            start += length
        return found
    if how.kind == "halves":
        return [(half * n // 2 + begin, half * n // 2 + end)
                for half in range(2) for begin, end in [shares(n // 2, tp, rank)]]
    if how.kind == "vocabulary":
        return [shares(-(-n // 64) * 64, tp, rank)]
    if how.kind == "blocks":
        begin, end = shares(-(-n // how.unit), tp, rank)
        return [(begin * how.unit, min(end * how.unit, n))]
    return [shares(n, tp, rank, how.heads)]


def pieces(how, shape, tp, rank, ep=1, expert_rank=0):
    """The boxes of a rank, as (offset, size) in the order of their places; neighbours that touch are one."""
    shape = list(shape)
    if how.kind == "vocabulary":
        shape[0] = -(-shape[0] // 64) * 64
    along = [(0, shape[how.dim])] if how.kind == "whole" and shape else lines(how, shape, tp, rank) if shape else [(0, 1)]
    merged = []
    for begin, end in along:
        if merged and merged[-1][1] == begin:
            merged[-1] = (merged[-1][0], end)
        elif end > begin:
            merged.append((begin, end))
    boxes = []
    for begin, end in merged:
        offset, size = [0] * len(shape), list(shape)
        if shape:
            offset[how.dim], size[how.dim] = begin, end - begin
        if how.experts:
            offset[0] = deal_begin(shape[0], ep, expert_rank)
            size[0] = deal_begin(shape[0], ep, expert_rank + 1) - offset[0]
        boxes.append((offset, size))
    return boxes


def held(values, how, shape, tp, rank):
    """The bytes that a rank has of a tensor's row-major bytes, slice by slice."""
    if how.kind == "whole":
        return values
    outer, n, inner = math.prod(shape[:how.dim]), shape[how.dim], math.prod(shape[how.dim + 1:])
    width = len(values) // (outer * n) if outer * n else 0  # of one row along the dimension
    assert width * outer * n == len(values) and width % inner == 0
    if how.kind == "vocabulary":
        values += bytes(-n % 64 * width)
    return b"".join(values[(before * n + begin) * width:(before * n + end) * width]
                    for before in range(outer) for begin, end in lines(how, shape, tp, rank))


def deal_begin(n, k, i):
    """Where the items of rank i begin when n are dealt to k, the first n % k getting one more."""
    return i * (n // k) + min(i, n % k)


def dealt_to(item, n, k):
    return next(i for i in range(k) if item < deal_begin(n, k, i + 1))
