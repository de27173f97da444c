# SPDX-License-Identifier: Apache-2.0
"""Makes the files of files/ with the PyTorch of this machine (Debian's 1.13 made those in the tree):

  /usr/bin/python3 tests/oracle/pytorch/make_files.py
"""
import json
import os

import torch

import values

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files")


def main():
    value = values.make(1)
    torch.save(value, f"{FOLDER}/zip.pt")
    torch.save(value, f"{FOLDER}/legacy.pt", _use_new_zipfile_serialization=False)
    for protocol in (1, 3, 4, 5):
        torch.save(value, f"{FOLDER}/legacy{protocol}.pt", _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    torch.save({"whole": torch.arange(6.0).reshape(2, 3), "sparse": torch.eye(3).to_sparse(),
                "quantised": torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, torch.qint8)}, f"{FOLDER}/unreadable.pt")
    expected = {name: values.plain(tensor) for name, tensor in values.flatten(value).items()}
    with open(f"{FOLDER}/expected.json", "w", encoding="utf-8") as file:
        json.dump({name: [dtype, shape, data.hex()] for name, (dtype, shape, data) in expected.items()}, file, indent=0, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
