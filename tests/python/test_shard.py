# SPDX-License-Identifier: Apache-2.0
"""What one rank holds of a checkpoint, from Python: against slices by hand and against the files that the command writes for
ranks; what is read ahead and when; traces of reading and converting."""
import os
import shutil
import subprocess
import sys
import threading
from unittest import mock

import support

support.need("numpy")

import numpy as np  # noqa: E402
import reshard  # noqa: E402

sys.path.insert(0, os.path.join(support.ROOT, "tests", "cli"))
import trace_rules  # noqa: E402

COMMAND = os.path.join(support.BUILD, "reshard")
Case = support.ModelCase


class TestShards(Case):
    def test_llama__as_by_hand(self):
        for mmap in (False, True):
            with reshard.open(self.model, mmap=mmap) as ck:
                for tp in (1, 2, 4, 8):
                    for rank in range(tp):
                        mine = ck.shard(f"tp={tp}", rank)
                        wanted = support.slice_llama(self.tensors, tp, rank)
                        self.assertEqual(sorted(mine), sorted(wanted))
                        for name in mine:
                            np.testing.assert_array_equal(mine[name], wanted[name], f"{name}, rank {rank} of {tp}")
                            self.assertEqual(mine.shape(name), wanted[name].shape)
                        self.assertEqual(mine.nbytes, sum(array.nbytes for array in wanted.values()))
                        self.assertIn("llama", mine.rules)

    def test_meshes__as_the_files_of_the_command(self):
        for to, dtype in [("tp=4", None), ("pp=2,tp=2", "bf16"), ("fsdp=3,tp=2", None), ("dp=2,tp=2", "*norm*=f64")]:
            out = self.place("ranks")
            options = ["--dtype", dtype] if dtype else []
            subprocess.run([COMMAND, "convert", self.model, out, "--to", to, "--format", "rank-files", "--no-sync", "--quiet",
                            *options], check=True)
            files = sorted(name for name in os.listdir(out) if name.endswith(".safetensors"))
            with reshard.open(self.model, raw=True) as ck:
                for rank, file in enumerate(files):
                    wanted = support.read_safetensors(os.path.join(out, file))
                    given = {"*norm*": "f64"} if dtype and "=" in dtype else dtype
                    mine = ck.shard(to, rank, dtype=given)
                    self.assertEqual(sorted(mine), sorted(wanted), (to, rank))
                    for name, (kind, array) in wanted.items():
                        self.assertEqual(mine.dtype(name), kind.lower())
                        self.assertEqual(np.ascontiguousarray(mine[name]).tobytes(), array.tobytes(), (to, rank, name))
            shutil.rmtree(out)

    def test_specs__of_the_caller(self):
        with reshard.open(self.model) as ck:
            mine = ck.shard("4: S(0)", 2, include="*.weight", exclude="*norm*")
            for name in mine:
                size = -(-len(self.tensors[name]) // 4)
                np.testing.assert_array_equal(mine[name], self.tensors[name][2 * size:3 * size])
            one = ck.shard({"lm_head.weight": "2: S(1)"}, 1)
            self.assertEqual(list(one), ["lm_head.weight"])
            np.testing.assert_array_equal(one["lm_head.weight"], self.tensors["lm_head.weight"][:, 32:])
            two = ck.shard({"lm_head.weight": "4[0,0,1,1]: S(0)"}, 1)["lm_head.weight"]
            np.testing.assert_array_equal(np.concatenate(two), self.tensors["lm_head.weight"][50:])
            specs = {"lm_head.weight": "4[0,0,1,1]: S(0)", "model.embed_tokens.weight": "2: S(0)", "model.norm.weight": "2: S(0)"}
            three = ck.shard(specs, 1).read()  # an array after one that has two
            np.testing.assert_array_equal(np.concatenate(three["lm_head.weight"]), self.tensors["lm_head.weight"][50:])
            for name in ("model.embed_tokens.weight", "model.norm.weight"):
                np.testing.assert_array_equal(three[name], self.tensors[name][len(self.tensors[name]) // 2:])
            with self.assertRaisesRegex(reshard.NotFound, "head.weight"):
                ck.shard({"head.weight": "2: S(1)"}, 1)
            with self.assertRaisesRegex(reshard.Error, 'tensor "model.*norm'):
                ck.shard("2: S(1)", 0)
            with self.assertRaises(reshard.Invalid):
                ck.shard("2: S(0)", 0, rules="llama")

    def test_refusals(self):
        with reshard.open(self.model) as ck:
            with self.assertRaisesRegex(reshard.Range, "rank 4 is not in the mesh tp=4"):
                ck.shard("tp=4", 4)
            with self.assertRaises(reshard.Error):
                ck.shard("tp=4", 0, rules="nonsense")
            with self.assertRaisesRegex(reshard.NotFound, '"w"'):
                ck.shard("tp=4", 0)["w"]

    def test_reading__minds_nothing_that_is_only_written(self):
        """Elements that PyTorch's files cannot hold, and files beside the tensors, do not matter to one who reads."""
        folder, rules = self.place("odd"), self.place("odd.rules")
        os.mkdir(folder)
        codes = np.arange(6, dtype="u1")  # 12 elements of 4 bits
        rows = np.arange(12, dtype="f4").reshape(4, 3)
        support.write_safetensors(os.path.join(folder, "model.safetensors"), {"a": rows, "q": codes}, {"q": "F4"})
        path = os.path.join(folder, "model.safetensors")
        with open(path, "rb") as file:
            data = file.read()
        with open(path, "wb") as file:  # the shape of q counts elements
            file.write(data.replace(b'"F4", "shape": [6]', b'"F4", "shape":[12]'))
        os.symlink(self.model, os.path.join(folder, "tokenizer.json"))
        with open(rules, "w") as file:
            file.write("a S(0)@tp\nq R\n")
        with reshard.open(folder) as ck:
            for mine in (ck.shard("2: S(0)", rank=1, include="a"), ck.shard("tp=2", rank=1, rules=rules)):
                np.testing.assert_array_equal(mine["a"], rows[2:])
            self.assertEqual(mine["q"].tobytes(), codes.tobytes())
            self.assertEqual(sorted(ck.shard("1: R", rank=0)), ["a", "q"])
            np.testing.assert_array_equal(ck.shard("2: S(1)", rank=1, include="a", rename={"a": "b"})["b"], rows[:, 2:])
            cuts = reshard.Cuts(ck, to="tp=2", rules=rules)
            self.assertEqual([(each.name, each.dtype, each.shape, each.cut, each.local_shape) for each in cuts.tensors],
                             [("a", "f32", (4, 3), "tp=2: S(0)", (2, 3)), ("q", "f4", (12,), "tp=2: R", (12,))])
            self.assertEqual([each.rule for each in cuts.tensors], [rules + ":1", rules + ":2"])
            with open(rules, "w") as file:
                file.write("* S(0)@tp\n")
            with self.assertRaisesRegex(reshard.Unsupported, '"q".*copied whole'):
                ck.shard("tp=2", rank=1, rules=rules)

    def test_load__into_given_arrays(self):
        with reshard.open(self.model) as ck:
            mine = ck.shard("tp=4", 1)
            name = "model.layers.0.mlp.down_proj.weight"
            out = np.full(mine.shape(name), np.nan, "f4")
            mine.load({name: out})
            np.testing.assert_array_equal(out, self.tensors[name][:, 24:48])
            for bad in (out[:, ::2], out.astype("f8"), np.zeros((64, 25), "f4")):
                with self.assertRaisesRegex(reshard.Invalid, r"down_proj.*, not \(\d+, \d+\) of float\d+\Z"):
                    mine.load({name: bad})

    def test_read__in_one_go(self):
        wanted, calls = support.slice_llama(self.tensors, 4, 1), []
        with reshard.open(self.model) as ck:
            mine = ck.shard("tp=4", 1)
            found = mine.read(progress=lambda *call: calls.append(call))
            self.assertEqual(list(found), list(mine))
            for name, array in found.items():
                np.testing.assert_array_equal(array, wanted[name], name)
            self.assertEqual(calls[-1], ("reading", mine.nbytes, mine.nbytes))
            names = ["model.norm.weight", "lm_head.weight", "model.norm.weight"]
            some = mine.read(names, threads=1)
            self.assertEqual(list(some), names[:2])
            np.testing.assert_array_equal(some["lm_head.weight"], wanted["lm_head.weight"])
            self.assertEqual(mine.read([]), {})
            with self.assertRaisesRegex(TypeError, "list of names"):
                mine.read("lm_head.weight")
            with self.assertRaisesRegex(reshard.NotFound, '"w"'):
                mine.read(["w"])
            with self.assertRaisesRegex(reshard.Invalid, "-1 threads"):
                mine.read(threads=-1)

    def test_load__many_arrays(self):
        wanted = support.slice_llama(self.tensors, 2, 1)
        with reshard.open(self.model) as ck:
            mine = ck.shard("tp=2", 1)
            out = {name: np.full(mine.shape(name), np.nan, "f4") for name in mine}
            mine.load(out)
            for name, array in out.items():
                np.testing.assert_array_equal(array, wanted[name], name)


class TestAhead(Case):
    """Tensors that are asked for in order are read some at a time."""

    def setUp(self):
        self.ck = reshard.open(self.model)
        self.addCleanup(self.ck.close)
        self.wanted = support.slice_llama(self.tensors, 2, 1)
        self.calls, read = [], self.ck._read_rank

        def count(rank, tensors, **how):
            self.calls.append(len(tensors))
            read(rank, tensors, **how)
        self.ck._read_rank = count
        self.mine = self.ck.shard("tp=2", 1)
        self.names = list(self.mine)

    def check(self, names):
        for name in names:
            np.testing.assert_array_equal(self.mine[name], self.wanted[name], name)

    def test_in_order__takes_few_calls(self):
        found = dict(self.mine)
        self.assertEqual(self.calls, [len(self.names)])
        for name, array in found.items():
            np.testing.assert_array_equal(array, self.wanted[name], name)
            self.assertTrue(array.flags.owndata)
        self.assertEqual(len(self.mine._ahead._found), 0)
        self.check(name for name, _ in self.mine.items())

    def test_arrays__are_new_each_time(self):
        for _ in range(2):
            first, second, third = [self.mine[name] for name in self.names[:3]]
            for array in (first, second, third):
                array[...] = 7

    def test_other_orders__read_what_is_asked_for(self):
        self.check(reversed(self.names))
        self.check(self.names[3::2])
        self.check(self.names[3:4] * 3)
        self.assertEqual(set(self.calls), {1})
        self.check(self.names[:3])
        self.assertGreater(len(self.mine._ahead._found), 0)
        self.check(self.names[:1])
        self.assertEqual(len(self.mine._ahead._found), 0)

    def test_bytes__are_bounded(self):
        with mock.patch.object(reshard._shard, "_AHEAD_BYTES", 2000), mock.patch.object(reshard._shard, "_AHEAD_BYTES_MAX", 20000):
            for name in self.names:
                np.testing.assert_array_equal(self.mine[name], self.wanted[name], name)
                kept = sum(array.nbytes for array in self.mine._ahead._found.values())
                self.assertLessEqual(kept, 20000)
        self.assertGreater(max(self.calls), 1)

    def test_second_thread__ends_it(self):
        self.check(self.names[:3])
        thread = threading.Thread(target=self.check, args=(self.names[3:5],))
        thread.start()
        thread.join()
        del self.calls[:]
        self.check(self.names)
        self.assertEqual(set(self.calls), {1})

    def test_errors__are_of_what_is_asked_for(self):
        path = self.place("short.safetensors")
        support.write_safetensors(path, {name: np.arange(10000.0) for name in "abcd"})
        with reshard.open(path) as ck:
            mine = ck.shard("1: R", 0)
            os.truncate(path, os.path.getsize(path) - 8)
            for name in "abc":
                np.testing.assert_array_equal(mine[name], np.arange(10000.0))
            with self.assertRaisesRegex(reshard.Error, '"d"'):
                mine["d"]
            np.testing.assert_array_equal(mine["b"], np.arange(10000.0))

    def test_closed__has_nothing(self):
        self.check(self.names[:2])
        self.ck.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            self.mine[self.names[2]]


class TestTraces(Case):
    """The files are held to the rules of the format by what shares no code with the writer."""

    def test_convert(self):
        path, out = self.place("convert.json"), self.place("traced")
        report = reshard.convert(self.model, out, to="tp=2", no_sync=True, trace=path)
        trace = trace_rules.Trace(path)
        self.assertEqual(trace.total(names={"read", "kernel copy"}), report.bytes_read)
        self.assertEqual(trace.total(names={"write", "kernel copy"}), report.bytes_written)
        os.remove(path)
        with self.assertRaises(reshard.Invalid):
            reshard.convert(self.model, out, to="tp=2", trace=path)  # the target exists
        trace_rules.Trace(path)  # is written all the same

    def test_reads(self):
        path = self.place("read.json")
        with reshard.open(self.model) as ck, reshard.Trace(path) as trace:
            shards = [ck.shard("tp=2", rank) for rank in range(2)]
            shards[0].read(trace=trace)
            shards[1].load({name: np.empty(shards[1].shape(name), "f4") for name in shards[1]}, trace=trace)
        written, padding = trace_rules.Trace(path), 2 * 28 * 64 * 4  # which is not read
        self.assertEqual(written.total(names={"read"}), sum(shard.nbytes for shard in shards) - padding)
        self.assertEqual({span.rank for span in written.spans}, {0, 1})
        self.assertEqual({span.args["tensor"] for span in written.spans}, set(self.tensors))
        self.assertEqual(trace.dropped, 0)

    def test_one_rank__that_is_not_the_first(self):
        path = self.place("rank.json")
        with reshard.open(self.model) as ck:
            ck.shard("tp=4", 3).read(trace=path)
        self.assertEqual({span.rank for span in trace_rules.Trace(path).spans}, {3})

    def test_refusals(self):
        other, never = self.place("other.json"), self.place("never")
        with open(other, "w", encoding="ascii") as file:
            file.write("{}")
        with self.assertRaises(reshard.Invalid):
            reshard.convert(self.model, never, trace=other)
        self.assertFalse(os.path.exists(never))
        with self.assertRaises(reshard.Error):
            reshard.Trace(self.place("nowhere/trace.json"))

    def test_events__that_do_not_fit(self):
        path = self.place("few.json")
        with reshard.open(self.model) as ck, self.assertWarnsRegex(UserWarning, "events did not fit"):
            with reshard.Trace(path, events=1) as trace:
                ck.shard("tp=2", 0).read(trace=trace)
        self.assertGreater(trace.dropped, 0)


if __name__ == "__main__":
    support.main()
