# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's universal checkpoints: made by hand and read by the command, and what the command writes, read by Python's own zipfile and pickle as
DeepSpeed's loaders would."""
import json
import os
import shutil
import struct
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import megatron_files
import support
import torch_files
import zero_files
from test_deepspeed import PARAMS, ZeroTest, bytes_of
from zero_files import Zero


class Loader(torch_files.Unpickler):
    """Also tensors that repeat one element."""
    def rebuild(self, storage, kind, offset, size, strides, grad, hooks):
        if any(strides) or not size:
            return super().rebuild(storage, kind, offset, size, strides, grad, hooks)
        assert storage[4] == 1 and self.read(storage[2]) == bytes(4), storage
        return torch_files.Loaded("F32", size, bytes(4 * zero_files.volume(size)), storage[2])


def load(path):
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None, path
        return Loader(file.read("archive/data.pkl"), lambda key: file.read("archive/data/" + key)).load()


def load_universal(folder):
    """({name: array} as the reader of ZeRO names them, the files of values), by the rules of both loaders."""
    with open(f"{folder}/latest_universal", encoding="utf-8") as file:
        tag = file.read().strip()
    top, tensors, steps = f"{folder}/{tag}", {}, {}
    for name in sorted(os.listdir(f"{top}/zero")):
        if name == "optimizer_state.pt":
            continue
        for state in os.listdir(f"{top}/zero/{name}"):
            value = load(f"{top}/zero/{name}/{state}")
            if state == "step.pt":
                steps[name] = value
                continue
            assert list(value) == ["param"] and value["param"].dtype == "F32", (name, state)
            tensors[f"model.{name}" if state == "fp32.pt" else f"optimizer.state.{name}.{state[:-3]}"] = value["param"].whole()
    model, rank_model = load(f"{top}/mp_rank_00_model_states.pt"), load(f"{top}/zero_pp_rank_0_mp_rank_00_model_states.pt")
    for found in (model, rank_model):
        assert found["mp_world_size"] == 1 and {"dp_world_size", "global_steps", "skipped_steps"} <= set(found)
    optimizer = load(f"{top}/zero/optimizer_state.pt")
    assert optimizer["ds_version"] and isinstance(optimizer["param_groups"], list)
    assert "step" in optimizer["optimizer_state_dict"]["state"][0] and optimizer["optimizer_state_dict"]["param_groups"]
    return tensors, steps, model, optimizer, tag


class Writing(ZeroTest):
    def check_written(self, zero, folder):
        """What DeepSpeed would load: parameters and moments; buffers and frozen parameters beside them; aliases as names."""
        tensors, steps, model, optimizer, tag = load_universal(self.at(folder))
        want = {name: array for name, array in zero.expect_all().items()
                if name.startswith("optimizer.") and not name.endswith(".step") or name[6:] in zero.params}
        self.assertEqual(tensors, want)
        self.assertEqual({name: tensor.whole() for name, tensor in model["module"].items()}, {**zero.buffers, **zero.frozen})
        self.assertEqual(model["shared_params"], zero.shared)
        self.assertEqual(tag, f"global_step{zero.step}_universal")
        self.assertEqual(model["global_steps"], zero.step)
        self.assertEqual(optimizer["optimizer_state_dict"]["state"][0]["step"], zero.step)
        self.assertEqual(optimizer["param_groups"][0]["lr"], 0.001)
        self.assertEqual(sorted(steps), sorted(zero.params))
        return steps

    def test_zero_to_universal_and_back(self):
        for stage, world in ((3, 8), (2, 3), (1, 1)):
            with self.subTest(stage=stage, world=world):
                zero = self.make(stage, world)
                said = self.convert("in", "universal", "--format", "universal")
                self.assertEqual(self.check_written(zero, "universal"), {name: zero.step for name in zero.params})
                self.assertEqual(self.read_json("digest", self.at("universal")), self.read_json("digest", self.at("in")))
                self.read_text("verify", self.at("in"), self.at("universal"))
                found = self.read_json("inspect", self.at("universal"))
                self.assertEqual(found["format"], "universal")
                self.assertIn(f"a universal checkpoint: {len(zero.params)} parameters in {4 * len(zero.params)} files", found["notes"])
                self.check_model(zero, "universal")
                self.check_all(zero, "universal")
                self.assertNotIn("stay behind: optimizer.param_groups", said)
                self.assertNotIn("how many steps the optimizer has made", said)
                self.assertNotIn("of weights", said)  # the model files of other ranks repeat the first one's

    def test_again(self):
        """Universal to universal: the same tensors, values and steps."""
        zero = self.make(3, 4)
        self.convert("in", "universal", "--format", "universal")
        said = self.convert("universal", "again", "--format", "universal")
        self.check_written(zero, "again")
        for words in ("of weights", "1 folder"):  # stage 3's copy of the model file; the folder of parameters
            self.assertNotIn(words, said)

    def test_strays(self):
        """The folder of parameters counts as read; what is not read in it is told."""
        zero = self.make(3, 2)
        self.convert("in", "universal", "--format", "universal")
        folder = f"universal/global_step{zero.step}_universal/zero"
        for stray in ("README", f"{next(iter(zero.params))}/old.bak"):
            with open(self.at(f"{folder}/{stray}"), "w", encoding="ascii") as file:
                file.write("x")
        said = self.convert("universal", "again", "--format", "universal")
        self.assertIn('left out: 2 files in the folder zero ("README" and others), not of a state of a parameter', said)

    def test_steps_that_are_tensors(self):
        zero = self.make(3, 2, step_tensor=True)
        self.convert("in", "universal", "--format", "universal")
        steps = self.check_written(zero, "universal")
        self.assertEqual({name: step.whole() for name, step in steps.items()},
                         {name: ("F32", (), struct.pack("<f", zero.step)) for name in zero.params})
        self.assertEqual(self.read_json("digest", self.at("universal")), self.read_json("digest", self.at("in")))

    def test_other_states(self):
        zero = self.make(2, 3, states=("momentum_buffer",))
        self.convert("in", "universal", "--format", "universal")
        self.check_written(zero, "universal")

    def write_hf(self, name, config=None, **more):
        model = {"model.embed_tokens.weight": bytes_of("BF16", (6, 4), 1), "model.norm.weight": bytes_of("BF16", (4,), 2),
                 "lm_head.weight": bytes_of("BF16", (6, 4), 3), "model.ids": bytes_of("I64", (3,), 4), **more}
        files.write(self.at(f"{name}/model.safetensors"), model)
        if config is not None:
            with open(self.at(f"{name}/config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file)
        return model

    def test_hf_to_universal(self):
        model = self.write_hf("hf-in")
        said = self.convert("hf-in", "universal", "--format", "universal")
        self.assertIn("the source has no moments of an optimizer, so the universal checkpoint has weights only; zero_moments=1", said)
        tensors, steps, model_file, optimizer, tag = load_universal(self.at("universal"))

        def wide(array):
            return ("F32", array[1], b"".join(b"\0\0" + array[2][i:i + 2] for i in range(0, len(array[2]), 2)))
        weights = {f"model.{name}": wide(array) for name, array in model.items() if name != "model.ids"}
        self.assertEqual((tensors, steps, tag), (weights, {}, "universal"))
        self.assertEqual({name: tensor.whole() for name, tensor in model_file["module"].items()}, {"model.ids": model["model.ids"]})
        self.assertEqual((len(optimizer["param_groups"]), optimizer["param_groups"][0]), (64, {}))
        said = self.convert("hf-in", "universal", "--format", "universal", "--set", "zero_moments=1")
        self.assertNotIn("has no effect", said)
        tensors = load_universal(self.at("universal"))[0]
        zeros = {f"optimizer.state.{name[6:]}.{state}": ("F32", array[1], bytes(len(array[2])))
                 for name, array in weights.items() for state in ("exp_avg", "exp_avg_sq")}
        self.assertEqual(tensors, {**weights, **zeros})
        self.convert("universal", "back")
        self.assertEqual(files.read_hf(self.at("back")), {**{name[6:]: array for name, array in weights.items()}, "model.ids": model["model.ids"]})

    def test_nothing_to_train(self):
        """No folder would hold a parameter, and nobody could read it."""
        files.write(self.at("numbers.safetensors"), {"ids": ("I32", (2,), bytes(8))})
        self.check_fails(("convert", self.at("numbers.safetensors"), self.at("out"), "--format", "universal"), 1, "no such tensor; choose another format")
        self.assertFalse(os.path.exists(self.at("out")))

    def test_tied_head(self):
        same = bytes_of("BF16", (6, 4), 1)
        for tied in (True, False):
            self.write_hf("hf-in", {"model_type": "llama", "tie_word_embeddings": tied}, **({"lm_head.weight": same} if tied else {}))
            said = self.convert("hf-in", "universal", "--format", "universal")
            self.assertEqual('"lm_head.weight" is left out: config.json says that it is tied' in said, tied)
            self.assertEqual("model.lm_head.weight" in load_universal(self.at("universal"))[0], not tied)

    def test_a_head_that_is_said_to_be_tied(self):
        """One that was trained by itself, or that has no embedding beside it, is not lost to a word in config.json."""
        tied = {"model_type": "llama", "tie_word_embeddings": True}
        convert = ["convert", self.at("hf-in"), self.at("out"), "--as", "universal"]
        head = self.write_hf("hf-in", tied)["lm_head.weight"]
        self.check_fails(convert, 1, '"lm_head.weight" does not equal "model.embed_tokens.weight", though config.json says that the head is tied '
                                     "(tie_word_embeddings): element [0, 0] differs; tie_word_embeddings=0 keeps it")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("out")], [])
        wide = ("F32", head[1], b"".join(b"\0\0" + head[2][i:i + 2] for i in range(0, len(head[2]), 2)))
        for more in (["--set", "tie_word_embeddings=0"], ["--exclude", "*embed_tokens*"]):
            self.assertNotIn("is left out", self.convert("hf-in", "universal", "--as", "universal", *more))
            self.assertEqual(load_universal(self.at("universal"))[0]["model.lm_head.weight"], wide)
        for array, words in ((bytes_of("BF16", (7, 4), 1), "which has another shape"), (bytes_of("F32", (6, 4), 1), "which has another dtype")):
            self.write_hf("hf-in", tied, **{"lm_head.weight": array})
            self.check_fails(convert, 1, '"lm_head.weight" cannot equal "model.embed_tokens.weight", ' + words)

    def test_from_other_formats(self):
        """Our own distributed checkpoint, with moments, comes back as the universal one of the same tensors."""
        zero = self.make(3, 4)
        zero.buffers, zero.frozen, zero.shared = {}, {}, {}
        self.write(zero)
        self.convert("in", "dcp", "--format", "dcp", "--to", "dp=2")
        self.convert("dcp", "universal", "--format", "universal")
        tensors, steps, _, _, _ = load_universal(self.at("universal"))
        self.assertEqual(tensors, {name: array for name, array in zero.expect_all().items() if not name.endswith(".step")})
        self.assertEqual(steps, {name: zero.step for name in zero.params})

    def test_from_megatron(self):
        """Moments follow their parameters to Hugging Face's names, and the optimizer's own copy is the weight."""
        made = megatron_files.Family(**megatron_files.FAMILIES["qwen2"])
        hf, mc = made.make()
        states, want = {}, {}
        for word, state in (("exp_avg", "exp_avg"), ("exp_avg_sq", "exp_avg_sq"), ("param", None), ("fp32_param", None)):
            seed = {"fp32_param": 5, "param": 5}.get(word, len(word))
            family = megatron_files.Family(seed=seed, **megatron_files.FAMILIES["qwen2"])
            family.tensor = lambda *shape, dtype="F32", family=family: ("F32", shape, family.rnd.randbytes(4 * zero_files.volume(shape)))
            other_hf, other = family.make()
            # Two chained optimizers: one has the embedding, the other the rest.
            for name, array in family.stacked(other).items():
                if word in ("param", "fp32_param") and (word == "param") != name.startswith("embedding"):
                    continue
                states[("chained_1." if word == "fp32_param" else "") + f"optimizer.state.{word}.{name}"] = array
            want.update({f"optimizer.state.{name}.{state}" if state else f"model.{name}": array for name, array in other_hf.items()})
        megatron_files.write(self.at("in/iter_0000007"), made.stacked(mc), optimizer=states)
        with open(self.at("in/config.json"), "w", encoding="utf-8") as file:
            json.dump(made.config(), file)
        with open(self.at("in/latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as file:
            file.write("7")
        said = self.convert("in", "universal", "--as", "universal")
        self.assertIn(f"weights that are the optimizer's own, in f32: {len(hf)}; the model's are in the model file", said)
        self.assertIn("no tensor or value says how many steps the optimizer has made, so the universal checkpoint says 0", said)
        tensors, _, model, _, _ = load_universal(self.at("universal"))
        self.assertEqual(tensors, want)
        self.assertEqual(model["buffer_names"], [])
        self.assertEqual({name: tensor.whole() for name, tensor in model["module"].items()}, hf)
        self.convert("universal", "back")
        self.assertEqual(files.read_hf(self.at("back")), {name[6:]: array for name, array in want.items() if name.startswith("model.")})
        self.convert("universal", "back", "--only", "module")
        self.assertEqual(files.read_hf(self.at("back")), hf)

    def test_names(self):
        for name in ("", "..", "/a", "../a", "a/b"):
            self.write_hf("hf-in", None, **{name: bytes_of("F32", (2,), 1)})
            self.check_fails(("convert", self.at("hf-in"), self.at("out"), "--format", "universal"), 1, f'"{name}" cannot be the name of a folder')
        self.check_fails(("convert", self.at("hf-in"), self.at("out"), "--format", "universal", "--to", "tp=2"), 1, "cannot be split over tp=2")

    def test_as_a_naming(self):
        """--as universal: of names of Hugging Face, of those that nobody knows, and of torchtitan's, which become Hugging Face's."""
        zero = self.make(3, 2)
        self.convert("in", "universal", "--as", "universal")
        self.check_written(zero, "universal")
        self.read_text("bench", "model", self.at("model"), "--bytes", "300K")
        self.convert("model", "titan", "--as", "titan")
        self.convert("titan", "universal", "--as", "universal", "--config", self.at("model"))
        self.convert("model", "direct", "--as", "universal")
        self.assertEqual(load_universal(self.at("universal"))[0], load_universal(self.at("direct"))[0])

    def test_of_nested_names(self):
        """Formats of engines take the model alone; others say that the names are nested, and which part to take."""
        self.read_text("bench", "model", self.at("model"), "--bytes", "300K")
        self.convert("model", "universal", "--as", "universal", "--set", "zero_moments=1")
        for naming in ("vllm", "meta"):
            self.convert("model", "direct", "--as", naming, "--dtype", "f32")
            said = self.convert("universal", "out", "--as", naming, "--config", self.at("model"))
            self.assertRegex(said, r'note: only "model" is taken: \d+ tensors? .* stay behind')
            self.assertEqual(self.read_text("digest", self.at("out")).split()[0], self.read_text("digest", self.at("direct")).split()[0])
        refused = ("convert", self.at("universal"), self.at("no"), "--as", "megatron", "--config", self.at("model"))
        self.check_fails(refused, 1, 'the model is its part "model"; take that alone (--only model)')
        self.convert("model", "direct", "--as", "megatron", "--dtype", "f32")
        self.convert("universal", "out", "--as", "megatron", "--config", self.at("model"), "--only", "model")
        self.assertEqual(self.read_text("digest", self.at("out")).split()[0], self.read_text("digest", self.at("direct")).split()[0])

    def test_resume(self):
        params = {f"layers.{i}.w": (1024, 512) for i in range(6)}
        zero = self.write(Zero(params, [list(params)], 3, 3, states=("exp_avg",)))
        options = ("--format", "universal", "--max-memory", "1M", "--threads", "1")
        self.kill_after_a_record("convert", self.at("in"), self.at("out"), *options, target=self.at("out"))
        self.read_text("convert", self.at("in"), self.at("out"), *options, "--resume", "--verify")
        self.check_written(zero, "out")
        self.assertEqual(self.read_json("digest", self.at("out")), self.read_json("digest", self.at("in")))
        with open(self.at("stray"), "wb") as file:
            file.write(b"x")
        self.kill_after_a_record("convert", self.at("in"), self.at("out2"), *options, target=self.at("out2"))
        tag = f"global_step{zero.step}_universal"
        shutil.copy(self.at("stray"), self.at(f"out2.partial/{tag}/zero/stray"))
        self.check_fails(("convert", self.at("in"), self.at("out2"), *options, "--resume"), 1, "does not belong there; remove it")


class Reading(ZeroTest):
    def write_universal(self, folder="u", change=None, flat=False, stage=2, **info):
        """As ds_to_universal.py leaves it. flat: bare flat tensors, as old ones of stage 3."""
        zero = Zero(PARAMS, [list(PARAMS)], 2, stage, **info)
        zero.buffers = {"mask": bytes_of("BOOL", (2, 2), 2)}
        zero.frozen = {"vision.w": bytes_of("BF16", (5, 3), 3)}
        shutil.rmtree(self.at(folder), ignore_errors=True)
        for name, shape in PARAMS.items():
            for state, values in (("fp32", zero.weights), *zero.states.items()):
                array = ("F32", (zero_files.volume(shape),) if flat else shape, values[name])
                value = torch_files.tensor(array) if flat else {"param": torch_files.tensor(array), "cat_dim": 0, "vocab_tensor": False}
                torch_files.write(self.at(f"{folder}/zero/{name}/{state}.pt"), change(name, state, value) if change else value)
            torch_files.write(self.at(f"{folder}/zero/{name}/step.pt"), 7)
        torch_files.write(self.at(f"{folder}/zero/optimizer_state.pt"), {"ds_version": "0.16.3", "loss_scaler": zero_files.scaler(),
                                                                        "param_groups": zero.param_groups(1), "clip_grad": 1.0})
        for rank in range(2 if stage == 3 else 1):
            name = f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" if stage == 3 else "mp_rank_00_model_states.pt"
            torch_files.write(self.at(f"{folder}/{name}"), zero.model_state(rank))
        return zero

    def test_read(self):
        for stage in (2, 3):
            for flat in (False, True):
                for version in (0.2, 0.3, 0.4):
                    with self.subTest(stage=stage, flat=flat, version=version):
                        zero = self.write_universal(flat=flat, stage=stage, info={"universal_checkpoint_version": version})
                        values = self.check_all(zero, "u")
                        self.assertEqual(values["optimizer.state.conv.step"], 7)
        self.check_model(zero, "u")
        os.rename(self.at("u"), self.at("universal_tag"))
        with open(self.at("latest_universal"), "w", encoding="utf-8") as file:
            file.write("universal_tag")
        self.assertIn("reads the folder universal_tag, which latest_universal names", self.read_json("inspect", self.folder)["notes"])

    def test_refused(self):
        self.write_universal(info={"universal_checkpoint_version": 0.5})
        self.check_fails(("inspect", self.at("u")), 1, "version 0.5 of universal checkpoints")
        self.write_universal()
        os.unlink(self.at("u/zero/conv/fp32.pt"))
        self.check_fails(("inspect", self.at("u")), 1, 'parameter "conv" has no file fp32.pt')
        strange = torch_files.Call(torch_files.Global("some.module", "Strange"), new=True)
        self.write_universal(change=lambda name, state, value: strange if (name, state) == ("conv", "fp32") else value)
        self.check_fails(("inspect", self.at("u")), 1, "zero/conv/fp32.pt: holds some.module.Strange")
        self.write_universal(change=lambda name, state, value: {"cat_dim": 0} if (name, state) == ("conv", "exp_avg") else value)
        self.check_fails(("inspect", self.at("u")), 1, "zero/conv/exp_avg.pt: holds {'cat_dim': 0}, where a tensor should be")
        self.write_universal()
        shutil.rmtree(self.at("u/zero/conv"))
        self.check_fails(("inspect", self.at("u")), 1, 'its model file names parameter "conv", but there is no folder of that name in zero')
        self.write_universal()
        os.unlink(self.at("u/zero/conv/exp_avg.pt"))
        done = support.run("inspect", self.at("u"))
        self.assertEqual(done.returncode, 0)
        self.assertIn(f'fewer states than the others: 1 of {len(PARAMS)} ("conv")', done.stderr)
        self.write_universal()
        for name in PARAMS:
            shutil.rmtree(self.at(f"u/zero/{name}"))
        self.check_fails(("inspect", self.at("u")), 1, "its folder zero holds no folder of a parameter")


if __name__ == "__main__":
    support.main()
