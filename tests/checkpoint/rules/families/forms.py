# SPDX-License-Identifier: Apache-2.0
"""Quantised forms and adapters: what takes the place of a weight [out, in] that is cut in a known way."""
from families.cuts import Cut, fits, whole


def follow(how, *dims):
    """The cut of a tensor that belongs to a weight: for each dimension, which one of the weight it goes with, and how many of
    that one share one of this."""
    for own, (dim, share) in enumerate(dims):
        if how.kind != "whole" and dim == how.dim:
            lengths = tuple((length / share, heads) for length, heads in how.lengths)
            made = Cut(how.kind, own, how.unit if share == 1 else 1, how.heads, lengths)
            made.even = share != 1
            return made
    return whole()


def fp8_block(name, out, inputs, how):
    yield f"{name}.weight", "F8_E4M3", (out, inputs), how
    yield f"{name}.weight_scale_inv", "F32", (-(-out // 128), -(-inputs // 128)), follow(how, (0, 128), (1, 128))


def fp8_channel(name, out, inputs, how):
    yield f"{name}.weight", "F8_E4M3", (out, inputs), how
    yield f"{name}.weight_scale", "F32", (out, 1), follow(how, (0, 1), (None, 1))


def fp8_tensor(name, out, inputs, how):
    yield f"{name}.weight", "F8_E4M3", (out, inputs), how
    yield f"{name}.weight_scale", "F32", (), whole()
    yield f"{name}.input_scale", "F32", (1,), whole()


def gptq(name, out, inputs, how):
    yield f"{name}.qweight", "I32", (inputs // 8, out), follow(how, (1, 8), (0, 1))
    yield f"{name}.qzeros", "I32", (inputs // 128, out // 8), follow(how, (1, 128), (0, 8))
    yield f"{name}.scales", "F16", (inputs // 128, out), follow(how, (1, 128), (0, 1))
    yield f"{name}.g_idx", "I32", (inputs,), follow(how, (1, 1))


def awq(name, out, inputs, how):
    yield f"{name}.qweight", "I32", (inputs, out // 8), follow(how, (1, 1), (0, 8))
    yield f"{name}.qzeros", "I32", (inputs // 128, out // 8), follow(how, (1, 128), (0, 8))
    yield f"{name}.scales", "F16", (inputs // 128, out), follow(how, (1, 128), (0, 1))


def compressed(name, out, inputs, how):
    yield f"{name}.weight_packed", "I32", (out, inputs // 8), follow(how, (0, 1), (1, 8))
    yield f"{name}.weight_scale", "BF16", (out, inputs // 128), follow(how, (0, 1), (1, 128))
    yield f"{name}.weight_zero_point", "I32", (out // 8, inputs // 128), follow(how, (0, 8), (1, 128))
    yield f"{name}.weight_shape", "I64", (2,), whole()


def nvfp4(name, out, inputs, how):
    yield f"{name}.weight_packed", "U8", (out, inputs // 2), follow(how, (0, 1), (1, 2))
    yield f"{name}.weight_scale", "F8_E4M3", (out, inputs // 16), follow(how, (0, 1), (1, 16))
    yield f"{name}.weight_global_scale", "F32", (1,), whole()
    yield f"{name}.input_global_scale", "F32", (1,), whole()


def adapter(name, out, inputs, how):
    yield f"{name}.lora_A.weight", "F32", (16, inputs), follow(how, (None, 1), (1, 1))
    yield f"{name}.lora_B.weight", "F32", (out, 16), follow(how, (0, 1), (None, 1))


FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
FORMS = [
    ("fp8 blocks", fp8_block, FP8),
    ("fp8 channels", fp8_channel, {"quantization_config": {"quant_method": "compressed-tensors"}}),
    ("fp8 tensors", fp8_tensor, {"quantization_config": {"quant_method": "fp8"}}),
    ("GPTQ", gptq, {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}),
    ("AWQ", awq, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}),
    ("compressed-tensors", compressed, {"quantization_config": {"quant_method": "compressed-tensors"}}),
    ("nvfp4", nvfp4, {"quantization_config": {"quant_method": "compressed-tensors"}}),
    ("LoRA", adapter, {}),
]


def form_fits(how, shape, tp, block=None):
    """The same question for a tensor of a quantised form: what is shared must divide evenly."""
    if getattr(how, "even", False):
        n = shape[how.dim]
        if how.kind == "parts":
            return all(length == int(length) and int(length) % (min(heads, tp) if heads else tp) == 0 for length, heads in how.lengths)
        if how.kind == "halves":
            return n % 2 == 0 and n // 2 % tp == 0
        pieces = min(how.heads, tp) if how.heads else tp
        return n % pieces == 0 and tp % pieces == 0
    return fits(how, shape, tp)


def block_fits(how, shape, tp):
    """A weight whose blocks of 128 x 128 share a scale: shares end where blocks do."""
    pieces = min(how.heads, tp) if how.heads else tp
    if how.kind == "halves" and how.experts:
        pieces *= 2
    elif how.kind not in ("cut", "kv"):
        return True
    return shape[how.dim] % pieces == 0 and shape[how.dim] // pieces % 128 == 0
