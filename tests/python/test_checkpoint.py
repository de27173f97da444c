# SPDX-License-Identifier: Apache-2.0
"""Checkpoints from Python: boxes against NumPy's own slices, conversions, comparisons; cancelling, callbacks, views, and that
nothing is left behind."""
import gc
import json
import os
import pickle
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

COMMAND = os.path.join(support.BUILD, "reshard")

Case = support.ModelCase


class TestMapping(Case):
    def test_names__shapes_and_dtypes(self):
        with reshard.open(self.model) as ck:
            self.assertEqual(list(ck), sorted(self.tensors))
            self.assertEqual(len(ck), len(self.tensors))
            self.assertEqual(ck.format, "hf")
            self.assertEqual(ck.nbytes, sum(array.nbytes for array in self.tensors.values()))
            self.assertEqual(len(ck.files), 2)
            for name, tensor in ck.items():
                self.assertEqual((tensor.name, tensor.shape, tensor.dtype), (name, self.tensors[name].shape, "f32"))
                self.assertEqual((tensor.nbytes, tensor.size), (self.tensors[name].nbytes, self.tensors[name].size))
            self.assertIn("lm_head.weight", ck)
            self.assertNotIn("lm_head", ck)
            self.assertIsNone(ck.get("lm_head"))
            with self.assertRaisesRegex(KeyError, '"lm_head"'):
                ck["lm_head"]

    def test_missing__is_not_found(self):
        with self.assertRaises(FileNotFoundError) as caught:
            reshard.open(self.folder + "/nowhere")
        self.assertIsInstance(caught.exception, reshard.NotFound)
        self.assertIn("nowhere", str(caught.exception))

    def test_damaged__says_so(self):
        path = os.path.join(self.folder, "bad.safetensors")
        with open(path, "wb") as file:
            file.write(b"\xff" * 100)
        with self.assertRaises(reshard.Error) as caught:
            reshard.open(path)
        self.assertIn("bad.safetensors", str(caught.exception))

    def test_closed__says_so(self):
        ck = reshard.open(self.model)
        tensor = ck["model.norm.weight"]
        ck.close()
        ck.close()
        for use in (lambda: len(ck), lambda: ck["model.norm.weight"], lambda: tensor[0:1]):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()
        self.assertIn("closed", repr(ck))


class TestBoxes(Case):
    KEYS = [np.s_[...], np.s_[:], np.s_[3:9], np.s_[3:9, 4:5], np.s_[-5:, -3], np.s_[7], np.s_[7, 9], np.s_[..., 5], np.s_[5, ...],
            np.s_[90:200], np.s_[50:50], np.s_[60:50], np.s_[::2], np.s_[::-1, 3:40:7], np.s_[10:2:-3, ...], np.s_[:, ::-2],
            np.s_[np.int64(4)], np.s_[()], np.s_[-100], np.s_[1:2, ..., 3:4]]

    def test_indices__are_those_of_numpy(self):
        wanted = self.tensors["lm_head.weight"]
        for mmap in (False, True):
            with reshard.open(self.model, mmap=mmap) as ck:
                for key in self.KEYS:
                    found = ck["lm_head.weight"][key]
                    np.testing.assert_array_equal(found, wanted[key], str(key))
                    self.assertEqual(np.shape(found), wanted[key].shape, key)
                    self.assertEqual(found.dtype, wanted.dtype)

    def test_indices__that_are_refused(self):
        with reshard.open(self.model) as ck:
            tensor = ck["lm_head.weight"]
            for key in [100, -101, np.s_[0, 64], np.s_[0, 0, 0], np.s_[..., ...]]:
                with self.assertRaises(IndexError):
                    tensor[key]
            for key in [[1, 2], np.array([1, 2]), "a", 1.5, None, True, np.array([True] * 100)]:
                with self.assertRaises(TypeError):
                    tensor[key]

    def test_boxes__over_several_files(self):
        split = self.place("split")
        reshard.convert(self.model, split, to="fsdp=3", rules="fsdp", no_sync=True)
        for mmap in (False, True):
            with reshard.open(split, mmap=mmap) as ck:
                self.assertEqual(len(ck.files), 3)
                for key in self.KEYS:
                    np.testing.assert_array_equal(ck["lm_head.weight"][key], self.tensors["lm_head.weight"][key], str(key))
                self.assertEqual(len(ck["lm_head.weight"].pieces), 3)
                self.assertEqual(ck["lm_head.weight"].layout.boxes.offsets[:, 0].tolist(), [0, 34, 68])

    def test_steps__leave_nothing_else_in_memory(self):
        with reshard.open(self.model) as ck:
            for key in (np.s_[::7], np.s_[:, ::-1], np.s_[3:40:2, 5]):
                found = ck["lm_head.weight"][key]
                self.assertTrue(found.flags.owndata and found.base is None, key)

    def test_boxes__larger_than_one_read(self):
        """They are read in parts, the last of which is shorter."""
        path = os.path.join(self.folder, "large.npy")
        wanted = np.arange(3 * 1000003, dtype="f4").reshape(1, 3, 1000003)
        np.save(path, wanted)
        with reshard.open(path) as ck:
            np.testing.assert_array_equal(ck["large"][...], wanted)
            np.testing.assert_array_equal(ck["large"][0, 1:, 1:], wanted[0, 1:, 1:])

    def test_array__and_casts(self):
        with reshard.open(self.model) as ck:
            np.testing.assert_array_equal(np.asarray(ck["model.norm.weight"]), self.tensors["model.norm.weight"])
            wide = ck["model.norm.weight"].read("f64")
            self.assertEqual(wide.dtype, np.float64)
            np.testing.assert_array_equal(wide, self.tensors["model.norm.weight"].astype("f8"))
            with self.assertRaises(reshard.Unsupported):
                ck["model.norm.weight"].read("i32")

    def test_array__copies_as_numpy_asks(self):
        wanted = self.tensors["model.norm.weight"]
        with reshard.open(self.model) as ck:
            for dtype in (None, wanted.dtype, "f8"):
                with self.assertRaisesRegex(ValueError, "model.norm.weight.* without a copy"):
                    ck["model.norm.weight"].__array__(dtype, copy=False)
        ck = reshard.open(self.model, mmap=True)
        tensor = ck["model.norm.weight"]
        for dtype in (None, wanted.dtype):
            view, copied = tensor.__array__(dtype, copy=False), tensor.__array__(dtype, copy=True)
            self.assertTrue(np.shares_memory(view, tensor[...]))
            self.assertTrue(np.shares_memory(tensor.__array__(dtype), view))
            self.assertFalse(np.shares_memory(copied, view))
            np.testing.assert_array_equal(copied, wanted)
        with self.assertRaisesRegex(ValueError, "float64 without a copy"):
            tensor.__array__("f8", copy=False)
        np.testing.assert_array_equal(tensor.__array__("f8", copy=True), wanted.astype("f8"))

    def test_scalars_and_empty_tensors(self):
        path = os.path.join(self.folder, "odd.safetensors")
        tensors = {"scalar": np.array(2.5, "f8"), "empty": np.zeros((0, 4), "i2"), "flags": np.array([True, False])}
        support.write_safetensors(path, tensors)
        for mmap in (False, True):
            with reshard.open(path, mmap=mmap) as ck:
                for name, array in tensors.items():
                    np.testing.assert_array_equal(ck[name][...], array)
                    self.assertEqual(ck[name][...].shape, array.shape)
                self.assertEqual(ck["scalar"][()], 2.5)
                with self.assertRaises(TypeError):
                    len(ck["scalar"])

    def test_what_numpy_lacks(self):
        path = os.path.join(self.folder, "narrow.safetensors")
        bits = np.array([[0x3f80, 0xc000]], "u2")
        support.write_safetensors(path, {"b": bits, "e": np.array([0x38], "u1"), "four": np.array([0x21], "u1")},
                                  {"b": "BF16", "e": "F8_E4M3", "four": "F4"})
        with open(path, "rb") as file:
            text = file.read()
        with open(path, "wb") as file:  # two elements in one byte
            file.write(text.replace(b'"shape": [1], "data_offsets": [5, 6]', b'"shape": [2], "data_offsets": [5, 6]'))
        with reshard.open(path, raw=True) as ck:
            self.assertEqual([tensor.dtype for tensor in ck.values()], ["bf16", "f8_e4m3", "f4"])
            np.testing.assert_array_equal(ck["b"][...].view("u2"), bits)
            np.testing.assert_array_equal(ck["b"].read("f32"), [[1.0, -2.0]])
            self.assertEqual(ck["e"][...].view("u1").tolist(), [0x38])
            self.assertTrue(ck["four"].opaque)
            self.assertEqual((ck["four"].shape, ck["four"][...].tolist()), ((2,), [0x21]))


class TestViews(Case):
    def test_views__are_private_and_outlive_the_checkpoint(self):
        ck = reshard.open(self.model, mmap=True)
        view = ck["lm_head.weight"][10:20]
        other = ck["lm_head.weight"][...]
        self.assertFalse(view.flags.owndata)
        ck.close()
        del ck
        gc.collect()
        np.testing.assert_array_equal(view, self.tensors["lm_head.weight"][10:20])
        view[:] = 0
        np.testing.assert_array_equal(other[10:20], 0)  # the same memory
        with reshard.open(self.model, mmap=True) as again:  # and not the file
            np.testing.assert_array_equal(again["lm_head.weight"][10:20], self.tensors["lm_head.weight"][10:20])

    def test_maps__go_with_their_last_view(self):
        def count():
            with open("/proc/self/maps", encoding="utf-8") as file:
                return file.read().count(self.model)
        ck = reshard.open(self.model, mmap=True)
        view = ck["lm_head.weight"][0]
        self.assertEqual(count(), 1)
        ck.close()
        gc.collect()
        self.assertEqual(count(), 1)
        del view
        gc.collect()
        self.assertEqual(count(), 0)

    def test_copies__without_mmap(self):
        with reshard.open(self.model) as ck:
            array = ck["lm_head.weight"][0:4]
            self.assertTrue(array.flags.owndata and array.flags.writeable)


class TestConversions(Case):
    def test_convert__is_the_command(self):
        ours, theirs = self.place("ours"), self.place("theirs")
        report = reshard.convert(self.model, ours, to="tp=4", dtype="bf16", exclude="*norm*", rename={"lm_*": "model.lm_{1}"},
                                 no_sync=True)
        subprocess.run([COMMAND, "convert", self.model, theirs, "--to", "tp=4", "--dtype", "bf16", "--exclude", "*norm*",
                        "--rename", "lm_*=model.lm_{1}", "--quiet", "--no-sync"], check=True)
        self.assertEqual(sorted(os.listdir(ours)), sorted(os.listdir(theirs)))
        for name in os.listdir(ours):
            with open(os.path.join(ours, name), "rb") as a, open(os.path.join(theirs, name), "rb") as b:
                self.assertEqual(a.read(), b.read(), name)
        self.assertIn("llama", report.rules)
        self.assertGreater(report.bytes_written, 0)

    def test_namings(self):
        """hf -> titan -> hf by the shipped map, and by a map from a file."""
        there, back, own = self.place("there"), self.place("back"), self.place("own")
        text = self.place("own.map")
        self.assertIn("titan", reshard.namings())
        reshard.convert(self.model, there, as_="titan", sync=False)
        with reshard.open(there) as ck:
            self.assertIn("tok_embeddings.weight", ck)
            self.assertEqual(reshard.Conversion(ck, as_="hf").naming, "titan; written as hf by map hf-titan-llama")
        reshard.convert(there, back, as_="hf", sync=False)
        self.assertEqual(reshard.digest(back), reshard.digest(self.model))
        with open(text, "w", encoding="utf-8") as file:
            file.write("lm_head.weight = head\n* = *\n")
        reshard.convert(self.model, own, map=text, as_="right", sync=False)
        with reshard.open(own) as ck:
            self.assertIn("head", ck)
        with self.assertRaisesRegex(reshard.NotFound, "there is no naming"):
            reshard.convert(self.model, self.place("none"), as_="other")

    def test_config__comes_from_elsewhere(self):
        base, bare = self.place("base"), self.place("bare.safetensors")
        os.mkdir(base)
        for name, text in [("config.json", '{"model_type": "llama"}'), ("tokenizer.json", "{}")]:
            with open(os.path.join(base, name), "w", encoding="utf-8") as file:
                file.write(text)
        support.write_safetensors(bare, self.tensors)
        out = self.place("with-config")
        report = reshard.convert(bare, out, config=base, no_sync=True)
        self.assertEqual(sorted(os.listdir(out)), ["config.json", "model.safetensors", "tokenizer.json"])
        self.assertIn("copied from %s" % base, report.notes[0])
        with reshard.open(bare, config=base) as ck, pickle.loads(pickle.dumps(ck)) as again:
            self.assertEqual((list(again), again._opened_with["config"]), (list(ck), base))
        with self.assertRaisesRegex(reshard.NotFound, "there is no such folder"):
            reshard.open(bare, config=self.place("nowhere"))

    def test_unreadable__is_refused_or_listed(self):
        path, out = self.place("some.npz"), self.place("some-out")
        np.savez(path, good=np.arange(3), names=np.array(["a", "b"]))
        with self.assertRaisesRegex(reshard.Unsupported, "names"):
            reshard.open(path)
        with reshard.open(path, unreadable=True) as ck:
            self.assertEqual((list(ck), list(ck.unreadable)), (["good"], ["names"]))
            self.assertIn("its elements are '<U1'", ck.unreadable["names"])
            with self.assertRaisesRegex(reshard.Unsupported, "names"):
                ck.digest()
        with self.assertRaisesRegex(reshard.Unsupported, "exclude this tensor"):
            reshard.convert(path, out, no_sync=True)
        reshard.convert(path, out, exclude="names", no_sync=True)
        with reshard.open(out) as ck:
            self.assertEqual((list(ck), ck.unreadable), (["good"], {}))

    def test_verify__and_compare(self):
        out = self.place("verified")
        report = reshard.convert(self.model, out, to="tp=2", verify=True, no_sync=True)
        self.assertEqual(report.bytes_verified, report.bytes_written)
        self.assertEqual(reshard.verify(self.model, out).tensors_compared, len(self.tensors))
        self.assertEqual(reshard.digest(self.model), reshard.digest(out))
        said = subprocess.run([COMMAND, "digest", self.model, "--json"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(json.loads(said)["checkpoint"], reshard.digest(self.model))
        changed = self.place("changed")
        tensors = {name: array.copy() for name, array in self.tensors.items()}
        tensors["lm_head.weight"][3, 4] = 1.5
        del tensors["model.norm.weight"]
        os.mkdir(changed)
        support.write_safetensors(os.path.join(changed, "model.safetensors"), tensors)
        found = reshard.compare(out, changed)
        self.assertFalse(found.same)
        self.assertEqual([(d.kind, d.name, d.element, d.b) for d in found.differences],
                         [("bytes", "lm_head.weight", (3, 4), "1.5"), ("only in a", "model.norm.weight", None, "")])
        with self.assertRaisesRegex(reshard.Check, "differ: 2.*lm_head.weight"):
            reshard.verify(out, changed)

    def test_compare__leaves_open_what_was(self):
        with reshard.open(self.model) as ck:
            self.assertTrue(reshard.compare(ck, self.model).same)
            self.assertTrue(reshard.compare(self.model, ck).same)
            np.testing.assert_array_equal(ck["model.norm.weight"][...], self.tensors["model.norm.weight"])

    def test_verify__counts_what_only_one_has(self):
        fewer = self.place("fewer")
        reshard.convert(self.model, fewer, exclude="model.norm.weight", no_sync=True)
        for a, b, words in [(self.model, fewer, "only in a"), (fewer, self.model, "only in b")]:
            with self.assertRaisesRegex(reshard.Check, 'differ: 1.*"model.norm.weight" .%s' % words):
                reshard.verify(a, b)
        found = reshard.verify(self.model, fewer, ignore_dropped=True)
        self.assertEqual((found.tensors_compared, found.tensors_dropped), (len(self.tensors) - 1, 1))
        with self.assertRaises(reshard.Check):
            reshard.verify(fewer, self.model, ignore_dropped=True)

    def test_digest__compares_copies_if_asked(self):
        ranks = self.place("replicas")
        reshard.convert(self.model, ranks, to="tp=2", format="rank-files", no_sync=True)
        with reshard.open(ranks) as ck:
            piece = next(piece for name in ck for piece in ck[name].pieces if piece.size == (64,))
            self.assertEqual(ck.digest(check_copies=True), ck.digest())
        wanted = reshard.digest(ranks)
        copy = os.path.join(ranks, sorted(name for name in os.listdir(ranks) if name != piece.file and name.startswith("rank-"))[0])
        with open(copy, "r+b") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            file.seek(8 + length + header["model.norm.weight"]["data_offsets"][0])
            file.write(b"\x55")
        self.assertEqual(reshard.digest(ranks), wanted)
        with self.assertRaisesRegex(reshard.Corrupt, "copies that differ"):
            reshard.digest(ranks, check_copies=True)

    def test_notes__of_the_checkpoint_and_of_the_conversion(self):
        source = self.place("noted")
        os.mkdir(source)
        support.write_safetensors(os.path.join(source, "a.safetensors"), {"a": np.zeros(4, "f4"), "b": np.ones(4, "f4")})
        with open(os.path.join(source, "model.safetensors.index.json"), "w") as file:
            json.dump({"weight_map": {"a": "a.safetensors"}}, file)
        with open(os.path.join(source, "more.txt"), "w") as file:
            file.write("more")
        notes = reshard.convert(source, self.place("noted-out"), no_sync=True).notes
        self.assertEqual([note for note in notes if "index does not name" in note and '"b"' in note], [notes[0]])
        self.assertEqual([note for note in notes if "copied along" in note and "more.txt" in note], [notes[-1]])

    def test_limits__are_those_of_memory_and_of_files(self):
        with reshard.open(self.model) as ck:
            with self.assertRaisesRegex(reshard.Error, "1 bytes of memory are too few"):
                reshard.Conversion(ck, max_memory=1)
            self.assertGreater(reshard.Conversion(ck, max_shard_size=1, max_memory=1 << 20, threads=1).matrix.shape[1], 1)
            self.assertEqual(reshard.Conversion(ck, max_memory=1 << 20, threads=1).matrix.shape[1], 1)

    def test_errors__have_fields(self):
        out = os.path.join(self.folder, "out")
        ck = reshard.open(self.model)
        with self.assertRaises(reshard.Invalid) as caught:
            reshard.Conversion(ck, format="rank-files")
        error = caught.exception
        self.assertEqual((error.hint, error.subject, error.rank), ("target-mesh", "rank-files", None))
        self.assertTrue(str(error).endswith('give one (to=, as in to="tp=4")') and error.text.endswith("give one"))
        rules = os.path.join(self.folder, "r.rules")
        with open(rules, "w") as file:
            file.write("* S(0, unit=$odd_rows)@tp\n")
        with self.assertRaises(reshard.NotFound) as caught:
            reshard.Conversion(ck, to="tp=2", rules=rules)
        error = caught.exception
        self.assertEqual((error.hint, error.subject, error.status), ("set-key", "odd_rows", reshard.NotFound.status))
        self.assertTrue(str(error).endswith('; set={"odd_rows": N} gives it one'), error)
        self.assertNotIn("--", error.text)
        os.mkdir(out + ".partial")
        with self.assertRaises(reshard.Unfinished) as caught:
            reshard.convert(self.model, out)
        self.assertEqual((caught.exception.hint, caught.exception.subject), ("resume", out + ".partial"))
        with self.assertRaises(KeyError) as caught:
            ck["odd"]
        self.assertEqual((caught.exception.hint, caught.exception.subject), (None, "odd"))
        ck.close()

    def test_target_that_exists__is_refused(self):
        with self.assertRaisesRegex(reshard.Invalid, "model"):
            reshard.convert(self.model, self.model)

    def test_numbers_beyond_those_of_c__are_refused(self):
        """ctypes would cut them off: 2**32 + 1 threads were 1."""
        with reshard.open(self.model) as ck:
            for call in [lambda: reshard.Conversion(ck, threads=2**32 + 1), lambda: ck.digest(threads=2**32 + 1),
                         lambda: reshard.compare(ck, ck, threads=2**32 + 1),
                         lambda: reshard.Conversion(ck).run(self.place("x"), journal_bytes=-1),
                         lambda: reshard.plan((4,), "f32", "2: S(0)", "2: R", staging_bytes=-1)]:
                with self.assertRaises(reshard.Range):
                    call()

    def test_conversion__can_be_asked(self):
        with reshard.open(self.model) as ck:
            conversion = reshard.Conversion(ck, to="tp=2")
            by_name = {tensor.name: tensor for tensor in conversion.tensors}
            self.assertEqual(by_name["lm_head.weight"].cut, "tp=2: S(0)")
            self.assertEqual(by_name["lm_head.weight"].padded_shape, (128, 64))
            self.assertEqual(conversion.matrix.shape, (2, 2))
            self.assertGreater(conversion.estimate(self.folder + "/never"), 0)

    def test_formats_and_families(self):
        self.assertIn("safetensors", [one.name for one in reshard.formats() if one.reads])
        self.assertIn("q_proj", reshard.families()["llama"])


class TestWork(Case):
    """Big sparse files: they cost no disk, and reading them takes long enough to stop it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.big = os.path.join(cls.folder, "big.safetensors")
        header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 28], "data_offsets": [0, 1 << 30]}}).encode()
        with open(cls.big, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + (1 << 30))

    def test_progress__is_called(self):
        calls = []
        reshard.digest(self.model, progress=lambda *call: calls.append(call))
        what, done, total = calls[-1]
        self.assertEqual(done, total)
        self.assertEqual(total, sum(array.nbytes for array in self.tensors.values()))
        with self.assertRaisesRegex(TypeError, "progress"):
            reshard.digest(self.model, progress=7)

    def test_callback_that_raises__raises_in_the_caller(self):
        def fail(what, done, total):
            raise ZeroDivisionError("on purpose")
        out = self.place("never")
        with self.assertRaisesRegex(ZeroDivisionError, "on purpose"):
            reshard.digest(self.big, progress=fail)
        with self.assertRaisesRegex(ZeroDivisionError, "on purpose"):
            reshard.convert(self.model, out, to="tp=2", progress=fail)
        self.assertFalse(os.path.exists(out))

    def run_with_alarm(self, work):
        """Seconds from a signal to its handler, which ends the work."""
        noticed = []

        def handle(*_):
            noticed.append(time.monotonic())
            raise KeyboardInterrupt
        before = signal.signal(signal.SIGALRM, handle)
        begun = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with self.assertRaises(KeyboardInterrupt):
                for _ in range(1000):  # a fast machine is done with one before the signal comes
                    work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return noticed[0] - begun - 0.1

    def test_interrupt__is_noticed_in_100_ms(self):
        with reshard.open(self.big) as ck:
            for name, work in [("digest", lambda: ck.digest(progress=False)), ("shard", lambda: ck.shard("1: R", 0)["w"]),
                               ("cast", lambda: ck["w"].read("bf16", raw=True))]:
                # Others on the machine may hold up any one of them.
                self.assertTrue(any(self.run_with_alarm(work) < 0.1 for _ in range(10)), name)

    def test_interrupt__ends_a_conversion_that_can_be_resumed(self):
        out = os.path.join(self.folder, "bf16")
        code = ("import reshard, signal, sys\n"
                "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which jobs in the background ignore
                "def say(what, done, total):\n"
                "    print(what, flush=True)\n"
                "try:\n"
                f"    reshard.convert({self.big!r}, {out!r}, dtype='bf16', threads=1, no_sync=True, progress=say)\n"
                "except KeyboardInterrupt:\n"
                "    print('interrupted', flush=True)\n")
        for _ in range(10):  # on a busy machine one may be over before it is interrupted
            child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
            for line in child.stdout:
                if line.startswith("conver") or line.startswith("writ"):
                    break
            time.sleep(0.1)
            child.send_signal(signal.SIGINT)
            said = child.communicate(timeout=200)[0]
            if "interrupted" in said:
                break
            shutil.rmtree(out)
        self.assertIn("interrupted", said)
        self.assertFalse(os.path.exists(out))
        self.assertTrue(os.path.exists(out + ".partial"))
        with self.assertRaises(reshard.Unfinished):
            reshard.convert(self.big, out, dtype="bf16")
        shutil.rmtree(out + ".partial")

    def test_gil__is_released(self):
        counted, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                counted[0] += 1
        thread = threading.Thread(target=count)
        thread.start()
        before = counted[0]
        with reshard.open(self.big) as ck:
            ck.digest(threads=1, progress=False)
        after = counted[0]
        stop.set()
        thread.join()
        self.assertGreater(after - before, 1000)

    def test_threads__read_at_once(self):
        with reshard.open(self.model) as ck:
            mine, wrong = ck.shard("tp=2", 0), []
            wanted = support.slice_llama(self.tensors, 2, 0)

            def read():
                for name in list(mine) * 5:
                    if not np.array_equal(mine[name], wanted[name]):
                        wrong.append(name)
            threads = [threading.Thread(target=read) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_nothing__is_left_behind(self):
        def use():
            with reshard.open(self.model, mmap=True) as ck:
                mine = ck.shard("tp=2", 1)
                for name in mine:
                    mine[name].sum()
            try:
                reshard.open(self.folder + "/nowhere")
            except reshard.NotFound:
                pass

        def measure():
            gc.collect()
            with open("/proc/self/statm", encoding="ascii") as file:
                return len(os.listdir("/proc/self/fd")), int(file.read().split()[1]) * 4096
        for _ in range(20):
            use()
        files, memory = measure()
        for _ in range(60):
            use()
        files_after, memory_after = measure()
        self.assertEqual(files_after, files)
        self.assertLess(memory_after - memory, 2 << 20)

    def test_bar__is_drawn_where_somebody_looks(self):
        code = f"import reshard; reshard.digest({self.model!r}); reshard.digest({self.model!r}, progress=True)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        drawn = done.stderr.count("100%")
        self.assertGreater(drawn, 0)
        code = f"import reshard; reshard.digest({self.model!r}); reshard.digest({self.model!r}, progress=False)"
        quiet = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(quiet.stderr, "")
        self.assertTrue(done.stderr.endswith("\n"))  # a \r, as text=True shows it


if __name__ == "__main__":
    support.main()
