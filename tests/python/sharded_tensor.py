# SPDX-License-Identifier: Apache-2.0
"""torch.distributed._shard of torch 1.13 on Python 3.11 and gloo, which need help to work together."""


def list_all_to_all(outputs, inputs, group=None, async_op=False):
    """What gloo lacks: all_to_all of lists of pieces that need not be alike."""
    import torch.distributed as dist
    rank, requests = dist.get_rank(group), []
    for peer, piece in enumerate(outputs):
        if peer == rank:
            piece.copy_(inputs[rank])
        else:
            requests.append(dist.irecv(piece, peer))
    for peer, piece in enumerate(inputs):
        if peer != rank:
            requests.append(dist.isend(piece.contiguous(), peer))
    for request in requests:
        request.wait()


def import_sharded_tensor():
    """torch.distributed._shard of 1.13 does not import on Python 3.11: one default of a dataclass is not hashable."""
    import dataclasses
    import torch.distributed as dist
    plain = dataclasses.dataclass

    def mended(cls=None, **options):
        if cls is not None and cls.__name__ == "ShardedTensorMetadata":
            kind = type(cls.tensor_properties)
            cls.tensor_properties = dataclasses.field(default_factory=kind)
        return plain(cls, **options)

    dataclasses.dataclass = mended
    try:
        from torch.distributed._shard import sharded_tensor, sharding_spec
    finally:
        dataclasses.dataclass = plain
    dist.all_to_all = list_all_to_all
    return sharded_tensor, sharding_spec
