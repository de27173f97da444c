# SPDX-License-Identifier: Apache-2.0
"""reshard for PyTorch: moves tensors between splits over an existing process group, and reads checkpoints into tensors.

    move = reshard.torch.Redistribute(mine, "4: S(0)", "4: S(1)", group)
    theirs = move()

Tested with gloo and CPU tensors. Nothing here is specific to a device, but no other was available.
"""
from typing import Any

from .._layout import Spec
from ._dtensor import is_dtensor, placements_of, spec_of_dtensor
from ._files import load, save
from ._gradient import redistribute
from ._redistribute import CAP, Redistribute, torch_dtype
from ._sharded import reshard, sharding_of, spec_of_sharded

__all__ = ["CAP", "Redistribute", "load", "placements_of", "redistribute", "reshard", "save", "sharding_of", "spec_of",
           "torch_dtype"]


def spec_of(tensor: Any) -> Spec:
    """How a ShardedTensor (over ranks of its group) or a DTensor (over ranks of the world) is split."""
    return spec_of_dtensor(tensor) if is_dtensor(tensor) else spec_of_sharded(tensor)
