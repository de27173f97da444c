# SPDX-License-Identifier: Apache-2.0
"""DTensor, which torch has from 2.x on: translates its mesh and placements to a spec, and back.

Written from the documented rules. Classes are recognized by name, because they have moved between modules from release to
release. torch 2.x was not available: specs are tested with stand-ins of the same names, and nothing with a real DTensor.
"""
from typing import Any, List, Tuple

from .. import _native
from .._errors import Invalid, Unsupported
from .._layout import Spec
from .._library import decode, lib


def is_dtensor(tensor: Any) -> bool:
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements") and hasattr(tensor, "to_local")


def text_of_placement(placement: Any) -> str:
    name = type(placement).__name__
    if name == "Replicate":
        return "R"
    if name == "Shard":
        return "S(%d)" % placement.dim
    if name == "_StridedShard":
        return "S(%d*%d)" % (placement.dim, placement.split_factor)
    if name in ("Partial", "_Partial"):
        reduction = getattr(placement.reduce_op, "name", placement.reduce_op)
        named = {"product": "prod"}.get(str(reduction).lower(), str(reduction).lower())
        if named not in ("sum", "avg", "prod", "min", "max", "band", "bor", "bxor"):
            raise Unsupported("a partial sum by %s" % reduction)
        return "P(%s)" % named
    raise Unsupported("a placement of class %s" % name)


def text_of_mesh(mesh: Any) -> str:
    names = getattr(mesh, "mesh_dim_names", None) or [None] * mesh.mesh.dim()
    axes = ["%s=%d" % (name, n) if name else str(n) for name, n in zip(names, mesh.mesh.shape)]
    return "%s[%s]" % (",".join(axes), ",".join(str(rank) for rank in mesh.mesh.reshape(-1).tolist()))


def spec_of_dtensor(tensor: Any) -> Spec:
    """The spec of a DTensor, over ranks of the world, like its mesh."""
    return Spec("%s: %s" % (text_of_mesh(tensor.device_mesh), ", ".join(map(text_of_placement, tensor.placements))))


def placements_of(spec: Any) -> Tuple[Tuple[int, ...], List[int], List[str], List[Any]]:
    """A spec as DeviceMesh and DTensor.from_local take it: the shape, ranks and names of the mesh, and the placements.

    Raises Unsupported for cuts that DTensor does not have, and for cuts that are not in the order of the mesh.
    """
    try:
        from torch.distributed.tensor import Partial, Replicate, Shard
    except ImportError:
        raise Unsupported("this torch has no torch.distributed.tensor") from None
    spec = spec if isinstance(spec, Spec) else Spec(spec)
    if not spec._mesh:
        raise Invalid("%r has no mesh" % spec)
    placements: List[Any] = [Replicate() for _ in spec.axes]
    last = -1
    for cut in spec._cuts:
        placement = cut.placement
        if cut.axis < last:
            raise Unsupported("%r: DTensor applies cuts in the order of the mesh" % spec)
        last = cut.axis
        if placement.kind == _native.RESHARD_SHARD:
            if placement.rule != _native.RESHARD_CHUNK or placement.unit > 1 or placement.max or placement.dim == _native.RESHARD_DIM_FLAT:
                raise Unsupported("%r: DTensor can only cut dimensions into chunks" % spec)
            placements[cut.axis] = Shard(placement.dim)
        elif placement.kind == _native.RESHARD_PARTIAL:
            name = decode(lib.reshard_reduction_name(placement.reduction))
            placements[cut.axis] = Partial({"prod": "product"}.get(name, name))
        elif placement.kind == _native.RESHARD_AT:
            raise Unsupported("%r: DTensor has nothing for A(..)" % spec)
    return tuple(spec.axes.values()), spec.ranks.reshape(-1).tolist(), list(spec.axes), placements
