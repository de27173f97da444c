# SPDX-License-Identifier: Apache-2.0
"""The core of the package: how the library is found, errors, specs, layouts and plans; and every docstring's example."""
import ast
import doctest
import gc
import glob
import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import support

support.need("numpy")

import numpy as np  # noqa: E402
import reshard  # noqa: E402

SOURCES = sorted(glob.glob(os.path.join(support.PACKAGE, "**", "*.py"), recursive=True))


def run_python(code, **environment):
    """Exit code and output of a fresh Python; a variable that is None is not set."""
    variables = {**os.environ, **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    done = subprocess.run([sys.executable, "-B", "-c", code], env=variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def owners_of(chunks, length):
    """PyTorch's chunk rule from its definition: the chunk of each place along a dimension."""
    size = -(-length // chunks)
    return np.arange(length) // size


class TestLibrary(unittest.TestCase):
    def test_handles__are_released_after_those_that_need_them(self):
        """The collector of garbage finalises what is in a cycle in any order; here the worst of them."""
        plan = reshard.plan((4, 4), "f32", "2: S(0)", "2: S(1)")
        part = plan.part(1)
        text = repr(part)
        plan._context.__del__()
        plan.__del__()
        self.assertEqual(repr(part), text)
        self.assertTrue(plan._pointer)
        part.__del__()
        self.assertEqual((part._pointer, plan._pointer), (None, None))

    def test_handles__a_transposed_plan_outlives_its_plan(self):
        adjoint = reshard.plan((4, 4), "f32", "2: S(0)", "2: S(1)").adjoint()
        gc.collect()
        self.assertEqual(adjoint.stats.bytes_moved, 32)

    def test_import__needs_no_library(self):
        code, output = run_python("import reshard, sys; assert 'numpy' not in sys.modules; print('fine')", RESHARD_LIBRARY="/nowhere")
        self.assertEqual((code, output), (0, "fine\n"))

    def test_missing__says_where_it_looked(self):
        code = "import reshard\ntry:\n    reshard.Spec('2: R')\nexcept reshard.LibraryMissing as error:\n    print(error)"
        _, output = run_python(code, RESHARD_LIBRARY="/nowhere/libreshard.so.0.3")
        self.assertIn("/nowhere/libreshard.so.0.3", output)
        _, output = run_python(code, RESHARD_LIBRARY=None, LD_LIBRARY_PATH="")
        if "libreshard was not found" in output:  # it may be installed
            self.assertIn(os.path.join("reshard", "lib", "libreshard.so.0.3"), output)
            self.assertIn("; libreshard.so.0.3 (", output)
            self.assertIn("RESHARD_LIBRARY", output)

    def test_other_library__is_refused(self):
        code = "import reshard\ntry:\n    reshard.version()\nexcept reshard.LibraryMissing as error:\n    print(error)"
        self.assertIn("is not libreshard", run_python(code, RESHARD_LIBRARY="libm.so.6")[1])

    def test_other_abi__is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "other.so")
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", path, "-"], text=True, check=True,
                           input="int reshard_abi_version(void) { return 77; }")
            code = "import reshard\ntry:\n    reshard.version()\nexcept reshard.LibraryMissing as error:\n    print(error)"
            self.assertIn("has version 77 of the binary interface", run_python(code, RESHARD_LIBRARY=path)[1])

    def test_old_library__names_the_call(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "old.so")
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", path, "-"], text=True, check=True,
                           input="int reshard_abi_version(void) { return 2; }")
            code = "import reshard\ntry:\n    reshard.version()\nexcept reshard.LibraryMissing as error:\n    print(error)"
            self.assertIn("has no reshard_version: it is older", run_python(code, RESHARD_LIBRARY=path)[1])

    def test_version(self):
        self.assertRegex(reshard.version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(reshard.library_path(), os.environ["RESHARD_LIBRARY"])


class TestSources(unittest.TestCase):
    def test_grammar__is_that_of_3_8(self):
        for path in SOURCES:
            with open(path, encoding="utf-8") as file:
                ast.parse(file.read(), path, feature_version=(3, 8))

    def test_docstrings__are_true(self):
        count = 0
        for path in SOURCES:
            name = os.path.relpath(path, support.PACKAGE)[:-3].replace(os.sep, ".")
            if name in ("backend", "reshard.__main__", "reshard.mpi") or name.startswith("reshard.torch"):
                continue  # not for import here, or with tests of their own
            found = doctest.testmod(importlib.import_module(name))
            self.assertEqual(found.failed, 0, name)
            count += found.attempted
        self.assertGreater(count, 30)

    def test_public__have_docstrings(self):
        for name in reshard.__all__:
            public = getattr(reshard, name)
            self.assertTrue((public.__doc__ or "").strip(), name)
            if not (isinstance(public, type) and issubclass(public, (Exception, tuple))):
                self.assertIn(">>>", public.__doc__, "%s has no example" % name)


class TestErrors(unittest.TestCase):
    def test_kinds__are_those_of_the_library(self):
        # A new status in the headers wants an exception here.
        from reshard import _errors, _native
        statuses = {value for name, value in vars(_native).items() if name.startswith("RESHARD_ERR_")}
        self.assertEqual(set(_errors.KINDS), statuses)

    def test_hints__are_those_of_the_library(self):
        # A new hint in the headers wants words here.
        from reshard import _errors, _native
        numbers = {value for name, value in vars(_native).items() if name.startswith("RESHARD_HINT_")}
        self.assertEqual(set(_errors.HINTS.values()), numbers - {_native.RESHARD_HINT_NONE, _native.RESHARD_HINT_COUNT})

    def test_words__are_those_of_the_library(self):
        with self.assertRaises(reshard.Invalid) as caught:
            reshard.Layout("4: S(2)", (8, 8))
        self.assertIn("dimension 2", str(caught.exception))
        self.assertEqual(caught.exception.status, -1)
        with self.assertRaises(reshard.Overlap):
            reshard.Layout("boxes 2x2: 0[0:2,0:2] 1[0:1,0:1]", (2, 2))
        with self.assertRaises(reshard.Gap):
            reshard.Layout("boxes 2x2: 0[0:1,0:2]", (2, 2))

    def test_kinds__are_builtin_ones_too(self):
        for kind, builtin in [(reshard.NotFound, KeyError), (reshard.NotFound, FileNotFoundError), (reshard.Io, OSError),
                              (reshard.Syntax, ValueError), (reshard.NoMemory, MemoryError), (reshard.Timeout, TimeoutError)]:
            self.assertTrue(issubclass(kind, builtin) and issubclass(kind, reshard.Error))
        self.assertEqual(str(reshard.NotFound('no "x"')), 'no "x"')

    def test_nul__is_refused(self):
        with self.assertRaisesRegex(ValueError, "NUL"):
            reshard.Spec("4: S(0)\0 and more")


class TestSpecs(unittest.TestCase):
    def test_text__is_canonical(self):
        for text, canonical in [("4:S0", "4: S(0)"), ("dp = 2, tp=2 : R, S( 1 )", "dp=2,tp=2: R, S(1)"), ("2: P", "2: P(sum)")]:
            self.assertEqual(repr(reshard.Spec(text)), canonical)
            self.assertEqual(reshard.Spec(text), canonical)
            self.assertEqual(hash(reshard.Spec(text)), hash(reshard.Spec(canonical)))
        self.assertNotEqual(reshard.Spec("4: S(0)"), reshard.Spec("4: S(1)"))

    def test_pickle(self):
        self.assertEqual(pickle.loads(pickle.dumps(reshard.Spec("4: S(0)"))), "4: S(0)")
        layout = reshard.Layout("4: S(0)", (9, 3))
        self.assertEqual(pickle.loads(pickle.dumps(layout)), layout)

    def test_shapes(self):
        self.assertEqual(reshard.Layout("2: R", "4x6").shape, (4, 6))
        self.assertEqual(reshard.Layout("2: R", 5).shape, (5,))
        self.assertEqual(reshard.Layout("2: R", ()).shape, ())
        self.assertEqual(reshard.Layout("2: S(0)", np.array([4, 6])).shape, (4, 6))
        for bad in [(-1,), (2**63,), (1,) * 9]:
            with self.assertRaises(reshard.Range):
                reshard.Layout("2: R", bad)


class TestLayouts(unittest.TestCase):
    def test_boxes__are_chunks(self):
        for length in [1, 5, 8, 13]:
            owners = owners_of(4, length)
            boxes = reshard.Layout("4: S(0)", (length, 3)).boxes
            painted = np.full((length, 3), -1)
            for rank, offset, size in zip(*boxes):
                painted[offset[0]:offset[0] + size[0], offset[1]:offset[1] + size[1]] = rank
            np.testing.assert_array_equal(painted, np.repeat(owners[:, None], 3, axis=1))

    def test_shards__of_a_fused_tensor(self):
        shard, = reshard.Layout("2: S(0;4,2)", (6, 5)).shards(1)
        self.assertEqual(shard.shape, (3, 5))
        self.assertEqual([(p.offset, p.size, p.at) for p in shard.pieces], [((2, 0), (2, 5), 0), ((5, 0), (1, 5), 10)])

    def test_ranks(self):
        self.assertEqual(reshard.Layout("2[7,3]: S(0)", (4,)).ranks.tolist(), [3, 7])
        self.assertEqual(reshard.Layout("2[7,3]: S(0)", (4,)).shards(0), [])
        self.assertEqual(reshard.Spec("dp=2,tp=2: R, S(0)").ranks.tolist(), [[0, 1], [2, 3]])


class TestPlans(unittest.TestCase):
    def test_matrix__counts_what_changes_hands(self):
        shape = (10, 14)
        source, target = owners_of(3, 10), owners_of(4, 14)
        wanted = np.zeros((4, 4), np.uint64)
        for i in range(10):
            for k in range(14):
                wanted[source[i], target[k]] += 2
        plan = reshard.plan(shape, "bf16", "3: S(0)", "4: S(1)")
        np.testing.assert_array_equal(plan.matrix, wanted)
        self.assertEqual(plan.matrix.dtype, np.uint64)
        self.assertEqual(plan.stats.bytes_total, 280)
        self.assertEqual(plan.stats.bytes_moved, 280 - np.trace(wanted))
        self.assertTrue(plan.check())

    def test_streams__carry_the_plan_out(self):
        """Both ends pack and unpack by the moves alone, element by element; the result is what the layouts say."""
        shape, source, target = (7, 9), reshard.Layout("3: S(0)", (7, 9)), reshard.Layout("3[2,0,1]: S(1~)", (7, 9))
        whole = np.arange(63, dtype=np.int32).reshape(shape)

        def local(layout, rank):
            shard, = layout.shards(rank)
            return whole[tuple(slice(o, o + n) for o, n in zip(shard.offset, shard.shape))].ravel()

        plan = reshard.plan(shape, "i32", source, target)
        parts = [plan.part(rank) for rank in range(3)]
        found = [np.full(local(target, rank).size, -1, np.int32) for rank in range(3)]
        for rank in range(3):
            for move in parts[rank].keeps(0):
                for x in np.ndindex(*move.size):
                    found[rank][move.target_at + np.dot(x, move.target_strides)] = \
                        local(source, rank)[move.source_at + np.dot(x, move.source_strides)]
            for peer in set(range(3)) - {rank}:
                out, back = parts[peer].stream(0, rank, True), parts[rank].stream(0, peer, False)
                stream = np.full(sum(move.bytes for move in out) // 4, -1, np.int32)
                for move in out:
                    stream[move.offset // 4:(move.offset + move.bytes) // 4] = \
                        [local(source, peer)[move.source_at + np.dot(x, move.source_strides)] for x in np.ndindex(*move.size)]
                for move in back:
                    for i, x in enumerate(np.ndindex(*move.size)):
                        found[rank][move.target_at + np.dot(x, move.target_strides)] = stream[move.offset // 4 + i]
        for rank in range(3):
            np.testing.assert_array_equal(found[rank], local(target, rank))

    def test_digest__tells_plans_apart(self):
        one, two = (reshard.plan((8, 8), "f32", "2: S(0)", text) for text in ["2: S(1)", "2: R"])
        self.assertNotEqual(one.digest, two.digest)
        self.assertEqual(one.digest, reshard.plan((8, 8), "f32", "2:S0", "2:S1").digest)
        self.assertEqual(len(one.digest), 32)

    def test_tensors__each_with_its_spec(self):
        plan = reshard.plan_tensors({"a": ((4, 4), "f32"), "b": ((6,), "i64")}, "2: S(0)", {"a": "2: S(1)", "b": "2[2,3]: S(0)"})
        self.assertEqual(plan.matrix.shape, (4, 4))
        self.assertEqual(plan.matrix[0, 2], 24)
        self.assertEqual(repr(plan), "4x4 f32: 2: S(0) -> 2: S(1) and 1 more")
        with self.assertRaisesRegex(reshard.Invalid, "'b'"):
            reshard.plan_tensors({"a": ((4, 4), "f32"), "b": ((6,), "i64")}, "2: S(0)", {"a": "2: S(1)"})

    def test_relabel(self):
        plan = reshard.plan((4, 4), "f32", "2[0,1]: S(0)", "2[1,0]: S(0)", relabel=True)
        self.assertEqual(plan.stats.bytes_moved, 0)
        self.assertEqual(repr(plan.target_layout().spec), "2: S(0)")

    def test_bad_arguments(self):
        with self.assertRaises(reshard.Invalid):
            reshard.plan((4,), "f32", "2: S(0)", "2: R", balance="best")
        with self.assertRaises(reshard.NotFound):
            reshard.plan((4,), "f33", "2: S(0)", "2: R")
        with self.assertRaises(IndexError):
            reshard.plan((4,), "f32", "2: S(0)", "2: R").target_layout(1)


class TestPictures(unittest.TestCase):
    def test_notebooks__get_the_pictures_of_the_library(self):
        layout = reshard.Layout("4: S(0)", (8, 8))
        for drawn in (layout, reshard.plan((8, 8), "f32", layout, "4: S(1)")):
            root = xml.etree.ElementTree.fromstring(drawn._repr_html_())
            self.assertTrue(root.tag.endswith("svg"))
        command = os.path.join(support.BUILD, "reshard")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layout.svg")
            subprocess.run([command, "layout", "4: S(0)", "--shape", "8x8", "--svg", path], check=True, capture_output=True)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read().strip(), layout._repr_html_().strip())

    def test_what_cannot_be_drawn__is_text(self):
        self.assertIsNone(reshard.Layout("2,2,2,2: S(0), S(1), S(2), S(3)", (4, 4, 4, 4))._repr_html_())


class TestDtypes(unittest.TestCase):
    def test_names__both_ways(self):
        from reshard import _native
        for name, (_, bits) in _native.DTYPES.items():
            self.assertEqual(reshard.dtype_name(name), name)
            self.assertEqual(reshard.numpy_dtype(name, raw=True).itemsize, max(8, bits) // 8)
        for name in ["bool", "i8", "u16", "f16", "f32", "f64", "i64", "c64", "c128"]:
            self.assertEqual(reshard.dtype_name(reshard.numpy_dtype(name)), name)

    def test_bytes_of_another_machine__are_refused(self):
        with self.assertRaisesRegex(reshard.Unsupported, "byte order"):
            reshard.dtype_name(np.dtype(">f4"))


if __name__ == "__main__":
    support.main()
