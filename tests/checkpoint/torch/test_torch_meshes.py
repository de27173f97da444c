# SPDX-License-Identifier: Apache-2.0
"""Rank files with DTensors, as each generation of PyTorch 2 writes them (torch_objects.py), read by the command and compared with the tensors they were
made of. Which part a rank has is worked out element by element from the definition of chunks, from the rank's place in the mesh."""
import itertools
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support
import torch_files
from convert_case import SEED, tensor
from test_torch_read import TorchTest
from torch_objects import GENERATIONS, Torch


def place_of(root_shape, index, axes):
    """Coordinates in axes of which each consists of axes of the root."""
    digits = list(itertools.product(*(range(n) for n in root_shape)))[index]
    return [list(itertools.product(*(range(root_shape[part]) for part in axis))).index(tuple(digits[part] for part in axis)) for axis in axes]


def rows_of(count, cuts):
    """cuts: (number of parts, which) in order."""
    rows = list(range(count))
    for parts, which in cuts:
        begin, end = torch_files.chunk(len(rows), parts, which)
        rows = rows[begin:end]
    return rows


class Meshes(TorchTest):
    def part_of(self, whole, sizes, place, cuts):
        """cuts: (axis, dim) in order."""
        lists = [rows_of(n, [(sizes[axis], place[axis]) for axis, dim in cuts if dim == d]) for d, n in enumerate(whole[1])]
        width = torch_files.DTYPES[whole[0]][2]
        strides = torch_files.dense(whole[1])
        data = b"".join(whole[2][width * at:width * (at + 1)] for at in
                        (sum(i * s for i, s in zip(index, strides)) for index in itertools.product(*lists)))
        return (whole[0], tuple(map(len, lists)), data)

    def write(self, folder, generation, model, root_shape, axes, texts, cuts, ranks=None, **how):
        """One file a rank, each tensor by the placements `texts` of a mesh of these axes; cuts(name): in the order in which they are made."""
        world = len(list(itertools.product(*(range(n) for n in root_shape))))
        ranks = list(range(world)) if ranks is None else ranks
        for index, rank in enumerate(ranks):
            torch = Torch(generation, rank)
            root = torch.root(ranks, root_shape, tuple("abcd"[:len(root_shape)]))
            whole_axes = [[axis] for axis in range(len(root_shape))]
            mesh = root.mesh if axes is None else torch.sub_mesh(root, axes, tuple("uvwx"[:len(axes)]))
            used = whole_axes if axes is None else axes
            sizes = [len(list(itertools.product(*(range(root_shape[part]) for part in axis)))) for axis in used]
            place = place_of(root_shape, index, used)
            state = {name: torch.dtensor(self.part_of(whole, sizes, place, cuts(name)), whole[1], mesh, texts(name), **how) for name, whole in model.items()}
            torch.write(self.at(f"{folder}/model_world_size_{world}_rank_{rank}.pt"), state)

    def draw_model(self, rnd):
        return {f"t{i}": tensor(rnd, rnd.choice(["F32", "BF16", "U8"]), rnd.randint(1, 13), rnd.randint(1, 9)) for i in range(3)}

    def test_generations(self):
        """Every generation; whole meshes, parts of them, axes of size 1, flattened axes, ranks in another order."""
        rnd = random.Random(SEED)
        cases = [((4,), None), ((2, 3), None), ((2, 2, 2), None), ((1, 3), None), ((3, 1), None), ((1,), None),
                 ((2, 3), [[1]]), ((2, 3), [[0]]), ((2, 2, 2), [[0], [2]]), ((2, 3, 2), [[1]]), ((2, 1, 3), [[1], [2]]), ((2, 1, 3), [[0], [1]]),
                 ((2, 3, 2), [[0, 1]]), ((2, 3, 2), [[0, 1], [2]]), ((2, 3, 2), [[1, 2]]), ((2, 3, 2), [[0, 2]]), ((2, 3, 2), [[0, 2], [1]]),
                 ((1, 3), [[0, 1]])]
        for generation, (number, (shape, axes)) in itertools.product(GENERATIONS, enumerate(cases)):
            with self.subTest(generation=generation, shape=shape, axes=axes):
                model = self.draw_model(rnd)
                count = len(shape) if axes is None else len(axes)
                texts = {name: [rnd.choice(["S0", "S1", "R"]) for _ in range(count)] for name in model}
                cuts = {name: [(axis, int(text[1])) for axis, text in enumerate(texts[name]) if text != "R"] for name in model}
                world = len(list(itertools.product(*(range(n) for n in shape))))
                ranks = rnd.sample(range(world), world) if number % 3 == 2 else None
                folder = f"{generation}-{number}"
                self.write(folder, generation, model, shape, axes, texts.get, cuts.get, ranks)
                self.compare(folder, model)

    def test_strided(self):
        """FSDP over what tensor parallelism has cut. A spec that does not take strided shards as an order notes the default order beside them, and
        means the shards."""
        rnd = random.Random(SEED)
        tp_first = lambda name: [(1, 0), (0, 0)]
        odd = [(1, 0), (0, 0), (2, 0)]
        for generation in GENERATIONS:
            model = self.draw_model(rnd)
            rows = [("plain", (2, 3), ["S0*3", "S0"], tp_first, {})]
            if generation not in ("2.4", "2.5"):
                rows += [("order", (2, 3), ["S0", "S0"], tp_first, {"order": [(0, (1, 0))]}), ("told", (2, 3), ["S0*3", "S0"], tp_first, {"order": [(0, (1, 0))]}),
                         ("default", (2, 3), ["S0*3", "S0"], tp_first, {"order": [(0, (0, 1))]}),
                         ("three", (2, 2, 2), ["S0*2", "S0", "S0"], lambda name: odd, {"order": [(0, (0, 1, 2))]})]
            if generation == "2.13":
                rows += [("view", (2, 3), ["S0*3", "S0"], tp_first, {"strided_is_order": False})]
            for case, shape, texts, cuts, how in rows:
                with self.subTest(generation=generation, case=case):
                    self.write(f"{generation}-{case}", generation, model, shape, None, lambda name: texts, cuts, **how)
                    self.compare(f"{generation}-{case}", model)
        self.write("differ", "2.13", model, (2, 2, 2), None, lambda name: ["S0*2", "S0", "S0"], lambda name: odd, order=[(0, (2, 1, 0))], strided_is_order=False)
        self.check_fails(["inspect", self.at("differ")], 1, "its strided placements mean that axes cut it in the order 1, 0, 2, but its shard_order says 2, 1, 0")

    def test_names_that_were_mixed_up(self):
        """Each file knows the place of the rank that saved it."""
        whole = {"w": tensor(random.Random(SEED), "F32", 8, 4)}
        for generation in GENERATIONS:
            folder = f"mixed-{generation}"
            self.write(folder, generation, whole, (2, 2), None, lambda name: ["S0", "S1"], lambda name: [(0, 0), (1, 1)])
            self.compare(folder, whole)
            names = [self.at(f"{folder}/model_world_size_4_rank_{rank}.pt") for rank in range(4)]
            os.rename(names[1], names[1] + ".moved")
            os.rename(names[2], names[1])
            os.rename(names[1] + ".moved", names[2])
            words = "but rank 2 saved it" if generation == "2.13" else "which is at (0, 1) of the mesh, but the rank at (1, 0) saved it"
            for command in (["inspect", self.at(folder)], ["convert", self.at(folder), self.at("out")]):
                self.check_fails(command, 1, 'model_world_size_4_rank_1.pt: tensor "w": this is the file of rank 1 by its name, ' + words)

    def test_axes_that_do_not_fit_their_ranks(self):
        local = tensor(random.Random(SEED), "F32", 7, 3)
        large = 1 << 24
        for number, (shape, stride, words) in enumerate([
                ((2,) + (large,) * 3, (0,) * 4, "an axis of 2 ranks with stride 0, which does not fit into its 6 ranks"),
                ((7,), (1,), "an axis of 7 ranks with stride 1"), ((2, 3), (2, 1), "an axis of 2 ranks with stride 2"), ((2, 2), (3, 2), "an axis of 2 ranks with stride 3"),
                ((-1,), (1,), "an axis of -1 ranks"), ((2,), (1 << 62,), f"an axis of 2 ranks with stride {1 << 62}"), ((2, 3), (1,), "cannot be read"),
                ((), (), "cannot be read"), ("ab", (1, 2), "cannot be read"), (((((((2,),),),),),), ((((((1,),),),),),), "cannot be read"),
                ((1,) * 9, (1,) * 9, "more than 8 axes"), (((2,) * 40,), ((1,) * 40,), "more than 32 parts")]):
            torch = Torch("2.10", 0)
            root = torch.root(range(6), (6,))
            root.mesh._layout = torch.made._MeshLayout(shape, stride)
            torch.write(self.at(f"odd{number}/rank0.pt"), {"w": torch.dtensor(local, (7, 3), root.mesh, ["R"] * max(1, len(shape)))})
            self.check_fails(["inspect", self.at(f"odd{number}")], 1, words)


if __name__ == "__main__":
    support.main()
