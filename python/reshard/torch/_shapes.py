# SPDX-License-Identifier: Apache-2.0
"""Finds the shapes and dtypes of whole tensors from the parts that ranks hold."""
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .. import _native
from .._dtypes import dtype_name
from .._errors import Gap, Invalid, Mismatch, NotFound, Unsupported
from .._layout import Layout, Spec

Local = Tuple[str, List[Tuple[int, ...]]]  # the dtype, and the shape of each shard


def as_shards(value: Any) -> List[Any]:
    """A rank's shards of a tensor as a list: one, several or none."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def describe(tensors: Mapping[str, Any]) -> Dict[str, Local]:
    found = {}
    for name, value in tensors.items():
        shards = as_shards(value)
        for shard in shards:
            if not hasattr(shard, "dtype") or not hasattr(shard, "device"):
                raise TypeError("%s: a tensor of PyTorch is needed, not a %s" % (name, type(shard).__name__))
        if shards:
            found[name] = (dtype_name(shards[0].dtype), [tuple(shard.shape) for shard in shards])
            if any(shard.dtype != shards[0].dtype for shard in shards):
                raise Invalid("%s: shards of different dtypes" % name)
    return found


def _cutting_axes(spec: Spec, ndim: int) -> Optional[List[List[int]]]:
    """The mesh axes that cut each dimension; None if the spec has no mesh, or has cuts that do not simply divide dimensions."""
    if not spec._mesh:
        return None
    found: List[List[int]] = [[] for _ in range(ndim)]
    for cut in spec._cuts:
        dim = cut.placement.dim
        if cut.placement.kind == _native.RESHARD_AT or (cut.placement.kind == _native.RESHARD_SHARD and
                                                        (cut.placement.max > 0 or not -ndim <= dim < ndim)):
            return None
        if cut.placement.kind == _native.RESHARD_SHARD:
            found[dim % ndim].append(cut.axis)
    return found


def _along(spec: Spec, axes: List[int]) -> List[int]:
    """The ranks along these axes of the mesh, at coordinate 0 of all others."""
    ranks = spec.ranks
    return list(ranks[tuple(slice(None) if i in axes else 0 for i in range(ranks.ndim))].reshape(-1).tolist())


def infer_shape(name: str, spec: Spec, held: Dict[int, Local]) -> Tuple[int, ...]:
    """The shape of the whole tensor: along each dimension, the sum over the ranks that divide it."""
    ndim = len(next(iter(held.values()))[1][0])
    axes = _cutting_axes(spec, ndim)
    if axes is None:
        raise Unsupported("%s: the shape cannot be found from the parts of %r; pass shapes={%r: ..}" % (name, spec, name))
    shape = []
    for d in range(ndim):
        ranks = _along(spec, axes[d])
        missing = [rank for rank in ranks if rank not in held]
        if missing:
            raise Gap("%s: rank %d of %r brings no part of it" % (name, missing[0], spec))
        if any(len(part) != ndim for rank in ranks for part in held[rank][1]):
            raise Mismatch("%s: parts with different numbers of dimensions" % name)
        if axes[d]:  # a rank that the mesh names twice holds two parts
            shape.append(sum(part[d] for rank in dict.fromkeys(ranks) for part in held[rank][1]))
        else:
            shape.append(held[ranks[0]][1][0][d])
    return tuple(shape)


def check_parts(name: str, layout: Layout, held: Dict[int, Local]) -> None:
    """Checks that each rank brings the parts that the layout gives it."""
    for rank in layout.ranks.tolist():
        wanted = [shard.shape for shard in layout.shards(rank)]
        brought = held[rank][1] if rank in held else []
        if wanted != brought and not (not brought and all(0 in shape for shape in wanted)):
            raise Mismatch("%s: rank %d brings %s, but %r gives it %s" % (name, rank, brought or "nothing", layout, wanted))
    for rank in sorted(set(held) - set(layout.ranks.tolist())):
        raise Mismatch("%s: rank %d brings a part, but %r has none for it" % (name, rank, layout.spec))


def spec_for(specs: Any, name: str) -> Spec:
    if isinstance(specs, Mapping):
        if name not in specs:
            raise Invalid("there is no spec for the tensor %r" % name)
        specs = specs[name]
    return specs if isinstance(specs, Spec) else Spec(specs)


def find_shapes(everyone: List[Dict[str, Local]], source: Any, shapes: Optional[Mapping[str, Any]]
                ) -> Dict[str, Tuple[Tuple[int, ...], str]]:
    """{name: (shape, dtype)} of all tensors that some rank holds, ordered by name."""
    found: Dict[str, Tuple[Tuple[int, ...], str]] = {}
    brought = {name for held in everyone for name in held}
    for name in sorted(brought):
        held = {rank: local[name] for rank, local in enumerate(everyone) if name in local}
        dtypes = sorted({dtype for dtype, _ in held.values()})
        if len(dtypes) > 1:
            raise Mismatch("%s: %s on different ranks" % (name, " and ".join(dtypes)))
        spec = spec_for(source, name)
        shape = tuple(shapes[name]) if shapes and name in shapes else infer_shape(name, spec, held)
        check_parts(name, Layout(spec, shape), held)
        found[name] = (shape, dtypes[0])
    for name in sorted(set(source if isinstance(source, Mapping) else ()) - brought):
        raise NotFound("%s: there is a spec for it, but no rank brings it" % name)
    return found
