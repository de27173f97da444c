# SPDX-License-Identifier: Apache-2.0
"""PyTorch's distributed checkpoints, made by dcp_files.py as PyTorch 1.13 to 2.x write them, and what we write, read by it again."""
import ctypes
import ctypes.util
import os
import random
import shutil
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import dcp_files
import files
import support
import torch_files

SHAPES = {"model.norm.weight": ("F32", (7,)), "model.w": ("BF16", (5, 6)), "step": ("I64", ()), "none": ("F32", (0, 3)),
          "mask": ("BOOL", (3, 2, 2)), "fp8": ("F8_E4M3", (8, 8)), "z": ("C64", (2, 3)), "ids": ("U16", (9,)), "big": ("F32", (64, 48))}


def find_zstd():
    """Compresses into one frame, by the system's libzstd; None without it."""
    name = ctypes.util.find_library("zstd")
    if name is None:
        return None
    library = ctypes.CDLL(name)
    library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compressBound.restype = ctypes.c_size_t

    def compress(data):
        room = library.ZSTD_compressBound(ctypes.c_size_t(len(data)))
        out = ctypes.create_string_buffer(room)
        count = library.ZSTD_compress(out, ctypes.c_size_t(room), data, ctypes.c_size_t(len(data)), 3)
        return out.raw[:count]
    return compress


class DcpTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.rnd = random.Random(1)
        self.model = {name: (dtype, shape, self.rnd.randbytes(files.size_of(dtype, shape))) for name, (dtype, shape) in SHAPES.items()}

    def at(self, name):
        return f"{self.folder}/{name}"

    def writer(self, name="in", release="2.6", protocol=4):
        return dcp_files.Writer(dcp_files.Torch(release), self.at(name), protocol)

    def convert(self, source, target, *more):
        shutil.rmtree(self.at(target), ignore_errors=True)
        return self.read_text("convert", self.at(source), self.at(target), "--verify", *more)

    def check_hf(self, source, model, *more):
        self.convert(source, "hf", "--format", "hf", "--all", *more)
        found = files.read(self.at("hf/model.safetensors"))[0]
        self.assertEqual({name: tuple(value) for name, value in found.items()}, model)


class ReadTest(DcpTest):
    def test_all_versions(self):
        for release, protocol in (("1.13", 4), ("1.13", 2), ("2.0", 4), ("2.6", 2), ("2.6", 4), ("2.6", 5)):
            for world in (1, 4) if release == "2.6" else (2,):
                dcp_files.write(self.at("in"), self.model, world, release, protocol)
                self.check_hf("in", self.model)
                shutil.rmtree(self.at("in"))

    def test_inspect(self):
        dcp_files.write(self.at("in"), self.model, 12)
        found = self.read_json("inspect", self.at("in"))
        self.assertEqual(found["format"], "dcp")
        shards = {entry["name"]: entry["shards"] for entry in found["tensors"]}
        self.assertEqual([shard["file"] for shard in shards["big"]], [f"__{rank}_0.distcp" for rank in range(11)])
        self.assertEqual(shards["big"][10], {"file": "__10_0.distcp", "offset": [60, 0], "size": [4, 48]})
        self.assertEqual(len(shards["model.w"]), 5)

    def test_strides_and_views(self):
        def transposed(local):
            dtype, size, data = local
            if len(size) != 2:
                return torch_files.tensor(local)
            turned = dcp_files.take((dtype, (size[0], size[1]), data), (0, 0), size)
            width = files.BITS[dtype] // 8
            columns = b"".join(turned[(i * size[1] + j) * width:(i * size[1] + j + 1) * width] for j in range(size[1]) for i in range(size[0]))
            return torch_files.View(torch_files.Storage(dtype, b"\xee" * 3 * width + columns + b"\xee" * width), 3, size, (1, size[0]))
        writer = self.writer()
        for name in ("model.w", "big", "model.norm.weight"):
            writer.add(name, self.model[name], 3, transposed)
        writer.close()
        self.check_hf("in", {name: self.model[name] for name in ("model.w", "big", "model.norm.weight")})
        self.check_hf("in", {name: self.model[name] for name in ("model.w", "big", "model.norm.weight")}, "--max-memory", "1M")

    def test_values_are_kept(self):
        writer = self.writer()
        saved = writer.add_bytes("train_state", {"step": 7, "losses": [1.5, None]})
        writer.paths["train_state"] = ("train_state",)
        for name in ("big", "step"):
            writer.add(name, self.model[name], 2)
        writer.paths["big"] = ("optimizer", "state", 0, "big")
        writer.close()
        self.convert("in", "out", "--format", "dcp", "--to", "fsdp=3", "--rules", "fsdp")
        model, values, paths = dcp_files.read(self.at("out"))
        self.assertEqual(model, {name: self.model[name] for name in ("big", "step")})
        self.assertEqual(values, {"train_state": saved})
        self.assertEqual(paths, {"big": ("optimizer", "state", 0, "big"), "step": ("step",), "train_state": ("train_state",)})

    def test_zstd(self):
        compress = find_zstd()
        if compress is None:
            self.skipTest("no libzstd")
        cut = lambda data: b"".join(compress(data[i:i + 100]) for i in range(0, len(data), 100))
        for descriptor in ("stream.zstd/1", "stream.zstd@pytorch.org/1.2", "stream.zstd"):
            for how in (compress, cut):
                writer = self.writer()
                for name in ("big", "model.w", "step"):
                    writer.add(name, self.model[name], 2, transform=([descriptor], how))
                writer.close()
                self.check_hf("in", {name: self.model[name] for name in ("big", "model.w", "step")})
                shutil.rmtree(self.at("in"))
        for broken, words in ((lambda data: compress(data)[:-9], "cut off"), (lambda data: b"x" + compress(data), "damaged"),
                              (lambda data: compress(data + bytes(1 << 21)), "holds more than")):
            writer = self.writer()
            writer.add("big", self.model["big"], 1, transform=(["stream.zstd/1"], broken))
            writer.close()
            self.check_fails(("inspect", self.at("in")), 1, words)
        for descriptors in (["stream.rot13/1"], ["stream.zstd/2"], ["stream.zstd/10"], ["stream.zstd@a.b/1x"], ["stream.zstd2"],
                            ["stream.zstd/1", "stream.zstd/1"]):
            writer = self.writer()
            writer.add("big", self.model["big"], 1, transform=(descriptors, bytes))
            writer.close()
            self.check_fails(("inspect", self.at("in")), 1, f'is stored through "{descriptors[0]}"')

    def write_safetensors_body(self, both, more_dims=()):
        """Two chunks of big in one file; its writer keeps one of them. Else one in each of two files. more_dims: of the arrays in the files."""
        writer, array = self.writer(), self.model["big"]
        writer.describe("big", *array[:2])
        writer.add_bytes("lr", 0.5)
        for rank, (offset, size) in enumerate(dcp_files.chunks(array[1], 2)):
            file = "__0_0.distcp" if both else f"__{rank}_0.distcp"
            data = dcp_files.take(array, offset, size)
            info = '{"big": {"saved_offsets": %s}}' % list((offset[0], 0) + (0,) * len(more_dims))
            body = files.pack({"big": (array[0], tuple(size) + more_dims, data)}, {"DCP_SHARDING_INFO": info, "DCP_VERSION": "1.0", "format": "pt"})
            at = len(writer.files.get(file, b"")) if rank == 0 or not both else writer.at
            writer.at = at
            if rank == 0 or not both:
                writer.put(file, body)
            writer.store("big", offset, size, file, b"", length=len(data), at=at)
        writer.close()

    def test_safetensors_bodies(self):
        self.write_safetensors_body(False)
        self.check_hf("in", {"big": self.model["big"]})
        self.write_safetensors_body(True)
        self.check_fails(("inspect", self.at("in")), 1, "this chunk was lost when it was saved")
        self.write_safetensors_body(False, (1,))
        self.check_fails(("inspect", self.at("in")), 1, "the metadata says f32 of 32x48")

    def write_ranks(self, change=None, left_out=None):
        """Each rank has its own metadata, the replicated tensor too."""
        for rank in range(3):
            writer, array = self.writer(), self.model["big"]
            writer.describe("big", *array[:2])
            offset, size = dcp_files.chunks(array[1], 3)[rank]
            writer.store("big", offset, size, f"__{rank}_0.distcp", torch_files.pack(torch_files.tensor((array[0], size, dcp_files.take(array, offset, size)))))
            dtype, shape, data = self.model["model.w"]
            data = data if rank != change else data[:-1] + bytes([data[-1] ^ 1])
            writer.describe("model.w", dtype, shape)
            writer.store("model.w", (0, 0), shape, f"__{rank}_0.distcp", torch_files.pack(torch_files.tensor((dtype, shape, data))))
            writer.add_bytes("seed", 3, f"__{rank}_0.distcp")
            if rank != left_out:
                writer.close(f"__{rank}.metadata")

    def test_metadata_of_ranks(self):
        self.write_ranks()
        found = self.read_json("inspect", self.at("in"))
        copies = {entry["name"]: sum(shard.get("copy", False) for shard in entry["shards"]) for entry in found["tensors"]}
        self.assertEqual(copies, {"big": 0, "model.w": 2})
        self.check_hf("in", {name: self.model[name] for name in ("big", "model.w")})
        self.write_ranks(change=2)
        self.check_fails(("convert", self.at("in"), self.at("hf2")), 1, "replicas differ")
        shutil.rmtree(self.at("in"))
        self.write_ranks(left_out=1)
        self.check_fails(("inspect", self.at("in")), 1, "is a file missing?")

    def test_values_of_ranks(self):
        """Each rank keeps its own; the first counts, and where others differ, that is said."""
        for last, notes in ((5, []), (6, ["values that differ between ranks: 1; the first of each is kept"])):
            shutil.rmtree(self.at("in"), ignore_errors=True)
            for rank, number in enumerate((5, last)):
                writer = self.writer()
                writer.describe("w", "U8", (1,))
                writer.store("w", (0,), (1,), f"__{rank}_0.distcp", torch_files.pack(torch_files.tensor(("U8", (1,), b"x"))))
                data = writer.add_bytes("sched", {"epoch": number}, f"__{rank}_0.distcp")
                kept = data if rank == 0 else kept
                writer.close(f"__{rank}.metadata")
            self.assertEqual(self.read_json("inspect", self.at("in"))["notes"], notes)
            self.convert("in", "out", "--format", "dcp", "--to", "fsdp=1")
            _, values, _ = dcp_files.read(self.at("out"))
            self.assertEqual(values, {"sched": kept})

    def test_crcs(self):
        """Of every entry: before anything is written with --verify, on the way without; by verify and digest too."""
        writer = self.writer()
        for name in ("big", "model.w"):
            writer.add(name, self.model[name], 2)
        writer.close()
        self.convert("in", "hf")
        with open(self.at("in/__1_0.distcp"), "rb") as file:
            data = bytearray(file.read())
        at = data.index(self.model["big"][2][-100:])
        data[at] ^= 1
        with open(self.at("in/__1_0.distcp"), "wb") as file:
            file.write(data)
        self.check_fails(("convert", self.at("in"), self.at("hf2"), "--verify"), 1, "__1_0.distcp: the CRC of 6144 bytes from byte ")
        self.assertFalse(os.path.exists(self.at("hf2")))
        for command in (["convert", self.at("in"), self.at("hf2")], ["verify", self.at("in")], ["digest", self.at("in")]):
            self.check_fails(command, 1, "__1_0.distcp: the CRC of 6144 bytes from byte ")
        self.assertFalse(os.path.exists(self.at("hf2")))

    def test_entries_of_no_chunk(self):
        """Stored, but part of no tensor: an entry whose chunk the metadata has lost, and one whose tensor it has lost."""
        for lost, notes in (((), []), (("big",), ["1 stored entry is not part of any tensor (\"big\"); left out"]),
                            (("big", "model.w"), ["2 stored entries are not part of any tensor (\"big\" and others); left out"])):
            writer = self.writer()
            for name in ("big", "model.w", "mask", "none"):
                writer.add(name, self.model[name], 5 if name == "mask" else 1)
            for name in lost:
                del writer.tensors[name]
            writer.close()
            self.assertEqual(self.read_json("inspect", self.at("in"))["notes"], notes)
            self.assertIn("".join(notes), self.convert("in", "hf"))
            shutil.rmtree(self.at("in"))

    def test_lightning(self):
        """Lightning keeps what is not model or optimizer in meta.pt; other files of PyTorch beside are told of."""
        writer = self.writer()
        writer.add("state_dict.w", self.model["model.w"], 2)
        writer.paths["state_dict.w"] = ("state_dict", "w")
        writer.close()
        torch_files.write(self.at("in/meta.pt"), {"epoch": 3, "hyper_parameters": {"lr": 0.5}, "loops": {"fit": {"n": [1, 2]}}, "rng": torch_files.tensor(("U8", (3,), b"abc"))})
        torch_files.write(self.at("in/scheduler.pt"), {"a": 1})
        self.assertEqual(self.read_json("inspect", self.at("in"))["notes"], ["scheduler.pt is not part of the distributed checkpoint, and is left out",
                                                                             "meta.pt, a file of Lightning, is read as part of the checkpoint"])
        self.check_hf("in", {"state_dict.w": self.model["model.w"], "rng": ("U8", (3,), b"abc")})
        self.convert("in", "pt", "--format", "torch")
        loaded = torch_files.load(self.at("pt/model.pt"))
        self.assertEqual((loaded["epoch"], loaded["hyper_parameters"], loaded["loops"]), (3, {"lr": 0.5}, {"fit": {"n": [1, 2]}}))
        self.assertEqual(loaded["state_dict"]["w"].whole(), self.model["model.w"])
        self.convert("in", "dcp", "--format", "dcp", "--to", "fsdp=2", "--rules", "fsdp")
        _, values, paths = dcp_files.read(self.at("dcp"))
        self.assertEqual({name: torch_files.load_value(data) for name, data in values.items()}, {"epoch": 3, "hyper_parameters.lr": 0.5, "loops.fit.n": [1, 2]})
        # A file of that name that the metadata has for entries is not Lightning's.
        writer = self.writer("odd")
        writer.describe("w", "U8", (1,))
        writer.store("w", (0,), (1,), "meta.pt", torch_files.pack(torch_files.tensor(("U8", (1,), b"x"))))
        writer.close()
        self.check_hf("odd", {"w": ("U8", (1,), b"x")})

    def test_torchtitan(self):
        """The same key has one path or the other in planner_data, and keeps it; byte entries bound to a rank are carried."""
        for path in (("optimizer", "state", "w", "exp_avg"), ("optimizer", "state.w.exp_avg")):
            writer = self.writer()
            writer.add("w", self.model["model.w"], 2)
            writer.add("optimizer.state.w.exp_avg", self.model["model.w"], 2)
            writer.paths["optimizer.state.w.exp_avg"] = path
            kept = {"dataloader.dp_rank_0": writer.add_bytes("dataloader.dp_rank_0", {"at": 7}), "train_state": writer.add_bytes("train_state", [1, 2])}
            writer.close()
            self.convert("in", "out", "--format", "dcp", "--to", "fsdp=3", "--rules", "fsdp")
            _, values, paths = dcp_files.read(self.at("out"))
            self.assertEqual((values, paths["optimizer.state.w.exp_avg"]), (kept, path))
            shutil.rmtree(self.at("in"))

    def test_accelerate(self):
        for folder, names in (("pytorch_model_fsdp_0", ("model.w",)), ("optimizer_0", ("big",))):
            writer = self.writer("in/" + folder)
            for name in names:
                writer.add(name, self.model[name], 2)
            writer.close()
        os.mkdir(self.at("in/random"))
        self.check_hf("in", {name: self.model[name] for name in ("big", "model.w")})
        self.check_hf("in/optimizer_0", {"big": self.model["big"]})
        self.check_hf("in/optimizer_0/.metadata", {"big": self.model["big"]})


class TorchFilesTest(DcpTest):
    """Folders that processes of PyTorch 1.13 saved (tests/oracle/pytorch/dcp.py tells what is in them)."""
    def test_saved_by_torch(self):
        def count(code, *shape):
            return struct.pack("<%d%s" % (files.volume(shape), code), *range(files.volume(shape)))
        bias = b"".join(struct.pack("<f", i)[2:] for i in range(5))
        turned = struct.pack("<12f", *(3 * column + row for row in range(3) for column in range(4)))
        model = {"model.weight": ("F32", (7, 3), count("f", 7, 3)), "model.bias": ("BF16", (5,), bias), "model.big": ("I64", (16, 2, 2), count("q", 16, 2, 2)),
                 "plain": ("F64", (2, 3), count("d", 2, 3)), "turned": ("F32", (3, 4), turned), "scalar": ("F32", (), struct.pack("<f", 2.5)),
                 "flags": ("BOOL", (6,), bytes([1, 0] * 3))}
        for world in (1, 2, 4):
            source = os.path.join(HERE, "..", "..", "oracle", "pytorch", f"dcp-{world}")
            shutil.copytree(source, self.at("in"))
            self.check_hf("in", model)
            self.convert("in", "out", "--format", "dcp", "--to", "fsdp=3", "--rules", "fsdp")
            found, values, _ = dcp_files.read(self.at("out"))
            self.assertEqual((found, list(values)), (model, ["step"]))
            shutil.rmtree(self.at("in"))


RULES = """
*.q_proj.weight    S(0)@tp
*.o_proj.weight    S(1)@tp name({1}.out.weight)
*.gone.weight      drop
*norm.weight       R
"""


class OptimizerTest(DcpTest):
    """The state of an optimizer is cut, renamed and dropped with its parameters, in every spelling of their names."""
    PARAMETERS = {"layers.0.q_proj.weight": (8, 6), "layers.0.o_proj.weight": (6, 8), "layers.0.gone.weight": (4, 4), "norm.weight": (6,)}

    def make(self, home, front):
        shapes = {home + name: ("F32", shape) for name, shape in self.PARAMETERS.items()}
        for name, shape in self.PARAMETERS.items():
            for state in ("exp_avg", "momentum_buffer"):
                shapes[f"{front}{name}.{state}"] = ("F32", shape)
            shapes[f"{front}{name}.step"] = ("F32", ())
        return {name: (dtype, shape, self.rnd.randbytes(files.size_of(dtype, shape))) for name, (dtype, shape) in shapes.items()}

    def test_follows_its_parameters(self):
        with open(self.at("r.rules"), "w", encoding="utf-8") as file:
            file.write(RULES)
        # torchtitan, accelerate, and a trainer of one's own
        for home, front in (("", "optimizer.state."), ("model.", "optimizer.state."), ("model.", "optimizer.state.model."), ("module.", "optim_0.")):
            model = self.make(home, front)
            dcp_files.write(self.at("in"), model, 3)
            for target in ("dcp", "dcp-safetensors"):
                self.convert("in", "out", "--format", target, "--to", "tp=2", "--rules", self.at("r.rules"))
                found = {entry["name"]: entry["shards"] for entry in self.read_json("inspect", self.at("out"))["tensors"]}
                left = {name.replace("o_proj", "out"): name for name in model if ".gone." not in name}
                self.assertEqual(set(found), set(left))
                for name, shards in found.items():
                    boxes = sorted((shard["offset"], shard["size"]) for shard in shards)
                    if name.endswith(".step"):
                        self.assertEqual(boxes, [([], [])], name)
                    elif "q_proj" in name:
                        self.assertEqual(boxes, [([0, 0], [4, 6]), ([4, 0], [4, 6])], name)
                    elif "out." in name:
                        self.assertEqual(boxes, [([0, 0], [6, 4]), ([0, 4], [6, 4])], name)
                    else:
                        self.assertEqual(boxes, [([0], [6])], name)
            self.convert("out", "whole", "--format", "hf", "--all")
            whole = {name: tuple(value) for name, value in files.read(self.at("whole/model.safetensors"))[0].items()}
            self.assertEqual(whole, {name: model[source] for name, source in left.items()})
            shutil.rmtree(self.at("in"))

    def test_options_rename_both(self):
        model = self.make("model.", "optimizer.state.")
        dcp_files.write(self.at("in"), model, 2)
        self.convert("in", "out", "--format", "dcp", "--to", "fsdp=2", "--rules", "fsdp", "--rename", "model.layers.*.q_proj.weight=model.layers.{1}.query")
        found, _, paths = dcp_files.read(self.at("out"))
        renamed = {name.replace("q_proj.weight", "query"): array for name, array in model.items()}
        self.assertEqual(found, renamed)
        self.assertEqual(paths["optimizer.state.layers.0.query.exp_avg"], ("optimizer.state.layers.0.query.exp_avg",))

    def test_other_shapes_need_rules(self):
        model = self.make("", "optimizer.state.")
        model["optimizer.state.layers.0.q_proj.weight.row"] = ("F32", (8,), bytes(32))
        dcp_files.write(self.at("in"), model, 2)
        with open(self.at("r.rules"), "w", encoding="utf-8") as file:
            file.write(RULES)
        self.check_fails(("convert", self.at("in"), self.at("out"), "--format", "dcp", "--to", "tp=2", "--rules", self.at("r.rules")), 1,
                         "no rule of")

    def test_other_shapes_follow_no_parameter(self):
        """Neither with fewer dimensions nor with others that are as many: they have rules of their own."""
        model = self.make("", "optimizer.state.")
        states = {"row": (8,), "column": (8, 1), "wide": (8, 12)}
        for part, shape in states.items():
            model[f"optimizer.state.layers.0.q_proj.weight.{part}"] = ("F32", shape, bytes(files.size_of("F32", shape)))
        dcp_files.write(self.at("in"), model, 2)
        with open(self.at("r.rules"), "w", encoding="utf-8") as file:
            file.write("*.weight.{row,column,wide} R\n" + RULES)
        self.convert("in", "out", "--format", "dcp", "--to", "tp=2", "--rules", self.at("r.rules"))
        found = {entry["name"]: entry["shards"] for entry in self.read_json("inspect", self.at("out"))["tensors"]}
        for part, shape in states.items():
            self.assertEqual([shard["size"] for shard in found[f"optimizer.state.layers.0.q_proj.weight.{part}"]], [list(shape)], part)


class RoundTripTest(DcpTest):
    """Through one format after the other and back: the same tensors, and the same values where every format on the way holds them."""
    def digest(self, name):
        return self.read_json("digest", self.at(name))["checkpoint"]

    def make_state(self):
        """A model and an AdamW state as torch.save has them: ints as keys of dicts, tensors and values side by side."""
        weights = {name: ("BF16", shape) for name, shape in OptimizerTest.PARAMETERS.items()}
        arrays = {name: (dtype, shape, self.rnd.randbytes(files.size_of(dtype, shape))) for name, (dtype, shape) in weights.items()}
        state = {}
        for i, (_, shape) in enumerate(weights.values()):
            state[i] = {part: ("F32", shape, self.rnd.randbytes(files.size_of("F32", shape))) for part in ("exp_avg", "exp_avg_sq")}
            state[i]["step"] = ("F32", (), struct.pack("<f", i))
        groups = [{"lr": 0.001, "betas": (0.9, 0.95), "params": [0, 1]}, {"lr": 0.01, "betas": (0.9, 0.95), "params": [2, 3], "foreach": None}]
        values = {"step": 70, "args": {"name": "run", "sizes": [1, 2], "empty": {}, 3: 2**40}}
        return arrays, state, groups, values

    def check_folder(self, name, model, config):
        self.assertEqual({key: tuple(value) for key, value in files.read(self.at(name + "/model.safetensors"))[0].items()}, model)
        with open(self.at(name + "/config.json"), encoding="utf-8") as file:
            self.assertEqual(file.read(), config)

    def test_model(self):
        """hf -> dcp -> rank files with DTensors -> hf, or on to rank files -> rank files of torch -> dcp -> hf."""
        model = {name: self.model[name] for name in SHAPES if name != "z"}
        config = '{"model_type": "none", "hidden_size": 8}'
        files.write(self.at("hf/model.safetensors"), model, {"format": "pt"})
        with open(self.at("hf/config.json"), "w", encoding="utf-8") as file:
            file.write(config)
        steps = [("hf", "dcp", "fsdp=3"), ("dcp", "torch", "fsdp=2", "--dtensor"), ("torch", "rank-files", "fsdp=4"), ("rank-files", "torch", "fsdp=3"),
                 ("torch", "dcp", "fsdp=5")]
        wanted = self.digest("hf")
        for source, target, mesh, *more in steps:
            self.convert(source, target + "-next", "--format", target, "--to", mesh, "--rules", "fsdp", *more)
            shutil.rmtree(self.at(target), ignore_errors=True)
            os.rename(self.at(target + "-next"), self.at(target))
            self.assertEqual(self.digest(target), wanted, target)
            self.read_text("verify", self.at("hf"), self.at(target))
            back = f"back-{target}-{mesh}"
            self.convert(target, back, "--format", "hf", "--all")
            self.assertEqual(self.digest(back), wanted)
            self.check_folder(back, model, config)

    def test_optimizer(self):
        """.pt -> dcp -> rank files -> .pt with an AdamW state and all values. Numbers that are keys become texts in dcp, as PyTorch makes them."""
        arrays, state, groups, values = self.make_state()
        def tensors(tree):
            return {key: tensors(part) if isinstance(part, dict) else torch_files.tensor(part) for key, part in tree.items()}
        torch_files.write(self.at("in.pt"), {"model": tensors(arrays), "optimizer": {"state": tensors(state), "param_groups": groups}, **values})
        wanted = self.digest("in.pt")
        ranks = ["--format", "torch", "--to", "fsdp=2"]
        for source, target, options in (("in.pt", "dcp", ["--format", "dcp", "--to", "fsdp=3"]), ("dcp", "ranks", ranks), ("ranks", "pt", ["--format", "torch"]),
                                        ("dcp", "dtensors", [*ranks, "--dtensor"]), ("dtensors", "pt2", ["--format", "torch"])):
            notes = self.convert(source, target, *options, *(["--rules", "fsdp"] if "--to" in options else []))
            self.assertNotIn("stays behind", notes)
            self.assertEqual(self.digest(target), wanted, target)
            self.read_text("verify", self.at("in.pt"), self.at(target))
        _, found, paths = dcp_files.read(self.at("dcp"))
        self.assertEqual(torch_files.load_value(found["optimizer.param_groups.1.betas"]), (0.9, 0.95))
        self.assertEqual(paths["optimizer.param_groups.1.betas"], ("optimizer", "param_groups", 1, "betas"))
        self.assertEqual(paths["optimizer.state.2.exp_avg"], ("optimizer", "state", "2", "exp_avg"))
        self.assertEqual(paths["args.3"], ("args", "3"))
        def plain(tree):
            return {key: plain(part) for key, part in tree.items()} if isinstance(tree, dict) else tree.whole() if isinstance(tree, torch_files.Loaded) else tree
        for target in ("pt", "pt2"):
            loaded = torch_files.load(self.at(target + "/model.pt"))
            self.assertEqual(plain(loaded), {"model": arrays, "step": 70, "args": {"name": "run", "sizes": [1, 2], "empty": {}, "3": 2**40},
                                             "optimizer": {"state": {str(i): part for i, part in state.items()}, "param_groups": groups}})

    def test_two_of_one_name(self):
        """Values that dcp, which does not nest, would have under one name."""
        torch_files.write(self.at("in.pt"), {"w": torch_files.tensor(("U8", (1,), b"x")), "a": {"b": 1}, "a.b": 2})
        self.check_fails(("convert", self.at("in.pt"), self.at("out"), "--format", "dcp", "--to", "fsdp=1"), 1, 'the name "a.b"')
        torch_files.write(self.at("in.pt"), {"a.b": torch_files.tensor(("U8", (1,), b"x")), "a": {"b": 1}})
        self.check_fails(("convert", self.at("in.pt"), self.at("out"), "--format", "dcp", "--to", "fsdp=1"), 1, 'the name "a.b"')


class WrongTest(DcpTest):
    def setUp(self):
        super().setUp()
        self.made = self.writer()
        self.made.add("big", self.model["big"], 2)
        self.info = next(info for index, info in self.made.stored.items() if index.offset[0] == 0)
        self.entry = self.made.tensors["big"]

    def fails(self, words, **more):
        self.made.close(**more)
        self.check_fails(("inspect", self.at("in")), 1, words)

    def test_missing_file(self):
        self.made.close()
        os.unlink(self.at("in/__1_0.distcp"))
        self.check_fails(("inspect", self.at("in")), 1, "__1_0.distcp")

    def test_truncated_file(self):
        del self.made.files["__1_0.distcp"][-1:]
        self.fails("is it truncated?")

    def test_unfinished(self):
        self.made.close()
        os.unlink(self.at("in/.metadata"))
        self.check_fails(("inspect", self.at("in")), 1, "has files *.distcp, but no .metadata, which PyTorch writes last")

    def test_chunk_without_entry(self):
        self.made.stored.popitem()
        self.fails('tensor "big": no file is named for its chunk [32:64,0:48]')

    def test_missing_chunk(self):
        self.entry.chunks.pop()
        self.fails("hold 1536 of the 3072 elements")

    def test_chunk_outside(self):
        self.entry.size = self.made.torch.Size((40, 48))
        self.fails("its pieces reach beyond its full shape")

    def test_overlap(self):
        torch = self.made.torch
        self.entry.chunks[1] = torch.ChunkStorageMetadata(offsets=torch.Size((31, 0)), sizes=torch.Size((33, 48)))
        self.fails("no file is named for its chunk [31:64,0:48]")

    def test_another_shape(self):
        torch = self.made.torch
        self.entry.chunks[0].sizes = torch.Size((31, 48))
        self.fails("the metadata says f32 of 31x48")

    def test_another_dtype(self):
        self.made.describe("x", "F16", (1,))
        self.entry.properties = self.made.tensors.pop("x").properties
        self.fails("the metadata says f16 of 32x48")

    def test_outside_of_the_folder(self):
        for path in ("../secret", "/etc/passwd", "a/../../b", ""):
            self.info.relative_path = path
            self.fails("its file \"" + path + '"')

    def test_places(self):
        self.info.offset = 1 << 62
        self.fails("but the file has only")
        self.info.offset = -1
        self.fails("are not two numbers")
        self.info.offset = 1
        self.fails("__0_0.distcp: the entry at byte 1")
        self.info.offset, self.info.length = 0, 100
        self.fails("zip file")

    def test_other_classes(self):
        key = next(iter(self.made.stored))
        self.made.stored[key] = self.made.torch.other(relative_path="x", length=1)
        self.fails("an object of class _RdmaObjectInfo where _StorageInfo should be")

    def test_not_metadata(self):
        self.made.close()
        for data in (b"", b"\x80\x04N.", b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.", b"\x80\x04}."):
            with open(self.at("in/.metadata"), "wb") as file:
                file.write(data)
            self.check_fails(("inspect", self.at("in")), 1, ".metadata")

    def test_damage(self):
        """No flipped bit of the metadata ends in anything but an error or the right tensors."""
        self.made.close()
        with open(self.at("in/.metadata"), "rb") as file:
            good = file.read()
        for _ in range(int(60 * float(os.environ.get("RESHARD_TEST_SCALE", "1")))):
            data = bytearray(good)
            data[self.rnd.randrange(len(data))] ^= 1 << self.rnd.randrange(8)
            with open(self.at("in/.metadata"), "wb") as file:
                file.write(data)
            done = support.run("inspect", self.at("in"))
            self.assertIn(done.returncode, (0, 1), done)


class WriteTest(DcpTest):
    def write_hf(self, model=None):
        files.write(self.at("hf/model.safetensors"), self.model if model is None else model, {"format": "pt"})

    def test_any_number_of_ranks(self):
        self.write_hf()
        for mesh in ("1", "fsdp=2", "fsdp=5"):
            self.convert("hf", "out", "--format", "dcp", "--to", mesh, "--rules", "fsdp")
            model, values, paths = dcp_files.read(self.at("out"))
            self.assertEqual((model, values), (self.model, {}))
            self.assertEqual(paths, {name: (name,) for name in self.model})
            dcp_files.read(self.at("out"), "2.0")
            self.assertEqual(self.read_json("digest", self.at("out"))["tensors"], self.read_json("digest", self.at("hf"))["tensors"])
            self.check_hf("out", self.model)
            self.write_hf()

    def test_refused_dtypes(self):
        self.write_hf({"w": ("F6_E2M3", (4, 4), bytes(12))})
        self.check_fails(("convert", self.at("hf"), self.at("out"), "--format", "dcp", "--to", "1", "--rules", "fsdp"), 1,
                         'tensor "w": PyTorch\'s files cannot hold elements of f6_e2m3')

    def test_crcs_after_interruptions(self):
        """Killed and resumed, with blocks out of order: the CRCs are those of the data."""
        model = {f"w{i}": ("U8", (256, 8192), self.rnd.randbytes(1 << 21)) for i in range(12)}
        self.write_hf(model)
        options = ["convert", self.at("hf"), self.at("out"), "--format", "dcp", "--to", "fsdp=3", "--rules", "fsdp", "--max-memory", "2M",
                   "--threads", "2", "--journal-bytes", "1M"]
        for _ in range(3):
            self.kill_after_a_record(*options, target=self.at("out"))
            self.assertGreater(self.read_json(*options, "--resume")["bytes_resumed"], 0)
            self.assertEqual(dcp_files.read(self.at("out"))[0], model)
            shutil.rmtree(self.at("out"))


if __name__ == "__main__":
    support.main()
