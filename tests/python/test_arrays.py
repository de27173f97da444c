# SPDX-License-Identifier: Apache-2.0
"""Which arrays are taken and which are handed out: an array must hold the very type, not one of the same width, and what NumPy
has no type for comes as plain bits only if one asks for them."""
import os
import pickle
import sys
import types
import unittest
from unittest import mock

import support

support.need("numpy")
import numpy as np

import reshard

BF16 = np.array([[0x3f80, 0xc000], [0x4040, 0x0000]], "u2")  # 1, -2, 3, 0
VALUES = [[1.0, -2.0], [3.0, 0.0]]
HAS_BF16 = True
try:
    import ml_dtypes  # noqa: F401
except ImportError:
    HAS_BF16 = False


def without_ml_dtypes():
    return mock.patch.dict(sys.modules, ml_dtypes=None)


class Case(support.ModelCase):
    def setUp(self):
        patch = without_ml_dtypes()
        patch.start()
        self.addCleanup(patch.stop)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.path = os.path.join(cls.folder, "types.safetensors")
        cls.stored = {"b": BF16, "e": np.array([0x38, 0xb8], "u1"), "h": np.array([1, 2], "f2"), "f": np.array([1, 2], "f4"),
                      "i": np.array([1, 2], "i4"), "u": np.array([1, 2], "u2"), "w": np.array([1, 0], "bool")}
        support.write_safetensors(cls.path, cls.stored, {"b": "BF16", "e": "F8_E4M3"})


class TestReading(Case):
    def test_plain_bits__only_if_asked_for(self):
        for mmap in (False, True):
            with reshard.open(self.path, mmap=mmap) as ck:
                mine = ck.shard("1: R", 0)
                for what in (lambda: ck["b"][...], lambda: ck["b"][0, 1], lambda: ck["b"][:, ::2], lambda: ck["b"].read(), lambda: ck["e"][...],
                             lambda: np.asarray(ck["b"]), lambda: ck["b"].numpy_dtype, lambda: mine["b"], lambda: mine.read(["b"]), lambda: dict(mine),
                             lambda: ck["f"].read("bf16"), lambda: ck.shard("1: R", 0, dtype="bf16")["f"], lambda: reshard.numpy_dtype("bf16")):
                    with self.assertRaisesRegex(reshard.Unsupported, r"NumPy has no type for (bf16|f8_e4m3): install ml_dtypes, cast .*raw=True"):
                        what()
                with self.assertRaisesRegex(reshard.Unsupported, 'tensor "b"'):
                    ck["b"][...]
                np.testing.assert_array_equal(mine["f"], [1, 2])  # the others can be read
                np.testing.assert_array_equal(mine["h"], [1, 2])
                self.assertEqual(ck["b"].read("f32").tolist(), VALUES)
                self.assertEqual(ck["b"].read(raw=True).tolist(), BF16.tolist())
                self.assertEqual(ck.shard("1: R", 0, dtype={"b": "f32"})["b"].tolist(), VALUES)
            with reshard.open(self.path, mmap=mmap, raw=True) as ck:
                mine = ck.shard("1: R", 0)
                for found in (ck["b"][...], ck["b"].read(), np.asarray(ck["b"]), mine["b"], mine.read()["b"], pickle.loads(pickle.dumps(ck))["b"][...]):
                    self.assertEqual((found.dtype, found.tolist()), (np.dtype("u2"), BF16.tolist()))
                self.assertEqual(ck["b"][1, 0], 0x4040)
                self.assertEqual(ck["e"][...].tolist(), [0x38, 0xb8])

    def test_casts_by_numpy__are_casts_of_the_numbers(self):
        """numpy.asarray(bf16, "f4") must not convert the integers that hold the bits."""
        for raw in (False, True):
            for mmap in (False, True):
                with reshard.open(self.path, raw=raw, mmap=mmap) as ck:
                    for kind in ("f4", "f8", "f2"):
                        found = np.asarray(ck["b"], kind)
                        self.assertEqual((found.dtype, found.tolist()), (np.dtype(kind), VALUES))
                    self.assertEqual(np.asarray(ck["e"], "f4").tolist(), [1.0, -1.0])
                    self.assertEqual(np.asarray(ck["f"], "f8").tolist(), [1.0, 2.0])
                    self.assertEqual(np.asarray(ck["i"], "f4").tolist(), [1.0, 2.0])

    def test_types_of_ml_dtypes__are_used_if_there(self):
        """A stand-in, because NumPy alone cannot make such a type: float16 in the place of bfloat16."""
        with mock.patch.dict(sys.modules, ml_dtypes=types.SimpleNamespace(bfloat16=np.float16)):
            self.assertEqual(reshard.numpy_dtype("bf16"), np.float16)
            self.assertEqual(reshard.numpy_dtype("bf16", raw=True), np.uint16)
            with self.assertRaises(reshard.Unsupported):  # of an older release
                reshard.numpy_dtype("f8_e8m0")
            with reshard.open(self.path) as ck:
                self.assertEqual(ck["b"][...].view("u2").tolist(), BF16.tolist())

    @unittest.skipUnless(HAS_BF16, "ml_dtypes is not installed")
    def test_real_types_of_ml_dtypes(self):
        import importlib
        with mock.patch.dict(sys.modules, ml_dtypes=importlib.import_module("ml_dtypes")), reshard.open(self.path) as ck:
            self.assertEqual(ck["b"][...].astype("f4").tolist(), VALUES)

    def test_load__compares_types_not_widths(self):
        with reshard.open(self.path) as ck, reshard.open(self.path, raw=True) as raw:
            for name, wrong in [("b", ["f2", "i2", "S2", ">u2", "u2", "V2"]), ("h", ["i2", "u2", ">f2", "S2", "V2"]), ("f", ["i4", "u4", ">f4", "S4", "V4", "c8", "U1"]),
                                ("i", ["f4", "u4", ">i4", "S4"]), ("u", ["i2", "f2", ">u2"]), ("e", ["u1", "i1", "bool", "S1"]), ("w", ["u1", "i1", "S1"])]:
                shape = ck[name].shape
                for kind in wrong:
                    out = np.zeros(shape, kind)
                    with self.assertRaisesRegex(reshard.Invalid, 'tensor "%s": the array must be' % name, msg=(name, kind)):
                        ck.shard("1: R", 0).load({name: out})
                    self.assertEqual(out.tobytes(), bytes(out.nbytes))
                    if kind not in ("u2", "V2", "u1") or name not in "be":
                        with self.assertRaises(reshard.Invalid, msg=(name, kind)):
                            raw.shard("1: R", 0).load({name: out})
                if name not in "be":
                    out = np.zeros(shape, self.stored[name].dtype)
                    ck.shard("1: R", 0).load({name: out})
                    np.testing.assert_array_equal(out, self.stored[name])
            for kind in ("u2", "V2"):
                out = np.zeros((2, 2), kind)
                raw.shard("1: R", 0).load({"b": out})
                self.assertEqual(out.tobytes(), BF16.tobytes())
            with self.assertRaisesRegex(reshard.Invalid, "raw=True of reshard.open"):
                ck.shard("1: R", 0).load({"b": np.zeros((2, 2), "u2")})

    def test_load__into_one_memory(self):
        with reshard.open(self.path) as ck:
            both = np.zeros(3, "f4")
            ints = both.view("i4")
            for out in ({"f": both[:2], "i": ints[1:]}, {"f": both[:2], "i": ints[:2]}):
                with self.assertRaisesRegex(reshard.Invalid, "share memory"):
                    ck.shard("1: R", 0).load(out)
            self.assertEqual(both.tolist(), [0, 0, 0])
            four = np.zeros(4, "f4")
            ck.shard("1: R", 0).load({"f": four[:2], "i": four[2:].view("i4")})
            self.assertEqual((four[:2].tolist(), four[2:].view("i4").tolist()), ([1, 2], [1, 2]))


class TorchLike:
    """What torch has for a tensor whose sign is only noted; its DLPack hands out the memory as it is."""

    layout = "torch.strided"

    def __init__(self, array, negative=False):
        self.array, self.negative, self.shape, self.device = array, negative, array.shape, "cpu"

    def resolve_conj(self):
        return self

    def resolve_neg(self):
        return TorchLike(-self.array) if self.negative else self

    def _is_zerotensor(self):
        return False

    def numel(self):
        return self.array.size

    def data_ptr(self):
        return self.array.ctypes.data

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class TestMoving(Case):
    def alone(self, body):
        return reshard.run(1, body)[0]

    def refused(self, body, words, kind=reshard.Invalid):
        with self.assertRaisesRegex(kind, words):
            reshard.run(1, body)

    def test_sources__with_a_mask(self):
        for masked in (np.ma.array([[1.0, 2.0]], mask=[[0, 1]]), [np.ma.array([[1.0, 2.0]], mask=True)]):
            self.refused(lambda group: group.redistribute(masked, "1: R", "1: R", shape=(1, 2), dtype="f64"), "the mask would be lost")
        self.refused(lambda group: group.all_reduce(np.ma.masked), "the mask would be lost")
        self.assertEqual(self.alone(lambda group: group.all_reduce(np.ma.array([1.0, 2.0]))).tolist(), [1, 2])  # nothing to lose

    def test_sources__of_another_type(self):
        sums = reshard.plan((2, 2), "bf16", "1: P(sum)", "1: R")
        for kind in ("f2", "i2", "S2", ">u2", "u4"):
            self.refused(lambda group: reshard.Exec(group, sums)(np.ones((2, 2), kind)), "are not bf16")
            self.refused(lambda group: group.redistribute(np.ones((2, 2), kind), "1: R", "1: R", dtype="bf16", shape=(2, 2)), "are not bf16")
            self.refused(lambda group: group.all_reduce(np.ones((2, 2), kind), dtype="bf16"), "are not bf16")
        for kind in ("i4", "u4", ">f4", "S4", "V4"):
            self.refused(lambda group: group.all_reduce(np.zeros(2, kind), dtype="f32"), "are not f32")
        self.assertEqual(self.alone(lambda group: reshard.Exec(group, sums)(BF16)).tolist(), BF16.tolist())
        self.assertEqual(self.alone(lambda group: group.all_reduce(BF16.view("V2"), dtype="bf16")).tobytes(), BF16.tobytes())

    def test_out__compares_types_not_widths(self):
        for dtype, wrong in [("f32", ["i4", "u4", ">f4", "S4", "V4"]), ("f16", ["u2", "i2", ">f2"]), ("u16", ["f2", "i2", ">u2"]), ("bf16", ["f2", "i2", ">u2", "S2"])]:
            plan = reshard.plan((2, 2), dtype, "1: R", "1: R")
            source = np.ones((2, 2), "u2" if dtype == "bf16" else reshard.numpy_dtype(dtype))
            for kind in wrong:
                self.refused(lambda group: reshard.Exec(group, plan)(source, out=np.zeros((2, 2), kind)), "of shape .* and dtype %s, not" % dtype)
            out = np.zeros_like(source)
            self.alone(lambda group: reshard.Exec(group, plan)(source, out=out))
            np.testing.assert_array_equal(out, source)
        self.refused(lambda group: reshard.Exec(group, plan)(source, out=[[0, 0], [0, 0]]), "NumPy arrays|2 shards|passes 2", (TypeError, reshard.Invalid))

    def test_out__over_its_source(self):
        plan = reshard.plan((4, 4), "f32", "1: R", "1: R")
        memory = np.arange(32, dtype="f4")
        for first in (0, 1, 4, 15):
            source, out = memory[:16].reshape(4, 4), memory[first:first + 16].reshape(4, 4)
            self.refused(lambda group: reshard.Exec(group, plan)(source, out=out), "share memory")
            self.refused(lambda group: reshard.Exec(group, plan)(out, out=source), "share memory")
        self.assertEqual(memory.tolist(), list(range(32)))
        self.alone(lambda group: reshard.Exec(group, plan)(memory[:16].reshape(4, 4), out=memory[16:].reshape(4, 4)))
        self.assertEqual(memory[16:].tolist(), list(range(16)))
        # Two results in one memory.
        two = reshard.plan_tensors({"a": ((4,), "f32"), "b": ((4,), "f32")}, "1: R", "1: R")
        given = [np.ones(4, "f4"), np.zeros(4, "f4")]
        self.refused(lambda group: reshard.Exec(group, two)(given, out=[memory[:4], memory[3:7]]), "share memory")

    def test_results__as_plain_bits_only_if_asked_for(self):
        cast = reshard.plan((2, 2), "f32", "1: R", "1: R", target_dtype="bf16")
        numbers = np.array(VALUES, "f4")
        lacks = "NumPy has no type for bf16"
        self.refused(lambda group: reshard.Exec(group, cast)(numbers), lacks, reshard.Unsupported)
        self.refused(lambda group: reshard.Exec(group, cast)(numbers, out=np.zeros((2, 2), "u2")), "and dtype bf16, not")
        self.assertEqual(self.alone(lambda group: reshard.Exec(group, cast, raw=True)(numbers)).tolist(), BF16.tolist())
        self.assertEqual(self.alone(lambda group: reshard.Exec(group, cast, raw=True)(numbers, out=np.zeros((2, 2), "u2"))).tolist(), BF16.tolist())

        def move(group, **options):
            return group.redistribute(numbers, "1: R", "1: R", target_dtype="bf16", **options)
        self.refused(move, lacks, reshard.Unsupported)
        self.assertEqual(self.alone(lambda group: move(group, raw=True)).tolist(), BF16.tolist())

        def deliver(raw):
            def body(group):
                if group.rank == 0:
                    return group.send(BF16, 1, dtype="bf16")
                return group.receive((2, 2), "bf16", 0, raw=raw).tolist()
            return reshard.run(2, body)[1]
        with self.assertRaisesRegex(reshard.Unsupported, lacks):
            deliver(False)
        self.assertEqual(deliver(True), BF16.tolist())

    def test_broadcast__refused_on_all_ranks(self):
        def body(group):
            heard = ""
            try:
                group.broadcast(BF16 if group.rank == 0 else None, dtype="bf16" if group.rank == 0 else None, raw=group.rank == 2)
            except reshard.Unsupported as error:
                heard = str(error)
            return heard, group.broadcast(BF16 if group.rank == 0 else None, dtype="bf16", raw=group.rank > 0).tolist()
        for heard, found in reshard.run(3, body):
            self.assertRegex(heard, "rank 1 cannot take bf16.*raw=True")
            self.assertEqual(found, BF16.tolist())

    def test_ranks_with_other_types__are_refused_on_all(self):
        def body(group):
            heard = []
            for kind in ("i4", ">f4", "f2", "f8"):
                for shape in (None, (3, 2)):
                    try:
                        group.redistribute(np.ones((1, 2), kind if group.rank == 1 else "f4"), "3: S(0)", "3: R", shape=shape)
                        heard.append("nothing")
                    except reshard.Error as error:
                        heard.append("%s" % error)
            return heard, group.redistribute(np.ones((1, 2), "f4"), "3: S(0)", "3: R").tolist()
        for heard, found in reshard.run(3, body):
            self.assertEqual(found, [[1, 1]] * 3)  # the group still works
            self.assertEqual(len(heard), 8)
            for text in heard:
                self.assertRegex(text, r"rank 1 has elements of (i32|f16|f64), but rank 0 of f32|byte order")

    def test_notes_of_torch__are_carried_out(self):
        numbers = np.array([1.0, -2.0], "f4")
        self.assertEqual(self.alone(lambda group: group.all_reduce(TorchLike(numbers, negative=True))).tolist(), [-1.0, 2.0])
        freed = TorchLike(numbers)
        freed.data_ptr = lambda: 0
        self.refused(lambda group: group.all_reduce(freed), "has no memory")
        sparse = TorchLike(numbers)
        sparse.layout = "torch.sparse_coo"
        self.refused(lambda group: group.all_reduce(sparse), "only dense")


if __name__ == "__main__":
    support.main()
