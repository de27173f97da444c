# SPDX-License-Identifier: Apache-2.0
"""Conversions by a map, against an oracle that moves element by element and knows nothing of maps."""
import itertools
import os
import random
import shutil
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support
import torch_files
from convert_case import SEED, ConvertTest, tensor
from test_trace import mpi_environment

MAP = """map train serve
for n < $layers, e < $experts
let g = $groups, h = $head, t = 5

embed.weight = tok.weight
layers.{n}.q.{s:weight,bias} [(g q h) ..],
layers.{n}.{k,v}.{s:weight,bias} [(g h) ..]      = layers.{n}.qkv.{s:weight,bias} [(g (q h + h + h)) ..]
layers.{n}.experts.{e}.{gate,up} [f i]           = layers.{n}.w13 [e (f + f) i]
layers.{n}.experts.{e}.down [i f]                = layers.{n}.w2 [e f i]
layers.{n}.rope [(t 2 d) i]                      = layers.{n}.rope [(t d 2) i]
layers.{n}.mix.{p:a,b} [f i]                     = layers.{n}.mixed [i (f p)]
layers.{n}.extra optional                        = layers.{n}.more
layers.{n}.inv_freq drop                         =
layers.{n}.one [3 2] fill(1)                     =
                                                 = layers.{n}.scale [g] f32 fill(0.5)
                                                 = head.weight copy(tok.weight)
"""
SETS = ["--set", "layers=2", "--set", "experts=3", "--set", "groups=2", "--set", "head=4"]
G, Q, H, I, E, F, T, D = 2, 3, 4, 12, 3, 10, 5, 6


def train(rnd, wide=1):
    """The left side, with rows of I * wide elements."""
    i = I * wide
    model = {"embed.weight": tensor(rnd, "BF16", 20, i)}
    for n in range(2):
        at = f"layers.{n}."
        for name, rows in [("q", G * Q * H), ("k", G * H), ("v", G * H)]:
            model[f"{at}{name}.weight"] = tensor(rnd, "BF16", rows, i)
            model[f"{at}{name}.bias"] = tensor(rnd, "F32", rows)
        for e in range(E):
            model[f"{at}experts.{e}.gate"] = tensor(rnd, "BF16", F, i)
            model[f"{at}experts.{e}.up"] = tensor(rnd, "BF16", F, i)
            model[f"{at}experts.{e}.down"] = tensor(rnd, "BF16", i, F)
        model[at + "rope"] = tensor(rnd, "F32", T * 2 * D, i)
        model[at + "mix.a"] = tensor(rnd, "I16", F, i)
        model[at + "mix.b"] = tensor(rnd, "I16", F, i)
        model[at + "inv_freq"] = tensor(rnd, "F32", 7)
        model[at + "one"] = ("F32", (3, 2), struct.pack("<6f", *[1.0] * 6))
    model["layers.1.extra"] = tensor(rnd, "U8", 5, 3)
    return model


def build(dtype, shape, find):
    """A tensor whose element at an index is find(*index): a tensor, and an index there."""
    width, parts = files.BITS[dtype] // 8, []
    for index in itertools.product(*map(range, shape)):
        (kind, extents, values), there = find(*index)
        assert kind == dtype
        at = 0
        for k, extent in zip(there, extents):
            assert 0 <= k < extent
            at = at * extent + k
        parts.append(values[at * width:(at + 1) * width])
    return (dtype, tuple(shape), b"".join(parts))


def find_qkv(model, at, kind, row):
    group, place = divmod(row, (Q + 2) * H)
    if place < Q * H:
        return model[f"{at}q.{kind}"], group * Q * H + place
    name, place = ("k", place - Q * H) if place < (Q + 1) * H else ("v", place - (Q + 1) * H)
    return model[f"{at}{name}.{kind}"], group * H + place


def serve(model):
    """The right side of a left one."""
    i = model["embed.weight"][1][1]
    made = {"tok.weight": model["embed.weight"], "head.weight": model["embed.weight"], "layers.1.more": model["layers.1.extra"]}

    def with_rest(found, *rest):
        return found[0], (found[1], *rest)

    for n in range(2):
        at = f"layers.{n}."
        rows = G * (Q + 2) * H
        made[at + "qkv.weight"] = build("BF16", (rows, i), lambda r, c: with_rest(find_qkv(model, at, "weight", r), c))
        made[at + "qkv.bias"] = build("F32", (rows,), lambda r: with_rest(find_qkv(model, at, "bias", r)))
        made[at + "w13"] = build("BF16", (E, 2 * F, i),
                                 lambda e, r, c: (model[f"{at}experts.{e}.{'gate' if r < F else 'up'}"], (r % F, c)))
        made[at + "w2"] = build("BF16", (E, F, i), lambda e, f, c: (model[f"{at}experts.{e}.down"], (c, f)))
        made[at + "rope"] = build("F32", (T * 2 * D, i), lambda r, c: (
            model[at + "rope"], (r // (2 * D) * 2 * D + r % 2 * D + r % (2 * D) // 2, c)))
        made[at + "mixed"] = build("I16", (i, 2 * F), lambda c, k: (model[f"{at}mix.{'ab'[k % 2]}"], (k // 2, c)))
        made[at + "scale"] = ("F32", (G,), struct.pack("<2f", 0.5, 0.5))
    return made


def kept(model):
    """What comes back: all but what was dropped. The ones are made again."""
    return {name: value for name, value in model.items() if "inv_freq" not in name}


class MapTest(ConvertTest):
    def setUp(self):
        super().setUp()
        self.map = self.write_text("two.map", MAP)
        self.rnd = random.Random(SEED)

    def by_map(self, *more):
        return ["--map", self.map, *SETS, *more]

    def check_model(self, found, wanted):
        self.assertEqual(sorted(found), sorted(wanted))
        for name, value in wanted.items():
            self.assertEqual(found[name][:2], value[:2], name)
            self.assertTrue(found[name][2] == value[2], name)

    def read_any(self, name, *options):
        """The tensors of a checkpoint of any format."""
        self.convert(name, name + "-whole", *options)
        return files.read_hf(self.at(name + "-whole"))


class ThereAndBack(MapTest):
    def test_every_element(self):
        model = train(self.rnd)
        self.write_hf("source", model)
        told = self.convert("source", "serve", *self.by_map("--verify"))
        self.check_model(files.read_hf(self.at("serve")), serve(model))
        self.assertNotIn("source_digest", told)
        notes = "\n".join(told["notes"])
        self.assertIn("the map drops 2 tensors (\"layers.0.inv_freq\" and others)", notes)
        self.assertIn("the map leaves out 2 tensors once they are compared", notes)
        self.assertIn(f"the map reads train and writes serve: {len(model)} tensors become {len(serve(model))}", notes)
        self.assertNotIn("has no effect", notes)
        back = self.convert("serve", "train", *self.by_map("--verify"))
        self.check_model(files.read_hf(self.at("train")), kept(model))
        again = self.convert("train", "again", *self.by_map("--as", "serve", "--exclude", "*.inv_freq"))
        self.assertEqual(again["digest"], told["digest"])
        self.check_same("again", "serve")
        self.assertEqual(back["tensors"], len(kept(model)))

    def test_little_memory(self):
        model = train(self.rnd, wide=300)
        self.write_hf("source", model)
        self.convert("source", "serve", *self.by_map("--verify", "--max-memory", "2M", "--threads", "2"))
        self.check_model(files.read_hf(self.at("serve")), serve(model))
        self.convert("serve", "train", *self.by_map("--verify", "--max-memory", "2M", "--threads", "2"))
        self.check_model(files.read_hf(self.at("train")), kept(model))

    def test_formats(self):
        model = train(self.rnd)
        made = serve(model)
        self.write_hf("source", model)
        whole = self.convert("source", "serve", *self.by_map())
        for form, to in [("dcp-safetensors", "fsdp=3"), ("dcp-safetensors", "fsdp=5"), ("rank-files", "fsdp=3"),
                         ("dcp", "fsdp=2"), ("torch", "fsdp=2"), ("torch", None)]:
            with self.subTest(form=form, to=to):
                for name in ["cut", "cut-whole", "direct", "back", "left", "left-serve"]:
                    shutil.rmtree(self.at(name), ignore_errors=True)
                mesh = [] if to is None else ["--to", to, "--rules", "fsdp"]
                told = self.convert("source", "cut", "--format", form, *mesh, *self.by_map("--verify"))
                self.assertEqual(told["digest"], whole["digest"])
                self.check_model(self.read_any("cut"), made)
                self.convert("cut", "back", *self.by_map("--verify"))
                self.check_model(files.read_hf(self.at("back")), kept(model))
                # The left side in many files, too.
                self.convert("source", "left", "--format", form, *mesh)
                told = self.convert("left", "left-serve", *self.by_map("--verify", "--max-memory", "2M", "--threads", "2"))
                self.check_model(files.read_hf(self.at("left-serve")), made)
                self.assertEqual(told["digest"], whole["digest"])

    def test_many_boxes(self):
        """On both sides of the number of boxes up to which bytes are copied as they are."""
        for count in [1023, 1024, 1025]:
            with self.subTest(count=count):
                shutil.rmtree(self.at("source"), ignore_errors=True)
                a, b = tensor(self.rnd, "U8", count // 2, 3), tensor(self.rnd, "U8", count - count // 2, 3)
                parts = {f"x.{n}": ("U8", (1, 3), row) for n, row in enumerate(
                    data[at:at + 3] for data in (a[2], b[2]) for at in range(0, len(data), 3))}
                self.write_hf("source", parts)
                text = self.write_text("rows.map", "x.{n} [1 i] = y [n i]\n")
                for name in ["out", "back"]:
                    shutil.rmtree(self.at(name), ignore_errors=True)
                self.convert("source", "out", "--map", text, "--verify")
                self.check_model(files.read_hf(self.at("out")), {"y": ("U8", (count, 3), a[2] + b[2])})
                self.convert("out", "back", "--map", text, "--as", "left", "--verify")
                self.check_model(files.read_hf(self.at("back")), parts)

    def test_torch_file(self):
        """Read by Python alone."""
        model = train(self.rnd)
        self.write_hf("source", model)
        self.convert("source", "out", "--format", "torch", *self.by_map())
        name = next(name for name in os.listdir(self.at("out")) if name.endswith((".pt", ".bin", ".pth")))
        loaded = torch_files.load(f"{self.at('out')}/{name}")
        self.check_model({key: value.whole() for key, value in loaded.items()}, serve(model))

    def test_strided_storages(self):
        """Tensors of torch.save that are transposed or repeated in their storage, whole and in parts."""
        data = self.rnd.randbytes(4 * 30 * 40)
        storage = torch_files.Storage("F32", data)

        def at(*places):
            return b"".join(data[4 * place:4 * place + 4] for place in places)

        os.makedirs(self.at("source"))
        torch_files.write(f"{self.at('source')}/model.pt", {
            "t": torch_files.View(storage, 0, (40, 30), (1, 40)), "r": torch_files.View(storage, 7, (8, 30), (0, 1)),
            "whole": torch_files.View(storage, 0, (40, 30), (1, 40))})
        text = self.write_text("strides.map", "t [a b], r [c b] = x [(a + c) b]\nwhole [a b] = turned [b a]\n")
        self.convert("source", "out", "--map", text, "--verify")
        rows = [at(*range(a, 1200, 40)) for a in range(40)] + [at(*range(7, 37))] * 8
        self.check_model(files.read_hf(self.at("out")), {"x": ("F32", (48, 30), b"".join(rows)), "turned": ("F32", (30, 40), data)})

    def test_nested_values(self):
        """A file of torch.save stays nested as it was."""
        a, b, c = (tensor(self.rnd, "F32", 2, 3) for _ in range(3))
        os.makedirs(self.at("source"))
        torch_files.write(f"{self.at('source')}/run.pt", {"model": {"a": torch_files.tensor(a), "b": torch_files.tensor(b)},
                                                          "ema": {"c": torch_files.tensor(c)}, "epoch": 3})
        text = self.write_text("nested.map", "model.a [i k], model.b [i k] = model.ab [(i + i) k]\n"
                               "ema.c = ema.d\n= model.one [2] f32 fill(1)\n")
        self.convert("source", "out", "--map", text, "--format", "torch", "--verify")
        name = next(name for name in os.listdir(self.at("out")) if name.endswith(".pt"))
        loaded = torch_files.load(f"{self.at('out')}/{name}")
        self.assertEqual(loaded["epoch"], 3)
        self.check_model({key: value.whole() for key, value in loaded["model"].items()},
                         {"ab": ("F32", (4, 3), a[2] + b[2]), "one": ("F32", (2,), struct.pack("<2f", 1, 1))})
        self.assertEqual(loaded["ema"]["d"].whole(), c)

    def test_padding(self):
        """What is longer than the map says is cut off, and said."""
        self.write_hf("source", {"a": ("U8", (5, 2), bytes(range(10)))})
        text = self.write_text("pad.map", "map plain padded\nlet v = 3\nb [v i] = a [v i] pad(v)\n")
        told = self.convert("source", "out", "--map", text, "--as", "plain", "--verify")
        self.check_model(files.read_hf(self.at("out")), {"b": ("U8", (3, 2), bytes(range(6)))})
        self.assertIn("the map cuts off 4 elements of padding", told["notes"])

    def test_idle_sets(self):
        self.write_hf("source", {"a": ("U8", (6,), bytes(6))})
        text = self.write_text("set.map", "let g = $groups\na [(g i)] = b [(i g)]\n")
        told = self.convert("source", "out", "--map", text, "--as", "right", "--set", "groups=2", "--set", "other=1")
        self.assertEqual([note for note in told["notes"] if "has no effect" in note],
                         ['set "other" has no effect: no rule or map asks for it'])

    def test_rules_see_new_names(self):
        model = train(self.rnd)
        self.write_hf("source", model)
        rules = self.write_text("own.rules", "layers.*.w13 S(0)@tp\nlayers.*.qkv.weight R name(layers.{1}.attention)\n* R\n")
        plan = self.read_json("plan", self.at("source"), "--to", "tp=3", "--rules", rules, "--tensors", *self.by_map())
        self.assertEqual([row["name"] for row in plan["tensor_list"] if "S(0)" in row["cut"]], ["layers.0.w13", "layers.1.w13"])
        self.convert("source", "cut", "--to", "tp=3", "--rules", rules, *self.by_map("--verify"))
        self.check_model(files.read_dcp(self.at("cut")),
                         {name.replace("qkv.weight", "attention"): value for name, value in serve(model).items()})

    def test_casts(self):
        """--dtype sees names of the source; a dtype in the map casts too."""
        model = {"a": ("F32", (2, 3), struct.pack("<6f", *range(6))), "b": ("F32", (1, 3), struct.pack("<3f", 6, 7, 8)),
                 "c": ("F32", (2,), struct.pack("<2f", 0.5, -2))}
        self.write_hf("source", model)
        text = self.write_text("cast.map", "a [x i], b [y i] = ab [(x + y) i]\nc = c f16\n")
        self.convert("source", "out", "--map", text, "--dtype", "a=f16", "--dtype", "b=f16", "--as", "right", "--verify")
        self.assertEqual(files.read_hf(self.at("out")), {"ab": ("F16", (3, 3), struct.pack("<9e", *range(9))),
                                                         "c": ("F16", (2,), struct.pack("<2e", 0.5, -2))})

    def test_sums(self):
        """right = left + 1, in the wider dtype, and back; states stay as they are."""
        count = 37 * 41
        half = [self.rnd.uniform(-2, 2) for _ in range(count)]
        brain = [struct.unpack("<f", bytes(2) + self.rnd.randbytes(1) + b"\x3e")[0] for _ in range(count)]
        model = {"p.half": ("F16", (37, 41), struct.pack(f"<{count}e", *half)),
                 "p.brain": ("BF16", (count,), b"".join(struct.pack("<f", x)[2:] for x in brain)),
                 "p.single": ("F32", (1,), struct.pack("<f", 2**-30)),
                 "optim.state.brain.exp_avg": tensor(self.rnd, "F32", count)}
        half = struct.unpack(f"<{count}e", model["p.half"][2])
        self.write_hf("source", model)
        text = self.write_text("sum.map", "p.half [a b] = q.half [b a] add(1)\np.brain = q.brain f32 add(1)\n"
                                          "p.single = q.single f64 add(-1)\n* = *\n")
        self.convert("source", "out", "--map", text, "--as", "right", "--verify", "--max-memory", "1M", "--threads", "1")
        made = files.read_hf(self.at("out"))
        turned = [half[r * 41 + c] + 1 for c in range(41) for r in range(37)]
        self.assertEqual(made, {"q.half": ("F16", (41, 37), struct.pack(f"<{count}e", *turned)),
                                "q.brain": ("F32", (count,), struct.pack(f"<{count}f", *[x + 1 for x in brain])),
                                "q.single": ("F64", (1,), struct.pack("<d", 2**-30 - 1)),
                                "optim.state.brain.exp_avg": model["optim.state.brain.exp_avg"]})
        self.convert("out", "back", "--map", text, "--as", "left", "--dtype", "q.brain=bf16", "--verify")
        back = files.read_hf(self.at("back"))
        self.assertEqual(back["p.single"], ("F64", (1,), struct.pack("<d", 2**-30)))
        self.assertEqual((back["p.brain"][0], back["optim.state.brain.exp_avg"]), ("BF16", model["optim.state.brain.exp_avg"]))
        near = zip(struct.unpack(f"<{count}e", back["p.half"][2]), half)
        self.assertTrue(all(abs(x - y) <= 2**-10 for x, y in near))

    def test_options_come_first(self):
        """Patterns see names of the source, and the map sees what they leave, under new names."""
        model = train(self.rnd)
        source = {"old." + name: value for name, value in model.items()}
        source["other.thing"] = tensor(self.rnd, "U8", 4)
        self.write_hf("source", source)
        self.convert("source", "out", *self.by_map("--include", "old.*", "--exclude", "*.inv_freq", "--rename", "old.*={1}"))
        self.check_model(files.read_hf(self.at("out")), serve(model))
        self.convert("source", "only", *self.by_map("--only", "old"))
        self.check_model(files.read_hf(self.at("only")), serve(model))

    def test_states_of_optimizers(self):
        step = ("F32", (), struct.pack("<f", 7))
        model = {f"model.{p}": tensor(self.rnd, "F32", r, 4) for p, r in [("q", 6), ("k", 2)]}
        for p in ["q", "k"]:
            model[f"optim.state.{p}.exp_avg"] = tensor(self.rnd, "F32", *model[f"model.{p}"][1])
            model[f"optim.state.{p}.step"] = step
        self.write_hf("source", model)
        text = self.write_text("state.map", "model.q [a i], model.k [b i] = model.qk [(a + b) i]\nlet a = 6\n")
        self.convert("source", "out", "--map", text, "--verify")
        fused = {"model.qk": ("F32", (8, 4), model["model.q"][2] + model["model.k"][2]), "optim.state.qk.step": step,
                 "optim.state.qk.exp_avg": ("F32", (8, 4), model["optim.state.q.exp_avg"][2] + model["optim.state.k.exp_avg"][2])}
        self.check_model(files.read_hf(self.at("out")), fused)
        self.convert("out", "back", "--map", text, "--verify")
        self.check_model(files.read_hf(self.at("back")), model)
        self.write_hf("steps", {**model, "optim.state.k.step": ("F32", (), struct.pack("<f", 8))})
        self.fails("steps", "bad", "--map", text, words='"optim.state.q.step" does not equal "optim.state.k.step", as line 1 of the map requires')

    def test_plans(self):
        self.write_hf("source", train(self.rnd))
        plan = self.read_json("plan", self.at("source"), *self.by_map())
        dry = self.read_json("convert", self.at("source"), self.at("out"), "--dry-run", *self.by_map())
        self.assertEqual(plan["tensors"], len(serve(train(random.Random(SEED)))))
        self.assertEqual(plan["tensors"], dry["tensors"])
        self.assertEqual(plan["bytes_written"], dry["bytes_written"])
        self.assertFalse(os.path.exists(self.at("out")))


class Interrupted(MapTest):
    PLACE = support.pick_memory(300 << 20)

    def test_killed_and_resumed(self):
        model = train(self.rnd, wide=2000)
        self.write_hf("source", model)
        self.convert("source", "whole", *self.by_map())
        case = ["convert", self.at("source"), self.at("out"), "--journal-bytes", "1M", "--max-memory", "2M", "--threads", "2",
                "--quiet"]
        self.kill_after_a_record(*case, *self.by_map(), target=self.at("out"))
        other = self.write_text("other.map", MAP.replace("fill(0.5)", "fill(0.25)"))
        self.check_fails([*case, "--map", other, *SETS, "--resume"], 1, "belongs to another conversion")
        self.check_fails([*case, "--map", self.write_text("spaced.map", MAP + "\n"), *SETS, "--resume"], 1, "belongs to another conversion")
        told = self.convert("source", "out", *self.by_map("--resume", "--verify", "--journal-bytes", "1M", "--max-memory", "2M"))
        self.assertGreater(told["bytes_resumed"], 0)
        self.check_same("out", "whole")

    def test_ranks(self):
        environment = mpi_environment()
        if environment is None:
            self.skipTest("no mpirun, no MPI backend in this build, or sanitizers, which do not know what MPI does to memory")
        self.write_hf("source", train(self.rnd, wide=300))
        self.convert("source", "alone", *self.by_map("--to", "fsdp=2", "--rules", "fsdp"))
        subprocess.run(["mpirun", "-n", "3", support.COMMAND, "convert", self.at("source"), self.at("ranks"), "--to", "fsdp=2",
                        "--rules", "fsdp", "--max-memory", "2M", "--verify", *self.by_map()],
                       env=environment, check=True, timeout=200, stdout=subprocess.DEVNULL)
        self.check_same("ranks", "alone")


class Refusals(MapTest):
    def setUp(self):
        super().setUp()
        self.model = train(self.rnd)
        self.write_hf("source", self.model)

    def refuse(self, words, *options, source="source", code=1):
        self.fails(source, "out", *options, words=words, code=code)

    def test_sides(self):
        self.write_hf("plain", {"a": tensor(self.rnd, "U8", 4)})
        self.refuse("the tensors fit neither side of the map. As train: two.map:", *self.by_map(), source="plain")
        self.refuse(". As serve: two.map:", *self.by_map(), source="plain")
        same = self.write_text("same.map", "map x y\na = b optional\nb = a optional\n")
        self.refuse("the tensors fit both sides of the map, x and y; say which of them to write", "--map", same, source="plain")
        self.convert("plain", "chosen", "--map", same, "--as", "y")
        self.refuse('as "z": the map has the namings x and y', "--map", same, "--as", "z", source="plain")
        self.refuse("two.map:", *self.by_map("--as", "train"))
        self.refuse('there is no naming "serve"; give one of ', "--as", "serve")

    def test_texts(self):
        self.refuse("missing.map", "--map", self.at("missing.map"))
        self.refuse("bad.map:1:", "--map", self.write_text("bad.map", "a [(] = b\n"))
        self.refuse("empty.map: the map has no lines", "--map", self.write_text("empty.map", ""))
        self.refuse('use.map:1:5: there is no map "other"', "--map", self.write_text("use.map", "use other\na = b\n"))

    def test_half_of_a_fused_tensor(self):
        self.refuse("layers.0.k.weight", *self.by_map("--exclude", "layers.0.k.weight", "--as", "serve"))

    def test_what_conversions_cannot_do(self):
        self.write_hf("plain", {"a": tensor(self.rnd, "F32", 4), "b": tensor(self.rnd, "F16", 4), "c": tensor(self.rnd, "I32", 4)})
        add = self.write_text("add.map", "c = x add(1)\n* = *\n")
        self.refuse('line 1 of the map adds 1 to "c", but i32 is not a float type', "--map", add, "--as", "right", source="plain")
        joined = self.write_text("joined.map", "a [i], b [k] = x [(i + k)] f32\n* = *\n")
        self.refuse('line 1 of the map joins "a" (f32) and "b" (f16) to "x"', "--map", joined, "--as", "right", source="plain")
        cast = self.write_text("cast.map", "c = x f16\n* = *\n")
        self.refuse('line 1 of the map makes "x" f16, but it cannot be cast from i32', "--map", cast, "--as", "right", source="plain")
        fill = self.write_text("fill.map", "= x [2] u8 fill(300)\n* = *\n")
        self.refuse("line 1 of the map: fill(300): u8 cannot hold this value", "--map", fill, "--as", "right", source="plain")
        half = self.write_text("half.map", "= x [2] i8 fill(0.5)\n* = *\n")
        self.refuse("fill(0.5): i8 cannot hold this value", "--map", half, "--as", "right", source="plain")
        large = self.write_text("large.map", "= x [2] f16 fill(1e9)\n* = *\n")
        self.refuse("fill(1000000000): f16 cannot hold this value", "--map", large, "--as", "right", source="plain")
        complex_fill = self.write_text("complex.map", "= x [2] c64 fill(1)\n* = *\n")
        self.refuse("c64 cannot be filled", "--map", complex_fill, "--as", "right", source="plain")
        none = self.write_text("none.map", "{x:**} drop =\n")
        self.refuse("the map makes no tensor out of the 3 that it reads", "--map", none, "--as", "right", source="plain")
        self.refuse("no tensor is quantised, so none can be dequantised", "--map", add, "--dequantize", "bf16", source="plain")

    def test_small_elements(self):
        """Whole tensors of four bits are renamed, but not rearranged."""
        self.write_hf("small", {"a": tensor(self.rnd, "F4", 4, 2)})
        self.convert("small", "renamed", "--map", self.write_text("name.map", "a = b\n"))
        self.assertEqual(files.read_hf(self.at("renamed"))["b"], files.read_hf(self.at("small"))["a"])
        self.refuse('line 1 of the map rearranges "a", but elements of f4 can only be copied as a whole',
                    "--map", self.write_text("turn.map", "a [i k] = b [k i]\n"), source="small")

    def test_constants_that_differ(self):
        values = struct.pack("<6f", 1, 1, 1, 1.5, 1, 1)
        self.write_hf("odd", {**self.model, "layers.1.one": ("F32", (3, 2), values)})
        self.refuse('tensor "layers.1.one" is not 1 everywhere, as line 14 of the map requires: element [1, 1] differs', *self.by_map(),
                    source="odd")
        made = serve(self.model)
        head = bytearray(made["head.weight"][2])
        head[-1] ^= 1
        self.write_hf("untied", {**made, "head.weight": ("BF16", made["head.weight"][1], bytes(head))})
        self.refuse('tensor "head.weight" does not equal "tok.weight", as line 16 of the map requires: element [19, 11] differs',
                    *self.by_map(), source="untied")


if __name__ == "__main__":
    support.main()
