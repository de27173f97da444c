# SPDX-License-Identifier: Apache-2.0
"""Random maps (random_maps.py) through `reshard convert --map`, in both directions, into every format that is written, which Python reads here.

Ten maps for each format; RESHARD_TEST_SCALE=20, `make map-cases`, makes it two hundred. A case that fails prints its map and the shapes of what it
was to read, and how to run it alone.
"""
import itertools
import os
import random
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "deepspeed"), os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import dcp_files
import files
import support
import torch_files
from convert_case import SEED, ConvertTest
from random_maps import Case
from test_universal import load_universal

COUNT = max(1, round(10 * float(os.environ.get("RESHARD_TEST_SCALE", "1"))))
DTYPES = ["F32", "BF16", "F16", "U8", "I64", "F8_E4M3", "BOOL"]
WORLD = 2


def join(parts, wanted, dims):
    """Tensors of which rank k has part k along a dim; None: all have all of it."""
    whole = {}
    for name in parts[0]:
        dim = dims.get(name)
        if dim is None:
            assert all(part[name] == parts[0][name] for part in parts), name
            whole[name] = parts[0][name]
            continue
        dtype, shape, _ = wanted[name]
        made, offset = bytearray(files.size_of(dtype, shape)), 0
        for part in parts:
            size = part[name][1]
            files.paste(made, dtype, shape, [offset if d == dim else 0 for d in range(len(shape))], size, part[name][2])
            offset += size[dim]
        assert offset == shape[dim], name
        whole[name] = (dtype, shape, bytes(made))
    return whole


def load_torch(path):
    return {name: value.whole() for name, value in torch_files.load(path).items()}


def first_dims(model):
    """How the rules fsdp cut: everything that has a dim along the first one."""
    return {name: 0 for name, (_, shape, _) in model.items() if shape}


class Format:
    """Whole tensors as `hf` writes them. `options` are those of writing; `read` gives the whole model."""
    dtypes = DTYPES

    def __init__(self, name, *more):
        self.name, self.more = name, more

    def draw_case(self, rnd):
        return Case(rnd, self.dtypes)

    def draw_cut(self, rnd, model):
        return {}

    def options(self, test, cut):
        return ["--format", self.name, *self.more]

    def of_source(self, test, cut):
        """Options that say how to read what it wrote."""
        return []

    def read(self, folder, wanted, cut):
        return files.read_hf(folder)


class Torch(Format):
    def read(self, folder, wanted, cut):
        return load_torch(f"{folder}/model.pt")


class Universal(Format):
    """Parameters are f32 there, and integers are buffers; a checkpoint without parameters is none."""
    dtypes = ["F32", "F32", "U8", "I64"]

    def draw_case(self, rnd):
        while True:
            case = super().draw_case(rnd)
            if any(value[0] == "F32" for value in case.left.values()) and any(value[0] == "F32" for value in case.right.values()):
                return case

    def read(self, folder, wanted, cut):
        tensors, _, model, _, _ = load_universal(folder)
        found = {name[len("model."):]: value for name, value in tensors.items()}
        found.update({name: value.whole() for name, value in model["module"].items()})
        # A second copy of a parameter is a name for it.
        return {**found, **{name: found[other] for name, other in model["shared_params"].items()}}


class Fsdp(Format):
    """Over a mesh, along the first dim."""

    def __init__(self, name, read):
        super().__init__(name, "--to", f"fsdp={WORLD}", "--rules", "fsdp")
        self.read = lambda folder, wanted, cut: read(folder, wanted)


class Tp(Format):
    """Over tensor parallelism, by rules that are drawn: any dim that two ranks can share equally. The files do not say which."""

    def __init__(self, name, read_rank):
        super().__init__(name)
        self.read_rank = read_rank

    def draw_cut(self, rnd, model):
        cut = {}
        for name, (_, shape, _) in model.items():
            able = [d for d, extent in enumerate(shape) if extent % WORLD == 0]
            if able and rnd.random() < 0.7:
                cut[name] = rnd.choice(able)
        return cut

    def rules(self, test, cut):
        text = "".join(f"{name} S({dim})@tp\n" for name, dim in cut.items()) + "* R\n"
        return test.write_text(f"{len(os.listdir(test.folder))}.rules", text)

    def options(self, test, cut):
        """Rules that name no axis are refused for a mesh of two."""
        return ["--format", self.name, "--to", f"tp={WORLD if cut else 1}", "--rules", self.rules(test, cut)]

    def of_source(self, test, cut):
        return ["--from", f"tp={WORLD if cut else 1}", "--from-rules", self.rules(test, cut)]

    def read(self, folder, wanted, cut):
        parts = [self.read_rank(folder, rank) for rank in range(WORLD if cut else 1)]
        return join(parts, wanted, cut)


def read_rank_files(folder, wanted):
    parts = [files.read_rank(f"{folder}/rank-0000{rank}-of-0000{WORLD}.safetensors")[0] for rank in range(WORLD)]
    return join(parts, wanted, first_dims(wanted))


def read_torch_ranks(folder, wanted):
    return join([load_torch(f"{folder}/model_world_size_{WORLD}_rank_{rank}.pt") for rank in range(WORLD)], wanted, first_dims(wanted))


def read_dcp(folder, wanted):
    return dcp_files.read(folder)[0]


FORMATS = {"safetensors": Format("hf"), "hf": Format("hf", "--max-shard-size", "50"), "torch": Torch("torch"), "universal": Universal("universal"),
           "dcp": Fsdp("dcp", read_dcp), "dcp_safetensors": Fsdp("dcp-safetensors", lambda folder, _: files.read_dcp(folder)),
           "megatron": Fsdp("megatron", lambda folder, wanted: read_dcp(folder + "/release", wanted)),
           "rank_files": Fsdp("rank-files", read_rank_files), "torch_ranks": Fsdp("torch", read_torch_ranks),
           "sharded_state": Tp("sharded-state", lambda folder, rank: files.read(f"{folder}/model-rank-{rank}-part-0.safetensors")[0]),
           "consolidated": Tp("consolidated", lambda folder, rank: load_torch(f"{folder}/consolidated.0{rank}.pth"))}


def read_place(text, shape):
    """The indices that an end of a link names: [0:4 x2 every 8, :]"""
    if not text:
        return set(itertools.product(*map(range, shape)))
    dims = []
    for part, extent in zip(text[1:-1].split(", "), shape):
        whole, *repeats = part.split(" x")
        numbers = [int(number) for number in whole.split(":") if number]
        along = set(range(*numbers)) if numbers else set(range(extent))
        for repeat in repeats:
            count, step = map(int, repeat.split(" every "))
            along = {k + i * step for k in along for i in range(count)}
        # In as few words as possible.
        assert (part == ":") == (len(along) == extent), (text, shape)
        assert max(along) - min(along) + 1 > len(along) or "x" not in part, text
        dims.append(sorted(along))
    assert len(dims) == len(shape) and any(part != ":" for part in text[1:-1].split(", ")), text
    return set(itertools.product(*dims))


def walk_link(link):
    """(index in the source, index in the target) of each element."""
    for chosen in itertools.product(*(range(axis["size"]) for axis in link["axes"])):
        ends = [list(link["source_at"]), list(link["target_at"])]
        for k, axis in zip(chosen, link["axes"]):
            ends[0][axis["source_dim"]] += k * axis["source_step"]
            ends[1][axis["target_dim"]] += k * axis["target_step"]
        yield tuple(ends[0]), tuple(ends[1])


class MapPlans(ConvertTest):
    def fill(self, case, row):
        """A tensor as its links say."""
        dtype, shape, _ = case.right[row["name"]]
        width, made = files.BITS[dtype] // 8, {}
        for link in row["links"]:
            kind, extents, data = case.left[link["source"]]
            steps, pairs = files.strides(extents), sorted(walk_link(link))
            self.assertEqual(read_place(link["from"], extents), {source for source, _ in pairs}, link)
            self.assertEqual(read_place(link["into"], shape), {target for _, target in pairs}, link)
            self.assertEqual(link["in_order"], [target for _, target in pairs] == sorted(target for _, target in pairs), link)
            for source, target in pairs:
                self.assertNotIn(target, made)
                at = sum(k * step for k, step in zip(source, steps))
                made[target] = data[at * width:(at + 1) * width]
            self.assertEqual(kind, dtype)
        return b"".join(made[index] for index in itertools.product(*map(range, shape)))

    def test_links(self):
        """What plan --tensors says of each tensor, carried out here, makes it."""
        for number in range(2 * COUNT):
            case = Case(random.Random(f"links {SEED + number}"), DTYPES)
            self.write_text("case.map", case.text)
            self.write_hf("left", case.left)
            plan = self.read_json("plan", self.at("left"), "--map", self.at("case.map"), "--as", "serve", "--tensors")
            rows = {row["name"]: row for row in plan["tensor_list"]}
            self.assertEqual(sorted(rows), sorted(case.right))
            for name, row in rows.items():
                self.assertEqual(row["link_count"], len(row["links"]))
                self.assertEqual({link["source"] for link in row["links"]}, set(row["sources"]), case.text)
                if name != "twos":
                    self.assertTrue(self.fill(case, row) == case.right[name][2], (name, case.text))
                text = case.text.splitlines()[row["map_line"] - 1]
                self.assertTrue(text == "* = *" or name.split(".")[0] in text, (name, text))


class MapFormats(ConvertTest):
    def try_side(self, form, source, target, side, wanted, rnd, *more):
        """One conversion; how it cut what it wrote."""
        cut = form.draw_cut(rnd, wanted)
        self.convert(source, target, "--map", self.at("case.map"), "--as", side, *form.options(self, cut), *more, "--verify")
        found = form.read(self.at(target), wanted, cut)
        self.assertEqual(sorted(found), sorted(wanted))
        for name, value in wanted.items():
            self.assertEqual(found[name][:2], value[:2], name)
            self.assertTrue(found[name][2] == value[2], f"{name} has other bytes")
        return cut

    def try_case(self, form, case, rnd):
        self.write_text("case.map", case.text)
        self.write_hf("left", case.left)
        cut = self.try_side(form, "left", "there", "serve", case.right, rnd)
        # A universal checkpoint has its weights beside an optimizer's, under names of their own: hf takes the weights alone.
        back = FORMATS["safetensors"] if form.name == "universal" else form
        self.try_side(back, "there", "back", "train", case.back, rnd, *form.of_source(self, cut))
        self.write_hf("right", case.padded)
        self.try_side(form, "right", "again", "train", case.back, rnd, "--max-memory", "1M", "--threads", "1")

    def try_format(self, name):
        for number in range(COUNT):
            seed = SEED + number
            rnd = random.Random(f"{name} {seed}")
            case = FORMATS[name].draw_case(rnd)
            try:
                self.try_case(FORMATS[name], case, rnd)
            except (AssertionError, KeyError, OSError) as wrong:
                shapes = "\n".join(f"  {key} {dtype} {list(shape)}" for key, (dtype, shape, _) in sorted(case.left.items()))
                self.fail(f"{wrong}\n\n{case.text}\nreading train:\n{shapes}\n\nalone: RESHARD_TEST_SEED={seed} RESHARD_TEST_SCALE=0 "
                          f"python3 {__file__} {support.COMMAND} MapFormats.test_{name}")
            for entry in os.listdir(self.folder):
                path = self.at(entry)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        print(f"{name}: {COUNT} maps")


for _name in FORMATS:
    setattr(MapFormats, f"test_{_name}", lambda self, name=_name: self.try_format(name))


if __name__ == "__main__":
    support.main()
