# SPDX-License-Identifier: Apache-2.0
"""reshard.torch beside an oracle in NumPy, on processes of gloo.

Run as `test_torch.py BUILD_FOLDER`. It starts itself again once for each rank, with the variables that torchrun sets
(Debian's torchrun does not start under Python 3.11). Each rank goes through all cases of its world; a case that fails
prints what to paste.
"""
import atexit
import itertools
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback

import support

support.need("numpy", "torch")
import numpy as np
import torch
import torch.distributed as dist

os.environ.setdefault("RESHARD_LIBRARY", os.path.join(support.BUILD, "libreshard.so"))
import reshard
import reshard.torch

SEED = int(os.environ.get("RESHARD_TEST_SEED", "1"))
SCALE = float(os.environ.get("RESHARD_TEST_SCALE", "1"))


def start(size, case):
    """Runs one function of this file on `size` processes; all must end well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(size):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                           OMP_NUM_THREADS="1", RESHARD_TEST_CASE=case)
        processes.append(subprocess.Popen([sys.executable, "-B", *sys.argv], env=environment))
    codes = []
    for process in processes:
        try:
            codes.append(process.wait(timeout=240))
        except subprocess.TimeoutExpired:
            codes.append("hangs")
            process.kill()
    print(f"{case} on {size} processes: {'ok' if not any(codes) else codes}", flush=True)
    return not any(codes)


def rank():
    return dist.get_rank()


# ---- the oracle ----------------------------------------------------------------------------------


def whole(shape, dtype):
    """A tensor whose elements all differ, as far as the dtype can tell them apart."""
    count = int(np.prod(shape))
    values = torch.arange(1, count + 1, dtype=torch.int64)
    if dtype == torch.bool:
        return (values % 3 == 0).reshape(shape)
    if dtype.is_complex:
        return torch.complex(values.to(torch.float64), -values.to(torch.float64)).to(dtype).reshape(shape)
    return (values % 251 if dtype in (torch.uint8, torch.int8, torch.bfloat16, torch.float16) else values).to(dtype).reshape(shape)


def local_parts(layout, tensor, at):
    """What a rank holds of a whole tensor, element by element from the boxes of its layout."""
    found = []
    for shard in layout.shards(at):
        part = torch.zeros(shard.shape, dtype=tensor.dtype).reshape(-1)
        for piece in shard.pieces:
            box = tensor[tuple(slice(o, o + n) for o, n in zip(piece.offset, piece.size))]
            for index in np.ndindex(*piece.size):
                part[piece.at + sum(i * s for i, s in zip(index, piece.strides))] = box[index]
        found.append(part.reshape(shard.shape))
    return found


def given(parts):
    return parts[0] if len(parts) == 1 else parts


def equal(found, expected):
    found = found if isinstance(found, list) else [found]
    return [tuple(f.shape) for f in found] == [tuple(e.shape) for e in expected] and all(
        f.dtype == e.dtype and torch.equal(f, e) for f, e in zip(found, expected))


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.bool, torch.int64, torch.uint8, torch.complex64,
          torch.complex128, torch.int16]


def random_spec(rnd, size, ndim):
    """A mesh of some ranks of the group, in any order, and a cut for each axis."""
    shapes = [s for s in [(1,), (2,), (3,), (4,), (2, 2), (1, 4)] if int(np.prod(s)) <= size]
    axes = rnd.choice(shapes)
    ranks = rnd.sample(range(size), int(np.prod(axes)))
    cuts = []
    for _ in axes:
        d = rnd.randrange(ndim)
        cuts.append(rnd.choice(["R", f"S({d})", f"S({d})", f"S({d})", f"S({d}~)", f"S({d}/2)"]))
    return f"{','.join(map(str, axes))}[{','.join(map(str, ranks))}]: {', '.join(cuts)}"


# ---- cases ---------------------------------------------------------------------------------------


def case_random():
    """Random splits of several tensors at once, by messages and by shared memory, under small caps."""
    rnd = random.Random(SEED)
    size = dist.get_world_size()
    for number in range(int(30 * SCALE)):
        shapes = {f"t{i}": tuple(rnd.randrange(1, 9) for _ in range(rnd.randrange(1, 4))) for i in range(rnd.randrange(1, 4))}
        specs = [{name: random_spec(rnd, size, len(shape)) for name, shape in shapes.items()} for _ in range(2)]
        dtypes = {name: rnd.choice(DTYPES) for name in shapes}
        cap, shm = rnd.choice([512, 4096, 1 << 20]), rnd.choice(["auto", "off"])
        text = f"seed {SEED} case {number}: {shapes} {specs[0]} -> {specs[1]} {dtypes} cap={cap} shm={shm}"
        tensors = {name: whole(shape, dtypes[name]) for name, shape in shapes.items()}
        layouts = [{name: reshard.Layout(spec[name], shapes[name]) for name in shapes} for spec in specs]
        mine = {name: given(parts) for name in shapes for parts in [local_parts(layouts[0][name], tensors[name], rank())] if parts}
        move = reshard.torch.Redistribute(mine, specs[0], specs[1], cap=cap, shm=shm, verify=True, shapes=shapes)
        assert move.buffer_bytes <= cap, text
        assert move.carrier == ("messages" if shm == "off" else "shared memory"), text
        assert move.bytes_sent == move.plan.matrix[rank()].sum() - move.plan.matrix[rank()][rank()] if rank() < move.plan.rank_count else \
            move.bytes_sent == 0, text
        for again in range(2):
            found = move(out=found if again else None)
            for name in shapes:
                expected = local_parts(layouts[1][name], tensors[name], rank())
                assert equal(found.get(name, []), expected), f"{text}\n{name}: {found.get(name)} instead of {expected}"


def case_shapes():
    """Whole shapes are found from the parts."""
    for shape, spec in [((10, 3), "4: S(0)"), ((5, 7), "2,2: S(0), S(1)"), ((9,), "2,2: S(0), S(0)"), ((6, 4), "4: R"),
                        ((3,), "4: S(0)"), ((8, 2), "4[0,0,1,1]: S(0)"), ((), "4: R"), ((7, 5), "2[3,1]: S(1~)")]:
        tensor = whole(shape, torch.float32)
        parts = local_parts(reshard.Layout(spec, shape), tensor, rank())
        move = reshard.torch.Redistribute({"x": given(parts)} if parts else {}, spec, "4: R")
        assert move.plan.tensors[0].source.shape == shape, (shape, spec, move.plan)
        assert equal(move()["x"], [tensor]), (shape, spec)


def case_distances():
    """Rows that lie at changing distances in the memory of either end."""
    tensor = whole((97, 3), torch.int64)
    for specs in [("3: S(0/1)", "2: S(0/2)"), ("2: S(0/2)", "3: S(0/1)"), ("4: S(0/3)", "3: S(0/2)"), ("3: S(0; 50,47)", "2: S(0/1)")]:
        layouts = [reshard.Layout(spec, tensor.shape) for spec in specs]
        mine = local_parts(layouts[0], tensor, rank())
        for shm in ("auto", "off"):
            move = reshard.torch.Redistribute({"x": given(mine)} if mine else {}, *specs, shapes={"x": tensor.shape}, shm=shm)
            assert equal(move().get("x", []), local_parts(layouts[1], tensor, rank())), (specs, shm)


def case_caps():
    """The lowest cap of all ranks counts, whichever rank has it."""
    tensor = whole((64, 64), torch.float32)
    for lowest in range(4):
        cap = 2048 if rank() == lowest else 1 << 20
        move = reshard.torch.Redistribute({"x": tensor[16 * rank():16 * rank() + 16]}, "4: S(0)", "4: S(1)", cap=cap)
        assert move.cap == 2048 and 0 < move.buffer_bytes <= 2048 and move.rounds > 1, (lowest, move)
        assert equal(move()["x"], [tensor[:, 16 * rank():16 * rank() + 16]]), lowest


def case_partial():
    """Sums and other reductions have the library's results, bit by bit, in the order of contributors."""
    rnd = np.random.default_rng(SEED)
    for dtype in [torch.float32, torch.bfloat16, torch.int32]:
        terms = [torch.from_numpy(rnd.uniform(-100, 100, (6, 5))).to(dtype) for _ in range(4)]
        for name, step in [("sum", torch.add), ("avg", torch.add), ("prod", torch.mul), ("min", torch.minimum), ("max", torch.maximum)]:
            expected = terms[0].clone()
            for term in terms[1:]:
                expected = step(expected, term)
            if name == "avg":
                expected = torch.div(expected, 4, rounding_mode=None if dtype.is_floating_point else "trunc").to(dtype)
            for target in ["4: R", "4: S(0)", "2[3,1]: S(1)"]:
                for shm in ["auto", "off"]:
                    move = reshard.torch.Redistribute({"x": terms[rank()]}, f"4: P({name})", target, cap=2048, shm=shm)
                    parts = local_parts(reshard.Layout(target, (6, 5)), expected, rank())
                    assert equal(move().get("x", []), parts), (dtype, name, target, shm)
    found = reshard.torch.Redistribute({"x": torch.ones(4, 2)}, "4: R", "4: P(sum)")()["x"]
    dist.all_reduce(found)
    assert torch.equal(found, torch.ones(4, 2))


def case_casts():
    tensor = torch.linspace(-3, 3, 64).reshape(8, 8)
    for target, shm in itertools.product([torch.bfloat16, torch.float64, "f16"], ["auto", "off"]):
        expected = tensor.to(reshard.torch.torch_dtype(reshard.dtype_name(target)))
        for spec, part in (("4: S(1)", expected.chunk(4, 1)[rank()]), ("4[1,2,3,0]: S(0)", expected.chunk(4)[rank() - 1])):
            found = reshard.torch.Redistribute({"x": tensor.chunk(4)[rank()]}, "4: S(0)", spec, dtype=target, shm=shm)()["x"]
            assert torch.equal(found, part.contiguous()), (target, shm, spec)


def case_strided_sources():
    """Local tensors may be views; results may not."""
    tensor = whole((8, 8), torch.float32)
    mine = tensor.t().contiguous().t().chunk(4)[rank()]
    assert not mine.is_contiguous()
    move = reshard.torch.Redistribute({"x": mine}, "4: S(0)", "4: S(1)")
    assert torch.equal(move()["x"], tensor.chunk(4, 1)[rank()].contiguous())
    fails(reshard.Invalid, lambda: move(out={"x": torch.empty(2, 8).t()}), "must be contiguous")


def fails(kind, call, words):
    try:
        call()
    except kind as error:
        assert words in str(error), f"{error} does not say {words}"
        return
    raise AssertionError(f"nothing was raised that says {words}")


def case_errors():
    """Whatever is wrong on one rank is raised on all of them."""
    make = reshard.torch.Redistribute
    odd = rank() == 2
    fails(reshard.Mismatch, lambda: make({"x": torch.ones(3 if odd else 2, 4)}, "4: S(0)", "4: R"), "x: rank")
    fails(reshard.Mismatch, lambda: make({"x": torch.ones(2, 4)}, "4: S(0)", "4: S(1)" if odd else "4: R"), "plan different moves")
    fails(reshard.Mismatch, lambda: make({"x": torch.ones(2, dtype=torch.int32 if odd else torch.int64)}, "4: S(0)", "4: R"), "i32 and i64")
    fails(reshard.Gap, lambda: make({} if odd else {"x": torch.ones(2)}, "4: S(0)", "4: R"), "rank 2")
    fails(reshard.Syntax, lambda: make({"x": torch.ones(2)}, "4: S(" if odd else "4: S(0)", "4: R"), "")
    fails(reshard.Invalid, lambda: make({"x": torch.ones(2)}, "4: S(0)", "5: R"), "rank 4")
    fails(reshard.Invalid, lambda: make({"x": torch.ones(2)}, {"y": "4: S(0)"}, "4: R"), "no spec")
    fails(reshard.NotFound, lambda: make({"x": torch.ones(2)}, {"x": "4: S(0)", "y": "4: R"}, "4: R"), "y: there is a spec")
    fails(reshard.MemoryLimit, lambda: make({"x": torch.ones(2)}, "4: S(0)", "4: R", cap=100), "too small")
    for cap in (-5, 2**63):
        fails(reshard.Range, lambda: make({"x": torch.ones(2)}, "4: S(0)", "4: R", cap=cap if odd else 2**20), "a cap must be from 0")
    for value in (None, [1, 2], "x"):
        fails(TypeError if odd else reshard.Error, lambda: make({"x": value if odd else torch.ones(2)}, "4: S(0)", "4: R"),
              "x: a tensor of PyTorch is needed, not ")
    fails(reshard.Unsupported, lambda: make({"x": torch.ones(2)}, "4: P(sum)", "4: R", verify=True), "cannot be verified")
    fails(reshard.Invalid, lambda: make({"x": torch.ones(2)}, "4: S(0)", "4: R", shm="perhaps" if odd else "auto"), "perhaps")
    move = make({"x": torch.ones(2)}, "4: S(0)", "4: R")
    fails(reshard.Mismatch, lambda: move(out={"x": torch.ones(7 if odd else 8)}), "x: shapes")
    assert torch.equal(move()["x"], torch.ones(8))  # and it still works
    mine, apart = torch.arange(16.0).reshape(4, 4), torch.empty(16, 1)
    move = make({"x": mine}, "4: S(0)", "4: S(1)")
    fails(reshard.Invalid, lambda: move(out={"x": mine.view(16, 1) if odd else apart}), "x and x share memory")
    assert torch.equal(mine, torch.arange(16.0).reshape(4, 4))  # before anything was written
    two = make({"x": mine, "y": mine}, "4: S(0)", "4: S(1)")
    fails(reshard.Invalid, lambda: two(out={"x": apart, "y": apart if odd else torch.empty(16, 1)}), "share memory")
    two(out={"x": apart, "y": torch.empty(16, 1)})  # sources may be the same


def case_verify():
    """A value that changes on its way is noticed."""
    from reshard.torch import _wire
    for shm in ["auto", "off"]:
        move = reshard.torch.Redistribute({"x": whole((16, 4), torch.float32).chunk(4)[rank()]}, "4: S(0)", "4: S(1)", verify=True, shm=shm)
        move()
        carry = move._wire.carry

        def spoil(one, pack, unpack, place):
            def unpack_spoilt(message, buffer):
                if rank() == 1 and message.peer == 0:
                    buffer[:8] = buffer[:8].flip(0)
                unpack(message, buffer)
            carry(one, pack, unpack_spoilt, lambda message, sending: place(message, sending) if sending else None)

        move._wire.carry = spoil
        fails(reshard.Check, move, "x: what arrived is not what was sent")
    # Replicas that differ at the source cannot be told apart at the target.
    move = reshard.torch.Redistribute({"x": torch.full((4,), float(rank()))}, "4: R", "4: S(0)", verify=True)
    fails(reshard.Check, move, "hold different values")


def case_disjoint():
    """From a trainer's ranks to those of an engine, again and again, in a group that is not the world."""
    group = dist.new_group([0, 1, 3, 4, 5])
    if rank() == 2:
        fails(reshard.Invalid, lambda: reshard.torch.Redistribute({}, "2: S(0)", "2: R", group), "not a member")
        return
    me = dist.get_rank(group)
    tensor = whole((12, 10), torch.bfloat16)
    weights = {"w": tensor.chunk(2)[me].clone(), "b": torch.arange(6.0)} if me < 2 else {}
    move = reshard.torch.Redistribute(weights, {"w": "2: S(0)", "b": "2: R"}, {"w": "3[2..4]: S(1)", "b": "3[2..4]: R"}, group,
                                      shm="off" if SEED % 2 else "auto")
    for step in range(3):
        found = move()
        if me >= 2:
            layout = reshard.Layout("3[2..4]: S(1)", (12, 10))
            assert equal(found["w"], local_parts(layout, tensor + step, me)) and torch.equal(found["b"], torch.arange(6.0) + step)
        else:
            assert found == {}
        for weight in weights.values():
            weight += 1


def case_sharded_tensor():
    """ShardedTensors between all kinds of specs, also those that torch's own reshard aborts on."""
    from sharded_tensor import import_sharded_tensor
    sharded_tensor, sharding_spec = import_sharded_tensor()

    def chunks(dim, *ranks):
        return sharding_spec.ChunkShardingSpec(dim, [f"rank:{r}/cpu" for r in ranks])

    def boxes(shape, *split):
        """Quarters of a matrix on these ranks."""
        rows, columns = shape[0] // 2, shape[1] // 2
        places = [(0, 0, rows, columns), (0, columns, rows, shape[1] - columns), (rows, 0, shape[0] - rows, columns),
                  (rows, columns, shape[0] - rows, shape[1] - columns)]
        return sharding_spec.EnumerableShardingSpec([
            sharding_spec.ShardMetadata([a, b], [n, m], f"rank:{r}/cpu") for r, (a, b, n, m) in zip(split, places)])

    shape = (10, 7)
    specs = [chunks(0, 0, 1, 2, 3), chunks(1, 3, 1, 0, 2), chunks(0, 2, 0), chunks(0, 0, 0, 1, 1), chunks(-1, 3), boxes(shape, 3, 2, 1, 0),
             boxes(shape, 1, 1, 2, 2), chunks(1, 0, 1, 2, 3)]
    tensor = whole(shape, torch.float32)
    for source in specs:
        st = sharded_tensor.empty(source, *shape)
        for shard in st.local_shards():
            (a, b), (n, m) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
            shard.tensor.copy_(tensor[a:a + n, b:b + m])
        for target in specs:
            found = reshard.torch.reshard(st, target, shm="off" if target is source else "auto")
            assert found.metadata().shards_metadata == target.build_metadata(torch.Size(shape), found.metadata().tensor_properties).shards_metadata
            for shard in found.local_shards():
                (a, b), (n, m) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
                assert torch.equal(shard.tensor, tensor[a:a + n, b:b + m]), (source, target)
            if len(set(p.rank() for p in getattr(target, "placements", []))) == 4 and source is specs[0]:
                text = repr(reshard.torch.spec_of(found))
                back = reshard.torch.sharding_of(text, shape)
                assert (back.dim, [p.rank() for p in back.placements]) == (target.dim, [p.rank() for p in target.placements]), text
        assert torch.equal(reshard.torch.reshard(st, "2,2: S(0), S(1)").local_shards()[0].tensor,
                           local_parts(reshard.Layout("2,2: S(0), S(1)", shape), tensor, rank())[0])
        assert reshard.Layout(reshard.torch.spec_of(st), shape) == reshard.Layout(reshard.torch.spec_of(reshard.torch.reshard(st, source)), shape)
    fails(reshard.Unsupported, lambda: reshard.torch.reshard(st, "2,2: R, S(0)"), "replica")
    fails(reshard.Unsupported, lambda: reshard.torch.reshard(st, "4: S(0/2)"), "not one box")
    # Beside torch's own, where that works.
    st = sharded_tensor.empty(specs[0], 8, 12)
    st.local_shards()[0].tensor.copy_(whole((8, 12), torch.float32).chunk(4)[rank()])
    mine = reshard.torch.reshard(st, chunks(1, 0, 1, 2, 3)).local_shards()[0].tensor
    assert torch.equal(mine, st.reshard(chunks(1, 0, 1, 2, 3)).local_shards()[0].tensor)


def case_gradient():
    """<move(x), y> = <x, gradient of x>, summed over ranks, and known gradients."""
    torch.manual_seed(SEED)
    for source, target in [("4: S(0)", "4: S(1)"), ("4: R", "4: S(0)"), ("4: S(0)", "4: R"), ("4: P(sum)", "4: R"), ("4: P(avg)", "4: S(1)"),
                           ("2,2: S(0), R", "2,2: R, S(1)"), ("2,2: P(sum), S(0)", "2,2: S(1), R"), ("4: R", "4: P(sum)")]:
        for dtype in [torch.float64, torch.complex128]:
            numbers = torch.Generator().manual_seed(SEED)
            shape = (6, 5)
            base = torch.randn(shape, generator=numbers, dtype=dtype) + (rank() if "P" in source else 0)
            x = local_parts(reshard.Layout(source, shape), base, rank())[0].requires_grad_()
            move = reshard.torch.Redistribute({"x": x}, source, target, shm="off" if dtype == torch.float64 else "auto")
            for _ in range(2):  # the second time everything is there already
                found = move.differentiable({"x": x})["x"]
                y = torch.randn(found.shape, generator=torch.Generator().manual_seed(rank()), dtype=dtype)
                x.grad = None
                found.backward(y)
                sums = torch.stack([(found.detach() * y.conj()).sum(), (x.detach() * x.grad.conj()).sum()])
                sums = torch.view_as_real(sums) if sums.is_complex() else sums
                dist.all_reduce(sums)
                assert torch.allclose(sums[0], sums[1]), (source, target, dtype, sums)
    x = torch.ones(2, 3, requires_grad=True)
    (reshard.torch.redistribute(x, "4: S(0)", "4: R") * (rank() + 1)).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 10.0))
    x = torch.ones(8, 3, requires_grad=True)
    fails(reshard.Unsupported, lambda: reshard.torch.redistribute(x, "4: R", "3: S(0)"), "every rank of the group")
    fails(reshard.Unsupported, lambda: reshard.torch.redistribute(x, "4: P(max)", "4: R"), "")


def folder():
    """One new folder for all ranks, which goes away with the test."""
    name = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(name)
    if rank() == 0:
        atexit.register(shutil.rmtree, name[0])
    return name[0]


def case_files():
    """Saved by four ranks in any split, loaded by any number in any other, and by torch where it can."""
    from sharded_tensor import import_sharded_tensor
    sharded_tensor, sharding_spec = import_sharded_tensor()
    place = folder()
    shapes = {"rows": (10, 6), "grid": (8, 6), "same": (5,), "some": (9, 2), "scalar": ()}
    splits = {"rows": "4: S(0)", "grid": "2,2: S(1), S(0)", "same": "4: R", "some": "2[3,1]: S(0)", "scalar": "4: R"}
    for dtype in [torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int16]:
        tensors = {name: whole(shape, dtype) for name, shape in shapes.items()}
        mine = {name: given(parts) for name in shapes for parts in [local_parts(reshard.Layout(splits[name], shapes[name]), tensors[name], rank())]
                if parts}
        path = f"{place}/{dtype}"
        reshard.torch.save(mine, path, splits, sync=False)
        found = reshard.torch.load(path)
        assert sorted(found) == sorted(shapes) and all(equal(found[name], [tensors[name]]) for name in shapes), (dtype, found)
        other = {"rows": "4: S(1)", "grid": "4[3,2,1,0]: S(0)", "some": "4: R"}
        found = reshard.torch.load(path, other)
        assert sorted(found) == sorted(other)
        for name in other:
            assert equal(found[name], local_parts(reshard.Layout(other[name], shapes[name]), tensors[name], rank())), (dtype, name)
        kept = {name: torch.zeros_like(each) for name, each in found.items()}
        assert all(reshard.torch.load(path, other, out=kept)[name] is kept[name] and torch.equal(kept[name], found[name]) for name in other)
        with reshard.open(path) as checkpoint:
            view = checkpoint.torch
            assert sorted(view) == sorted(shapes) and view["rows"].dtype == dtype and view["rows"].shape == (10, 6)
            assert torch.equal(view["rows"][2:7, 1:], tensors["rows"][2:7, 1:]) and torch.equal(view["grid"][..., -1], tensors["grid"][..., -1])
            assert torch.equal(view["rows"][3, 4], tensors["rows"][3, 4]) and torch.equal(view["scalar"][...], tensors["scalar"])
        mapped = reshard.torch.load(path, mmap=True)
        assert all(torch.equal(mapped[name], tensors[name]) for name in shapes)
    # ShardedTensors say themselves how they are split.
    spec = sharding_spec.ChunkShardingSpec(0, ["rank:2/cpu", "rank:0/cpu", "rank:3/cpu"])
    st = sharded_tensor.empty(spec, 10, 4)
    tensor = whole((10, 4), torch.float32)
    for shard in st.local_shards():
        shard.tensor.copy_(tensor[shard.metadata.shard_offsets[0]:][:shard.metadata.shard_sizes[0]])
    reshard.torch.save({"st": st, "whole": torch.arange(3)}, f"{place}/st", sync=False)
    assert torch.equal(reshard.torch.load(f"{place}/st")["st"], tensor)
    spec = sharding_spec.ChunkShardingSpec(1, ["rank:1/cpu", "rank:0/cpu", "rank:3/cpu", "rank:2/cpu"])
    st = sharded_tensor.zeros(spec, 10, 4)
    reshard.torch.load(f"{place}/st", out={"st": st})
    assert torch.equal(st.local_shards()[0].tensor, tensor.chunk(4, 1)[[1, 0, 3, 2].index(rank())])
    # Casts on the way, and what cannot be.
    assert torch.equal(reshard.torch.load(f"{place}/st", "4: S(0)", dtype={"st": "bf16"})["st"],
                       local_parts(reshard.Layout("4: S(0)", (10, 4)), tensor.bfloat16(), rank())[0])
    fails(reshard.Mismatch, lambda: reshard.torch.load(f"{place}/st", out={"st": torch.zeros(3)}), "st")
    fails(reshard.NotFound, lambda: reshard.torch.load(f"{place}/st", out={"nowhere": torch.zeros(3)}), "nowhere")
    fails(reshard.Invalid, lambda: reshard.torch.save({"x": torch.ones(2)}, f"{place}/st", sync=False), "exist")
    fails(reshard.Mismatch, lambda: reshard.torch.save({"x": torch.ones(2 + (rank() == 3))}, f"{place}/odd", sync=False), "x")
    fails(reshard.Mismatch, lambda: reshard.torch.save({"x": torch.ones(2)}, f"{place}/odd{rank()}", sync=False), "")
    assert not os.path.exists(f"{place}/odd") and not os.path.exists(f"{place}/odd.partial")
    dist.barrier()


def case_notes_of_torch():
    """Conjugates, negatives and zeros that torch has only noted: what is saved and moved are the values."""
    place = folder()
    x = torch.tensor([[1 + 2j, 3 - 4j], [5 + 6j, -7 - 8j]])
    real = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    tensors = {"conj": x.conj(), "both": torch._neg_view(x.conj()), "neg": torch._neg_view(real), "strided": x.conj().imag, "transposed": x.mH,
               "zero": torch._efficientzerotensor(2, 2), "plain": x}
    values = {name: each.clone().resolve_conj().resolve_neg() for name, each in tensors.items()}
    assert tensors["conj"].is_conj() and tensors["neg"].is_neg() and tensors["strided"].is_neg() and tensors["zero"]._is_zerotensor()
    reshard.torch.save(tensors, f"{place}/notes", sync=False)
    found = reshard.torch.load(f"{place}/notes")
    for name, wanted in values.items():
        assert torch.equal(found[name], wanted), (name, found[name], wanted)
    for verify in (False, True):
        moved = reshard.torch.Redistribute(tensors, "4: R", "4: R", verify=verify)()
        assert all(torch.equal(moved[name], values[name]) for name in values)
        half = {name: each[rank() % 2:][:1] for name, each in tensors.items()}
        moved = reshard.torch.Redistribute(half, "2,2: R, S(0)", "4: R", verify=verify)()
        assert all(torch.equal(moved[name], values[name]) for name in values), moved
    # They cannot be filled, nor can what has no memory be saved.
    for name in ("conj", "neg", "zero"):
        fails(reshard.Invalid, lambda: reshard.torch.load(f"{place}/notes", out={name: tensors[name]}), "only noted")
    freed = torch.ones(4)
    freed.storage().resize_(0)
    fails(reshard.Invalid, lambda: reshard.torch.load(f"{place}/notes", out={"neg": freed.view(2, 2)}), "no memory")
    fails(reshard.Error, lambda: reshard.torch.save({"freed": freed if rank() == 2 else torch.ones(4)}, f"{place}/freed", sync=False), "no memory")
    fails(reshard.Error, lambda: reshard.torch.save({"sparse": torch.eye(2).to_sparse() if rank() == 1 else torch.eye(2)}, f"{place}/freed", sync=False),
          "only dense")
    # Through DLPack, into a group of the library.
    summed = reshard.run(1, lambda group: group.all_reduce(tensors["neg"]))[0]
    assert summed.tolist() == values["neg"].tolist(), summed
    dist.barrier()


def case_types_of_parts():
    """Local tensors of another type than their siblings, and tensors that share memory."""
    place = folder()
    tensor = whole((8, 2), torch.bfloat16)
    reshard.torch.save({"w": tensor, "v": tensor.clone(), "other": tensor + 1}, f"{place}/types", sync=False)
    split = {"w": "boxes 8x2: 0[0:4,0:2] 0[4:8,0:2]"}
    if rank() == 0:
        parts = [torch.zeros(4, 2, dtype=torch.bfloat16), torch.zeros(4, 2, dtype=torch.float16)]
        fails(reshard.Mismatch, lambda: reshard.torch.load(f"{place}/types", split, out={"w": parts}), "float16")
        parts[1] = torch.zeros(4, 2, dtype=torch.bfloat16)
        reshard.torch.load(f"{place}/types", split, out={"w": parts})
        assert torch.equal(torch.cat(parts), tensor)
        memory = torch.zeros(9, 2, dtype=torch.bfloat16)
        fails(reshard.Invalid, lambda: reshard.torch.load(f"{place}/types", out={"w": memory[:8], "v": memory[1:]}), "share memory")
        tied = torch.zeros(8, 2, dtype=torch.bfloat16)
        assert torch.equal(reshard.torch.load(f"{place}/types", out={"w": tied, "v": tied})["v"], tensor)  # as tied weights are
        fails(reshard.Mismatch, lambda: reshard.torch.load(f"{place}/types", out={"w": tied, "other": tied}), "different values")
    dist.barrier()


def case_dtensor():
    """The texts of meshes and placements. DTensor came with torch 2.x; stand-ins have its names and fields here."""

    def make(name, **fields):
        return type(name, (), fields)()

    def dtensor(ranks, names, *placements):
        return make("DTensor", device_mesh=make("DeviceMesh", mesh=torch.tensor(ranks), mesh_dim_names=names), placements=placements,
                    to_local=None)

    replicate, shard = make("Replicate"), lambda dim: make("Shard", dim=dim)
    for tensor, text in [(dtensor([0, 1, 2, 3], None, shard(0)), "4: S(0)"),
                         (dtensor([[0, 1], [2, 3]], ("dp", "tp"), replicate, shard(-1)), "dp=2,tp=2: R, S(-1)"),
                         (dtensor([[3, 1], [2, 0]], None, shard(1), make("Partial", reduce_op="sum")), "2,2[3,1,2,0]: S(1), P(sum)"),
                         (dtensor([[0, 1], [2, 3]], ("dp", "tp"), make("_StridedShard", dim=0, split_factor=2), shard(0)),
                          "dp=2,tp=2: S(0*2), S(0)"),
                         (dtensor([0, 1], None, make("Partial", reduce_op="product")), "2: P(prod)")]:
        assert reshard.torch.spec_of(tensor) == text, (reshard.torch.spec_of(tensor), text)
    fails(reshard.Unsupported, lambda: reshard.torch.spec_of(dtensor([0], None, make("MaskPartial", reduce_op="sum"))), "MaskPartial")
    try:
        from torch.distributed.tensor import DTensor
    except ImportError:
        if rank() == 0:
            print(f"not tried with a real DTensor: torch {torch.__version__} has none")


def page_blocks():
    with open(os.path.join(support.ROOT, "docs", "python-torch.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5, len(blocks)
    return blocks


def case_page():
    """docs/python-torch.md on four ranks, as it stands; the group is there already, and torch 1.13 has no DTensor."""
    from sharded_tensor import import_sharded_tensor
    sharded_tensor, sharding_spec = import_sharded_tensor()
    start_block, _, gradients, checkpoints, sharded = page_blocks()
    place = folder()
    if rank() == 0:
        subprocess.run([os.path.join(support.BUILD, "reshard"), "bench", "model", "model", "--bytes", "300K"], cwd=place, check=True,
                       stdout=subprocess.DEVNULL)
    dist.barrier()
    os.chdir(place)
    tensor = whole((8, 8), torch.float32)
    names = {"mine": {"w": tensor.chunk(4)[rank()]}, "x": tensor.chunk(4)[rank()].clone().requires_grad_()}
    exec(start_block.replace('dist.init_process_group("gloo")', "pass"), names)
    assert torch.equal(names["theirs"]["w"], tensor.chunk(4, 1)[rank()])
    names["move"] = reshard.torch.Redistribute({"x": names["x"]}, "4: S(0)", "4: R")
    exec(gradients, names)
    assert torch.equal(names["y"], tensor)
    reshard.torch.save(names["mine"], "step-100/", {"w": "4: S(0)"}, sync=False)
    names["state_dict"] = {"model.norm.weight": torch.zeros_like(reshard.torch.load("model/")["model.norm.weight"])}
    exec(checkpoints, names)
    assert torch.equal(names["state"]["w"], tensor.chunk(4)[rank()])
    assert torch.equal(names["state_dict"]["model.norm.weight"], reshard.torch.load("model/")["model.norm.weight"])
    assert torch.equal(reshard.torch.load("step-200/")["w"], tensor)
    names["tensor"] = names["sharded"] = sharded_tensor.ones(sharding_spec.ChunkShardingSpec(0, [f"rank:{r}/cpu" for r in (3, 1, 0, 2)]), 8, 8)
    if not hasattr(dist, "tensor"):
        sharded = re.sub(r"(?m)^reshard.torch.placements_of.*\n", "", sharded)
    exec(sharded, names)
    assert reshard.torch.spec_of(names["tensor"]) == "4[3,1,0,2]: S(0)" and names["other"].local_shards()[0].tensor.shape == (4, 4)
    dist.barrier()


def case_page_weights():
    """The same page's weights, from four ranks to two others."""
    names = {"names": ["w"], "weights": {"w": torch.ones(1, 6) * rank()}, "rank": rank(), "group": None, "training": range(2), "served": None}
    exec("import reshard.torch\n" + page_blocks()[1], names)
    assert rank() < 4 or torch.equal(names["served"]["w"][:, 0], torch.arange(4.0).chunk(2)[rank() - 4])


WORLDS = [(4, "page"), (6, "page_weights"), (1, "dtensor"), (4, "sharded_tensor"), (4, "gradient"), (4, "files"), (4, "notes_of_torch"), (4, "types_of_parts"), (1, "random"), (2, "random"), (4, "random"), (4, "shapes"), (4, "partial"), (4, "casts"), (4, "strided_sources"), (4, "errors"),
          (4, "verify"), (6, "disjoint"), (4, "distances"), (4, "caps")]


def work(names):
    dist.init_process_group("gloo")
    for name in names:
        try:
            globals()["case_" + name]()
        except BaseException:
            print(f"rank {rank()}, case {name}:", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RESHARD_TEST_CASE" in os.environ:
        work(os.environ["RESHARD_TEST_CASE"].split(","))
    else:
        sizes = sorted({size for size, _ in WORLDS})
        done = [start(size, ",".join(name for other, name in WORLDS if other == size)) for size in sizes]
        sys.exit(0 if all(done) else 1)
