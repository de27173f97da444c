# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share. Each is run as `test_x.py BUILD_FOLDER`."""
import json
import os
import shutil
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "python")
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "dev")
SKIPPED = 77

sys.path.insert(0, PACKAGE)
os.environ["PYTHONPATH"] = PACKAGE
os.environ.setdefault("RESHARD_LIBRARY", os.path.realpath(os.path.join(BUILD, "libreshard.so")))


def need(*modules):
    """Ends the script as skipped if this Python lacks one of them."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            print(f"skipped: {sys.executable} has no {module}; scripts/install-deps python installs what is needed")
            sys.exit(SKIPPED)


SAFETENSORS = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16", "int32": "I32",
               "uint32": "U32", "float32": "F32", "float64": "F64", "int64": "I64", "uint64": "U64"}


def write_safetensors(path, tensors, dtypes=()):
    """From the format's definition. tensors: {name: array}; dtypes: {name: what the file calls it}, for bf16 and the like."""
    header, at = {}, 0
    for name, array in tensors.items():
        dtype = dict(dtypes).get(name) or SAFETENSORS[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(array.tobytes())


def read_safetensors(path):
    """{name: (dtype, array)}; what NumPy lacks as unsigned integers."""
    import numpy as np

    kinds = {text: name for name, text in SAFETENSORS.items()}
    kinds.update(BF16="uint16", F8_E4M3="uint8")
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            found[name] = (entry["dtype"], np.frombuffer(data[begin:end], kinds[entry["dtype"]]).reshape(entry["shape"]))
    return found


CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
          "head_dim": 8, "intermediate_size": 96, "vocab_size": 100}


def make_llama(folder):
    """A Llama of 2 layers in two files, with a vocabulary that has to be padded; the tensors, by name."""
    import numpy as np

    random = np.random.default_rng(7)
    shapes = {"model.embed_tokens.weight": (100, 64), "model.norm.weight": (64,), "lm_head.weight": (100, 64)}
    for layer in range(2):
        at = f"model.layers.{layer}."
        shapes.update({at + "self_attn.q_proj.weight": (64, 64), at + "self_attn.k_proj.weight": (16, 64),
                       at + "self_attn.v_proj.weight": (16, 64), at + "self_attn.o_proj.weight": (64, 64),
                       at + "mlp.gate_proj.weight": (96, 64), at + "mlp.up_proj.weight": (96, 64),
                       at + "mlp.down_proj.weight": (64, 96), at + "input_layernorm.weight": (64,),
                       at + "post_attention_layernorm.weight": (64,)})
    tensors = {name: random.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    os.makedirs(folder, exist_ok=True)
    names = sorted(tensors)
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for file, part in zip(files, (names[::2], names[1::2])):
        write_safetensors(os.path.join(folder, file), {name: tensors[name] for name in part})
    index = {name: files[i % 2] for i, name in enumerate(names)}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="ascii") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump(CONFIG, file)
    return tensors


def slice_llama(tensors, tp, rank):
    """Tensor parallel by hand, as Megatron and vLLM cut a Llama: heads, outputs, inputs; key and value heads are copied when
    there are more ranks than heads; the vocabulary is padded to a multiple of 64, then of the ranks."""
    import numpy as np

    found = {}
    for name, array in tensors.items():
        if "q_proj" in name or "gate_proj" in name or "up_proj" in name:
            found[name] = np.split(array, tp)[rank]
        elif "k_proj" in name or "v_proj" in name:
            found[name] = np.split(array, 2)[rank * 2 // tp] if tp > 2 else np.split(array, tp)[rank]
        elif "o_proj" in name or "down_proj" in name:
            found[name] = np.split(array, tp, axis=1)[rank]
        elif "norm" in name:
            found[name] = array
        else:
            padded = np.zeros((128, 64), "f4")
            padded[:100] = array
            found[name] = np.split(padded, tp)[rank]
    return found


class ModelCase(unittest.TestCase):
    """Tests of one class share a small Llama, in a folder that goes with them."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="reshard-python-")
        cls.model = os.path.join(cls.folder, "model")
        cls.tensors = make_llama(cls.model)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def place(self, name):
        """A path in the folder; a folder that is made there goes after the test."""
        path = os.path.join(self.folder, name)
        self.addCleanup(lambda: shutil.rmtree(path, ignore_errors=True))
        return path


class Result(unittest.TextTestResult):
    """Names tests that take longer than a second."""

    def startTest(self, test):
        self.begun = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        seconds = time.monotonic() - self.begun
        if seconds > 1:
            print(f"{seconds:5.1f} s {test.id()}", flush=True)
        super().stopTest(test)


def main():
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[2:]], testRunner=unittest.TextTestRunner(resultclass=Result))
