# SPDX-License-Identifier: Apache-2.0
"""What Python programs do to objects: copy, pickle and close them, use them from threads and after a fork, and pass the wrong
thing. Nothing of it may crash, and each refusal says what was wrong."""
import copy
import gc
import operator
import os
import pickle
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

import support

support.need("numpy")

import numpy as np  # noqa: E402
import reshard  # noqa: E402


def fail(*_):
    raise ZeroDivisionError


class Case(support.ModelCase):
    def refuse(self, kind, words, call, *arguments, **options):
        with self.assertRaisesRegex(kind, words):
            call(*arguments, **options)


class TestCopies(Case):
    def test_specs_and_layouts__are_copied(self):
        for value in (reshard.Spec("dp=2,tp=2: R, S(1)"), reshard.Layout("4: S(0)", (8, 3))):
            for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
                self.assertIsNot(other, value)
                self.assertEqual(other, value)

    def test_checkpoints__are_opened_again(self):
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            ck = reshard.open("model", mmap=True)
            texts = [pickle.dumps(value) for value in (ck, ck["lm_head.weight"], ck.shard("tp=4", 2))]
            other = copy.copy(ck)
        finally:
            os.chdir(before)
        ck.close()
        del ck
        gc.collect()
        self.assertEqual(list(other), sorted(self.tensors))  # and not memory that is gone
        other.close()
        checkpoint, tensor, shard = map(pickle.loads, texts)
        self.assertTrue(checkpoint.mmap)
        np.testing.assert_array_equal(tensor[...], self.tensors["lm_head.weight"])
        np.testing.assert_array_equal(shard["model.layers.0.mlp.up_proj.weight"],
                                      self.tensors["model.layers.0.mlp.up_proj.weight"][48:72])
        self.refuse(ValueError, "closed", pickle.dumps, other)

    def test_checkpoints__are_opened_again_in_the_same_way(self):
        """Rank files with padding that is not zero, and rules that rename, need all options again."""
        folder, rules = self.place("padded"), self.place("padded.rules")
        os.mkdir(folder)
        rows = np.arange(24, dtype="f4").reshape(12, 2)  # of which 10 are the tensor
        for rank in range(2):
            support.write_safetensors(os.path.join(folder, "rank%d.safetensors" % rank), {"a": rows[6 * rank:6 * rank + 6]})
        with open(rules, "w") as file:
            file.write("a S(0)@tp pad(0, 4, $rows) name(b)\n")
        how = dict(from_="tp=2", rules=rules, set={"rows": 10})
        self.refuse(reshard.Check, "not zero", reshard.open, folder, **how)
        with reshard.open(folder, padding="any", keep_names=True, **how) as ck:
            for other in (copy.copy(ck), pickle.loads(pickle.dumps(ck))):
                np.testing.assert_array_equal(other["a"][...], rows[:10])
        folder = self.place("unlisted")
        os.mkdir(folder)
        support.write_safetensors(os.path.join(folder, "a.safetensors"), {"a": rows, "b": rows})
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
            file.write('{"weight_map": {"a": "a.safetensors"}}')
        for unlisted, names in [("skip", ["a"]), ("take", ["a", "b"])]:
            with reshard.open(folder, unlisted=unlisted) as ck:
                self.assertEqual(list(copy.copy(ck)), names)

    def test_others__are_refused(self):
        plan = reshard.plan((8, 8), "f32", "4: S(0)", "4: S(1)")
        for value in (plan, plan.part(0), reshard.Conversion(reshard.open(self.model))):
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                self.refuse(TypeError, "neither copied nor pickled", way, value)
        self.assertTrue(plan.check())


class TestClosing(Case):
    def test_close__waits_for_other_threads(self):
        for _ in range(20):
            ck, errors, begun = reshard.open(self.model), [], threading.Barrier(4)

            def read():
                begun.wait()
                try:
                    while True:
                        for name in ck:
                            if not np.array_equal(ck[name][...], self.tensors[name]):
                                errors.append(name)
                                return
                except ValueError as error:
                    if "closed" not in str(error):
                        errors.append(error)
            threads = [threading.Thread(target=read) for _ in range(3)]
            for thread in threads:
                thread.start()
            begun.wait()
            ck.close()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [])

    def test_close__waits_for_a_call_to_end(self):
        ck, begun, ended = reshard.open(self.model), threading.Event(), []

        def watch(_what, done, total):
            if not begun.is_set():
                begun.set()
                time.sleep(0.2)
            if done == total:
                ended.append(done)
        thread = threading.Thread(target=ck.digest, kwargs={"progress": watch})
        thread.start()
        begun.wait()
        ck.close()
        self.assertNotEqual(ended, [])
        thread.join()

    def test_close__in_its_own_callback_is_refused(self):
        ck = reshard.open(self.model)
        self.refuse(ValueError, "this thread is using it", ck.digest, progress=lambda *_: ck.close())
        self.assertEqual(len(ck), len(self.tensors))

    def test_conversion__of_a_closed_checkpoint(self):
        ck = reshard.open(self.model)
        conversion = reshard.Conversion(ck, to="tp=2")
        ck.close()
        gc.collect()
        for use in (lambda: conversion.tensors, lambda: conversion.matrix, lambda: conversion.rules, lambda: conversion.notes,
                    lambda: conversion.run(self.folder + "/never"), lambda: conversion.estimate(self.folder)):
            self.refuse(ValueError, "closed", use)

    def test_layouts__outlive_what_told_them(self):
        layouts = []
        for _ in range(30):
            ck = reshard.open(self.model)
            plan = reshard.plan((8, 8), "f32", "2[0,1]: S(0)", "2[1,0]: S(1)", relabel=True)
            layouts += [ck["lm_head.weight"].layout, plan.target_layout(), plan.adjoint().part(1).plan.tensors[0].source]
            ck.close()
            cycle = [ck, plan, plan.part(0), plan.adjoint(), reshard.Conversion(reshard.open(self.model))]
            cycle.append(cycle)  # the collector ends these in an order of its own
            del ck, plan, cycle
            gc.collect()
        for layout in layouts:
            self.assertGreater(len(layout.boxes.ranks), 0)

    def test_fork__reads_on(self):
        ck = reshard.open(self.model)
        wanted = ck.digest(threads=2, progress=False).checkpoint
        child = os.fork()
        if child == 0:
            good = ck.digest(threads=2, progress=False).checkpoint == wanted and \
                np.array_equal(ck["lm_head.weight"][...], self.tensors["lm_head.weight"])
            os._exit(0 if good else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(ck.digest(progress=False).checkpoint, wanted)

    def test_fork__while_another_thread_uses_it(self):
        ck, view = reshard.open(self.model), reshard.open(self.model).named("vllm")
        begun, may_end, used = threading.Event(), threading.Event(), []

        def watch(*_):
            with ck._idle, view._idle:
                begun.set()
                may_end.wait()
        thread = threading.Thread(target=lambda: used.append(ck.digest(progress=watch)))
        thread.start()
        begun.wait()
        child = os.fork()
        if child == 0:  # nobody else is here, so nobody has to be waited for
            signal.alarm(30)
            good = len(view) > 0 and np.array_equal(ck["lm_head.weight"][...], self.tensors["lm_head.weight"])
            try:
                ck.digest(progress=fail)
                good = False
            except ZeroDivisionError:
                pass
            good = good and len(ck.digest(progress=False).checkpoint) == 32  # that one was stopped, this one is not
            ck.close()
            os._exit(0 if good else 1)
        status = os.waitpid(child, 0)[1]
        may_end.set()
        thread.join()
        self.assertEqual((status, len(used)), (0, 1))


class TestWrongArguments(Case):
    def test_names_and_indices(self):
        with reshard.open(self.model) as ck:
            for key in (0, None, b"lm_head.weight", slice(3)):
                self.refuse(TypeError, "by name", operator.getitem, ck, key)
            for key in (np.ones(100, bool), np.array([1, 2]), [1], None, True, 1.0, "a"):
                self.refuse(TypeError, "slices and numbers", operator.getitem, ck["lm_head.weight"], key)
            self.refuse(ValueError, "step", operator.getitem, ck["lm_head.weight"], slice(None, None, 0))

    def test_shards(self):
        with reshard.open(self.model) as ck:
            for rank in ("1", 1.0, None, True):
                self.refuse(TypeError, "a rank", ck.shard, "tp=4", rank)
            for mesh, rank in (("tp=4", -1), ("tp=4", 4), ("4: S(0)", 4), ("2[3,5]: S(0)", 4), ("4: S(0)", 2**40)):
                self.refuse(reshard.Range, "is not in the", ck.shard, mesh, rank)
            for mesh in (4, None, ["tp=4"]):
                self.refuse(TypeError, "a mesh", ck.shard, mesh, 0)
            self.assertEqual(len(ck.shard(reshard.Spec("2[3,5]: S(0)"), 5)), len(self.tensors))
            self.assertEqual(len(ck.shard({"lm_head.weight": "2: S(0)"}, 5)), 0)  # each may have ranks of its own
            self.refuse(TypeError, "NumPy array", ck.shard("tp=4", 0).load, {"lm_head.weight": [1.0]})
            self.refuse(TypeError, "name: array", ck.shard("tp=4", 0).load, [1.0])

    def test_specs_and_shapes(self):
        spec = reshard.Spec("4: S(0)")
        self.assertFalse(spec == "garbage")
        self.assertTrue(spec in ["garbage", 3, "4:S0"])
        for text in (None, 3):
            self.refuse(TypeError, "a spec is a text", reshard.Spec, text)
        for shape in ((8.5, 2), None, ("a",), (True,)):
            self.refuse(TypeError, "a length", reshard.Layout, spec, shape)
        self.refuse(reshard.Range, "-1", reshard.Layout, spec, (-1,))
        self.refuse(reshard.Range, "-1", reshard.Layout(spec, 8).shards, -1)
        self.refuse(TypeError, "a rank", reshard.Layout(spec, 8).shards, "a")
        self.assertEqual(reshard.Layout(spec, np.int64(8)).shape, (8,))

    def test_plans(self):
        self.refuse(TypeError, "dtype", reshard.plan, (8,), None, "4: S(0)", "4: R")
        part = reshard.plan((8, 8), "f32", "4: S(0)", "4: S(1)").part(0)
        for call in (part.links, part.keeps, lambda stage: part.stream(stage, 1, True)):
            for stage in (-1, 1, 7):
                self.refuse(IndexError, "stage", call, stage)
        self.refuse(reshard.Range, "rank", part.stream, 0, -1, True)
        self.refuse(reshard.Range, "rank", part.plan.part, -1)
        self.assertEqual(part.stream(0, 99, True), [])
        self.assertGreater(part.plan.adjoint().stats.bytes_moved, 0)

    def test_conversions(self):
        for option in ("max_shard_size", "max_memory"):
            self.refuse(reshard.Range, option, reshard.convert, self.model, self.folder + "/never", **{option: -1})
            self.refuse(TypeError, option, reshard.convert, self.model, self.folder + "/never", **{option: "1GB"})
        self.assertFalse(os.path.exists(self.folder + "/never"))

    def test_groups(self):
        def refused(kind, words, body):
            self.refuse(kind, words, reshard.run, 2, body)
        refused(reshard.Invalid, "nan", lambda group: group.gather_objects(float("nan")))
        refused(reshard.Mismatch, "rank 1 has rows of shape", lambda group: group.all_gather(np.zeros((2, 3) if group.rank else (3, 2))))
        refused(reshard.Mismatch, "rank 1", lambda group: group.all_reduce(np.zeros(2 + group.rank)))
        arrays = [np.zeros((2, 4), "f4"), np.array([object()])]
        for shape in (None, (4, 4)):
            refused(reshard.Unsupported, "^rank 1: NumPy's object has no counterpart",
                    lambda group: group.redistribute(arrays[group.rank], "2: S(0)", "2: S(1)", shape=shape))
        refused(SystemExit, "3", lambda group: sys.exit(3) if group.rank else group.barrier())

    def test_numbers_too_large_for_c__are_named(self):
        huge, never = 2**32 + 1, self.folder + "/never"  # in 32 bits: 1
        calls = [lambda group: group.subset([0, huge]), lambda group: group.send(np.zeros(2), huge),
                 lambda group: group.receive((2,), "f64", huge), lambda group: group.broadcast(np.zeros(2), huge)]
        for call in calls:
            self.refuse(ValueError, str(huge), reshard.run, 2, call)
        self.refuse(reshard.Range, str(huge), reshard.run, huge, lambda group: None)
        plan = reshard.plan((8, 8), "f32", "4: S(0)", "4: S(1)")
        self.refuse(reshard.Range, str(huge), plan.part, huge)
        self.refuse(reshard.Range, str(huge), plan.part(0).stream, 0, huge, True)
        self.refuse(reshard.Range, str(huge), plan.tensors[0].source.shards, huge)
        for staging in (-1, 2**64 + 2**20):
            self.refuse(reshard.Range, str(staging), reshard.plan, (8,), "f32", "2: S(0)", "2: R", staging_bytes=staging)
        self.refuse(reshard.Range, str(2**64 + 1), reshard.Trace, never, events=2**64 + 1)
        with reshard.open(self.model) as ck:
            mine = ck.shard("tp=4", 0)
            for call in (ck.digest, mine.read, lambda **how: mine.load({"lm_head.weight": mine["lm_head.weight"]}, **how),
                         lambda **how: reshard.compare(ck, ck, **how), lambda **how: reshard.Conversion(ck, to="tp=2", **how)):
                self.refuse(reshard.Range, str(huge), call, threads=huge)
            for journal in (-1, 2**64 + 1):
                self.refuse(reshard.Range, str(journal), reshard.Conversion(ck, to="tp=2").run, never, journal_bytes=journal)
        self.assertFalse(os.path.exists(never))


class TestBars(Case):
    CODE = "import reshard; reshard.digest({!r})"

    def test_terminal__has_a_bar(self):
        try:
            ours, theirs = pty.openpty()
        except OSError as error:
            self.skipTest(f"no pseudo-terminals here: {error}")
        child = subprocess.Popen([sys.executable, "-c", self.CODE.format(self.model)], stderr=theirs)
        os.close(theirs)
        said = b""
        while True:
            try:
                some = os.read(ours, 4096)
            except OSError:  # how a terminal ends
                break
            if not some:
                break
            said += some
        os.close(ours)
        self.assertEqual(child.wait(), 0)
        self.assertIn(b"100%", said)

    def test_notebook__has_a_bar(self):
        stand_in = ("import sys, types\n"
                    "kind = type('ZMQInteractiveShell', (), {})\n"
                    "sys.modules['IPython'] = types.SimpleNamespace(get_ipython=kind)\n")
        for before, wanted in ((stand_in, True), ("", False)):
            done = subprocess.run([sys.executable, "-c", before + self.CODE.format(self.model)], capture_output=True, text=True,
                                  check=True)
            self.assertEqual("100%" in done.stderr, wanted)


class TestTypes(unittest.TestCase):
    def test_hints__are_consistent(self):
        mypy = shutil.which("mypy")
        if mypy is None:
            self.skipTest("mypy is not installed")
        cache = os.path.join(support.BUILD, "mypy-cache")
        done = subprocess.run([mypy, "--cache-dir", cache], cwd=support.PACKAGE, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    support.main()
