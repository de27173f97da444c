# SPDX-License-Identifier: Apache-2.0
"""`reshard digest` and `reshard verify`, on checkpoints made by hand and with digests computed by fingerprint.py: neither
shares code with the library."""
import functools
import json
import os
import random
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files  # noqa: E402
import fingerprint  # noqa: E402
from support import CommandTest, main, run  # noqa: E402

SEED = int(os.environ.get("RESHARD_TEST_SEED", "1"), 0)
LLAMA = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 2, "vocab_size": 100}


def random_model(numbers, shapes):
    """{name: (dtype, shape, bytes)} of {name: (dtype, shape)}"""
    return {name: (dtype, shape, numbers.randbytes(files.size_of(dtype, shape)))
            for name, (dtype, shape) in shapes.items()}


def llama_model(numbers):
    shapes = {"model.embed_tokens.weight": ("F16", (100, 32)), "model.norm.weight": ("F16", (32,)),
              "lm_head.weight": ("F16", (100, 32))}
    for layer in range(2):
        for part, shape in [("self_attn.q_proj", (32, 32)), ("self_attn.k_proj", (16, 32)), ("self_attn.v_proj", (16, 32)),
                            ("self_attn.o_proj", (32, 32)), ("mlp.gate_proj", (48, 32)), ("mlp.up_proj", (48, 32)),
                            ("mlp.down_proj", (32, 48)), ("input_layernorm", (32,))]:
            shapes[f"model.layers.{layer}.{part}.weight"] = ("F16", shape)
    return random_model(numbers, shapes)


def tp_box(name, shape, tp, rank):
    """Offset and size on a rank as tensor parallel programs cut Llama: written down here apart from the rules. The
    vocabulary is padded to 128 rows; the box may reach beyond the tensor."""
    part = name.split(".")[-2]
    if part in ("q_proj", "gate_proj", "up_proj"):
        return (rank * (shape[0] // tp), 0), (shape[0] // tp, shape[1])
    if part in ("k_proj", "v_proj"):  # two heads of 8 rows, copied beyond two ranks
        head = rank * 2 // tp if tp > 2 else None
        return ((head * 8, 0), (8, 32)) if tp > 2 else ((rank * (16 // tp), 0), (16 // tp, 32))
    if part in ("o_proj", "down_proj"):
        return (0, rank * (shape[1] // tp)), (shape[0], shape[1] // tp)
    if part in ("embed_tokens", "lm_head"):
        return (rank * (128 // tp), 0), (128 // tp, shape[1])
    return (0,) * len(shape), shape


def write_rank_files(folder, model, tp):
    for rank in range(tp):
        tensors = {}
        for name, (dtype, shape, values) in model.items():
            offset, size = tp_box(name, shape, tp, rank)
            kept = [min(o + s, n) - min(o, n) for o, s, n in zip(offset, size, shape)]
            data = files.cut((dtype, shape, values), offset, kept) if all(kept) else b""
            data += bytes(files.size_of(dtype, size) - len(data))
            tensors[name] = (dtype, size, data)
        files.write(f"{folder}/model-{rank}.safetensors", tensors)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(LLAMA, file)


@functools.lru_cache(maxsize=None)
def expected_digest(dtype, shape, data):
    return fingerprint.tensor_digest(dtype, shape, data)


def expected_digests(model):
    return {name: expected_digest(*tensor) for name, tensor in model.items()}


class DigestTest(CommandTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="reshard-test-")
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.numbers = random.Random(SEED)

    def path(self, name):
        return os.path.join(self.folder, name)

    def check_digests(self, model, *arguments):
        wanted = expected_digests(model)
        total = fingerprint.checkpoint_digest({name.encode(): digest for name, digest in wanted.items()})
        self.assertEqual(self.read_json("digest", *arguments), {"tensors": wanted, "checkpoint": total})
        return total

    # ---- digest --------------------------------------------------------------------------------

    def test_every_dtype_and_shape(self):
        shapes = {f"dtype.{dtype}": (dtype, (4, 6)) for dtype in files.BITS}
        shapes |= {"scalar": ("F32", ()), "empty": ("F64", (3, 0, 2)), "long": ("I8", (70001,)), "": ("U8", (1,)),
                   "nul\0 \u00e9\n\"": ("U8", (5,)), "dims": ("BF16", (1, 2) * 6)}
        model = random_model(self.numbers, shapes)
        files.write(self.path("model.safetensors"), model)
        self.check_digests(model, self.path("model.safetensors"))
        self.check_digests(model, self.path("model.safetensors"), "--threads", "1")

    def test_lines(self):
        model = random_model(self.numbers, {"b": ("F32", (2, 3)), "a\x1b[1m": ("U8", (3,))})
        files.write(self.path("m.safetensors"), model)
        wanted = expected_digests(model)
        text = self.read_text("digest", self.path("m.safetensors"))
        self.assertEqual(text.splitlines()[:2], [f"{wanted[chr(97) + chr(27) + '[1m']}  a\\x1b[1m", f"{wanted['b']}  b"])
        self.assertRegex(text.splitlines()[2], r"\A[0-9a-f]{32}  all 2 tensors, 27 B\Z")

    def test_splits_do_not_matter(self):
        """Pieces larger than what is read at once, cut along each dimension."""
        shapes = {"a": ("F32", (300, 700)), "b": ("BF16", (5, 130, 900)), "c": ("F64", (7,)), "d": ("I64", ())}
        model = random_model(self.numbers, shapes)
        files.write(self.path("one.safetensors"), model)
        total = self.check_digests(model, self.path("one.safetensors"))
        for number, dims in enumerate([{"a": 0, "b": 0, "c": 0}, {"a": 1, "b": 1}, {"a": 1, "b": 2, "c": 0}]):
            folder = self.path(f"dcp-{number}")
            files.write_dcp(folder, model, 3, dims, shapes=True)
            self.assertEqual(self.check_digests(model, folder), total)
            self.assertEqual(self.check_digests(model, folder, "--threads", "3"), total)
            text = self.read_text("verify", self.path("one.safetensors"), folder)
            self.assertTrue(text.endswith("the same tensors\n"), text)
            self.assertTrue(self.read_json("verify", folder, self.path("one.safetensors"))["same"])
            found = self.read_json("verify", folder, self.path("one.safetensors"), "--digest")
            self.assertTrue(found["same"])
            self.assertEqual((found["checkpoint"], found["checkpoint_b"]), (total, total))

    def test_rank_files(self):
        """Heads, copied heads, columns, and a padded vocabulary."""
        model = llama_model(self.numbers)
        files.write(self.path("one.safetensors"), model)
        for tp in (1, 2, 4):
            folder = self.path(f"tp{tp}")
            write_rank_files(folder, model, tp)
            self.check_digests(model, folder, "--from", f"tp={tp}", "--rules", "llama")
            self.check_digests(model, folder, "--from", f"tp={tp}")
            found = self.read_json("verify", self.path("one.safetensors"), folder, "--from-b", f"tp={tp}")
            self.assertTrue(found["same"])
        text = self.read_text("verify", self.path("tp4"), "--from", "tp=4")
        # k and v: 2 boxes over 4 ranks in 2 layers; norms: 3 tensors on 4 ranks.
        size = sum(len(values) for _, _, values in model.values()) / 1024
        self.assertIn(f"whole: 19 tensors, {size:.1f} KiB in 4 files, {2 * 2 * 2 + 3 * 3} copies agree", text)

    def test_conversions_keep_digests(self):
        """From split to split, through files of whole tensors and files of ranks."""
        model = llama_model(self.numbers)
        files.write(self.path("hf/model.safetensors"), model, {"format": "pt"})
        with open(self.path("hf/config.json"), "w", encoding="utf-8") as file:
            json.dump(LLAMA, file)
        total = self.check_digests(model, self.path("hf"))
        source, reading = "hf", []
        for number, (mesh, form) in enumerate([("fsdp=4", "auto"), ("tp=2", "auto"), (None, "hf"), ("pp=2,tp=4", "auto"),
                                               ("tp=4", "rank-files"), ("dp=2,pp=2,tp=2", "rank-files"),
                                               ("fsdp=3,tp=2", "auto"), ("fsdp=5", "rank-files")]):
            target = f"step-{number}"
            to = ["--to", mesh] if mesh else []
            self.read_text("convert", self.path(source), self.path(target), *to, "--format", form, "--quiet", "--no-sync",
                           *reading)
            source, reading = target, ["--from", mesh] if form == "rank-files" else []
            self.assertEqual(self.check_digests(model, self.path(source), *reading), total)
            second = ["--from-b", mesh] if reading else []
            self.assertTrue(self.read_json("verify", self.path("hf"), self.path(source), *second)["same"])

    def test_large(self):
        """A sparse tensor beyond 2^32 bytes, with a few bytes that are not zero."""
        if float(os.environ.get("RESHARD_TEST_SCALE", "1")) < 4:
            self.skipTest("reads 4 GiB; RESHARD_TEST_SCALE=4 runs it")
        size = 2**32 + 2**20
        header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        path = self.path("large.safetensors")
        marks = {0: b"first", 2**32 - 2: b"around", size - 4: b"last"}
        with open(path, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + size)
            for place, data in marks.items():
                file.seek(8 + len(header) + place)
                file.write(data)
        head = f"u8 {size}\n".encode()
        wanted = ""
        for polynomial in fingerprint.POLYNOMIALS:
            result = fingerprint.remainder(int.from_bytes(head, "little"), polynomial)
            for place, data in marks.items():
                result ^= fingerprint.shifted(data, len(head) + place, polynomial)
            wanted += f"{result:016x}"
        self.assertEqual(self.read_json("digest", path)["tensors"], {"t": wanted})

    def test_rules_of_the_page(self):
        """The first example of docs/rules.md does what the page says."""
        with open(os.path.join(HERE, "..", "..", "..", "docs", "rules.md"), encoding="utf-8") as file:
            example = re.search(r"^```rules\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL).group(1)
        with open(self.path("some.rules"), "w", encoding="utf-8") as file:
            file.write(example)
        model = llama_model(self.numbers)
        model["old.3.weight"] = model["model.norm.weight"]
        model["x.rotary_emb.y"] = model["model.norm.weight"]
        files.write(self.path("hf/model.safetensors"), model)
        with open(self.path("hf/config.json"), "w", encoding="utf-8") as file:
            json.dump(LLAMA, file)
        self.read_text("convert", self.path("hf"), self.path("tp"), "--to", "fsdp=2,tp=2", "--rules",
                       self.path("some.rules"), "--quiet", "--no-sync")
        done = run("verify", self.path("hf"), self.path("tp"), "--json")
        found = json.loads(done.stdout)
        self.assertEqual((found["only_in_a"], found["only_in_b"]), (["old.3.weight", "x.rotary_emb.y"], ["new.3.weight"]))
        self.assertEqual(found["dtype"] + found["shape"] + found["bytes_differ"], [])

    # ---- verify --------------------------------------------------------------------------------

    def check_differs(self, a, b, key, names, *arguments):
        done = run("verify", a, b, "--json", *arguments)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"\Areshard: .* do not hold the same tensors: \d+ differs?\n\Z")
        found = json.loads(done.stdout)
        self.assertFalse(found["same"])
        for kind in ("only_in_a", "only_in_b", "dtype", "shape", "bytes_differ"):
            self.assertEqual(found[kind], names if kind == key else [], kind)

    def test_differences(self):
        model = random_model(self.numbers, {name: ("F32", (40, 30)) for name in "abc"})
        files.write(self.path("a.safetensors"), model)
        dtype, shape, values = model["b"]
        row = 30 * 4
        swapped = values[row:2 * row] + values[:row] + values[2 * row:]
        for key, names, changed in [
                ("only_in_a", ["b"], {"a": model["a"], "c": model["c"]}),
                ("only_in_b", ["d"], {**model, "d": model["a"]}),
                ("dtype", ["b"], {**model, "b": ("I32", shape, values)}),
                ("shape", ["b"], {**model, "b": (dtype, (30, 40), values)}),
                ("bytes_differ", ["b"], {**model, "b": (dtype, shape, swapped)}),
                ("bytes_differ", ["b"], {**model, "b": (dtype, shape, values[:-1] + bytes([values[-1] ^ 1]))}),
                ("bytes_differ", ["a", "b"], {**model, "a": model["b"], "b": model["a"]})]:
            files.write(self.path("b.safetensors"), changed)
            self.check_differs(self.path("a.safetensors"), self.path("b.safetensors"), key, names)
            self.check_differs(self.path("a.safetensors"), self.path("b.safetensors"), key, names, "--digest")
        done = run("verify", self.path("a.safetensors"), self.path("b.safetensors"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"\na +bytes +f32 40x30 +f32 40x30 +\[0, 0\]: \S+ and \S+\n")

    def test_many_differences(self):
        one = random_model(self.numbers, {f"t{i:03}": ("U8", (4,)) for i in range(100)})
        other = random_model(self.numbers, {f"t{i:03}": ("U8", (4,)) for i in range(100)})
        files.write(self.path("a.safetensors"), one)
        files.write(self.path("b.safetensors"), other)
        paths = self.path("a.safetensors"), self.path("b.safetensors")
        self.assertIn("  ... 36 more; --all prints them\n", run("verify", *paths).stdout)
        self.assertEqual(run("verify", *paths, "--all").stdout.count(" bytes "), 100)

    def test_copies_that_differ(self):
        model = llama_model(self.numbers)
        folder = self.path("tp4")
        for name, place, element in [("model.norm.weight", 5, r"\[2\]"),
                                     ("model.layers.1.self_attn.k_proj.weight", 2 * 33, r"\[9, 1\]")]:
            write_rank_files(folder, model, 4)
            tensors = files.read(f"{folder}/model-3.safetensors")[0]
            dtype, shape, values = tensors[name]
            values = bytearray(values)
            values[place] ^= 0x40
            tensors[name] = (dtype, shape, bytes(values))
            files.write(f"{folder}/model-3.safetensors", tensors)
            done = run("verify", folder, "--from", "tp=4")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, rf'tensor "{name}": model-\d.safetensors and model-3.safetensors hold copies '
                                          rf"that differ, first at element {element}\n")
            # The digest is of one of them, and says nothing.
            self.check_digests(model, folder, "--from", "tp=4")

    def test_damaged(self):
        model = random_model(self.numbers, {"a": ("F32", (40, 30))})
        files.write_dcp(self.path("dcp"), model, 2, {"a": 0}, shapes=True)
        os.remove(self.path("dcp/shard-00002-model-00001-of-00001.safetensors"))
        self.check_fails(["verify", self.path("dcp")], 1, 'tensor "a"')
        files.write(self.path("b.safetensors"), model)
        os.truncate(self.path("b.safetensors"), 1000)
        self.check_fails(["digest", self.path("b.safetensors")], 1, "b.safetensors")
        self.check_fails(["verify", self.path("none")], 1, "none")
        self.check_fails(["verify", self.path("b.safetensors"), "--from-b", "tp=2"], 2, "--from-b")
        self.check_fails(["digest"], 2, "CKPT")
        self.check_fails(["digest", self.path("b.safetensors"), "--threads", "1000"], 1)


if __name__ == "__main__":
    main()
