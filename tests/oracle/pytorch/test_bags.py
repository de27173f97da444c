#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds embedding and embedding_bag against PyTorch: values, gradients, and the weight after max_norm.

    test_bags.py BAG-LINES

Random cases go through tests/nn/bag_lines.c, on one rank and over several with the weight cut by rows or columns; each rank has the same
input, or its own. All are compared with PyTorch's dense operations on the inputs of all ranks, in f64. Some also go through PyTorch's own
sharded operations (torch.distributed._shard), which take every local input as the rank's own; those that it gets wrong are left out by name.
"""
import math
import os
import random
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

import dcp

MODES = ("sum", "mean", "max")


# ---- cases


def draw_input(case, bags, size):
    """indices, offsets or None, sample weights or None; size -1: a list."""
    if size >= 0:
        indices, offsets = torch.randint(case["rows"], (bags, size)), None
    else:
        sizes = [2] * bags if case["fair"] else [random.randrange(4) for _ in range(bags)]
        indices = torch.randint(case["rows"], (sum(sizes),))
        offsets = torch.tensor([sum(sizes[:i]) for i in range(bags)] + ([sum(sizes)] if case["last"] else []))
    samples = torch.randn(indices.shape, dtype=torch.float64) if case["weighted"] else None
    return indices, offsets, samples


def draw_case(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    module = int(random.random() < 0.8)
    case = {"module": module, "ranks": random.choice([1, 2, 3, 4]), "cut": random.choice([-1, 0, 1]), "own": random.randrange(2)}
    if case["cut"] < 0:
        case["own"] = 0
    case["mode"] = random.randrange(3) if module else 0
    case["weighted"] = module == 1 and case["mode"] == 0 and random.random() < 0.5
    case["pads"] = int(module and random.random() < 0.5)
    case["rows"], case["width"] = random.randint(1, 12), random.randint(1, 6)
    case["padding"] = random.randrange(-case["rows"], case["rows"])
    case["max_norm"] = random.choice([0, 0, 1.5]) if module else 0
    case["norm_type"] = random.choice([1, 2, 3, math.inf])
    size = random.choice([-1, -1, 1, 3]) if module else random.randint(1, 3)
    case["last"] = int(size < 0 and random.random() < 0.5)
    case["weight"] = torch.randn(case["rows"], case["width"], dtype=torch.float64)
    count = case["ranks"] if case["own"] else 1
    case["fair"], bags = random.random() < 0.5, random.randint(1, 4)  # fair: the same sizes on all ranks, which PyTorch's sharded ones need
    case["inputs"] = [draw_input(case, bags if case["fair"] else random.randint(1, 4), size) for _ in range(count)]
    return case


def write_case(case):
    words = [case[k] for k in ("module", "ranks", "cut", "own", "mode", "pads", "padding", "max_norm", "norm_type", "last", "rows", "width")]
    words += case["weight"].flatten().tolist()
    for indices, offsets, samples in case["inputs"]:
        if offsets is None:
            words += [indices.shape[0], indices.shape[1], *indices.flatten().tolist()]
        else:
            words += [0, -1, len(indices), *indices.tolist(), len(offsets), *offsets.tolist()]
        words += [0] if samples is None else [1, *samples.flatten().tolist()]
    return " ".join(repr(w) for w in words)


# ---- PyTorch's dense operations


def join(case):
    """The inputs of all ranks as one."""
    indices, offsets, samples = zip(*case["inputs"])
    begins = [sum(len(i) for i in indices[:k]) for k in range(len(indices))]
    starts = None
    if offsets[0] is not None:
        starts = torch.cat([o[: len(o) - case["last"]] + begin for o, begin in zip(offsets, begins)])
    return torch.cat(indices), starts, torch.cat(samples).requires_grad_() if case["weighted"] else None


def expect(case):
    weight = case["weight"].clone().requires_grad_()
    indices, offsets, samples = join(case)
    if not case["module"]:
        y = F.embedding(indices, weight)
    else:
        y = F.embedding_bag(indices, weight, offsets, max_norm=case["max_norm"] or None, norm_type=case["norm_type"],
                            mode=MODES[case["mode"]], per_sample_weights=samples, padding_idx=case["padding"] if case["pads"] else None)
    i = torch.arange(y.numel())
    loss_weights = ((7 * i + 3) % 11).double() - 4.5
    y.backward(loss_weights.view(y.shape))
    parts = [y, weight.grad, weight] + ([samples.grad] if case["weighted"] else [])
    return torch.cat([p.detach().flatten() for p in parts])


# ---- PyTorch's sharded operations


def wrong_upstream(case):
    """Why PyTorch's sharded operation is left out, or None."""
    sizes = {len(i) for i, _, _ in case["inputs"]}
    if case["mode"] == 1 and case["cut"] == 0 and case["pads"]:
        return "means count padding in lists, and are NaN for bags of padding alone"
    if case["mode"] == 1 and case["cut"] == 0 and case["inputs"][0][1] is not None and not case["fair"]:
        return "means of empty bags are NaN"
    if any(i.numel() == 0 for i, _, _ in case["inputs"]):
        return "no indices at all"
    if len(sizes) > 1 or len({len(o) for _, o, _ in case["inputs"] if o is not None}) > 1:
        return "ranks must have equally many"
    if case["rows" if case["cut"] == 0 else "width"] < case["ranks"]:
        return "empty shards"
    if case["max_norm"] and (case["norm_type"] == math.inf or case["cut"] == 1):
        return "other norms"
    if any(o is not None and len(o) > len(i) for i, o, _ in case["inputs"]):
        return "more bags than indices"
    return None


def help_gloo(dist):
    """Gathers and scatters by what gloo, the only backend without a GPU, does have."""

    def all_gather_base(output, given, group=None, async_op=False):
        parts = list(torch.empty((dist.get_world_size(group), *given.shape), dtype=given.dtype).unbind())
        dist.all_gather(parts, given, group=group)
        output.copy_(torch.cat([p.flatten() for p in parts]).view(output.shape))

    def reduce_scatter(output, given, op=dist.ReduceOp.SUM, group=None, async_op=False):
        whole = torch.stack(list(given))
        dist.all_reduce(whole, op, group=group)
        output.copy_(whole[dist.get_rank(group)])

    dist._all_gather_base, dist.reduce_scatter = all_gather_base, reduce_scatter


def run_sharded(rank, cases, path, results):
    import torch.distributed as dist

    dcp.import_shard()
    from torch.distributed._shard import shard_parameter
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec
    help_gloo(dist)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    for number, case in cases:
        spec = ChunkShardingSpec(dim=case["cut"], placements=["rank:0/cpu", "rank:1/cpu"])
        size = (case["rows"], case["width"])
        if case["module"]:
            module = torch.nn.EmbeddingBag(*size, max_norm=case["max_norm"] or None, norm_type=case["norm_type"], mode=MODES[case["mode"]],
                                           padding_idx=case["padding"] if case["pads"] else None, include_last_offset=bool(case["last"]),
                                           dtype=torch.float64)
        else:
            module = torch.nn.Embedding(*size, dtype=torch.float64)
        with torch.no_grad():
            module.weight.copy_(case["weight"])
        shard_parameter(module, "weight", spec)
        indices, offsets, samples = case["inputs"][rank]
        y = module(indices, offsets, samples) if case["module"] else module(indices)
        results.append((number, y.detach()))
    dist.destroy_process_group()


def serve(rank, cases, path):
    results = []
    run_sharded(rank, cases, path, results)
    torch.save(results, f"{path}.{rank}")


def compare_sharded(cases, found):
    """What PyTorch's ranks get, one after the other, is what reshard gathered."""
    import torch.multiprocessing as mp
    chosen = [(n, c) for n, c in enumerate(cases) if c["own"] and c["ranks"] == 2 and wrong_upstream(c) is None]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")
        mp.spawn(serve, args=(chosen, path), nprocs=2)
        ranks = [torch.load(f"{path}.{rank}") for rank in range(2)]
    for (number, first), (_, second) in zip(*ranks):
        y = torch.cat([first.flatten(), second.flatten()])
        assert torch.allclose(found[number][: len(y)], y, rtol=0, atol=1e-9), ("sharded", number, cases[number])
    return len(chosen)


def main():
    torch.set_num_threads(1)
    cases = [draw_case(seed) for seed in range(800)]
    run = subprocess.run([sys.argv[1]], input="\n".join(map(write_case, cases)), capture_output=True, text=True)
    assert run.returncode == 0, run.stdout.splitlines()[-1:] + [run.stderr]
    lines = run.stdout.splitlines()
    assert len(lines) == len(cases), (len(lines), run.stderr)
    found = [torch.tensor([float(w) for w in line.split()], dtype=torch.float64) for line in lines]
    furthest = 0.0
    for number, (case, y) in enumerate(zip(cases, found)):
        expected = expect(case)
        assert y.shape == expected.shape, (number, case, y.shape, expected.shape)
        if y.numel():
            furthest = max(furthest, (y - expected).abs().max().item())
        assert furthest <= 1e-9, (number, case, furthest)
    sharded = compare_sharded(cases, found)
    assert sharded >= 10, sharded
    print(f"PyTorch {torch.__version__}: {len(cases)} cases of embedding and embedding_bag within {furthest:.1e} of it, "
          f"{sharded} of them equal to its own sharded operations")


if __name__ == "__main__":
    main()
