# SPDX-License-Identifier: Apache-2.0
"""Every format that is read into every format that is written. Sources are made byte by byte, targets are read by Python (files.py,
dcp_files.py, torch_files.py), and nothing here shares code with the library. What comes out is the table of docs/formats.md, which is
compared, or with --write put there.

The model is awkward: 0-d, empty, bool and bf16 tensors, uneven extents, and where a format has them strided and tied tensors and values.
"""
import json
import os
import random
import re
import struct
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "deepspeed"), os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import dcp_files
import files
import item_files
import support
import test_universal
import torch_files
import zero_files
from convert_case import SEED, ConvertTest, tensor
from megatron_files import FAMILIES, Family

PAGE = os.path.join(HERE, "..", "..", "..", "docs", "formats.md")
BEGIN, END = "<!-- matrix: made by tests/checkpoint/convert/test_matrix.py -->\n", "<!-- end of matrix -->\n"
WORLD = 2


# ---- sources: each returns the path, the model and {name: value} -------------------------------------------------------

def make_safetensors(test, model):
    files.write(test.at("st/all.safetensors"), model)
    return "st/all.safetensors", model, {}


def make_hf(test, model):
    names, weight_map = sorted(model), {}
    for i, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{i}-of-00002.safetensors"
        files.write(test.at("hf/" + file), {name: model[name] for name in part}, {"format": "pt"})
        weight_map.update(dict.fromkeys(part, file))
    test.write_text("hf/model.safetensors.index.json", json.dumps({"weight_map": weight_map}))
    return "hf", model, {}


def make_dcp_safetensors(test, model):
    files.write_dcp(test.at("ds"), model, WORLD, {name: 0 for name, (_, shape, _) in model.items() if shape and 0 not in shape}, shapes=True)
    return "ds", model, {}


def make_rank_files(test, model):
    groups = [{"shape": list(shape), "cuts": "S(0)" if shape else "R", "names": [name]} for name, (_, shape, _) in model.items()]
    for rank in range(WORLD):
        local = {name: item_files.local_part(array, (WORLD,), rank, [(0, 0)]) if array[1] else array for name, array in model.items()}
        told = {"version": 2, "rank": rank, "mesh": "tp=2", "conversion": "0" * 32, "rules": "", "groups": groups}
        files.write(test.at(f"rf/rank-{rank}.safetensors"), local, {"format": "pt", "RESHARD_LAYOUT": json.dumps(told)})
    return "rf", model, {}


def make_dcp(test, model):
    writer = dcp_files.Writer(dcp_files.Torch(), test.at("dcp"))
    for name, array in model.items():
        writer.add(name, array, WORLD)
    writer.add_bytes("lr", 0.5)
    writer.close()
    return "dcp", model, {"lr": 0.5}


def turn(array):
    """A matrix stored column by column."""
    dtype, (rows, columns), data = array
    width = len(data) // (rows * columns)
    stored = b"".join(data[(i * columns + j) * width:][:width] for j in range(columns) for i in range(rows))
    return torch_files.View(torch_files.Storage(dtype, stored), 0, (rows, columns), (1, rows))


def make_state(model):
    state = {name: torch_files.tensor(array) for name, array in model.items()}
    state["b.weight"] = turn(model["b.weight"])
    state["z.tied"] = state["a.weight"]
    return state, {**model, "z.tied": model["a.weight"]}


def make_torch(test, model):
    state, model = make_state(model)
    torch_files.write(test.at("t.pt"), {**state, "lr": 0.5})
    return "t.pt", model, {"lr": 0.5}


def make_torch_bin(test, model):
    state, model = make_state(model)
    names, weight_map = sorted(state), {}
    for i, part in enumerate((names[::2], names[1::2]), 1):
        file = f"pytorch_model-0000{i}-of-00002.bin"
        torch_files.write(test.at("bin/" + file), {name: state[name] for name in part})
        weight_map.update(dict.fromkeys(part, file))
    test.write_text("bin/pytorch_model.bin.index.json", json.dumps({"weight_map": weight_map}))
    return "bin", model, {}


def make_torch_ranks(test, model):
    for rank in range(WORLD):
        mesh = torch_files.mesh(list(range(WORLD)))
        state = {name: torch_files.dtensor(item_files.local_part(array, (WORLD,), rank, [(0, 0)]), array[1], mesh, ["S0"])
                 if array[1] else torch_files.tensor(array) for name, array in model.items()}
        torch_files.write(test.at(f"fsdp/model_world_size_{WORLD}_rank_{rank}.pt"), {**state, "lr": 0.5})
    return "fsdp", model, {"lr": 0.5}


def make_torch_checkpointing(test, model):
    item_files.write(test.at("tc"), model, (WORLD,), ("S0",), values={"lr": 0.5})
    return "tc", {"model." + name: array for name, array in model.items()}, {"model.lr": 0.5}


def make_npy(test, model):
    """Files, and a compressed archive beside them. NumPy has no bf16, so its tensor is f16 here."""
    codes = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "BOOL": "|b1", "U8": "|u1"}
    os.mkdir(test.at("npy"))
    model = {name: ("F16" if dtype == "BF16" else dtype, shape, data) for name, (dtype, shape, data) in model.items()}
    packed = zipfile.ZipFile(test.at("npy/some.npz"), "w", zipfile.ZIP_DEFLATED)
    for i, (name, (dtype, shape, data)) in enumerate(model.items()):
        header = str({"descr": codes[dtype], "fortran_order": False, "shape": tuple(shape)}).encode()
        header += b" " * (-(len(header) + 11) % 64) + b"\n"
        content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data
        if i % 2:
            packed.writestr(name + ".npy", content)
            continue
        with open(test.at(f"npy/{name}.npy"), "wb") as file:
            file.write(content)
    packed.close()
    return "npy", model, {}


def make_zero(model, stage):
    """F32 tensors are trained, others are buffers, one parameter is frozen and one shared. Some of the values beside them."""
    params = {name: array[1] for name, array in model.items() if array[0] == "F32"}
    zero = zero_files.Zero(params, [list(params)], WORLD, stage)
    zero.weights = {name: model[name][2] for name in params}
    zero.frozen = {"b.weight": model["b.weight"]}
    zero.buffers = {name: array for name, array in model.items() if name not in params and name not in zero.frozen}
    zero.shared = {"z.tied": "a.weight"}
    return zero, {"global_steps": 7, "optimizer.state.a.weight.step": 7}


def make_deepspeed(test, model):
    zero, values = make_zero(model, 3)
    zero.write(test.at("zero"))
    return "zero", zero.expect_all(), values


def make_deepspeed_lines(test, model):
    zero, values = make_zero(model, 2)
    zero.write(test.at("zero2"))
    return "zero2", zero.expect_all(), values


def make_universal(test, model):
    """As ds_to_universal.py leaves it."""
    zero, values = make_zero(model, 2)
    for name, shape in zero.params.items():
        for state, held in (("fp32", zero.weights), *zero.states.items()):
            torch_files.write(test.at(f"universal/zero/{name}/{state}.pt"), {"param": torch_files.tensor(("F32", shape, held[name]))})
        torch_files.write(test.at(f"universal/zero/{name}/step.pt"), 7)
    torch_files.write(test.at("universal/zero/optimizer_state.pt"), {"ds_version": "0.16.3", "param_groups": zero.param_groups(1)})
    torch_files.write(test.at("universal/mp_rank_00_model_states.pt"), zero.model_state(0))
    return "universal", zero.expect_all(), values


SOURCES = {"safetensors": make_safetensors, "hf": make_hf, "dcp-safetensors": make_dcp_safetensors, "rank-files": make_rank_files,
           "dcp": make_dcp, "torch": make_torch, "torch-bin": make_torch_bin, "torch-ranks": make_torch_ranks,
           "torch-checkpointing": make_torch_checkpointing, "npy": make_npy, "deepspeed": make_deepspeed, "deepspeed stage 2": make_deepspeed_lines,
           "universal": make_universal}


# ---- targets: each returns the model and {name: value} that a folder holds ---------------------------------------------

def flatten(value, prefix=""):
    tensors, values = {}, {}
    for key, part in value.items():
        name = f"{prefix}{key}"
        if isinstance(part, dict):
            inner = flatten(part, name + ".")
            tensors.update(inner[0])
            values.update(inner[1])
        elif isinstance(part, torch_files.Loaded):
            tensors[name] = part.whole()
        else:
            values[name] = part
    return tensors, values


def join(parts, name, shapes):
    """What ranks have of a tensor, put together again along dim 0."""
    dtype, shape, _ = parts[0][name]
    return (dtype, shapes[name], b"".join(part[name][2] for part in parts) if shape else parts[0][name][2])


def read_rank_files(folder, model):
    parts = [files.read_rank(f"{folder}/rank-0000{rank}-of-0000{WORLD}.safetensors")[0] for rank in range(WORLD)]
    return {name: join(parts, name, {key: array[1] for key, array in model.items()}) for name in parts[0]}, {}


def read_torch(folder, model):
    return flatten(torch_files.load(f"{folder}/model.pt"))


def read_torch_ranks(folder, model):
    found = [flatten(torch_files.load(f"{folder}/model_world_size_{WORLD}_rank_{rank}.pt")) for rank in range(WORLD)]
    assert all(values == found[0][1] for _, values in found)
    parts = [tensors for tensors, _ in found]
    return {name: join(parts, name, {key: array[1] for key, array in model.items()}) for name in parts[0]}, found[0][1]


def read_dcp(folder, model):
    tensors, values, _ = dcp_files.read(folder)
    return tensors, {name: torch_files.load_value(data) for name, data in values.items()}


def read_universal(folder, model):
    """Names as the source has them: those of weights without `model.` in front if it has none."""
    tensors, steps, state, _, _ = test_universal.load_universal(folder)
    tensors.update({f"model.{name}": array.whole() for name, array in (state["module"] or {}).items()})
    tensors.update({f"model.{alias}": tensors[f"model.{kept}"] for alias, kept in state.get("shared_params", {}).items()})
    front = 0 if any(name.startswith("model.") for name in model) else len("model.")
    values = flatten({key: value for key, value in state.items() if key not in UNIVERSAL_OWN})[1]
    if state["global_steps"]:
        values["global_steps"] = state["global_steps"]
    values.update({f"optimizer.state.{name}.step": step for name, step in steps.items()})
    return {name[front:]: array for name, array in tensors.items()}, values


# What a model file always has.
UNIVERSAL_OWN = ("module", "shared_params", "buffer_names", "param_shapes", "frozen_param_shapes", "frozen_param_fragments", "mp_world_size",
                 "dp_world_size", "skipped_steps", "global_samples", "ds_version", "global_steps", "lr_scheduler", "universal_checkpoint_info")


def widen(array):
    """A weight of a universal checkpoint: floats are F32."""
    dtype, shape, data = array
    if dtype == "BF16":
        return "F32", shape, b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return ("F32", shape, b"".join(widen_half(data[i:i + 2]) for i in range(0, len(data), 2))) if dtype == "F16" else array


def widen_half(data):
    """Python loses what a NaN carries."""
    bits, = struct.unpack("<H", data)
    if bits & 0x7c00 == 0x7c00 and bits & 0x3ff:
        return struct.pack("<I", (bits & 0x8000) << 16 | 0x7fc00000 | (bits & 0x3ff) << 13)
    return struct.pack("<f", *struct.unpack("<e", data))


SPLIT = ["--to", f"fsdp={WORLD}", "--rules", "fsdp"]
TARGETS = {"hf": (["--format", "hf", "--all"], lambda folder, model: (files.read_hf(folder), {})),
           "dcp-safetensors": (["--format", "dcp-safetensors", *SPLIT], lambda folder, model: (files.read_dcp(folder), {})),
           "rank-files": (["--format", "rank-files", *SPLIT], read_rank_files),
           "dcp": (["--format", "dcp", *SPLIT], read_dcp),
           "torch": (["--format", "torch"], read_torch),
           "torch over a mesh": (["--format", "torch", *SPLIT], read_torch_ranks),
           "universal": (["--format", "universal"], read_universal)}


class Matrix(ConvertTest):
    def setUp(self):
        super().setUp()
        rnd = random.Random(SEED)
        self.model = {"a.weight": tensor(rnd, "F32", 5, 3), "b.weight": tensor(rnd, "BF16", 3, 4), "c.mask": tensor(rnd, "U8", 4, 2, 2),
                      "d.flags": ("BOOL", (3,), b"\1\0\1"), "e.step": tensor(rnd, "I64"), "f.none": ("F32", (0, 3), b"")}

    def try_cell(self, source, target, made):
        """One conversion; the word for its cell: all, or tensors where values stay behind."""
        path, model, values = made
        options, read = TARGETS[target]
        folder = f"out-{source}-{target}".replace(" ", "-")
        is_zero = source.startswith("deepspeed") or source == "universal"
        if is_zero and "--all" in options:  # which takes the 16-bit weights, too
            options = [*options, "--exclude", "module.*"]
        done = self.convert(path, folder, *options, "--verify")
        found, found_values = read(self.at(folder), model)
        if target == "universal" and not is_zero:
            self.assertEqual(found, {name: widen(array) for name, array in model.items()}, (source, target))
        else:
            self.assertEqual(found, model, (source, target))
            self.assertEqual(done["digest"], done["source_digest"])
            self.assertEqual(self.read_json("digest", self.at(path))["checkpoint"], done["digest"], (source, target))
        if target != "universal" or is_zero:  # in which the names of weights begin with `model.`
            self.assertEqual(self.read_json("digest", self.at(folder))["checkpoint"], done["digest"], (source, target))
        if is_zero:  # DeepSpeed's files have more values than are listed here
            found_values = {name: value for name, value in found_values.items() if name in values}
        if found_values == values:
            return "all" if is_zero or target != "universal" else "all, floats as f32"
        # What does not arrive is said.
        self.assertEqual(found_values, {})
        first = re.escape(next(iter(values))) if not is_zero else ".*"
        self.assertRegex("\n".join(done["notes"]), rf"the format {target.split()[0]} cannot hold \d+ values?, which stays? behind: {first}")
        return "tensors"

    def test_matrix(self):
        lines = ["| from / to | " + " | ".join(f"`{target}`" for target in TARGETS) + " |\n", "|" + "---|" * (len(TARGETS) + 1) + "\n"]
        for source, make in SOURCES.items():
            made = make(self, self.model)
            self.assertEqual(self.read_json("inspect", self.at(made[0]))["format"], source.split()[0])
            lines.append(f"| `{source}` | " + " | ".join(self.try_cell(source, target, made) for target in TARGETS) + " |\n")
        self.compare_table(lines)

    def test_digests_under_another_naming(self):
        """`digest SRC --as NAMING` is the digest of what `convert SRC --as NAMING` writes, and SRC with its optimizer is nested."""
        rnd = random.Random(SEED)
        layer = {f"model.layers.{n}.{name}.weight": tensor(rnd, "F32", 4, 4) for n in range(2) for name in ("self_attn.q_proj", "mlp.down_proj")}
        model = {**self.model, **layer, "lm_head.weight": tensor(rnd, "F32", 6, 4)}
        names = None
        for source, make in SOURCES.items():
            path = make(self, model)[0]
            folder = f"as-{source}".replace(" ", "-")
            self.convert(path, folder, "--as", "hf")
            found = {name: each for name, each in files.read_hf(self.at(folder)).items() if name != "z.tied"}
            names = names or sorted(found)
            self.assertEqual(sorted(found), names, source)
            for options in ([], ["--sha256"]):
                self.assertEqual(self.read_json("digest", self.at(path), "--as", "hf", *options)["checkpoint"],
                                 self.read_json("digest", self.at(folder), *options)["checkpoint"], source)
        # What a map makes of one naming for another, there and back.
        made = Family(**{**FAMILIES["llama"], "hidden": 32})
        hf, _ = made.make()
        self.write_hf("named-hf", hf, {**made.config(), "rope_theta": 10000.0, "rms_norm_eps": 1e-5})
        whole = self.read_json("digest", self.at("named-hf"))["checkpoint"]
        for naming in ("hf", "hf5", "megatron", "titan", "meta", "universal"):
            self.convert("named-hf", f"named-{naming}-again", "--as", naming)
            for target in ("hf",) if naming == "universal" else ("hf", "megatron", "titan"):  # other maps take no nested names
                self.convert(f"named-{naming}-again", f"{naming}-{target}", "--as", target)
                self.assertEqual(self.read_json("digest", self.at(f"named-{naming}-again"), "--as", target)["checkpoint"],
                                 self.read_json("digest", self.at(f"{naming}-{target}"))["checkpoint"], (naming, target))
            if naming != "universal":  # whose floats are f32
                self.assertEqual(self.read_json("digest", self.at(f"{naming}-hf"))["checkpoint"], whole, naming)

    def compare_table(self, lines):
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        before, rest = page.split(BEGIN)
        old, after = rest.split(END)
        if WRITE:
            with open(PAGE, "w", encoding="utf-8") as file:
                file.write(before + BEGIN + "\n" + "".join(lines) + "\n" + END + after)
        else:
            self.assertEqual(old.strip(), "".join(lines).strip(), "test_matrix.py COMMAND --write puts the table into docs/formats.md")


WRITE = "--write" in sys.argv
if __name__ == "__main__":
    sys.argv = [argument for argument in sys.argv if argument != "--write"]
    support.main()
