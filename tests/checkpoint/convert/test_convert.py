# SPDX-License-Identifier: Apache-2.0
"""Conversions against models made and read back by hand."""
import fcntl
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import fingerprint
import support
from convert_case import CONFIG, SEED, ConvertTest, llama, tensor


class RoundTrips(ConvertTest):
    def test_around_the_world(self):
        """fsdp -> tp -> hf -> pp x tp -> rank files -> fsdp: the same tensors, and the same bytes at the end."""
        model = llama(random.Random(SEED))
        self.write_hf("source", model, CONFIG)
        self.convert("source", "fsdp", "--to", "fsdp=3", "--verify")
        self.assertEqual(files.read_dcp(self.at("fsdp")), model)
        self.convert("fsdp", "tp", "--to", "tp=4", "--verify")
        self.assertEqual(files.read_dcp(self.at("tp")), model)
        self.convert("tp", "hf", "--verify")
        self.assertEqual(files.read_hf(self.at("hf")), model)
        self.convert("hf", "pp", "--to", "pp=2,tp=2", "--verify", "--threads", "1")
        self.assertEqual(files.read_dcp(self.at("pp")), model)
        for name, to in [("ranks", "pp=2,tp=2"), ("ranks8", "tp=8"), ("ranks2", "fsdp=2,tp=2"), ("odd", "tp=4[3,1,0,2]")]:
            self.convert("pp", name, "--to", to, "--format", "rank-files", "--rules", "llama", "--verify")
            self.convert(name, name + "-hf", "--from", to, "--rules", "llama", "--verify")
            self.check_same(name + "-hf", "hf")
        self.convert("ranks", "fsdp-again", "--from", "pp=2,tp=2", "--from-rules", "llama", "--to", "fsdp=3")
        self.check_same("fsdp", "fsdp-again")

    def test_ranks_with_several_chunks(self):
        """Files 0 and 1 hold two chunks each; what is replicated is there once."""
        model = {"w": tensor(random.Random(SEED), "F32", 10, 6), "v": tensor(random.Random(SEED), "U8", 7)}
        self.write_hf("source", model)
        rules = self.write_text("r.rules", "w S(0)@x\nv R\n")
        self.convert("source", "twice", "--to", "x=4[0,0,1,1]", "--rules", rules, "--verify")
        self.assertEqual(files.read_dcp(self.at("twice")), model)
        self.assertEqual(len([name for name in os.listdir(self.at("twice")) if name.endswith(".safetensors")]), 2)
        boxes = [(s["file"], s["offset"], s["size"]) for t in self.read_json("inspect", self.at("twice"))["tensors"]
                 if t["name"] == "w" for s in t["shards"]]
        self.assertEqual([(b[1], b[2]) for b in sorted(boxes, key=lambda b: b[1])],
                         [([0, 0], [3, 6]), ([3, 0], [3, 6]), ([6, 0], [3, 6]), ([9, 0], [1, 6])])
        self.assertEqual(sorted(boxes, key=lambda b: b[1])[0][0], sorted(boxes, key=lambda b: b[1])[1][0])
        self.convert("twice", "back", "--verify")
        self.assertEqual(files.read_hf(self.at("back")), model)
        self.fails("source", "ranks", "--to", "x=4[0,0,1,1]", "--rules", rules, "--format", "rank-files",
                   words="files of ranks hold one part of a tensor: rank 0 occurs twice in the mesh")
        self.fails("source", "grid", "--to", "x=2,y=2[0,0,1,1]", "--rules", rules, words="rank 0 occurs twice in the mesh", code=2)

    def test_rank_files_hold_what_ranks_have(self):
        model = llama(random.Random(SEED + 1), "BF16")
        self.write_hf("source", model, CONFIG)
        self.convert("source", "ranks", "--to", "tp=4", "--format", "rank-files")
        for rank in range(4):
            found, metadata, begin = files.read(self.at(f"ranks/rank-{rank:05d}-of-00004.safetensors"))
            self.assertEqual((set(metadata), begin % 4096), ({"format", "RESHARD_LAYOUT"}, 0))
            layer = "model.layers.1."
            self.assertEqual(found[layer + "self_attn.q_proj.weight"],
                             ("BF16", (16, 32), files.cut(model[layer + "self_attn.q_proj.weight"], [16 * rank, 0], [16, 32])))
            self.assertEqual(found[layer + "self_attn.k_proj.weight"],  # two key heads over four ranks
                             ("BF16", (8, 32), files.cut(model[layer + "self_attn.k_proj.weight"], [rank // 2 * 8, 0], [8, 32])))
            self.assertEqual(found[layer + "mlp.down_proj.weight"],
                             ("BF16", (32, 24), files.cut(model[layer + "mlp.down_proj.weight"], [0, 24 * rank], [32, 24])))
            self.assertEqual(found["model.norm.weight"], model["model.norm.weight"])
            rows = min(32, 100 - 32 * rank)  # 100 rows padded to 128
            self.assertEqual(found["lm_head.weight"], ("BF16", (32, 32), files.cut(
                model["lm_head.weight"], [32 * rank, 0], [rows, 32]) + bytes((32 - rows) * 64)))

    def test_replicas_are_spread_and_stored_once(self):
        rnd = random.Random(SEED + 2)
        model = {f"t{i}.weight": tensor(rnd, "U8", 1000) for i in range(40)}
        self.write_hf("source", model)
        self.convert("source", "out", "--to", "dp=4", "--rules", "replicate")
        counts = [len(files.read(self.at("out/" + name))[0]) for name in sorted(os.listdir(self.at("out")))]
        self.assertEqual(counts, [10, 10, 10, 10])
        self.assertEqual(files.read_dcp(self.at("out")), model)

    def test_packed_rows_and_columns(self):
        """Several pieces of a tensor on one rank, along both dimensions, and back."""
        rnd = random.Random(SEED + 3)
        model = {"rows": tensor(rnd, "I16", 24, 10), "columns": tensor(rnd, "I16", 10, 24), "cube": tensor(rnd, "F64", 4, 12, 6),
                 "flat": tensor(rnd, "U8", 7, 5)}
        rules = self.write_text("packed.rules", "rows S(0; 12, 8, 4)@tp\ncolumns S(1; 12, 8, 4)@tp\ncube S(1*3)@tp\n"
                                                "flat S(flat)@tp\n")
        self.write_hf("source", model)
        self.convert("source", "dcp", "--to", "tp=2", "--rules", rules, "--verify")
        self.assertEqual(files.read_dcp(self.at("dcp")), model)
        _, metadata, _ = files.read(self.at("dcp/shard-00001-model-00001-of-00001.safetensors"))
        info = json.loads(metadata["DCP_SHARDING_INFO"])
        self.assertEqual(info["rows.__dcp_shard_1"], {"saved_offsets": [12, 0], "logical_fqn": "rows"})
        self.convert("dcp", "ranks", "--to", "tp=2", "--rules", rules, "--format", "rank-files", "--verify")
        found, _, _ = files.read(self.at("ranks/rank-00001-of-00002.safetensors"))
        expected = b"".join(b"".join(files.cut(model["columns"], [r, c], [1, n]) for c, n in [(6, 6), (16, 4), (22, 2)])
                            for r in range(10))
        self.assertEqual(found["columns"], ("I16", (10, 12), expected))
        self.assertEqual(found["flat"], ("U8", (17,), model["flat"][2][18:]))
        self.convert("ranks", "hf", "--from", "tp=2", "--rules", rules, "--verify")
        self.assertEqual(files.read_hf(self.at("hf")), model)

    def test_long_ranges_in_a_small_memory(self):
        """Ranges that lie together on both sides, each of several buffers."""
        rnd = random.Random(SEED)
        model = {"wide": tensor(rnd, "U8", 500, 9000), "line": tensor(rnd, "F32", 900001)}
        self.write_hf("source", model)
        options = ["--max-memory", "2M", "--threads", "2", "--no-sync"]
        self.convert("source", "cut", "--to", "fsdp=3", *options)
        self.assertTrue(files.read_dcp(self.at("cut")) == model)
        self.convert("cut", "whole", *options)
        self.assertTrue(files.read_hf(self.at("whole")) == model)

    def test_odd_tensors_are_carried_whole(self):
        rnd = random.Random(SEED + 4)
        model = {"f4": tensor(rnd, "F4", 3, 6), "f6": tensor(rnd, "F6_E3M2", 4), "deep": tensor(rnd, "F16", *[1] * 9, 2),
                 "scalar": tensor(rnd, "I64"), "empty": ("F32", (0, 4), b""), "bool": tensor(rnd, "BOOL", 5),
                 "a\0b\u20ac": tensor(rnd, "C64", 3), "": tensor(rnd, "U64", 2), "w": tensor(rnd, "F8_E4M3FNUZ", 9, 3)}
        self.write_hf("source", model)
        rules = self.write_text("odd.rules", "w S(0)@tp\n* R\n")
        self.convert("source", "dcp", "--to", "tp=4", "--rules", rules, "--verify")
        self.assertEqual(files.read_dcp(self.at("dcp")), model)
        self.convert("dcp", "ranks", "--to", "tp=4", "--rules", rules, "--format", "rank-files", "--verify")
        self.convert("ranks", "hf", "--from", "tp=4", "--rules", rules, "--verify")
        self.assertEqual(files.read_hf(self.at("hf")), model)
        self.fails("source", "x", "--to", "tp=2", "--rules", self.write_text("cut.rules", "f4 S(0)@tp\n* R\n"),
                   words='tensor "f4"')

    def test_reads_what_pytorch_writes(self):
        rnd = random.Random(SEED + 5)
        model = {"rows": tensor(rnd, "BF16", 7, 6), "columns": tensor(rnd, "F32", 5, 9), "norm": tensor(rnd, "F32", 6)}
        files.write_dcp(self.at("dcp"), model, 4, {"rows": 0, "columns": 1})
        self.convert("dcp", "hf")
        self.assertEqual(files.read_hf(self.at("hf")), model)


def digest_of(model):
    return fingerprint.checkpoint_digest({name.encode(): fingerprint.tensor_digest(*entry) for name, entry in model.items()})


class Digests(ConvertTest):
    """What a conversion tells of the bytes that came by is what the definition says."""

    def setUp(self):
        super().setUp()
        rnd = random.Random(SEED + 6)
        values = b"".join(struct.pack("<f", rnd.uniform(-9, 9)) for _ in range(3000))
        self.model = {"rows": ("F32", (60, 50), values), "columns": tensor(rnd, "F32", 50, 33), "all": tensor(rnd, "F32", 9),
                      "cube": tensor(rnd, "I16", 7, 12, 5), "odd": tensor(rnd, "F4", 3, 6), "empty": ("F32", (0, 4), b"")}
        self.write_hf("source", self.model)
        self.digest = digest_of(self.model)
        self.rules = self.write_text("r", "rows S(0)@x\ncolumns S(1)@x\ncube S(1*2)@x\n* R\n")

    def check(self, report, source, target):
        count = sum(len(entry[2]) for entry in self.model.values())
        self.assertEqual((report["source_digest"], report["digest"]), (source, target))
        self.assertEqual((report["bytes_digested"], report["tensors_digested"]), (count, len(self.model)))

    def test_every_split(self):
        for number, options in enumerate([[], ["--to", "x=3"], ["--to", "x=4", "--format", "rank-files"],
                                          ["--to", "x=2,dp=2", "--format", "rank-files", "--threads", "1"]]):
            options += ["--rules", self.rules] if options else []
            for verify in [[], ["--verify"]]:
                name = f"out{number}{len(verify)}"
                self.check(self.convert("source", name, *options, *verify), self.digest, self.digest)
            if "--format" not in options:
                self.assertEqual(self.read_json("digest", self.at(name))["checkpoint"], self.digest)
            reading = ["--from", options[1], "--rules", self.rules] if "--format" in options else []
            self.check(self.convert(name, name + "-back", *reading), self.digest, self.digest)

    def test_casts_have_two(self):
        cast = {**self.model, "rows": ("BF16", (60, 50), to_bf16(self.model["rows"][2]))}
        for number, options in enumerate([[], ["--to", "x=2"], ["--to", "x=3,dp=2", "--format", "rank-files"]]):
            options += ["--rules", self.rules] if options else []
            report = self.convert("source", f"cast{number}", "--dtype", "rows=bf16", *options)
            self.check(report, self.digest, digest_of(cast))
        del cast["all"]
        for verify in [[], ["--verify"]]:
            report = self.convert("source", f"some{len(verify)}", "--dtype", "rows=bf16", "--exclude", "all", *verify)
            self.assertNotIn("source_digest", report) # so what is read is not digested where it is cast
            self.assertEqual((report["digest"], report["tensors_digested"]), (digest_of(cast), len(cast)))
            self.assertEqual(report["bytes_digested"], sum(len(entry[2]) for entry in cast.values()))

    def test_blocks_of_large_tensors(self):
        """Several blocks of a tensor, by several threads, both sides in turn the one with longer rows."""
        rnd = random.Random(SEED + 7)
        self.model = {"wide": tensor(rnd, "U8", 300, 9000), "tall": tensor(rnd, "I16", 9000, 130)}
        rules = self.write_text("large", "* S(1)@x\n")
        self.write_hf("large-hf", self.model)
        digest = self.read_json("digest", self.at("large-hf"))["checkpoint"]
        options = ["--max-memory", "2M", "--threads", "2", "--no-sync"]
        self.check(self.convert("large-hf", "cut", "--to", "x=5", "--rules", rules, *options), digest, digest)
        self.check(self.convert("cut", "whole", *options), digest, digest)

    def test_what_did_not_come_by(self):
        """Bytes that are shared, or that an earlier run copied, have no digest until --verify reads them."""
        model = {"big": tensor(random.Random(SEED), "U8", 600, 1000), "small": self.model["rows"]}
        self.write_hf("kernel", model)
        report = self.convert("kernel", "copied")
        if report["bytes_shared"] != 0:
            self.assertEqual((report["bytes_digested"], report["tensors_digested"]), (12000, 1))
            self.assertNotIn("digest", report)
        else: # a file system that shares nothing, so all was read
            self.assertEqual(report["digest"], self.read_json("digest", self.at("kernel"))["checkpoint"])
        report = self.convert("kernel", "verified", "--verify")
        self.assertEqual((report["bytes_digested"], report["tensors_digested"]), (612000, 2))
        self.assertEqual(report["digest"], self.read_json("digest", self.at("kernel"))["checkpoint"])
        report = self.convert("kernel", "some", "--include", "small")
        self.assertNotIn("source_digest", report)
        self.assertEqual(report["digest"], digest_of({"small": model["small"]}))
        self.assertIn(f"digest {report['digest']}\n",
                      self.read_text("convert", self.at("kernel"), self.at("text"), "--include", "small"))


class Memory(ConvertTest):
    PLACE = support.pick_memory(400 << 20)

    def test_a_tensor_larger_than_memory(self):
        """Peak memory of the process stays near --max-memory."""
        if "san" in os.path.basename(os.path.dirname(support.COMMAND)):
            self.skipTest("sanitizers take memory of their own")
        model = {"w": ("U8", (6000, 16384), random.Random(SEED).randbytes(6000 * 16384))}
        self.write_hf("source", model)
        rules = self.write_text("r", "w S(1)@x\n")
        # By way of a small process, because a child's peak begins with what its parent had.
        launch = "import os, sys; pid = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]); print(os.wait4(pid, 0)[2].ru_maxrss)"
        for limit in [16, 64, 512]:
            for threads in [2, min(limit, 64)]:
                out = f"out{limit}-{threads}"
                done = subprocess.run([sys.executable, "-c", launch, support.COMMAND, "convert",
                                       self.at("source"), self.at(out), "--to", "x=4", "--rules", rules, "--max-memory",
                                       f"{limit}M", "--threads", str(threads), "--no-sync", "--quiet"],
                                      stdout=subprocess.PIPE, check=True, timeout=200)
                self.assertLessEqual(int(done.stdout) * 1024, (limit << 20) + (32 << 20), (limit, threads))
                found = files.read(self.at(f"{out}/shard-00002-model-00001-of-00001.safetensors"))[0]["w"]
                self.assertEqual(files.cut(model["w"], [0, 4096], [6000, 4096]), found[2])
                shutil.rmtree(self.at(out))


class Large(ConvertTest):
    """Beyond 2^32 bytes, in sparse files: planned, and read at such places. test_convert_large.c converts all of them."""

    def test_offsets_beyond_32_bits(self):
        rows, columns, width = 70001, 16384, 4  # 4.6 GB
        total = rows * columns * width
        marks = {0: b"abcd", (2**31 // width) * width: b"efgh", 2**32: b"ijkl", total - 4: b"mnop"}
        small = tensor(random.Random(SEED), "F32", 30, 20)
        header = json.dumps({"w": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, total]},
                             "small": {"dtype": "F32", "shape": [30, 20], "data_offsets": [total, total + 2400]}}).encode()
        os.mkdir(self.at("source"))
        with open(self.at("source/model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            begin = file.tell()
            for at, mark in [*marks.items(), (total, small[2])]:
                file.seek(begin + at)
                file.write(mark)
        rules = self.write_text("r", "* S(1)@x\n")
        self.convert("source", "small", "--to", "x=3", "--rules", rules, "--include", "small", "--verify")
        self.assertEqual(files.read_dcp(self.at("small")), {"small": small})
        rules = self.write_text("r", "small drop\nw S(0)@x\n")
        report = self.convert("source", "out", "--to", "x=2", "--rules", rules, "--dry-run")
        self.assertEqual(report["bytes_written"], total)
        self.assertEqual(self.read_json("inspect", self.at("source"))["bytes"], total + 2400)


class Random(ConvertTest):
    def draw_rule(self, rnd, shape):
        cuts = []
        for axis in ["a", "b"]:
            if shape and rnd.random() < 0.7:
                d = rnd.randrange(len(shape))
                how = rnd.choice(["", "~", "", f"*{rnd.randint(1, 3)}", f"/{rnd.randint(1, 4)}"])
                cuts.append(f"S({d}{how})@{axis}")
        rnd.shuffle(cuts)
        return ", ".join(cuts) or "R"

    def test_random_models_over_random_meshes(self):
        """Sizes around a block of 1 MiB, so that tensors go in one block and in several."""
        for seed in range(SEED, SEED + 3):
            with self.subTest(seed=seed):
                rnd = random.Random(seed)
                model, lines = {}, []
                for i in range(8):
                    dtype = rnd.choice(["U8", "I16", "F32", "F64", "BF16"])
                    shape = [rnd.choice([1, 2, 3, 7, 16, 33]) for _ in range(rnd.randint(0, 4))]
                    if i < 2:
                        shape = [rnd.randint(200, 900), rnd.randint(200, 900)] + ([2] if rnd.random() < 0.3 else [])
                    if i == 2:
                        shape = [2, rnd.randint(3000, 4000), 100]
                    model[f"t{i}"] = tensor(rnd, dtype, *shape)
                    lines.append((f"t{i}", shape))
                self.write_hf(f"{seed}-0", model)
                last = f"{seed}-0"
                for step in range(1, 4):
                    rules = self.write_text(f"{seed}-{step}.rules",
                                            "".join(f"{name} {self.draw_rule(rnd, shape)}\n" for name, shape in lines)
                                            + "never S(0)@a, S(0)@b\n")
                    to = f"a={rnd.randint(1, 4)},b={rnd.randint(1, 3)}"
                    threads = rnd.randint(1, 3)
                    options = ["--max-memory", rnd.choice([f"{threads}M", "4M", "512M"]), "--threads", str(threads)]
                    self.convert(last, f"{seed}-{step}", "--to", to, "--rules", rules, *options, "--no-sync",
                                 *(["--verify"] if rnd.random() < 0.3 else []), *(["--format", "dcp-safetensors"]))
                    last = f"{seed}-{step}"
                    self.assertEqual(files.read_dcp(self.at(last)), model, (to, rules))
                    ranks = f"{last}-ranks"
                    self.convert(last, ranks, "--to", to, "--rules", rules, "--format", "rank-files", *options, "--no-sync")
                    self.convert(ranks, f"{ranks}-hf", "--from", to, "--rules", rules, *options, "--no-sync")
                    self.assertEqual(files.read_hf(self.at(f"{ranks}-hf")), model, (to, rules))


def to_bf16(values):
    """Round to nearest even; NaN stays NaN."""
    out = b""
    for (bits,) in struct.iter_unpack("<I", values):
        if bits & 0x7fffffff > 0x7f800000:
            out += struct.pack("<H", (bits >> 16) | 0x40)
        else:
            out += struct.pack("<H", (bits + 0x7fff + (bits >> 16 & 1)) >> 16)
    return out


class Options(ConvertTest):
    def setUp(self):
        super().setUp()
        self.model = llama(random.Random(SEED + 9))
        self.write_hf("source", self.model, CONFIG)

    def test_casts(self):
        rnd = random.Random(SEED)
        values = b"".join(struct.pack("<f", rnd.uniform(-9, 9)) for _ in range(600))
        model = {"w": ("F32", (30, 20), values), "ids": tensor(rnd, "I64", 4), "keep": ("F32", (600,), values)}
        self.write_hf("floats", model)
        self.convert("floats", "bf16", "--dtype", "keep=f32", "--dtype", "bf16", "--verify")
        found = files.read_hf(self.at("bf16"))
        self.assertEqual(found, {"w": ("BF16", (30, 20), to_bf16(values)), "ids": model["ids"], "keep": model["keep"]})
        self.convert("floats", "cut", "--dtype", "w=f16", "--to", "x=3", "--verify", "--rules",
                     self.write_text("r", "w S(1)@x\n* R\n"))
        found = files.read_dcp(self.at("cut"))
        self.assertEqual(found["w"], ("F16", (30, 20), b"".join(
            struct.pack("<e", x) for (x,) in struct.iter_unpack("<f", values))))
        self.fails("floats", "x", "--dtype", "ids=f32", words='tensor "ids"')
        self.fails("floats", "x", "--dtype", "i64", words="cannot be cast")
        self.fails("floats", "x", "--dtype", "f99", words="f99", code=2)

    def test_files_of_hugging_face(self):
        with open(self.at("source/tokenizer.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        with open(self.at("source/pytorch_model.bin"), "w", encoding="utf-8") as file:
            file.write("no")
        report = self.convert("source", "hf", "--max-shard-size", "30K")
        names = sorted(os.listdir(self.at("hf")))
        self.assertEqual(files.read_hf(self.at("hf")), self.model)
        count = report["files"]
        self.assertGreater(count, 3)
        self.assertEqual(names, ["config.json"] + [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
                         + ["model.safetensors.index.json", "tokenizer.json"])
        with open(self.at("hf/model.safetensors.index.json"), encoding="utf-8") as file:
            text = file.read()
        index = json.loads(text)
        self.assertEqual(text, json.dumps(index, indent=2) + "\n")
        self.assertEqual(list(index["weight_map"]), sorted(self.model))
        self.assertEqual(index["metadata"], {"total_size": sum(len(v) for _, _, v in self.model.values())})
        for name in names[1:count + 1]:
            tensors, metadata, begin = files.read(self.at("hf/" + name))
            self.assertEqual((metadata, begin % 4096), ({"format": "pt"}, 0))
            self.assertTrue(len(tensors) == 1 or sum(len(v) for _, _, v in tensors.values()) <= 30 * 1024)

    def test_include_and_exclude(self):
        self.convert("source", "some", "--include", "*mlp*", "--include", "*norm*", "--exclude", "*.1.*")
        self.assertEqual(set(files.read_hf(self.at("some"))),
                         {n for n in self.model if ("mlp" in n or "norm" in n) and ".1." not in n})

    def test_dry_run_writes_nothing(self):
        before = sorted(os.listdir(self.folder))
        report = self.convert("source", "x", "--to", "tp=2", "--dry-run")
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        self.assertEqual((report["files"], report["tensors"]), (2, 19))
        self.assertEqual(report["bytes_written"], sum(len(v) for _, _, v in self.model.values()))
        self.assertIn("llama", report["rules"])
        for target in self.at("x"), self.at("x") + "//":
            self.assertIn("nothing was written", self.read_text("convert", self.at("source"), target, "--dry-run"))
        self.write_hf("large", {"big": tensor(random.Random(SEED), "U8", 600, 1000)})
        said = self.read_text("convert", self.at("large"), self.at("x"), "--dry-run")
        self.assertIn("KiB shareable), ", said)
        self.assertNotIn("is a folder", said)
        said = self.read_text("convert", self.at("large"), self.at("x.safetensors"), "--dry-run")
        self.assertIn("the target will be a folder", said)
        self.assertNotIn("were shared", said)

    def test_quiet_and_words(self):
        self.assertEqual(self.read_text("convert", self.at("source"), self.at("q"), "--quiet"), "")
        self.assertIn("19 tensors in 1 file, hf", self.read_text("convert", self.at("source"), self.at("w")))

    def test_links(self):
        self.convert("source", "one")
        self.convert("one", "two", "--link", "--verify")
        self.assertTrue(os.path.samefile(self.at("one/model.safetensors"), self.at("two/model.safetensors")))
        self.convert("one", "three", "--link", "--dtype", "bf16")
        self.assertFalse(os.path.samefile(self.at("one/model.safetensors"), self.at("three/model.safetensors")))

    def test_the_source_is_the_working_folder(self):
        """`.` is above what lies in it, by whatever path, and above nothing else."""
        def convert(target):
            return support.run("convert", ".", target, "--quiet", cwd=self.at("source"))
        for target in ["../out", self.at("out2"), "../source/../out3", "../../" + os.path.basename(self.folder) + "/out4"]:
            self.assertEqual(convert(target).stderr, "", target)
        os.symlink(self.at("source"), self.at("link"))
        os.mkdir(self.at("source/deeper"))
        for target in ["in", "./in", "../source/in", self.at("source/in"), "../link/in", "deeper/in", "none/in", "deeper/../in"]:
            self.assertIn("lies inside the source .", convert(target).stderr, target)
        self.assertEqual(sorted(os.listdir(self.at("source"))), ["config.json", "deeper", "model.safetensors"])

    def test_refusals_write_nothing(self):
        self.convert("source", "there")
        self.fails("source", "there", words="exists already")
        self.fails("source", "source", words="onto itself")
        self.fails("source", "source/inside", words="inside the source")
        self.fails("source", "source/deeper/inside", words="inside the source")
        self.assertEqual(sorted(os.listdir(self.at("source"))), ["config.json", "model.safetensors"])
        self.fails("source", "none/x", words="none/x.partial")
        self.fails("none", "x", words="no such file")
        self.fails("source", "x", "--to", "tp=2", "--format", "hf", words="whole tensors")
        self.fails("source", "x", "--format", "rank-files", words="needs a mesh to split over; give one (--to MESH, as in --to tp=4)")
        self.fails("source", "x", "--to", "tp=", words="mesh", code=2)
        self.fails("source", "x", "--to", "tp=3", words="k_proj")
        self.fails("source", "x", "--to", "zz=2", words="zz")
        self.fails("source", "x", "--to", "tp=2", "--rules", "nothing", words="nothing")
        self.fails("source", "x", "--to", "tp=2", "--set", "a", words="key=number")
        for key in ["", "k" * 600]:
            self.write_hf("nested", llama(random.Random(SEED)), {"model_type": "llama", key: CONFIG})
            self.fails("nested", "x", "--to", "tp=2", words="has no value in config.json")
        self.fails("source", "x", "--to", "tp=2", "--set", f"head_dim={2**63}", words="key=number")
        self.fails("source", "x", "--max-memory", "4K", words="too few")
        self.fails("source", "x", "--include", "zz*", words='matches no tensor')
        self.fails("source", "x", "--dtype", "zz*=bf16", words='matches no tensor')
        self.fails("source", "x", "--exclude", "*", words="is left to convert")
        self.fails("source", "x", "--to", "tp=2", "--rules", self.write_text("few.rules", "*norm* R\nx S(0)@tp\n"),
                   words="lm_head.weight")

    def test_replicas_that_differ(self):
        self.convert("source", "ranks", "--to", "tp=4", "--format", "rank-files")
        self.fails("ranks", "x", "--from", "tp=2", words="split over tp=4, not over tp=2")
        path = self.at("ranks/rank-00003-of-00004.safetensors")
        with open(path, "r+b") as file:
            data = file.read()
            entry = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["model.layers.0.self_attn.k_proj.weight"]
            file.seek(8 + struct.unpack("<Q", data[:8])[0] + entry["data_offsets"][0] + 5)
            file.write(bytes([data[file.tell()] ^ 1]))
        self.fails("ranks", "x", "--from", "tp=4", words='replicas differ: tensor "model.layers.0.self_attn.k_proj.weight"')


class Padding(ConvertTest):
    OPTIONS = ["--to", "tp=4", "--format", "rank-files"]

    def test_padding_is_verified(self):
        """Rows and columns that rules add are zero, and read by --verify."""
        rnd = random.Random(SEED)
        self.write_hf("source", {"rows": tensor(rnd, "I16", 13, 5), "columns": tensor(rnd, "F32", 6, 13), "plain": tensor(rnd, "U8", 8)})
        rules = self.write_text("r", "rows S(0)@tp pad(0,16)\ncolumns S(1)@tp pad(1,16)\n* S(0)@tp\n")
        options = [*self.OPTIONS, "--rules", rules, "--verify", "--resume"]
        stopped = support.run("convert", self.at("source"), self.at("out"), *options,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.assertEqual(stopped.returncode, 1)
        with open(self.at("out.partial/.reshard-journal"), "rb") as file:
            journal = file.read()
        self.assertNotIn(b"done", journal)
        self.convert("source", "out", *options)
        path = self.at("out/rank-00003-of-00004.safetensors")
        found, _, begin = files.read(path)
        self.assertEqual(found["rows"][2][10:], bytes(30))
        self.assertEqual([found["columns"][2][16 * i + 4:16 * i + 16] for i in range(6)], [bytes(12)] * 6)
        # A journal that says "finished" makes the next run verify what is there.
        with open(path, "rb") as file:
            data = file.read()
        for tensor_bytes, place in [(found["columns"][2], 16 * 2 + 7), (found["columns"][2], 16 * 5 + 15), (found["rows"][2], 10)]:
            byte = data.index(tensor_bytes, begin) + place
            self.leave_journal("source", "out", journal, *options)
            with open(path, "wb") as file:
                file.write(data[:byte] + b"\1" + data[byte + 1:])
            self.fails("source", "out", *options, words=f"byte {byte}, which is padding, is not zero")
        with open(path, "wb") as file:
            file.write(data)
        self.convert("source", "out", *options)


class Interruptions(ConvertTest):
    PLACE = support.pick_memory(200 << 20)
    OPTIONS = ["--to", "tp=4", "--rules", "", "--journal-bytes", "512K", "--max-memory", "2M", "--threads", "2"]

    def setUp(self):
        super().setUp()
        rnd = random.Random(SEED)
        model = {f"t{i}": tensor(rnd, "F32", 700, 1000) for i in range(8)}
        self.write_hf("source", model)
        self.OPTIONS[3] = self.write_text("r.rules", "t{0..3} S(0)@tp\n* S(1)@tp\n")
        self.convert("source", "expected", *self.OPTIONS)

    def start(self, *options, **arguments):
        return subprocess.Popen([support.COMMAND, "convert", self.at("source"), self.at("out"), *self.OPTIONS, "--json", *options],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **arguments)

    def finish(self):
        """Goes on to the end; the bytes that need not be done again."""
        done = self.start("--resume")
        output, errors = done.communicate(timeout=200)
        self.assertEqual((done.returncode, errors), (0, b""))
        self.check_same("expected", "out")
        self.assertFalse(os.path.exists(self.at("out.partial")))
        return json.loads(output)["bytes_resumed"]

    def read_source(self):
        """Digest and stamps: a conversion may change neither."""
        return [(name, os.stat(self.at(f"source/{name}")).st_mtime_ns) for name in sorted(os.listdir(self.at("source")))], \
            self.read_json("digest", self.at("source"))

    def check_left(self):
        """After a kill: no target, or a whole one. Is there one?"""
        if not os.path.exists(self.at("out")):
            return False
        if os.path.exists(self.at("out/.reshard-journal")):  # killed between the last two steps
            self.fails("source", "out", *self.OPTIONS, words="interrupted at its last step; resume it; --resume continues it")
            self.finish()
        self.check_same("expected", "out")
        return True

    def test_killed_at_random_points(self):
        rnd = random.Random(SEED)
        before = self.read_source()
        kills = 0
        started = time.monotonic()
        self.finish()
        longest = min(time.monotonic() - started, 0.15)
        shutil.rmtree(self.at("out"))
        while kills < 50:
            started = time.monotonic()
            pause = rnd.random() * longest
            running = self.start("--resume")
            while time.monotonic() < started + pause and running.poll() is None:
                time.sleep(0.001)
            running.kill()
            running.communicate()
            kills += running.returncode == -signal.SIGKILL
            if running.returncode == 0:
                longest = 0.9 * longest
            if self.check_left():
                shutil.rmtree(self.at("out"))
            elif rnd.random() < 0.2:
                if os.path.exists(self.at("out.partial")):
                    self.fails("source", "out", *self.OPTIONS, words="left by a conversion that was interrupted")
                self.finish()
                shutil.rmtree(self.at("out"))
        shutil.rmtree(self.at("out.partial"), ignore_errors=True)
        # A machine may be too fast or too busy for a kill at random to fall between two records: one is sure to.
        self.kill_after_a_record("convert", self.at("source"), self.at("out"), *self.OPTIONS, target=self.at("out"))
        self.fails("source", "out", *self.OPTIONS, words="left by a conversion that was interrupted; resume it, or remove it; --resume")
        self.assertGreater(self.finish(), 0)
        self.assertTrue(self.read_json("verify", self.at("source"), self.at("out"))["same"])
        self.assertEqual(self.read_source(), before)

    def test_two_at_once(self):
        """A second process neither harms the first nor takes it for one that was interrupted."""
        for _ in range(50):
            running = self.start()
            while running.poll() is None and not os.path.exists(self.at("out.partial/.reshard-journal")):
                pass
            running.send_signal(signal.SIGSTOP)
            if not os.path.exists(self.at("out")):
                break
            running.send_signal(signal.SIGCONT)
            running.communicate()
            shutil.rmtree(self.at("out"))
        for options in [[], ["--resume"]]:
            self.fails("source", "out", *self.OPTIONS, *options, words="another process is at work here", code=1)
        running.send_signal(signal.SIGCONT)
        _, errors = running.communicate(timeout=200)
        self.assertEqual((running.returncode, errors), (0, b""))
        self.check_same("expected", "out")

    def test_words_during_the_last_step_of_another_run(self):
        """Its target has its name already, and the journal is locked until all is done."""
        self.interrupt_at_last_step()
        with open(self.at("out/.reshard-journal"), "rb") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            for options in [[], ["--resume"]]:
                self.fails("source", "out", *self.OPTIONS, *options, words="out: another process is at work here; wait until it is done", code=1)
        self.finish()

    def test_targets_that_exist_are_refused_before_the_plan(self):
        """And so before the source is read: it need not even be there."""
        self.kill_with_done_blocks()
        os.mkdir(self.at("there"))
        os.mkdir(self.at("begun.partial"), 0o700)
        for target, words in [("there", "there: exists already"), ("out", "left by a conversion that was interrupted; resume it, or remove it; --resume"),
                              ("begun", "(or has only just begun)")]:
            for source in ["source", "nowhere"]:
                done = support.run("convert", self.at(source), self.at(target), *self.OPTIONS)
                self.assertEqual((done.returncode, done.stdout), (1, ""))  # a plan would have been printed
                self.assertIn(words, done.stderr)
        done = support.run("convert", self.at("source"), self.at("there"), *self.OPTIONS, "--dry-run")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("exists already", done.stderr)
        self.finish()

    def test_permissions_that_cannot_be_set(self):
        """As on file systems that have none: the conversion is finished, and a line says what others may not read."""
        if shutil.which("cc") is None or "san" in os.path.basename(os.path.dirname(support.COMMAND)):
            self.skipTest("needs a C compiler, and no sanitizer, to take the place of chmod")
        source = self.write_text("refuse.c", "#include <errno.h>\nint chmod(const char *p, unsigned m) { (void)p; (void)m; errno = EPERM; return -1; }\n"
                                 "int fchmod(int d, unsigned m) { (void)d; (void)m; errno = EPERM; return -1; }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-fno-builtin", "-o", self.at("refuse.so"), source], check=True)
        self.write_text("source/script.py", "")
        os.chmod(self.at("source/script.py"), 0o755)
        running = self.start(env={**os.environ, "LD_PRELOAD": self.at("refuse.so")})
        output, errors = running.communicate(timeout=200)
        self.assertEqual(running.returncode, 0, errors)
        self.assertIn("bytes_written", json.loads(output))
        self.assertRegex(errors.decode(), r"\Areshard: warning: \S*script.py: its permissions cannot be set to 755: Operation not permitted\n"
                         r"reshard: warning: \S*/out: its permissions cannot be set to 755: Operation not permitted\n\Z")
        os.unlink(self.at("out/script.py"))
        self.check_same("expected", "out")
        self.assertEqual(os.stat(self.at("out")).st_mode & 0o777, 0o700)

    def test_interrupt_leaves_a_partial_and_words(self):
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
            with self.subTest(number=number):
                self.interrupt(number)
                shutil.rmtree(self.at("out"))

    def test_interrupt_while_planning_leaves_nothing_to_resume(self):
        files.write(self.at("crowd/model.safetensors"), {f"t{i}": ("U8", (1,), b"x") for i in range(30000)})
        for attempt in range(1, 50):
            running = subprocess.Popen([support.COMMAND, "convert", self.at("crowd"), self.at("out"), "--to", "fsdp=2",
                                        "--rules", "fsdp"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(0.02 * attempt)
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=200)
            if running.returncode == 128 + signal.SIGINT and not os.path.exists(self.at("out.partial")):
                self.assertIn(b"cancelled", errors)
                self.assertNotIn(b"--resume", errors)
                return
            shutil.rmtree(self.at("out"), ignore_errors=True)
            shutil.rmtree(self.at("out.partial"), ignore_errors=True)
        self.fail("no conversion was interrupted while it was planned")

    def interrupt(self, number):
        for _ in range(20):
            running = self.start()
            while not os.path.exists(self.at("out.partial/.reshard-journal")) and running.poll() is None:
                time.sleep(0.0005)
            running.send_signal(number)
            _, errors = running.communicate(timeout=200)
            if running.returncode == 128 + number:  # as shells report it
                self.assertIn(b"out.partial holds what was finished; --resume continues it", errors)
                self.assertEqual(os.stat(self.at("out.partial")).st_mode & 0o777, 0o700)
                self.assertFalse(os.path.exists(self.at("out")))
                self.fails("source", "out", *self.OPTIONS, words="left by a conversion that was interrupted")
                self.fails("source", "out", "--resume", words="another conversion")
                self.finish()
                return
            shutil.rmtree(self.at("out"), ignore_errors=True)
            shutil.rmtree(self.at("out.partial"), ignore_errors=True)
        self.fail("the conversion could not be interrupted")

    def test_partial_of_somebody_else(self):
        os.mkdir(self.at("out.partial"), 0o755)
        self.fails("source", "out", "--resume", *self.OPTIONS, words="remove it")
        os.chmod(self.at("out.partial"), 0o700)
        self.write_text("out.partial/theirs", "")
        self.fails("source", "out", "--resume", *self.OPTIONS, words="no journal")
        self.assertEqual(os.listdir(self.at("out.partial")), ["theirs"])
        shutil.rmtree(self.at("out.partial"))
        os.symlink(self.at("source"), self.at("out.partial"))
        self.fails("source", "out", "--resume", *self.OPTIONS, words="remove it")
        self.assertEqual(os.listdir(self.at("source")), ["model.safetensors"])

    def test_journal_of_somebody_else(self):
        """An empty journal is none, neither in the partial folder nor in one that has the target's name already."""
        for name, words in [("out", "exists already"), ("out.partial", "journal")]:
            os.mkdir(self.at(name), 0o700)
            for text in ["", "\n", "theirs\n", "reshard conversion 2\n", "\0" * 100]:
                self.write_text(f"{name}/.reshard-journal", text)
                self.fails("source", "out", "--resume", "--verify", *self.OPTIONS, words=words)
            self.assertEqual(os.listdir(self.at(name)), [".reshard-journal"])
            shutil.rmtree(self.at(name))

    def test_file_of_somebody_else(self):
        self.kill_with_done_blocks()
        self.write_text("out.partial/theirs", "")
        self.fails("source", "out", "--resume", *self.OPTIONS, words="does not belong there; remove it")
        os.unlink(self.at("out.partial/theirs"))
        self.assertGreater(self.finish(), 0)

    def test_name_does_not_finish(self):
        """Whoever renames the partial folder does not finish the conversion."""
        self.kill_with_done_blocks()
        os.rename(self.at("out.partial"), self.at("out"))
        for options in [[], ["--resume"], ["--resume", "--verify"]]:
            self.fails("source", "out", *options, *self.OPTIONS, words="says that it is unfinished")
        os.rename(self.at("out"), self.at("out.partial"))
        self.finish()

    def interrupt_at_last_step(self):
        """Leaves a target as a crash does when only the journal is left to remove."""
        self.kill_with_done_blocks()
        with open(self.at("out.partial/.reshard-journal"), "rb") as file:
            journal = file.read()
        self.finish()
        self.leave_journal("source", "out", journal, *self.OPTIONS)

    def test_last_step_is_verified(self):
        """With --verify a target that is only to be finished is read as any other."""
        self.interrupt_at_last_step()
        path = self.at("out/" + sorted(os.listdir(self.at("out")))[1])
        with open(path, "r+b") as file:
            file.seek(-5, os.SEEK_END)
            byte = file.read(1)
            file.seek(-5, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        self.fails("source", "out", "--resume", "--verify", *self.OPTIONS, words="the output is wrong")
        os.truncate(path, os.path.getsize(path) - 1)
        self.fails("source", "out", "--resume", *self.OPTIONS, words="bytes, not")
        shutil.copyfile(path.replace("/out/", "/expected/"), path)
        self.convert("source", "out", "--resume", "--verify", *self.OPTIONS)
        self.check_same("expected", "out")

    def test_source_that_was_replaced(self):
        """Of the same size and with the same time of change, but another file."""
        path = self.at("source/model.safetensors")
        for replace in [True, False]:
            self.kill_with_done_blocks()
            before = os.stat(path)
            with open(path, "rb") as file:
                data = file.read()
            if replace:
                os.unlink(path)
            with open(path, "wb" if replace else "r+b") as file:
                file.write(data[:-1] + b"x")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            self.fails("source", "out", "--resume", *self.OPTIONS, words="have changed")
            shutil.rmtree(self.at("out.partial"))

    def test_source_that_changed(self):
        done = self.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20)))
        _, errors = done.communicate(timeout=200)
        self.assertEqual(done.returncode, 1, errors)
        self.assertRegex(errors.decode(), r"^reshard: .*(room|size|written|limit|too large).*\n$")
        self.assertFalse(os.path.exists(self.at("out")))
        os.utime(self.at("source/model.safetensors"), (1, 1))
        self.fails("source", "out", "--resume", *self.OPTIONS, words="have changed")
        shutil.rmtree(self.at("out.partial"))
        self.finish()

    def has_done_blocks(self):
        try:
            with open(self.at("out.partial/.reshard-journal"), encoding="utf-8") as file:
                return "done" in file.read()
        except FileNotFoundError:
            return False

    def kill_with_done_blocks(self):
        for _ in range(50):  # some are over before they are killed
            running = self.start()
            while running.poll() is None and not self.has_done_blocks():
                time.sleep(0.0005)
            running.kill()
            running.communicate()
            if running.returncode != 0:
                return
            shutil.rmtree(self.at("out"))
        self.fail("no conversion could be killed")

    def test_partial_that_lost_a_file(self):
        """What the journal calls done must be there."""
        for harm in [os.unlink, lambda path: os.truncate(path, 100), lambda path: os.link(path, self.at("elsewhere"))]:
            self.kill_with_done_blocks()
            for name in os.listdir(self.at("out.partial")):
                if name.endswith(".safetensors"):
                    harm(self.at("out.partial/" + name))
                    break
            self.fails("source", "out", "--resume", *self.OPTIONS, words="is not as the interrupted conversion left it")
            self.assertFalse(os.path.exists(self.at("out")))
            shutil.rmtree(self.at("out.partial"))

    def test_files_too_large(self):
        for limit in [1 << 12, 1 << 20, 5 << 20]:
            done = self.start("--resume",
                              preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            _, errors = done.communicate(timeout=200)
            self.assertEqual(done.returncode, 1, errors)
            self.assertRegex(errors.decode(), rf"\Areshard: {self.folder}/out\.partial/[^\n]*\n\Z")
            self.assertFalse(os.path.exists(self.at("out")))
        self.finish()

    def test_full_disk(self):
        """A file system with room for a part of the files only, and then for all of them."""
        disk = self.at("disk")
        os.mkdir(disk)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], check=False,
                                               stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("mounting is not permitted here")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        before = self.read_source()
        for size in ["4m", "9m", "20m"]:
            subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
            for _ in range(2):
                done = support.run("convert", self.at("source"), f"{disk}/out", *self.OPTIONS, "--resume")
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, rf"\Areshard: [^\n]*{disk}/out\.partial/[^\n]*No space left on device\n\Z")
                self.assertEqual(os.listdir(disk), ["out.partial"])
        subprocess.run(["mount", "-o", "remount,size=40m", disk], check=True)
        self.read_json("convert", self.at("source"), f"{disk}/out", *self.OPTIONS, "--resume", "--verify")
        self.check_same("expected", "disk/out")
        self.assertEqual(os.listdir(disk), ["out"])
        self.assertEqual(self.read_source(), before)


if __name__ == "__main__":
    support.main()
