# SPDX-License-Identifier: Apache-2.0
"""hf and hf5: experts apart, and all experts of a layer in one tensor."""
import json
import re
import shutil

from naming_case import NamingTest
import files
import models
import support

TENSOR = re.compile(r"(.*)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.(weight|weight_scale_inv)$")
PARTS = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


def fuse(model, transposed=False):
    """What hf5 makes of a model under hf's names, element by element."""
    made, experts = {}, {}
    for name, value in model.items():
        found = TENSOR.match(name)
        if found is None:
            made[name.replace(".block_sparse_moe.gate.", ".mlp.gate.")] = value
            continue
        layer, expert, part, kind = found.groups()
        experts.setdefault((layer, kind), {})[PARTS.get(part, part), int(expert)] = value
    for (layer, kind), parts in experts.items():
        count = max(expert for _, expert in parts) + 1
        ending = "" if kind == "weight" else "_scale_inv"
        for name, joined in [("gate_up_proj", ["gate_proj", "up_proj"]), ("down_proj", ["down_proj"])]:
            dtype, (rows, columns), _ = parts[joined[0], 0]

            def find(e, r, c):
                return parts[joined[r // rows], e], (r % rows, c)

            shape = (count, len(joined) * rows, columns)
            if transposed:
                made[f"{layer}.mlp.experts.{name}{ending}"] = models.build(dtype, (count, columns, shape[1]), lambda e, c, r: find(e, r, c))
            else:
                made[f"{layer}.mlp.experts.{name}{ending}"] = models.build(dtype, shape, find)
    return made


class ThereAndBack(NamingTest):
    def check(self, model, map_name, *options, transposed=False):
        """hf -> hf5 -> hf, against the oracle on the way and the first digests in the end."""
        for name in ["source", "fused", "back", "again"]:
            shutil.rmtree(self.at(name), ignore_errors=True)
        self.write_model("source", model)
        told = self.convert("source", "fused", "--as", "hf5", "--verify", *options)
        self.assertEqual(told["names"], f"hf; written as hf5 by map {map_name}")
        self.assertEqual(told["warnings"], [])
        self.check_model(self.read("fused"), fuse(model.tensors, transposed))
        self.assertNotEqual(sorted(self.read("fused")), sorted(model.tensors))
        told = self.convert("fused", "back", "--as", "hf", "--verify")
        self.assertEqual(told["names"], f"hf5; written as hf by map {map_name}")
        self.check_model(self.read("back"), model.tensors)
        self.assertEqual(self.digests("back"), self.digests("source"))
        told = self.convert("fused", "again", "--as", "hf5")
        self.assertEqual(told["names"], "hf5, as is to be written")
        self.check_same("again", "fused")

    def test_mixtral(self):
        self.check(models.mixtral(self.rnd), "hf-hf5-mixtral")
        self.check(models.mixtral(self.rnd), "hf-hf5-mixtral", "--set", "experts_transposed=1", transposed=True)

    def test_qwen3_moe(self):
        self.check(models.qwen3_moe(self.rnd), "hf-hf5")
        self.check(models.qwen3_moe(self.rnd, inner=7, experts=1), "hf-hf5")
        self.check(models.qwen3_moe(self.rnd), "hf-hf5", "--set", "experts_transposed=1", transposed=True)

    def test_deepseek_v3(self):
        self.check(models.deepseek_v3(self.rnd), "hf-hf5")

    def test_scales_of_blocks(self):
        self.check(models.deepseek_v3(self.rnd, scales=True), "hf-hf5")

    def test_blocks_that_do_not_fit(self):
        """A block of scales would cover rows of gate and of up."""
        model = models.deepseek_v3(self.rnd, scales=True)
        model.config["quantization_config"]["weight_block_size"] = [3, 4]
        self.write_model("source", model)
        self.fails("source", "out", "--as", "hf5", words="8 / 3 is not a whole number")

    def check_same_names(self, model):
        self.write_model("source", model)
        told = self.convert("source", "out", "--as", "hf5", "--verify")
        self.assertEqual(told["names"], "hf; hf5 has the same names for this model")
        self.assertEqual(told["warnings"], [])
        self.check_model(self.read("out"), model.tensors)
        self.assertEqual(self.digests("out"), self.digests("source"))
        told = self.convert("out", "back", "--as", "hf", "--verify")
        self.assertEqual(told["names"], "hf, as is to be written")
        self.check_model(self.read("back"), model.tensors)

    def test_gpt_oss(self):
        self.check_same_names(models.gpt_oss(self.rnd))

    def test_llama4(self):
        self.check_same_names(models.llama4(self.rnd))

    def test_dense(self):
        self.check_same_names(models.llama(self.rnd, bias=True))

    def test_dense_and_tied(self):
        self.check_same_names(models.llama(self.rnd, tied=True, norms=True))


class Orders(NamingTest):
    """[expert, out, in] and [expert, in, out]."""

    def test_told_by_shape(self):
        for transposed in [False, True]:
            with self.subTest(transposed=transposed):
                for name in ["source", "back"]:
                    shutil.rmtree(self.at(name), ignore_errors=True)
                model = models.qwen3_moe(self.rnd)
                self.write_hf("source", fuse(model.tensors, transposed), model.config)
                self.convert("source", "back", "--as", "hf", "--verify")
                self.check_model(self.read("back"), model.tensors)

    def test_square(self):
        """gate and up together are as long as a row (12 = 2 * 6), then down is square (12 = 12)."""
        for inner in [models.H // 2, models.H]:
            model = models.qwen3_moe(self.rnd, inner=inner)
            for transposed in [0, 1]:
                with self.subTest(inner=inner, transposed=transposed):
                    for name in ["source", "back"]:
                        shutil.rmtree(self.at(name), ignore_errors=True)
                    self.write_hf("source", fuse(model.tensors, bool(transposed)), model.config)
                    self.fails("source", "back", "--as", "hf",
                               words="nothing decides between them: $experts_transposed has no value in config.json; "
                               "--set experts_transposed=N gives it one")
                    self.convert("source", "back", "--as", "hf", "--verify", "--set", f"experts_transposed={transposed}")
                    self.check_model(self.read("back"), model.tensors)

    def test_without_sizes(self):
        """Without config.json shapes tell nothing."""
        model = models.qwen3_moe(self.rnd)
        self.write_hf("source", fuse(model.tensors))
        self.fails("source", "back", "--as", "hf", words="--set experts_transposed=N")
        self.convert("source", "back", "--as", "hf", "--set", "experts_transposed=0")
        self.check_model(self.read("back"), model.tensors)


class More(NamingTest):
    def test_cut(self):
        """Rules cut what the map makes."""
        model = models.qwen3_moe(self.rnd, inner=8)
        self.write_model("source", model)
        whole = self.convert("source", "whole", "--as", "hf5")
        for mesh in ["tp=2", "ep=2", "fsdp=3"]:
            with self.subTest(mesh=mesh):
                told = self.convert("source", f"cut-{mesh}", "--as", "hf5", "--to", mesh, "--verify")
                self.assertEqual(told["digest"], whole["digest"])
                self.check_model(files.read_dcp(self.at(f"cut-{mesh}")), fuse(model.tensors))
                self.convert(f"cut-{mesh}", f"back-{mesh}", "--as", "hf", "--verify")
                self.check_model(self.read(f"back-{mesh}"), model.tensors)

    def test_a_missing_expert(self):
        model = models.qwen3_moe(self.rnd)
        for missing in ["model.layers.1.mlp.experts.2.up_proj.weight", "model.layers.1.mlp.experts.3.up_proj.weight"]:
            with self.subTest(missing=missing):
                shutil.rmtree(self.at("source"), ignore_errors=True)
                self.write_hf("source", {name: value for name, value in model.tensors.items() if name != missing}, model.config)
                self.fails("source", "out", "--as", "hf5", words=f'no "{missing}", which belongs to it')

    def test_other_experts(self):
        """Experts whose names the map does not know keep them, with a warning."""
        model = models.llama(self.rnd)
        model.add("model.layers.0.ffn.experts.0.w1.weight", 4, models.H)
        self.write_model("source", model)
        done = support.run("convert", self.at("source"), self.at("out"), "--as", "hf5", "--json")
        self.assertEqual(done.returncode, 0)
        told = json.loads(done.stdout)
        self.assertEqual(told["warnings"], ['"model.layers.0.ffn.experts.0.w1.weight" keeps its name; in hf5 it may have another one'])

    def test_states_of_optimizers(self):
        """They take the lines of their parameters."""
        model = models.qwen3_moe(self.rnd, experts=2)
        tensors = {"model." + name: value for name, value in model.tensors.items()}
        step = ("F32", (), b"\0\0\x80\x3f")
        for name, (_, shape, _) in model.tensors.items():
            tensors[f"optim.state.{name}.exp_avg"] = ("F32", shape, self.rnd.randbytes(files.size_of("F32", shape)))
            tensors[f"optim.state.{name}.step"] = step
        self.write_hf("source", tensors, model.config)
        self.convert("source", "fused", "--as", "hf5", "--all", "--verify")
        wanted = {"model." + name: value for name, value in fuse(model.tensors).items()}
        moments = fuse({name: tensors[f"optim.state.{name}.exp_avg"] for name in model.tensors})
        wanted.update({f"optim.state.{name}.exp_avg": value for name, value in moments.items()})
        wanted.update({f"optim.state.{name}.step": step for name in moments})
        self.check_model(self.read("fused"), wanted)
        self.convert("fused", "back", "--as", "hf", "--all", "--verify")
        self.check_model(self.read("back"), tensors)

    def test_plan(self):
        model = models.qwen3_moe(self.rnd, experts=2)
        self.write_model("source", model)
        plan = self.read_json("plan", self.at("source"), "--as", "hf5", "--tensors")
        rows = {row["name"]: row for row in plan["tensor_list"]}
        self.assertEqual(sorted(rows), sorted(fuse(model.tensors)))
        row = rows["model.layers.1.mlp.experts.gate_up_proj"]
        self.assertEqual(row["sources"], [f"model.layers.1.mlp.experts.{e}.{part}_proj.weight" for e in range(2) for part in ["gate", "up"]])
        text = support.run("rules", "hf-hf5").stdout.splitlines()
        self.assertEqual(row["map"], "hf-hf5")
        self.assertTrue(text[row["map_line"] - 1].startswith("{p:**}.mlp.experts.{e}.{gate,up}_proj.weight"))
        row = rows["lm_head.weight"]
        self.assertEqual((row["sources"], text[row["map_line"] - 1]), (["lm_head.weight"], "* = *"))
        printed = support.run("plan", self.at("source"), "--as", "hf5", "--tensors").stdout
        self.assertIn("names: hf; written as hf5 by map hf-hf5\n", printed)
        self.assertRegex(printed, r"model\.layers\.1\.mlp\.experts\.gate_up_proj .*experts\.0\.gate_proj\.weight +\[0:1, 0:5, :\] +hf-hf5:(\d+)\n"
                         r" +model\.layers\.1\.mlp\.experts\.0\.up_proj\.weight +\[0:1, 5:10, :\] +hf-hf5:\1\n"
                         r" +model\.layers\.1\.mlp\.experts\.1\.gate_proj\.weight +\[1:2, 0:5, :\] +hf-hf5:\1\n"
                         r" +model\.layers\.1\.mlp\.experts\.1\.up_proj\.weight +\[1:2, 5:10, :\] +hf-hf5:\1\n")


if __name__ == "__main__":
    support.main()
