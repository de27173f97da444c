# SPDX-License-Identifier: Apache-2.0
"""The list of namings, how a naming is recognised, and maps that are found by name."""
import os
import re

from naming_case import HERE, NamingTest
import models
import support
import test_naming_hf5

MAPS = os.path.join(HERE, "..", "..", "..", "src", "checkpoint", "namings", "maps")


class Lists(NamingTest):
    def test_namings(self):
        rows = self.read_text("rules", "--namings").splitlines()
        self.assertEqual(rows[0].split(), ["naming", "is"])
        names = [row.split()[0] for row in rows[1:]]
        self.assertEqual(names[-1], "hf")
        self.assertIn("hf5", names)
        # Each has a map, except for the one that is a format for hf's names, and each map a naming.
        found = {re.match("hf-([^-]*)", name[:-len(".map")]).group(1) for name in os.listdir(MAPS)}
        self.assertEqual(found, set(names) - {"hf", "universal"})
        self.check_fails(["rules", "--namings", "llama"], 2, "leave out the name")
        self.check_fails(["rules", "--namings", "--for", self.folder], 2, "leave out --for")

    def test_maps(self):
        """The text as it is in the tree."""
        for name in os.listdir(MAPS):
            with open(os.path.join(MAPS, name), encoding="utf-8") as file:
                self.assertEqual(self.read_text("rules", name[:-len(".map")]), file.read())
        self.assertEqual(self.read_text("rules", "hf:hf5"), self.read_text("rules", "hf-hf5"))
        self.assertEqual(self.read_text("rules", "hf5:hf"), self.read_text("rules", "hf-hf5"))
        self.check_fails(["rules", "hf:nothing"], 2, 'there is no map "hf:nothing"')
        self.check_fails(["rules", "hf:hf5", "--rules", "llama", "--for", self.folder], 2, "--rules has no effect on a map")

    def test_map_of_a_model(self):
        self.write_model("mixtral", models.mixtral(self.rnd))
        for name in ["hf:hf5", "hf5:hf"]:
            self.assertEqual(self.read_text("rules", name, "--for", self.at("mixtral")), self.read_text("rules", "hf-hf5-mixtral"))
        self.check_fails(["rules", "hf:hf5", "--for", self.at("missing")], 1, "missing")

    def test_printed_map_is_a_map_of_ones_own(self):
        model = models.qwen3_moe(self.rnd)
        self.write_model("source", model)
        path = self.write_text("own.map", self.read_text("rules", "hf:hf5"))
        self.convert("source", "out", "--map", path, "--as", "hf5", "--verify")
        self.check_model(self.read("out"), test_naming_hf5.fuse(model.tensors))

    def test_completion(self):
        self.assertEqual(self.read_text("complete", "convert", "a", "b", "--as", "hf").splitlines(), ["words", "hf5", "hf"])
        self.assertIn("hf-hf5", self.read_text("complete", "rules", "hf-").splitlines())


class Recognised(NamingTest):
    def test_inspect(self):
        model = models.qwen3_moe(self.rnd)
        self.write_model("hf", model)
        self.write_hf("hf5", test_naming_hf5.fuse(model.tensors), model.config)
        self.write_hf("other", {"a": ("U8", (2,), b"ab")})
        self.assertEqual(self.read_json("inspect", self.at("hf"))["naming"], "hf")
        self.assertEqual(self.read_json("inspect", self.at("hf5"))["naming"], "hf5")
        self.assertNotIn("naming", self.read_json("inspect", self.at("other")))
        self.assertIn("  safetensors, names of hf5, ", self.read_text("inspect", self.at("hf5")))
        self.assertNotIn("names of", self.read_text("inspect", self.at("hf")))

    def test_refusals(self):
        self.write_model("source", models.llama(self.rnd))
        self.fails("source", "out", "--as", "hf6", words='there is no naming "hf6"; give one of megatron, ')
        self.write_hf("other", {"a": ("U8", (2,), b"ab")})
        self.fails("other", "out", "--as", "hf5", words="the names of the tensors belong to no known naming")
        self.check_fails(["plan", self.at("source"), "--as", "left"], 1, 'there is no naming "left"')

    def test_config_of_another_folder(self):
        """--config says which model it is."""
        model = models.mixtral(self.rnd)
        self.write_hf("source", model.tensors)
        self.write_model("base", model)
        told = self.convert("source", "out", "--as", "hf5", "--config", self.at("base"))
        self.assertEqual(told["names"], "hf; written as hf5 by map hf-hf5-mixtral")
        self.check_model(self.read("out"), test_naming_hf5.fuse(model.tensors))

    def test_options_come_first(self):
        """Names are looked at after options have chosen and changed them."""
        model = models.qwen3_moe(self.rnd)
        self.write_hf("source", {"old." + name: value for name, value in model.tensors.items()}, model.config)
        told = self.convert("source", "out", "--as", "hf5", "--only", "old", "--exclude", "*.norm.weight", "--dtype", "f32")
        self.assertEqual(told["names"], "hf; written as hf5 by map hf-hf5")
        wanted = test_naming_hf5.fuse({name: value for name, value in model.tensors.items() if name != "model.norm.weight"})
        self.assertEqual({name: value[1] for name, value in self.read("out").items()}, {name: value[1] for name, value in wanted.items()})

    def test_use(self):
        """A map of one's own builds on a shipped one."""
        model = models.qwen3_moe(self.rnd)
        self.write_model("source", model)
        path = self.write_text("own.map", "map hf mine\nuse hf-hf5\nlm_head.weight = head\n")
        self.check_fails(["convert", self.at("source"), self.at("out"), "--map", path], 1, "hf and mine are")
        path = self.write_text("own.map", "map hf hf5\nuse hf-hf5\nlm_head.weight = head\n")
        plan = self.read_json("plan", self.at("source"), "--map", path, "--as", "hf5", "--tensors")
        rows = {row["name"]: (row["map"], row["sources"]) for row in plan["tensor_list"]}
        self.assertEqual(rows["head"], ("own.map", ["lm_head.weight"]))
        self.assertEqual(rows["model.layers.0.mlp.experts.down_proj"][0], "hf-hf5")
        self.convert("source", "out", "--map", path, "--as", "hf5", "--verify")
        wanted = test_naming_hf5.fuse(model.tensors)
        wanted["head"] = wanted.pop("lm_head.weight")
        self.check_model(self.read("out"), wanted)


if __name__ == "__main__":
    support.main()
