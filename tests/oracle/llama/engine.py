# SPDX-License-Identifier: Apache-2.0
"""The real engine, through its C interface: libggml's conversions of rows, and libllama's logits."""
import ctypes
import glob
import os

import numpy

FOLDER = None
_base = None


def base():
    global _base
    if _base is None:
        _base = ctypes.CDLL(os.path.join(FOLDER, "libggml-base.so"))
        _base.ggml_quantize_chunk.restype = ctypes.c_size_t
        _base.ggml_blck_size.restype = ctypes.c_int64
        _base.ggml_type_size.restype = ctypes.c_size_t
    return _base


def dequantise(type_name, data, count):
    """What ggml makes of blocks: `count` values of f32."""
    out = numpy.empty(count, "<f4")
    function = getattr(base(), "dequantize_row_" + type_name.lower().replace("_k", "_K"))
    function(ctypes.c_char_p(data), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(count))
    return out


def quantise(number, size, values):
    """ggml's blocks of a matrix of f32; number, size: the type's, and bytes of a row."""
    values = numpy.ascontiguousarray(values, "<f4")
    rows, columns = values.shape
    out = ctypes.create_string_buffer(rows * size)
    # Some types need to know how much each column matters.
    weights = numpy.ones(columns, "<f4")
    done = base().ggml_quantize_chunk(ctypes.c_int(number), values.ctypes.data_as(ctypes.c_void_p), out, ctypes.c_int64(0),
                                      ctypes.c_int64(rows), ctypes.c_int64(columns), weights.ctypes.data_as(ctypes.c_void_p))
    assert done == rows * size, (number, done, rows * size)
    return out.raw


# ---- logits ----------------------------------------------------------------------------------------------------------

# The engine's structs are passed by value. Their members change from version to version, so that only their first bytes are
# known here: a struct that is larger than the engine's own is passed on the stack like it, and the rest is ignored.
class Parameters(ctypes.Structure):
    _fields_ = [("numbers", ctypes.c_int32 * 128)]


class Batch(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int32), ("pointers", ctypes.c_void_p * 6)]


_llama = None


def llama():
    global _llama
    if _llama is not None:
        return _llama
    base_library = ctypes.CDLL(os.path.join(FOLDER, "libggml-base.so"), ctypes.RTLD_GLOBAL)
    ggml = ctypes.CDLL(glob.glob(os.path.join(FOLDER, "libggml.*so"))[0], ctypes.RTLD_GLOBAL)
    _llama = ctypes.CDLL(glob.glob(os.path.join(FOLDER, "libllama.*so"))[0], ctypes.RTLD_GLOBAL)
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    _llama.keep = quiet(lambda level, text, user: MESSAGES.append(text.decode("utf-8", "replace")))
    _llama.llama_log_set(_llama.keep, None)
    ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
    ggml.ggml_backend_load_all_from_path(FOLDER.encode())
    for name, result, arguments in (("llama_model_default_params", Parameters, []), ("llama_context_default_params", Parameters, []),
                                    ("llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, Parameters]),
                                    ("llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Parameters]),
                                    ("llama_batch_get_one", Batch, [ctypes.c_void_p, ctypes.c_int32]),
                                    ("llama_decode", ctypes.c_int32, [ctypes.c_void_p, Batch]),
                                    ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
                                    ("llama_free", None, [ctypes.c_void_p]), ("llama_model_free", None, [ctypes.c_void_p])):
        function = getattr(_llama, name)
        function.restype, function.argtypes = result, arguments
    del base_library
    return _llama


MESSAGES = []


def exact_cache(parameters):
    """Keys and values are kept as f32 instead of f16, and attention is computed step by step. Both are found by their defaults: of four
    times -1 in a row, the last one is the kind of attention; two ones in a row behind them are the types."""
    numbers = list(parameters.numbers)
    kinds = next(i for i in range(60) if numbers[i:i + 4] == [-1] * 4)
    types = next(i for i in range(kinds + 4, 80) if numbers[i:i + 2] == [1, 1])
    parameters.numbers[kinds + 3] = parameters.numbers[types] = parameters.numbers[types + 1] = 0
    return parameters


def logits(path, tokens, vocabulary):
    """What the engine computes for the last of the tokens."""
    library = llama()
    model = library.llama_model_load_from_file(path.encode(), library.llama_model_default_params())
    assert model, "".join(MESSAGES[-12:])
    context = library.llama_init_from_model(model, exact_cache(library.llama_context_default_params()))
    assert context, "".join(MESSAGES[-12:])
    array = (ctypes.c_int32 * len(tokens))(*tokens)
    status = library.llama_decode(context, library.llama_batch_get_one(array, len(tokens)))
    assert status == 0, "".join(MESSAGES[-12:])
    out = numpy.ctypeslib.as_array(library.llama_get_logits_ith(context, -1), (vocabulary,)).copy()
    library.llama_free(context)
    library.llama_model_free(model)
    return out
