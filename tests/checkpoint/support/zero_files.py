# SPDX-License-Identifier: Apache-2.0
"""Folders as DeepSpeed writes them, by ZeRO's arithmetic and torch_files.py, for tests. Nothing here shares code with the library,
and nothing of DeepSpeed is needed: its classes are names in the pickles.

A model is {name: (dtype, shape, bytes)}; moments are {state: {name: bytes of F32}}.
"""
import os
import struct

import torch_files as torch


def volume(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def floats(count, seed):
    """count different numbers, as bytes of F32."""
    return struct.pack(f"<{count}f", *[(seed * 7919 + i * 31) % 65521 / 64.0 - 300 for i in range(count)])


def flat(data, dtype="F32"):
    return torch.tensor((dtype, (len(data) // torch.DTYPES[dtype][2],), data))


def stage_of(stage, how="call"):
    """ZeroStageEnum as a call of the class, as Python 3.11 writes members, or as a number."""
    kind = torch.Global("deepspeed.runtime.zero.config", "ZeroStageEnum")
    if how == "getattr":
        return torch.Call(torch.Global("__builtin__", "getattr"), (kind, ["disabled", "optimizer_states", "gradients", "weights"][stage]))
    return stage if how == "int" else torch.Call(kind, (stage,))


def address(start, count):
    return torch.Call(torch.Global("deepspeed.utils.tensor_fragment", "fragment_address"), new=True, state={"numel": count, "start": start})


def scaler():
    return torch.Call(torch.Global("deepspeed.runtime.fp16.loss_scaler", "LossScaler"), new=True,
                      state={"cur_scale": 1.0, "dynamic": False})


class Zero:
    """One checkpoint. groups: lists of names, in the order of the line."""
    def __init__(self, params, groups, world, stage, states=("exp_avg", "exp_avg_sq"), **how):
        self.params, self.groups, self.world, self.stage = params, groups, world, stage   # params: {name: shape}
        self.how = how
        self.weights = {name: floats(volume(shape), i + 1) for i, (name, shape) in enumerate(params.items())}
        self.states = {state: {name: floats(volume(shape), 1000 * (k + 1) + i) for i, (name, shape) in enumerate(params.items())}
                       for k, state in enumerate(states)}
        self.buffers, self.frozen, self.shared, self.module_only = {}, {}, {}, {}
        self.step = how.get("step", 7)
        self.change = how.get("change", lambda kind, rank, value: value)  # lets a test spoil a file
        self.prefix = how.get("prefix", "")
        self.mp = how.get("mp", 0)

    # ---- model files

    def sixteen(self, name):
        """What `module` holds of a parameter: not the same numbers as fp32, so that tests see which was taken."""
        if name in self.how.get("sixteen", {}):
            return self.how["sixteen"][name]
        n = volume(self.params[name])
        return ("BF16", self.params[name], bytes((i * 7 + len(name)) % 251 for i in range(2 * n)))

    def model_state(self, rank):
        module = {}
        for name, shape in self.params.items():
            module[self.prefix + name] = torch.tensor(self.sixteen(name)) if self.stage != 3 else torch.tensor(("BF16", (0,), b""))
        for name, array in self.buffers.items():
            module[self.prefix + name] = torch.tensor(array)
        fragments = {}
        for name, array in self.frozen.items():
            dtype, shape, data = array
            if self.stage == 3:
                width = torch.DTYPES[dtype][2]
                part = -(-volume(shape) // self.world)
                piece = data[rank * part * width:(rank + 1) * part * width].ljust(part * width, b"\0")
                fragments[self.prefix + name] = flat(piece, dtype)
                module[self.prefix + name] = torch.tensor((dtype, (0,), b""))
            else:
                fragments[self.prefix + name] = torch.tensor(array)
                module[self.prefix + name] = torch.tensor(array)
        for name, array in self.module_only.items():
            module[self.prefix + name] = torch.tensor(array)
        for alias, kept in self.shared.items():
            module[self.prefix + alias] = torch.tensor(self.sixteen(kept)) if self.stage != 3 else torch.tensor(("BF16", (0,), b""))
        shapes = [torch.ordered({self.prefix + name: torch.size(self.params[name]) for name in group}) for group in self.groups]
        more = {"universal_checkpoint_info": self.how["info"]} if "info" in self.how else {}
        if self.how.get("pipeline"):
            module = None
        return {**more, "module": torch.ordered(module) if module is not None else None, "buffer_names": [self.prefix + name for name in self.buffers],
                "optimizer": None, "param_shapes": shapes,
                "frozen_param_shapes": torch.ordered({self.prefix + name: torch.size(array[1]) for name, array in self.frozen.items()}) if self.frozen else None,
                "frozen_param_fragments": torch.ordered(fragments) if self.frozen else None,
                "shared_params": {self.prefix + alias: self.prefix + kept for alias, kept in self.shared.items()},
                "sparse_tensor_module_names": torch.Call(torch.Global("__builtin__", "set"), ([],)),
                "lr_scheduler": {"last_epoch": self.step}, "global_steps": self.step, "skipped_steps": 0, "global_samples": 56,
                "dp_world_size": self.world, "mp_world_size": 1, "ds_version": "0.16.3", "ds_config": {"train_batch_size": 8}}

    # ---- optimizer files

    def line(self, group, values):
        """The padded line of a group, and the size of a partition."""
        data = b"".join(values[name] for name in group)
        count = len(data) // 4
        padded = -(-count // (2 * self.world)) * 2 * self.world
        return data.ljust(4 * padded, b"\0"), padded // self.world, count

    def partition(self, group, values, rank, lean):
        data, part, count = self.line(group, values)
        end = min((rank + 1) * part, count) if lean else (rank + 1) * part
        return data[4 * rank * part:4 * max(end, rank * part)]

    def mapping(self, group, rank):
        _, part, _ = self.line(group, self.weights)
        at, found = 0, {}
        for name in group:
            n = volume(self.params[name])
            begin, end = max(at, rank * part), min(at + n, (rank + 1) * part)
            if begin < end:
                found[self.prefix + name] = address(begin - rank * part, end - begin)
            at += n
        return torch.ordered(found)

    def step_value(self):
        if self.how.get("step_tensor"):
            return torch.tensor(("F32", (), struct.pack("<f", self.step)))
        return self.step

    def base(self, states):
        extra = {"step": self.step_value()} if self.states and not self.how.get("no_step") else {}
        return {i: {**extra, **state} for i, state in enumerate(states)}

    def param_groups(self, count):
        return [{"lr": 0.001, "betas": (0.9, 0.95), "eps": 1e-08, "weight_decay": 0.1, "params": [i]} for i in range(count)]

    def optim_lines(self, rank):
        bf16 = self.how.get("bf16_optimizer")
        lean = not bf16
        paddings, weights, states = [], [], []
        for group in self.groups:
            _, part, count = self.line(group, self.weights)
            paddings.append(max(0, min(part, (rank + 1) * part - count)))
            weights.append(flat(self.partition(group, self.weights, rank, lean)))
            states.append({state: flat(self.partition(group, values, rank, self.how.get("elastic", False)))
                           for state, values in self.states.items()})
        base = {"state": self.base(states), "param_groups": self.param_groups(len(self.groups))}
        if self.how.get("elastic"):
            base = states
        made = {"loss_scaler": scaler(), "clip_grad": 1.0, "base_optimizer_state": base, "single_partition_of_fp32_groups": weights,
                "group_paddings": paddings, "partition_count": self.how.get("counts", self.world), "ds_version": "0.16.3",
                "param_slice_mappings": [self.mapping(group, rank) for group in self.groups]}
        if not bf16:
            made["zero_stage"] = stage_of(self.stage, self.how.get("stage_how", "call"))
        if self.how.get("elastic"):
            made["base_optimizer_state_step"] = self.step
        return made

    def share(self, name, values, rank):
        part = -(-volume(self.params[name]) // self.world)
        return values[name][4 * rank * part:4 * (rank + 1) * part].ljust(4 * part, b"\0")

    def optim_shares(self, rank):
        """subs: the names of each sub-group, all of them in order; by default the groups."""
        subs = self.how.get("subs", self.groups)
        weights = [flat(b"".join(self.share(name, self.weights, rank) for name in sub)) for sub in subs]
        states = [{state: flat(b"".join(self.share(name, values, rank) for name in sub)) for state, values in self.states.items()}
                  for sub in subs]
        return {"zero_stage": stage_of(3, self.how.get("stage_how", "call")), "loss_scaler": scaler(), "dynamic_loss_scale": False,
                "overflow": False, "partition_count": self.world,
                "optimizer_state_dict": {"state": self.base(states), "param_groups": self.param_groups(len(self.groups))},
                "fp32_flat_groups": weights}

    def write(self, folder):
        front = "bf16_" if self.how.get("bf16", True) else ""
        for rank in range(self.world):
            state = self.optim_shares(rank) if self.stage == 3 else self.optim_lines(rank)
            whole = self.change("optim", rank, {"optimizer_state_dict": state, "ds_config": {}, "ds_version": "0.16.3"})
            torch.write(f"{folder}/{front}zero_pp_rank_{rank}_mp_rank_{self.mp:02d}_optim_states.pt", whole)
            if self.stage == 3:
                torch.write(f"{folder}/zero_pp_rank_{rank}_mp_rank_{self.mp:02d}_model_states.pt", self.change("model", rank, self.model_state(rank)))
        if self.stage != 3:
            torch.write(f"{folder}/mp_rank_{self.mp:02d}_model_states.pt", self.change("model", 0, self.model_state(0)))

    # ---- what must come out

    def expect_model(self):
        made = {name: ("F32", tuple(shape), self.weights[name]) for name, shape in self.params.items()}
        made.update(self.buffers)
        made.update(self.frozen)
        made.update(self.module_only)
        for alias, kept in self.shared.items():
            made[alias] = made[kept]
        return made

    def expect_all(self):
        made = {"model." + name: array for name, array in self.expect_model().items()}
        for state, values in self.states.items():
            for name, shape in self.params.items():
                made[f"optimizer.state.{name}.{state}"] = ("F32", tuple(shape), values[name])
        if self.how.get("step_tensor"):
            for name in self.params:
                made[f"optimizer.state.{name}.step"] = ("F32", (), struct.pack("<f", self.step))
        return made


def write_latest(folder, tag):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/latest", "w", encoding="utf-8") as file:
        file.write(tag + "\n")
