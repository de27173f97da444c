# SPDX-License-Identifier: Apache-2.0
"""A ZeRO-3 checkpoint of many ranks: the pickles are whole, but the data of storages are holes, so that gigabytes take no room.

    zero_many.py FOLDER RANKS PARAMETERS
"""
import os
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import torch_files as torch
import zero_files

COLUMNS = 64
GROUP = 250  # parameters of a sub-group


class Hole(torch.Storage):
    """A storage of zeros, of which only the size is kept."""
    def __init__(self, count):
        super().__init__("F32", b"")
        self.count = count


def flat(count):
    return torch.View(Hole(count), 0, (count,), (1,))


class Pickler(torch.Pickler):
    def save_storage(self, storage):
        if storage not in self.storages:
            self.storages.append(storage)
        key = str(self.storages.index(storage))
        self.save(torch.Persistent(("storage", torch.Global("torch", storage.kind), key, "cpu", storage.count)))


def shapes_of(ranks, parameters):
    """Every other parameter is cut between rows of all ranks, one in eight within rows, the rest are vectors."""
    made = {}
    for i in range(parameters):
        shape = (ranks * 2, COLUMNS) if i % 2 == 0 else (ranks * 3 // 2 + 1, COLUMNS + 1) if i % 8 == 1 else (ranks * 4,)
        made[f"model.layers.{i}.weight"] = shape
    return made


def write_zip(path, pickled, holes):
    """A stored archive, as torch.save writes it; members of holes are skipped over."""
    directory, entries = b"", []
    with open(path, "wb") as file:
        for name, data, size in [("archive/data.pkl", pickled, len(pickled)), ("archive/byteorder", b"little", 6),
                                 *((f"archive/data/{i}", None, 4 * count) for i, count in enumerate(holes)), ("archive/version", b"3\n", 2)]:
            at, crc, raw = file.tell(), 0 if data is None else zlib.crc32(data), name.encode()
            pad = -(at + 30 + len(raw) + 4) % 64
            file.write(struct.pack("<IHHHHHIIIHH", 0x04034b50, 0, 0, 0, 0, 0, crc, size, size, len(raw), pad + 4) + raw
                       + b"FB" + struct.pack("<H", pad) + bytes(pad))
            if data is None:
                file.seek(size, 1)
            else:
                file.write(data)
            entries.append(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 0, 0, 0, 0, 0, 0, crc, size, size, len(raw), 0, 0, 0, 0, 0, at) + raw)
        begin = file.tell()
        directory = b"".join(entries)
        file.write(directory + struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, len(entries), len(entries), len(directory), begin, 0))


def write(folder, ranks, parameters):
    os.makedirs(folder, exist_ok=True)
    shapes = shapes_of(ranks, parameters)
    names = list(shapes)
    subs = [names[i:i + GROUP] for i in range(0, len(names), GROUP)]
    counts = [sum(-(-zero_files.volume(shapes[name]) // ranks) for name in sub) for sub in subs]
    def make():
        state = {"zero_stage": zero_files.stage_of(3), "loss_scaler": zero_files.scaler(), "partition_count": ranks,
                 "optimizer_state_dict": {"state": {i: {"step": 7, "exp_avg": flat(count), "exp_avg_sq": flat(count)} for i, count in enumerate(counts)},
                                          "param_groups": [{"lr": 0.001, "params": list(range(len(subs)))}]},
                 "fp32_flat_groups": [flat(count) for count in counts]}
        pickler = Pickler()
        return pickler.dump({"optimizer_state_dict": state, "ds_version": "0.16.3"}), [hole.count for hole in pickler.storages]
    data, holes = make()
    for rank in range(ranks):
        write_zip(f"{folder}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", data, holes)
    model = {"module": torch.ordered({name: torch.tensor(("BF16", (0,), b"")) for name in names}), "buffer_names": [], "optimizer": None,
             "param_shapes": [torch.ordered({name: torch.size(shapes[name]) for name in sub}) for sub in subs], "frozen_param_shapes": None,
             "frozen_param_fragments": None, "shared_params": {}, "global_steps": 7, "ds_version": "0.16.3"}
    torch.write(f"{folder}/zero_pp_rank_0_mp_rank_00_model_states.pt", model)
    for rank in range(1, ranks):
        os.link(f"{folder}/zero_pp_rank_0_mp_rank_00_model_states.pt", f"{folder}/zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
    return shapes


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
