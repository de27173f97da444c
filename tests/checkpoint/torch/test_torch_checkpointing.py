# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch_checkpointing, made by item_files.py: both versions of metadata, .pt and safetensors bodies, meshes, and what is wrong."""
import os
import pickle
import random
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import item_files
import support
import torch_files
from test_torch_read import TorchTest, tensor

SEED = 7


class Items(TorchTest):
    def setUp(self):
        super().setUp()
        rnd = random.Random(SEED)
        self.model = {"a.weight": tensor(rnd, "F32", 7, 5), "b.weight": tensor(rnd, "BF16", 3, 4), "c.bias": tensor(rnd, "F16", 5),
                      "d.step": tensor(rnd, "I64"), "e.none": ("F32", (0, 3), b"")}
        self.named = {"model." + name: array for name, array in self.model.items()}

    def test_bodies(self):
        """Either version, and three ways to store an item: DTensors, plain tensors, safetensors."""
        for body in ("torch", "plain", "safetensors"):
            for version in ("1.0", "2.0"):
                name = f"{body}{version}"
                item_files.write(self.at(name), self.model, (3,), ("S0",), body=body, version=version)
                self.assertEqual(self.read_json("inspect", self.at(name))["format"], "torch-checkpointing")
                self.compare(name, self.named)
                self.convert(name, name + "-model")
                self.assertEqual(files.read_hf(self.at(name + "-model")), self.model)
                self.assertEqual(os.listdir(self.at(name + "-model")), ["model.safetensors"])

    def test_meshes(self):
        """One to three axes, replicas, strided cuts."""
        cases = [((4,), ("S1",)), ((2, 2), ("R", "S0")), ((2, 3), ("S0", "S1")), ((2, 2, 2), ("S0", "R", "S1")), ((2, 3), ("S0", "S0"))]
        for i, (sizes, texts) in enumerate(cases):
            for body in ("torch", "plain", "safetensors"):
                item_files.write(self.at(f"{body}{i}"), self.model, sizes, texts, body=body)
                self.compare(f"{body}{i}", self.named)
                notes = self.read_json("inspect", self.at(f"{body}{i}"))["notes"]
                # Where tensors do not say it themselves, nobody knows which axis cut first.
                self.assertEqual(len(notes), int(texts == ("S0", "S0") and body != "torch"), notes)
                self.assertTrue(all("the metadata does not give their order" in note for note in notes), notes)
        whole, world = self.model["a.weight"], 6
        for rank in range(world):
            local = item_files.local_part(whole, (2, 3), rank, [(1, 0), (0, 0)])
            files.write(self.at(f"strided/model_{rank}.safetensors"), {"w": local})
        groups = [item_files.describe(whole, range(world), (2, 3), ("S0*3", "S0"))]
        item_files.write_metadata(self.at("strided"), {"model": ({item_files.path_key("w"): groups}, {
            rank: item_files.layout(f"model_{rank}.safetensors", "SafetensorsSerialization") for rank in range(world)})}, world)
        self.compare("strided", {"model.w": whole})

    def test_items(self):
        """Several items, nested, in folders; two stages of a pipeline; what ranks keep for themselves; JSON."""
        rnd = random.Random(SEED)
        w, v, m = tensor(rnd, "F32", 4, 3), tensor(rnd, "F32", 6), tensor(rnd, "F32", 4, 3)
        tensors, layouts = {}, {}
        for rank in range(4):
            stage, part = divmod(rank, 2)
            name, whole = (("w", w), ("v", v))[stage]
            mesh = [2 * stage, 2 * stage + 1]
            tensors[item_files.path_key("layers", stage, name)] = [item_files.describe(whole, mesh, (2,), ("S0",))]
            local = torch_files.tensor(item_files.local_part(whole, (2,), part, [(0, 0)]))
            torch_files.write(self.at(f"in/stage{stage}/r{rank}.pt"), {"layers": {stage: {name: local}}, "lr": 0.5})
            layouts[rank] = item_files.layout(f"stage{stage}/r{rank}.pt", "TorchSerialization")
            torch_files.write(self.at(f"in/rng_{rank}.pt"), {"state": torch_files.tensor(("U8", (2,), bytes([rank, 1]))), "seed": rank})
        torch_files.write(self.at("in/optim_1.pt"), {"m": torch_files.tensor(m)})
        self.write_text("in/train_0.json", "{}")
        item_files.write_metadata(self.at("in"), {"model": (tensors, layouts), "rng": ({}, {rank: None for rank in range(4)}),
                                                  "optim": ({}, {rank: None for rank in range(4)}),
                                                  "train": ({}, {0: item_files.layout("train_0.json", "JsonSerialization")})}, 4)
        self.compare("in", {"model.layers.0.w": w, "model.layers.1.v": v, "optim.m": m,
                            **{f"rng.{rank}.state": ("U8", (2,), bytes([rank, 1])) for rank in range(4)}})
        notes = self.read_json("inspect", self.at("in"))["notes"]
        self.assertEqual(notes[:2], ["3 files that the metadata names are missing, but the others hold all of every tensor (optim_0.pt and others)",
                                     "1 file of JSON or raw bytes, which holds no tensors, is left out (train_0.json)"])
        self.convert("in", "pt", "--format", "torch")
        loaded = torch_files.load(self.at("pt/model.pt"))
        self.assertEqual(loaded["model"]["lr"], 0.5)
        self.assertEqual([loaded[f"rng.{rank}"]["seed"] for rank in range(4)], [0, 1, 2, 3])

    def fails_after(self, change, words):
        shutil.rmtree(self.at("bad"), ignore_errors=True)
        item_files.write(self.at("bad"), self.model, (2,), ("S0",), body="plain")
        with open(self.at("bad/metadata.pkl"), "rb") as file:
            value = pickle.load(file)
        change(value)
        with open(self.at("bad/metadata.pkl"), "wb") as file:
            file.write(pickle.dumps(value))
        self.check_fails(["inspect", self.at("bad")], 1, words)

    def test_refused(self):
        key = item_files.path_key("a.weight")
        def paths(value):
            return value["metadata"]["model"]["nested_path_to_metadata"]
        def data(value):
            return paths(value)[key][0]["sharding_metadata"]["data"]
        def layouts(value):
            return value["metadata"]["model"]["rank_to_layout_info"]
        self.fails_after(lambda value: value.update(version="3.0"), 'has version "3.0"; 1.0 and 2.0 can be read')
        self.fails_after(lambda value: paths(value)[key][0]["sharding_metadata"].update(type="MoE"), 'is described by "MoE", which is unknown')
        self.fails_after(lambda value: data(value).update(dtype="torch.float16"), "the file holds f32, but the metadata says f16")
        self.fails_after(lambda value: data(value).update(dtype="torch.quint8"), "quint8")
        self.fails_after(lambda value: data(value).update(global_shape=[9, 5]), "its placements give this rank 5x5 of it, but the file holds 4x5")
        self.fails_after(lambda value: data(value).update(placements=[{"type": "Partial"}]), 'its placement "Partial" is unknown')
        self.fails_after(lambda value: data(value).update(placements=[]), "its mesh has 1 axes, but there are 0 placements")
        self.fails_after(lambda value: data(value).update(placements=[{"type": "Shard", "dim": 2}]), "along dimension 2 of 2")
        self.fails_after(lambda value: data(value)["mesh_spec"].update(mesh_data=(0, 5)), "its mesh does not hold rank 1")
        self.fails_after(lambda value: (data(value).pop("mesh_spec"), data(value).update(placements=[])), "where a list of sizes should be")
        self.fails_after(lambda value: data(value)["mesh_spec"].update(mesh_shape=(3,)), "does not match its axes")
        self.fails_after(lambda value: paths(value).update({item_files.path_key("lost"): paths(value)[key]}), 'tensor "model.lost": the metadata says that it is there, but no file')
        self.fails_after(lambda value: paths(value).update({"a.weight": paths(value)[key]}), "a path")
        self.fails_after(lambda value: layouts(value).update({1: item_files.layout("../model_1.pt", "TorchSerialization")}), "leads outside")
        self.fails_after(lambda value: layouts(value).update({1: item_files.layout("model_1.pt", "ZarrSerialization")}), '"ZarrSerialization"')
        self.fails_after(lambda value: layouts(value).update({1: item_files.layout("gone.pt", "TorchSerialization")}), "gone.pt, which the metadata names, is missing")
        self.fails_after(lambda value: value["metadata"].update({"../up": {"nested_path_to_metadata": {}, "rank_to_layout_info": {1: None}}}),
                         'the file "../up_1.pt": its name leads outside its folder')
        self.fails_after(lambda value: value["metadata"].update(model=5), "where a dict of paths should be")
        # Replicas that differ are found before anything is written.
        item_files.write(self.at("differ"), {"w": ("U8", (2, 2), b"abcd")}, (2,), ("R",), body="plain")
        torch_files.write(self.at("differ/model_1.pt"), {"w": torch_files.tensor(("U8", (2, 2), b"abce"))})
        self.fails("differ", "out", words='tensor "model.w"')

    def test_hostile(self):
        """Names of functions stay names; what is shared a thousand times costs no more than a bound; damage is an error."""
        item_files.write(self.at("h"), {"w": ("U8", (2,), b"ab")}, (2,), ("S0",), body="plain")
        with open(self.at("h/metadata.pkl"), "rb") as file:
            whole = file.read()
        rnd = random.Random(SEED)
        for _ in range(60):
            at = rnd.randrange(len(whole))
            with open(self.at("h/metadata.pkl"), "wb") as file:
                file.write(whole[:at] + bytes([rnd.randrange(256)]) + whole[at + 1:] if rnd.random() < 0.7 else whole[:at])
            done = support.run("inspect", self.at("h"))
            self.assertIn(done.returncode, (0, 1), done)
        paths = {item_files.path_key("x" * 50, i): [] for i in range(2000)}
        item_files.write_metadata(self.at("h"), {f"i{k}": (paths, {}) for k in range(2000)}, 2)
        self.check_fails(["inspect", self.at("h")], 1, "shared so often")
        with open(self.at("h/metadata.pkl"), "wb") as file:
            file.write(b"\x80\x02}(X\x08\x00\x00\x00metadatacos\nsystem\nX\x05\x00\x00\x00touch\x85RX\x0a\x00\x00\x00world_sizeK\x02u.")
        self.check_fails(["inspect", self.at("h")], 1, "a call where the dict metadata should be")


if __name__ == "__main__":
    support.main()
