# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads, and under mpirun the same with MPI: redistribute against NumPy's slices, collectives against NumPy's
reductions, arrays of all kinds, and ranks that fail. Run as `test_group.py BUILD [mpi]`."""
import os
import re
import subprocess
import sys
import unittest

import support

USES_MPI = "mpi" in sys.argv[2:]
support.need("numpy", *(["mpi4py"] if USES_MPI else []))

import numpy as np  # noqa: E402
import reshard  # noqa: E402

SPECS = ["4: S(0)", "4: S(1)", "4: R", "2,2: S(0), S(1)", "dp=2,tp=2: R, S(1~)", "4[3,1,0,2]: S(0)", "2[1,3]: S(1)", "4: S(0/2)",
         "4: S(flat)", "3: S(0)", "1[2]: R", "4: S(0;5,6)", "boxes 11x9: 0[0:11,0:4] 2[0:5,4:9] 3[5:11,4:9]", "4[0,0,1,2]: S(0)"]
SHAPE = (11, 9)


def cut(whole, spec, rank):
    """What a rank holds, element by element, from the pieces of its shards: None, an array, or a list of them."""
    found = []
    for shard in reshard.Layout(spec, whole.shape).shards(rank):
        memory = np.zeros(int(np.prod(shard.shape)), whole.dtype)
        for piece in shard.pieces:
            for x in np.ndindex(*piece.size):
                memory[piece.at + np.dot(x, piece.strides)] = whole[tuple(np.add(x, piece.offset))]
        found.append(memory.reshape(shard.shape))
    return None if not found else found[0] if len(found) == 1 else found


def same(found, wanted):
    if wanted is None or found is None:
        return found is None and wanted is None
    if isinstance(wanted, list):
        return isinstance(found, list) and all(same(a, b) for a, b in zip(found, wanted))
    return found.shape == wanted.shape and found.dtype == wanted.dtype and bool(np.array_equal(found, wanted))


# ---- bodies: each rank gives back a list of what is wrong --------------------------------------

def redistribute_all(group):
    whole, wrong = np.arange(99, dtype="i4").reshape(SHAPE), []
    for i, source in enumerate(SPECS):
        for target in (SPECS[i - 1], SPECS[i - 5]):
            found = group.redistribute(cut(whole, source, group.rank), source, target, shape=SHAPE, dtype="i32")
            if not same(found, cut(whole, target, group.rank)):
                wrong.append((source, target))
    return wrong


def redistribute_without_shape(group):
    whole, wrong = np.arange(99, dtype="f8").reshape(SHAPE), []
    for source in ["4: S(0)", "4: S(1)", "4: R", "2,2: S(0), S(1)", "dp=2,tp=2: R, S(1)", "4[3,1,0,2]: S(0)", "1[2]: R"]:
        found = group.redistribute(cut(whole, source, group.rank), source, "4: S(1)")
        if not same(found, cut(whole, "4: S(1)", group.rank)):
            wrong.append(source)
    return wrong


def sum_up(group):
    mine = np.arange(12, dtype="f8").reshape(3, 4) * (group.rank + 1)
    found = group.redistribute(mine, "4: P(sum)", "4: R", shape=(3, 4))
    return [] if np.array_equal(found, np.arange(12).reshape(3, 4) * 10.0) else [found]


def collect(group):
    wrong, rank, size = [], group.rank, group.size
    mine = np.arange(8, dtype="i8") + 100 * rank
    everything = [np.arange(8) + 100 * i for i in range(size)]
    if not np.array_equal(group.all_reduce(mine), sum(everything)):
        wrong.append("all_reduce")
    if not np.array_equal(group.all_reduce(mine, "max"), everything[-1]):
        wrong.append("max")
    if not np.array_equal(group.all_gather(mine[:rank + 1]), np.concatenate([e[:i + 1] for i, e in enumerate(everything)])):
        wrong.append("all_gather")
    if not np.array_equal(group.reduce_scatter(mine), sum(everything)[2 * rank:2 * rank + 2]):
        wrong.append("reduce_scatter")
    if not np.array_equal(group.broadcast(mine if rank == 2 else None, 2), everything[2]):
        wrong.append("broadcast")
    if not np.array_equal(group.all_to_all(mine), np.concatenate([e[2 * rank:2 * rank + 2] for e in everything])):
        wrong.append("all_to_all")
    if rank == 0:
        group.send(mine, 3)
    elif rank == 3 and not np.array_equal(group.receive(8, "i64", 0), everything[0]):
        wrong.append("receive")
    if group.gather_objects(("rank", rank)) != [("rank", i) for i in range(size)]:
        wrong.append("gather_objects")
    group.barrier()
    part = group.subset([3, 1])
    if (part is None) != (rank not in (1, 3)) or part is not None and (part.rank, part.size) != ({3: 0, 1: 1}[rank], 2):
        wrong.append("subset")
    if part is not None:
        part.close()
    return wrong


class Interface:
    """Only __array_interface__."""

    def __init__(self, array):
        self.array, self.__array_interface__ = array, array.__array_interface__


class Dlpack:
    """Only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def take_arrays_of_all_kinds(group):
    array, wrong = np.full((2, 3), group.rank, "f4"), []
    for kind in (lambda a: a, Interface, Dlpack, memoryview, lambda a: np.asfortranarray(a), lambda a: np.repeat(a, 2, 1)[:, ::2]):
        if not np.array_equal(group.all_reduce(kind(array)), np.full((2, 3), 6.0)):
            wrong.append(kind)
    if group.all_reduce(1).shape != () or group.all_reduce([True, False], "max").tolist() != [True, False]:
        wrong.append("numbers and lists")
    ones = np.full(3, 0x3f80, "u2")  # 1.0 in bf16
    if group.all_reduce(ones, dtype="bf16").view("u2").tolist() != [0x4080] * 3:
        wrong.append("bf16")
    moved = group.redistribute(np.full((1, 4), 0x3f80, "u2"), "4: S(0)", "4: S(1)", dtype="bf16", shape=(4, 4), target_dtype="f32")
    if moved.dtype != np.float32 or moved.tolist() != [[1.0]] * 4:
        wrong.append("cast")
    if not moved.flags.owndata:
        wrong.append("whose memory")
    return wrong


def disagree(group):
    """What one rank does wrong, all hear of; then the group still works."""
    wrong = []
    rows = np.zeros((2 if group.rank != 2 else 3, 4))
    try:
        group.redistribute(rows, "4: S(0)", "4: S(1)", shape=(8, 4))
        wrong.append("no error")
    except reshard.Invalid as error:
        if "rank 2" not in str(error):
            wrong.append(str(error))
    mine = reshard.NotFound("no value")
    mine.subject, mine.hint, mine.text = "key", "set-key", "no value"
    try:
        group.agree(mine if group.rank == 1 else None)
        wrong.append("no error")
    except reshard.Invalid as error:
        wrong.append(str(error))
    except reshard.NotFound as error:
        if (error.subject, error.hint, error.rank, error.text) != ("key", "set-key", 1, "rank 1: no value"):
            wrong.append(str(error))
    try:
        group.redistribute(None, "4: S(0)", "4: S(1)")
        wrong.append("no error")
    except reshard.Invalid:
        pass
    try:
        group.redistribute(np.zeros((2, 4)), "4: S(0)", "4: S(1)" if group.rank else "4: R", shape=(8, 4))
        wrong.append("no error")
    except reshard.Mismatch:
        pass
    for call in (group.all_reduce, group.reduce_scatter, group.all_to_all):  # as many elements, in other shapes
        try:
            call(np.zeros((4, 8) if group.rank != 3 else (8, 4)))
            wrong.append(("no error", call.__name__))
        except reshard.Mismatch as error:
            if "%s: the array of rank 3 has the shape (8, 4)" % call.__name__ not in str(error):
                wrong.append(str(error))
    return wrong + ([] if int(group.all_reduce(1)) == 4 else ["broken"])


BODIES = [redistribute_all, redistribute_without_shape, sum_up, collect, take_arrays_of_all_kinds, disagree]


class TestThreads(unittest.TestCase):
    def test_bodies(self):
        for body in BODIES:
            with self.subTest(body.__name__):
                self.assertEqual(reshard.run(4, body), [[]] * 4)

    def test_rank_that_raises__ends_the_others(self):
        ended = []

        def body(group):
            if group.rank == 2:
                raise ZeroDivisionError("on purpose")
            try:
                group.barrier()
            except reshard.GroupBroken as error:
                ended.append(str(error))
                raise
        with self.assertRaisesRegex(ZeroDivisionError, "on purpose"):
            reshard.run(4, body)
        self.assertEqual(len(ended), 3)
        for text in ended:
            self.assertIn("ZeroDivisionError: on purpose", text)

    def test_exec__again_and_into_given_arrays(self):
        plan = reshard.plan((8, 8), "f32", "4: S(0)", "4: S(1)")

        def body(group):
            move, out = reshard.Exec(group, plan, verify=True), np.zeros((8, 2), "f4")
            for i in range(3):
                whole = np.arange(64, dtype="f4").reshape(8, 8) + i
                if move(whole[2 * group.rank:2 * group.rank + 2], out=out) is not out:
                    return "another array"
                if not np.array_equal(out, whole[:, 2 * group.rank:2 * group.rank + 2]):
                    return "wrong values"
            return ""
        self.assertEqual(reshard.run(4, body), [""] * 4)

    def test_interrupt__ends_ranks_that_wait(self):
        code = ("import os, reshard, signal, threading\n"
                "def body(group):\n"
                "    while True:\n"
                "        {}\n"
                "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which jobs in the background ignore
                "threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
                "try:\n"
                "    reshard.run(2, body)\n"
                "except KeyboardInterrupt:\n"
                "    print('interrupted')\n")
        # Ranks that go on for ever, and ranks that nobody will ever answer.
        for call in ("group.barrier()", "group.receive((1,), 'f32', 1 - group.rank)", "group.subset([1, 0]).barrier()"):
            with self.subTest(call):
                done = subprocess.run([sys.executable, "-c", code.format(call)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, timeout=100)
                self.assertEqual((done.stdout, done.stderr), ("interrupted\n", ""))

    def test_interrupt__of_exec_leaves_nothing_under_way(self):
        plan = reshard.plan((4, 4), "f32", "2: S(0)", "2: S(1)")
        from reshard import _library
        start = _library.lib.reshard_exec_start

        def strike(*arguments):
            start(*arguments)
            raise KeyboardInterrupt

        def body(group):
            move = reshard.Exec(group, plan)
            whole = np.arange(16, dtype="f4").reshape(4, 4)
            mine = whole[2 * group.rank:2 * group.rank + 2]
            group.barrier()
            _library.lib.reshard_exec_start = strike
            try:
                move(mine)
            except KeyboardInterrupt:
                pass
            group.barrier()
            _library.lib.reshard_exec_start = start
            return np.array_equal(move(mine), whole[:, 2 * group.rank:2 * group.rank + 2])  # nothing of it is under way
        try:
            self.assertEqual(reshard.run(2, body), [True, True])
        finally:
            _library.lib.reshard_exec_start = start

    def test_sizes(self):
        self.assertEqual(reshard.run(1, lambda group: (group.rank, group.size, group.transport)), [(0, 1, "threads")])
        with self.assertRaises(reshard.Error):
            reshard.run(0, lambda group: None)

    def test_closed_group__says_so(self):
        groups = []
        reshard.run(1, groups.append)
        with self.assertRaisesRegex(ValueError, "closed"):
            groups[0].barrier()

    def test_plans_that_are_kept__are_bounded(self):
        def body(group):
            wrong = []
            for i in range(200):
                rows = i % 70 + 1 if i % 3 else 1  # one of them again and again, others too late to be found
                found = group.redistribute(np.full((rows, 4), group.rank, "f4"), "2: S(0)", "2: S(1)", shape=(2 * rows, 4))
                if found[:, 0].tolist() != [0] * rows + [1] * rows:
                    wrong.append(i)
            return wrong, len(group._execs) <= 64
        self.assertEqual(reshard.run(2, body), [([], True)] * 2)

    def test_what_is_kept_of_ranks__says_that_they_have_ended(self):
        plan = reshard.plan((2, 2), "f32", "2: S(0)", "2: S(1)")
        kept = reshard.run(2, lambda group: (reshard.Exec(group, plan), group.subset([1, 0]), group))
        for move, part, group in kept:
            with self.assertRaisesRegex(ValueError, "have ended"):
                move(np.zeros((1, 2), "f4"))
            for closed in (part, group):
                with self.assertRaisesRegex(ValueError, "closed"):
                    closed.all_reduce(1)


def run_page(rank):
    """The lines of docs/python.md that need MPI, as they stand."""
    with open(os.path.join(support.ROOT, "docs", "python.md"), encoding="utf-8") as file:
        block, = [block for block in re.findall(r"^```python\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL) if "mpi4py" in block]
    whole = np.arange(64.0).reshape(8, 8)
    names = {"rows": whole[2 * rank:2 * rank + 2]}
    exec(block, names)
    return [] if np.array_equal(names["columns"], whole[:, 2 * rank:2 * rank + 2]) else [("page", names["columns"])]


def refuse_other_mpi():
    """A libreshard_mpi of another MPI is refused in one line, and the right one is taken afterwards."""
    from mpi4py import MPI
    import reshard.mpi
    wrong, right = [], os.environ["RESHARD_MPI_LIBRARY"]
    for path, says in [(os.environ["RESHARD_TEST_OTHER_MPI"], r"uses Other MPI Version: 7.1, but mpi4py uses \w+[^\n]*$"),
                       (os.environ["RESHARD_LIBRARY"], "is not linked with any MPI"), (right + ".none", "No such file")]:
        os.environ["RESHARD_MPI_LIBRARY"] = path
        try:
            reshard.mpi.group(MPI.COMM_WORLD)
            wrong.append(("not refused", path))
        except reshard.LibraryMissing as error:
            if not re.search(says, str(error)) or path not in str(error):
                wrong.append(str(error))
    os.environ["RESHARD_MPI_LIBRARY"] = right
    return wrong


def run_with_mpi():
    from mpi4py import MPI
    import reshard.mpi
    wrong = refuse_other_mpi() + run_page(MPI.COMM_WORLD.rank)
    with reshard.mpi.group(MPI.COMM_WORLD, timeout=200) as group:
        assert (group.rank, group.size) == (MPI.COMM_WORLD.rank, 4) and group.transport == "mpi", group
        for body in BODIES:
            wrong += [(body.__name__, *found) if isinstance(found, tuple) else (body.__name__, found) for found in body(group)]
    # A rank that leaves by an exception does not leave the others waiting.
    heard = ""
    try:
        with reshard.mpi.group(MPI.COMM_WORLD, timeout=200) as group:
            if group.rank == 1:
                raise ZeroDivisionError("on purpose")
            group.barrier()
    except (ZeroDivisionError, reshard.GroupBroken) as error:
        heard = str(error)
    if "on purpose" not in heard:
        wrong.append(("raise", heard))
    everything = MPI.COMM_WORLD.gather(wrong)
    if MPI.COMM_WORLD.rank == 0:
        print(everything)
        sys.exit(1 if any(everything) else 0)


if __name__ == "__main__":
    if USES_MPI:
        run_with_mpi()
    else:
        support.main()
