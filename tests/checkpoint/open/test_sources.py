# SPDX-License-Identifier: Apache-2.0
"""What users give as a source, and what they are told: names of families, ranks that are missing, a config.json from elsewhere,
folders that only lead to a checkpoint."""
import json
import os
import random
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import dcp_files
import files
import support
import torch_files
from convert_case import CONFIG, SEED, ConvertTest, llama, tensor


class SourceTest(ConvertTest):
    def setUp(self):
        super().setUp()
        self.rnd = random.Random(SEED)

    def notes(self, source, target, *options):
        return self.convert(source, target, *options)["notes"]

    def write_side(self, name, text="x"):
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        return self.write_text(name, text)


class Families(SourceTest):
    def test_a_model_type_names_its_family(self):
        for kind, family in [("deepseek_v3", "deepseek"), ("qwen3", "llama"), ("mistral", "llama"), ("xlm-roberta", "bert")]:
            self.assertEqual(self.read_text("rules", kind), self.read_text("rules", family))
        self.write_hf("source", llama(self.rnd), CONFIG)
        made = self.convert("source", "a", "--to", "tp=2", "--rules", "qwen3")
        self.assertEqual(made["rules"], "rules of the family llama (for model_type qwen3)")
        self.convert("source", "b", "--to", "tp=2", "--rules", "llama")
        self.check_same("a", "b")
        # In a file of rules, too.
        self.convert("source", "c", "--to", "tp=2", "--rules", self.write_text("own.rules", "use mistral\n"))
        self.check_same("a", "c")
        draft = self.read_text("rules", "--for", self.at("source"), "--rules", "qwen3")
        self.assertTrue(draft.endswith("use llama\n"), draft)

    def test_a_file_comes_before_a_model_type(self):
        self.write_hf("source", llama(self.rnd), CONFIG)
        self.write_text("mistral", "* R\nevery: R@tp\n")
        made = json.loads(self.read_text("plan", "source", "--to", "tp=2", "--rules", "mistral", "--json", cwd=self.folder))
        self.assertEqual(made["rules"], "rules of mistral")

    def test_suggestions_do_not_change_the_version(self):
        self.check_fails(["rules", "qwem3"], 2, "did you mean qwen3?")
        self.check_fails(["rules", "mistrall"], 2, "did you mean mistral?")
        for name in ["qwen4", "deepseek_v5", "gpt3"]:
            done = support.run("rules", name)
            self.assertEqual(done.returncode, 2)
            self.assertNotIn("did you mean", done.stderr)
            self.assertIn(f'"{name}"', done.stderr)
            self.assertIn("reshard rules --for MODEL", done.stderr)

    def test_no_family(self):
        model = {"strange.a": tensor(self.rnd, "F32", 4, 4)}
        advice = ["reshard rules --for MODEL", "--rules FILE"]
        for name, config, words in [("none", None, "no config.json names a model_type"), ("typeless", {}, "no config.json names a model_type"),
                                    ("empty", {"model_type": ""}, "no config.json names a model_type"),
                                    ("new", {"model_type": "nova9"}, 'no family knows model_type "nova9"')]:
            self.write_hf(name, model, config)
            for part in [words, *advice]:
                self.fails(name, "x", "--to", "tp=2", words=part)
            done = support.run("convert", self.at(name), self.at("x"), "--to", "tp=2")
            self.assertNotIn('""', done.stderr)
        self.fails("none", "x", "--to", "tp=2", "--rules", "nova9", words="--rules FILE")
        done = support.run("convert", self.at("none"), self.at("x"), "--to", "tp=2", "--rules", "")
        self.assertNotIn('""', done.stderr)
        self.assertIn("reshard rules lists the families", done.stderr)


class MissingRanks(SourceTest):
    def write_ranks(self, folder, names, skip=()):
        """Plain files of ranks, each with four rows of w."""
        for rank, name in enumerate(names):
            if rank not in skip:
                files.write(self.at(f"{folder}/{name}"), {"w": ("U8", (4, 2), bytes([rank] * 8))})

    def test_of_plain_files(self):
        rules = self.write_text("r.rules", "w S(0)@tp\n")
        for folder, name in [("a", "rank-{:05d}-of-00012.safetensors"), ("b", "model_tp{}_of_12.safetensors"), ("c", "tp{}.safetensors")]:
            names = [name.format(rank) for rank in range(12)]
            for k, skip in enumerate([(2,), (0,), (11,), (1, 7)]):
                self.write_ranks(f"{folder}{k}", names, skip)
                self.check_fails(["inspect", self.at(f"{folder}{k}"), "--from", "tp=12", "--rules", rules], 1,
                                 f"the mesh tp=12 has 12 ranks; the file of rank {skip[0]} is missing")
        # Without one number to tell the files by, only the count is told.
        for name in ["x.safetensors", "y1.safetensors", "z.safetensors"]:
            files.write(self.at(f"odd/{name}"), {"w": ("U8", (4, 2), bytes(8))})
        self.check_fails(["inspect", self.at("odd"), "--from", "tp=4", "--rules", rules], 1, "holds 3 files, but the mesh tp=4 has 4 ranks\n")

    def test_of_dtensors_whose_names_do_not_count(self):
        mesh = torch_files.mesh([0, 1, 2, 3])
        for rank in range(3):
            torch_files.write(self.at(f"d/rank{rank}.pt"), {"w": torch_files.dtensor(("U8", (2,), bytes(2)), (8,), mesh, ["S0"])})
        self.check_fails(["inspect", self.at("d")], 1, "the file of rank 3 is missing")
        torch_files.write(self.at("e/rank0.pt"), {"w": torch_files.dtensor(("U8", (2,), bytes(2)), (8,), mesh, ["S0"])})
        self.check_fails(["inspect", self.at("e")], 1, "the files of ranks 1, 2, 3 are missing")

    def test_of_shards(self):
        self.write_hf("source", llama(self.rnd), CONFIG)
        self.convert("source", "dcp", "--to", "tp=4")
        for number in [3, 4, 1]:
            name = f"shard-{number:05d}-model-00001-of-00001.safetensors"
            os.rename(self.at(f"dcp/{name}"), self.at("hidden"))
            self.check_fails(["inspect", self.at("dcp")], 1, f"is one of 4 files, but there are 3 here; is shard {number} missing?")
            os.rename(self.at("hidden"), self.at(f"dcp/{name}"))

    def test_a_mesh_is_asked_for_by_its_option(self):
        for rank in range(2):
            torch_files.write(self.at(f"plain/rank{rank}.pt"), {"w": torch_files.tensor(("U8", (2,), bytes(2)))})
            files.write(self.at(f"safe/rank{rank}.safetensors"), {"w": ("U8", (2,), bytes(2))})
        for folder in ["plain", "safe"]:
            self.check_fails(["inspect", self.at(folder)], 1, "give their mesh (--from MESH, as in --from tp=4)")
            error = json.loads(support.run("inspect", self.at(folder), "--json").stdout)["error"]
            self.assertEqual((error["hint"], error["subject"]), ("source-mesh", self.at(folder) if folder == "plain" else "w"))
            # Of two, each has its own.
            both = ["verify", self.at(folder), self.at(folder)]
            self.check_fails(both, 1, "give their mesh (--from MESH, as in --from tp=4)")
            self.check_fails([*both, "--from", "fsdp=2"], 1, "give their mesh (--from-b MESH, as in --from-b tp=4)")


class Config(SourceTest):
    """--config BASE: config.json and what lies beside it, for sources that have none."""

    def write_base(self, name="base"):
        self.write_hf(name, {"other": tensor(self.rnd, "U8", 3)}, CONFIG)
        self.write_side(f"{name}/tokenizer.json", "the base's")
        self.write_side(f"{name}/original/params.json")
        self.write_side(f"{name}/.hidden")
        return self.at(name)

    def read(self, name):
        with open(self.at(name), encoding="utf-8") as file:
            return file.read()

    def test_of_a_distributed_checkpoint(self):
        model, base = llama(self.rnd), self.write_base()
        dcp_files.write(self.at("dcp"), model, 2)
        made = self.convert("dcp", "hf", "--config", base)
        self.assertEqual(sorted(os.listdir(self.at("hf"))), ["config.json", "model.safetensors", "tokenizer.json"])
        self.assertEqual(files.read_hf(self.at("hf")), model)
        self.assertEqual(json.loads(self.read("hf/config.json")), CONFIG)
        self.assertIn(f'copied from {base}: 2 files ("config.json" and others)', made["notes"])
        # As if config.json had been there all along: the cuts of key heads need its numbers.
        self.fails("dcp", "x", "--to", "tp=4", words="head")
        self.convert("dcp", "a", "--to", "tp=4", "--config", base)
        self.convert("hf", "b", "--to", "tp=4")
        self.check_same("a", "b")
        plan = self.read_json("plan", self.at("dcp"), "--to", "tp=4", "--config", base)
        self.assertEqual(plan["rules"], 'rules of the family llama: model_type is "llama"')

    def test_of_rank_files(self):
        model, base = llama(self.rnd), self.write_base()
        self.write_hf("hf", model, CONFIG)
        self.convert("hf", "told", "--to", "tp=4", "--format", "rank-files")
        files.strip_rank_files(self.at("told"), self.at("plain"))
        self.check_fails(["inspect", self.at("plain"), "--from", "tp=4"], 1, "head")
        for command in ["inspect", "digest", "verify"]:
            self.read_json(command, self.at("plain"), "--from", "tp=4", "--config", base)
        self.convert("plain", "back", "--from", "tp=4", "--config", base)
        self.assertEqual(files.read_hf(self.at("back")), model)
        self.assertEqual(self.read("back/tokenizer.json"), "the base's")

    def test_of_an_adapter(self):
        base = self.write_base()
        adapter = {f"base_model.model.model.layers.0.self_attn.{p}_proj.lora_{ab}.weight": tensor(self.rnd, "F32", *shape)
                   for p, rows in [("q", 64), ("k", 16)] for ab, shape in [("A", (4, 32)), ("B", (rows, 4))]}
        files.write(self.at("adapter/adapter_model.safetensors"), adapter, {"format": "pt"})
        self.write_side("adapter/adapter_config.json", json.dumps({"peft_type": "LORA"}))
        self.fails("adapter", "x", "--to", "tp=4", words="head")
        plan = self.read_json("plan", self.at("adapter"), "--to", "tp=4", "--config", base)
        self.assertIn('model_type is "llama"', plan["rules"])
        self.convert("adapter", "out", "--to", "tp=4", "--config", base)
        self.assertTrue({"adapter_config.json", "config.json", "tokenizer.json"} <= set(os.listdir(self.at("out"))))

    def test_its_files_come_first(self):
        base = self.write_base()
        self.write_hf("source", {"a": tensor(self.rnd, "F32", 4)}, {"model_type": "gpt2"})
        self.write_side("source/tokenizer.json", "the source's")
        self.write_side("source/notes.txt", "own")
        made = self.convert("source", "out", "--config", base, "--dtype", "bf16")
        self.assertEqual(json.loads(self.read("out/config.json")), CONFIG)
        self.assertEqual((self.read("out/tokenizer.json"), self.read("out/notes.txt")), ("the base's", "own"))
        self.assertIn(f'copied from {base}: 2 files ("config.json" and others), 2 of them in place of the source\'s own '
                      '("config.json" and others)', made["notes"])
        self.assertIn('copied along: 1 file ("notes.txt")', made["notes"])

    def test_the_dtype_changes_in_it(self):
        base = self.write_base()
        self.write_side("base/config.json", json.dumps({**CONFIG, "torch_dtype": "float32"}))
        files.write(self.at("one.safetensors"), {"a": tensor(self.rnd, "F32", 4)})
        self.convert("one.safetensors", "out", "--config", base, "--dtype", "bf16")
        self.assertEqual(json.loads(self.read("out/config.json"))["torch_dtype"], "bfloat16")

    def test_of_the_hub(self):
        self.write_base("cache/models--a--b/snapshots/123")
        os.makedirs(self.at("cache/models--a--b/blobs"))
        os.rename(self.at("cache/models--a--b/snapshots/123/tokenizer.json"), self.at("cache/models--a--b/blobs/t"))
        os.symlink("../../blobs/t", self.at("cache/models--a--b/snapshots/123/tokenizer.json"))
        files.write(self.at("one.safetensors"), {"a": tensor(self.rnd, "F32", 4)})
        self.convert("one.safetensors", "out", "--config", self.at("cache/models--a--b"))
        self.assertEqual(self.read("out/tokenizer.json"), "the base's")

    def test_refused(self):
        base = self.write_base()
        files.write(self.at("one.safetensors"), {"a": tensor(self.rnd, "F32", 4)})
        self.fails("one.safetensors", "x", "--config", self.at("nowhere"), words="there is no such folder")
        self.fails("one.safetensors", "x", "--config", base + "/config.json", words="is not a folder; give the one that holds config.json")
        self.fails("one.safetensors", "x", "--config", base + "/original", words="the folder has no config.json")
        os.symlink("/etc/hostname", self.at("base/LICENSE"))
        self.fails("one.safetensors", "x", "--config", base, words="a link that leaves the checkpoint")
        self.check_fails(["rules", "--config", base], 2, "--config needs --for")

    def test_rules_for(self):
        base = self.write_base()
        dcp_files.write(self.at("dcp"), {"strange": tensor(self.rnd, "F32", 4)}, 2)
        self.assertIn("whose names no family knows", self.read_text("rules", "--for", self.at("dcp")))
        self.assertIn("use llama", self.read_text("rules", "--for", self.at("dcp"), "--config", base))


class Folders(SourceTest):
    """Folders that are no checkpoint but lead to one."""

    def test_parts_are_named(self):
        self.write_side("pipe/model_index.json", "{}")
        for part in ["unet", "vae", "text_encoder"]:
            files.write(self.at(f"pipe/{part}/diffusion_pytorch_model.safetensors"), {"w": ("U8", (2,), b"ab")})
        self.write_side("pipe/scheduler/scheduler_config.json", "{}")
        self.check_fails(["inspect", self.at("pipe")], 1,
                         "is a pipeline of several models (model_index.json), which can only be read one at a time; give one of its folders that "
                         f"hold weights, as in {self.at('pipe/text_encoder')}: text_encoder, unet, vae\n")
        self.fails("pipe", "x", words="text_encoder, unet, vae")
        self.assertEqual(len(self.read_json("inspect", self.at("pipe/unet"))["tensors"]), 1)
        # Checkpoints of a training run, and many of them.
        for step in range(20):
            files.write(self.at(f"run/checkpoint-{step:03d}/model.safetensors"), {"w": ("U8", (2,), b"ab")})
        self.write_side("run/logs/events.txt")
        self.check_fails(["inspect", self.at("run")], 1, "run: holds no weights itself; give one of its folders that hold weights")
        self.check_fails(["inspect", self.at("run")], 1, "checkpoint-015, ..\n")
        self.write_side("none/logs/events.txt")
        self.check_fails(["inspect", self.at("none")], 1, "is not a checkpoint that reshard knows")
        self.check_fails(["inspect", "someone/some-model"], 1, "no such file or folder; if it is a model of Hugging Face's hub")
        self.check_fails(["inspect", "https://example.org/model"], 1, "reshard opens files and folders: download it first")
        self.check_fails(["inspect", self.at("none") + "/model"], 1, "there is no such file or folder\n")
        for config in ["config.json", "adapter_config.json"]:
            self.write_side("weightless/" + config, "{}")
            self.check_fails(["inspect", self.at("weightless")], 1, f"weightless: has {config}, but no weights")

    def follows(self, folder, name, pointer):
        """Reads the sub-folder, and says so."""
        found = self.read_json("inspect", self.at(folder))
        self.assertEqual([t["name"] for t in found["tensors"]], ["w"])
        self.assertEqual(found["notes"][0], f"reads the folder {name}, which {pointer} names")
        return found

    def test_the_newest_is_followed(self):
        for folder, pointer, text, name in [("a", "latest", "global_step7", "global_step7"), ("b", "latest", "best\n", "best"),
                                            ("c", "latest_checkpointed_iteration.txt", "7", "iter_0000007"),
                                            ("d", "latest_checkpointed_iteration.txt", "12345678\n", "iter_12345678"),
                                            ("e", "latest_checkpointed_iteration.txt", "release", "release")]:
            dcp_files.write(self.at(f"{folder}/{name}"), {"w": tensor(self.rnd, "F32", 4)}, 2)
            dcp_files.write(self.at(f"{folder}/older"), {"v": tensor(self.rnd, "F32", 4)}, 2)
            self.write_side(f"{folder}/{pointer}", text)
            self.follows(folder, name, pointer)
            made = self.convert(folder, f"{folder}-out")
            self.assertEqual(list(files.read_hf(self.at(f"{folder}-out"))), ["w"])
            self.assertEqual(made["notes"][0], f"reads the folder {name}, which {pointer} names")
            self.read_json("digest", self.at(folder))
        # Megatron-DeepSpeed writes both.
        self.write_side("a/latest_checkpointed_iteration.txt", "7")
        self.follows("a", "global_step7", "latest")

    def test_what_a_trainer_leaves_beside_it(self):
        """A scheduler is not the model."""
        torch_files.write(self.at("t/scheduler.pt"), {"last_epoch": 3, "x": torch_files.tensor(("U8", (1,), b"a"))})
        torch_files.write(self.at("t/global_step7/mp_rank_00_model_states.pt"), {"w": torch_files.tensor(("U8", (2,), b"ab"))})
        self.write_side("t/latest", "global_step7")
        self.follows("t", "global_step7", "latest")
        # A file of this name may mean something else, where there is a model.
        torch_files.write(self.at("u/model.pt"), {"w": torch_files.tensor(("U8", (2,), b"ab"))})
        for text in ["model.pt", "../t", "", "x" * 300]:
            self.write_side("u/latest", text)
            found = self.read_json("inspect", self.at("u"))
            self.assertEqual(([t["name"] for t in found["tensors"]], found["notes"]), (["w"], []))
        # The folder's own weights come first.
        self.write_hf("v", {"own": tensor(self.rnd, "U8", 2)})
        dcp_files.write(self.at("v/global_step7"), {"w": tensor(self.rnd, "F32", 4)}, 2)
        self.write_side("v/latest", "global_step7")
        self.assertEqual([t["name"] for t in self.read_json("inspect", self.at("v"))["tensors"]], ["own"])

    def test_only_folders_inside_are_followed(self):
        dcp_files.write(self.at("outside"), {"w": tensor(self.rnd, "F32", 4)}, 2)
        os.makedirs(self.at("a"))
        for text in ["../outside", self.at("outside"), "..", ".", "", "\n", "x/y", "a\nb", "\033[2J", ".x"]:
            self.write_side("a/latest", text)
            self.check_fails(["inspect", self.at("a")], 1, "its file latest does not hold the name of a folder beside it")
        self.write_side("a/latest", "gone")
        self.check_fails(["inspect", self.at("a")], 1, "its file latest names the folder gone, which")
        os.symlink("../outside", self.at("a/gone"))
        self.check_fails(["inspect", self.at("a")], 1, "a link that leaves the folder")
        os.unlink(self.at("a/gone"))
        os.rename(self.at("outside"), self.at("a/real"))
        os.symlink("real", self.at("a/gone"))
        self.follows("a", "gone", "latest")
        # A folder that names itself by way of another is not followed twice.
        os.unlink(self.at("a/gone"))
        os.makedirs(self.at("a/gone"))
        self.write_side("a/gone/latest", "on")
        self.check_fails(["inspect", self.at("a")], 1, "a/gone: this folder is not a checkpoint that reshard knows")
        for text in ["seven", "-7", "7.0", "7" * 30]:
            self.write_side("m/latest_checkpointed_iteration.txt", text)
            self.check_fails(["inspect", self.at("m")], 1, "neither the number of an iteration")


if __name__ == "__main__":
    support.main()
