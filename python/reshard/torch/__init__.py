# SPDX-License-Identifier: Apache-2.0
"""reshard for PyTorch: tensors between splits over the process group that is there, and checkpoints straight into tensors.

    move = reshard.torch.Redistribute(mine, "4: S(0)", "4: S(1)", group)
    theirs = move()

Tried with gloo and tensors of the CPU. Nothing here is made for one device, but no other was at hand.
"""
from ._redistribute import CAP, Redistribute, torch_dtype

__all__ = ["CAP", "Redistribute", "torch_dtype"]
