# SPDX-License-Identifier: Apache-2.0
"""Codes times scales, against the formulas of the reference kernels worked out here, value by value."""
import json
import os
import random
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support
import torch_files
from convert_case import CONFIG, SEED, ConvertTest, tensor


def e4m3(code):
    sign, exponent, fraction = -1.0 if code & 0x80 else 1.0, code >> 3 & 15, code & 7
    if code & 0x7f == 0x7f:
        return float("nan")
    return sign * (fraction * 2.0**-9 if exponent == 0 else (8 + fraction) * 2.0**(exponent - 10))


def e5m2(code):
    sign, exponent, fraction = -1.0 if code & 0x80 else 1.0, code >> 2 & 31, code & 3
    if exponent == 31:
        return float("nan") if fraction else sign * float("inf")
    return sign * (fraction * 2.0**-16 if exponent == 0 else (4 + fraction) * 2.0**(exponent - 17))


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def single(value):
    """The bits of the nearest f32; the product of a code and a scale is exact in a double."""
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0xff800000 if value < 0 else 0x7f800000


def narrow(value, dtype):
    """A double to f32, and that to the dtype, as bytes."""
    bits = single(value)
    if dtype == "F32":
        return struct.pack("<I", bits)
    if dtype == "F16":
        try:
            return struct.pack("<e", struct.unpack("<f", struct.pack("<I", bits))[0])
        except OverflowError:
            return b"\0\xfc" if bits >> 31 else b"\0\x7c"
    if bits & 0x7fffffff > 0x7f800000:
        return struct.pack("<H", bits >> 16 | 0x40)
    return struct.pack("<H", bits + 0x7fff + (bits >> 16 & 1) >> 16)


INFINITE = {"F32": (b"\0\0\x80\x7f", b"\0\0\x80\xff"), "BF16": (b"\x80\x7f", b"\x80\xff"), "F16": (b"\0\x7c", b"\0\xfc")}


def is_nan(data, dtype):
    """Beyond infinity, whatever its sign."""
    return int.from_bytes(data, "little") & ~(1 << 8 * len(data) - 1) > int.from_bytes(INFINITE[dtype][0], "little")


def scaled(codes, shape, scale_of, decode, dtype):
    """scale_of(row, column) of a matrix."""
    rows, columns = shape
    known = {}

    def value(code, scale):
        if (code, scale) not in known:
            known[code, scale] = narrow(decode(code) * scale, dtype)
        return known[code, scale]

    return b"".join(value(codes[r * columns + c], scale_of(r, c)) for r in range(rows) for c in range(columns))


def draw_codes(rnd, count):
    """Of values that are finite in both types."""
    return bytes(code if code & 0x7f < 0x7c else code & 0x80 | 0x7b for code in rnd.randbytes(count))


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def config_of(**quantisation):
    return {**CONFIG, "torch_dtype": "float32", "quantization_config": {"quant_method": "fp8", **quantisation}}


def mxfp4(rnd, experts, rows, groups):
    """Blocks and scales as bytes, and what they mean: [expert][32 group + i][row]."""
    blocks = rnd.randbytes(experts * rows * groups * 16)
    scales = bytes(rnd.randrange(90, 160) for _ in range(experts * rows * groups))

    def value(e, h, r):
        group = (e * rows + r) * groups + h // 32
        byte = blocks[group * 16 + h % 32 // 2]
        return E2M1[byte >> 4 if h % 2 else byte & 15] * 2.0**(scales[group] - 127)

    return blocks, scales, lambda dtype: b"".join(narrow(value(e, h, r), dtype) for e in range(experts) for h in range(32 * groups)
                                                  for r in range(rows))


class Dequantize(ConvertTest):
    def setUp(self):
        super().setUp()
        self.rnd = random.Random(SEED)

    def scales(self, count):
        return [self.rnd.uniform(1e-4, 2) for _ in range(count)]

    def add_blocks(self, model, name, rows, columns, block=128, dtype="F8_E4M3", ending="_scale_inv"):
        """fp8 with scales of blocks; gives what it means in a dtype."""
        codes = draw_codes(self.rnd, rows * columns)
        shape = (-(-rows // block), -(-columns // block))
        values = [struct.unpack("<f", struct.pack("<f", x))[0] for x in self.scales(shape[0] * shape[1])]
        model[name] = (dtype, (rows, columns), codes)
        model[name + ending] = ("F32", shape, floats(values))
        decode = e4m3 if dtype == "F8_E4M3" else e5m2
        return lambda to: (to, (rows, columns), scaled(codes, (rows, columns), lambda r, c: values[r // block * shape[1] + c // block],
                                                       decode, to))

    def test_block_scales(self):
        """Edges that are no multiples of a block; every dtype."""
        model = {"a.bias": ("F32", (2,), floats([1, 2])), "a.input_scale": ("F32", (1,), floats([1]))}
        wanted = {name: self.add_blocks(model, name, *shape) for name, shape in
                  [("a.weight", (200, 300)), ("b.weight", (128, 128)), ("c.weight", (1, 129)), ("d.weight", (7, 5)), ("e.weight", (257, 1))]}
        self.write_hf("source", model, config_of(weight_block_size=[128, 128]))
        for to, dtype in [("bf16", "BF16"), ("torch.float16", "F16"), ("f32", "F32")]:
            report = self.convert("source", dtype, "--dequantize", to, "--verify")
            expected = {name: made(dtype) for name, made in wanted.items()}
            self.assertTrue(files.read_hf(self.at(dtype)) == {**expected, "a.bias": model["a.bias"]})
            self.assertIn("dequantised: 5 tensors; 6 of scales and the like are left out", report["notes"])
            with open(self.at(f"{dtype}/config.json"), encoding="utf-8") as file:
                config = json.load(file)
            self.assertEqual(config, {**CONFIG, "torch_dtype": {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[dtype]})
        # Blocks of another size, as config.json says.
        model = {}
        made = self.add_blocks(model, "a.weight", 33, 70, 16)
        self.write_hf("small", model, config_of(weight_block_size=[16, 16]))
        self.convert("small", "small-out", "--dequantize", "bf16")
        self.assertEqual(files.read_hf(self.at("small-out")), {"a.weight": made("BF16")})

    def test_channel_and_tensor_scales(self):
        codes = draw_codes(self.rnd, 20 * 30)
        rows = [struct.unpack("<f", struct.pack("<f", x))[0] for x in self.scales(20)]
        half = [struct.unpack("<H", narrow(x, "BF16"))[0] for x in rows]
        exact = [struct.unpack("<f", struct.pack("<I", x << 16))[0] for x in half]
        powers = bytes(self.rnd.randrange(100, 140) for _ in range(20))
        model = {"rows.weight": ("F8_E4M3", (20, 30), codes), "rows.weight_scale": ("F32", (20, 1), floats(rows)),
                 "flat.weight": ("F8_E4M3", (20, 30), codes), "flat.weight_scale": ("F32", (20,), floats(rows)),
                 "half.weight": ("F8_E5M2", (20, 30), codes), "half.weight_scale": ("BF16", (20, 1), struct.pack("<20H", *half)),
                 "e8m0.weight": ("F8_E4M3", (20, 30), codes), "e8m0.weight_scale_inv": ("F8_E8M0", (20, 1), powers),
                 "one.weight": ("F8_E4M3", (20, 30), codes), "one.weight_scale": ("F32", (), floats(rows[:1])),
                 "one1.weight": ("F8_E4M3", (20, 30), codes), "one1.weight_scale": ("F32", (1,), floats(rows[:1])),
                 "experts.up": ("F8_E4M3", (2, 10, 30), codes), "experts.up_scale": ("F32", (2, 10, 1), floats(rows)),
                 "attn.k_scale": ("F32", (), floats([1]))}
        self.write_hf("source", model, config_of())
        report = self.convert("source", "out", "--dequantize", "bfloat16", "--verify")

        def by(scale_of, decode=e4m3, shape=(20, 30)):
            return ("BF16", shape, scaled(codes, (20, 30), scale_of, decode, "BF16"))

        self.assertEqual(files.read_hf(self.at("out")), {
            "rows.weight": by(lambda r, c: rows[r]), "flat.weight": by(lambda r, c: rows[r]), "half.weight": by(lambda r, c: exact[r], e5m2),
            "e8m0.weight": by(lambda r, c: 2.0**(powers[r] - 127)), "one.weight": by(lambda r, c: rows[0]),
            "one1.weight": by(lambda r, c: rows[0]), "experts.up": by(lambda r, c: rows[r], shape=(2, 10, 30))})
        self.assertIn("dequantised: 7 tensors; 8 of scales and the like are left out", report["notes"])

    def test_codes_that_are_tied(self):
        """Two tensors may share their codes and have other scales: they are no longer tied then."""
        codes = torch_files.tensor(("F8_E4M3", (4, 8), draw_codes(self.rnd, 32)))
        scales = {name: torch_files.tensor(("F32", (1,), floats([scale]))) for name, scale in (("a", 0.5), ("b", 3.0))}
        value = {name: part for name in "ab" for name, part in ((f"{name}.weight", codes), (f"{name}.weight_scale", scales[name]))}
        torch_files.write(self.at("tied.pt"), value)
        self.convert("tied.pt", "pt", "--format", "torch", "--dequantize", "f32")
        self.convert("tied.pt", "hf", "--dequantize", "f32")
        wanted = {name: ("F32", (4, 8), scaled(codes.storage.data, (4, 8), lambda r, c: scale, e4m3, "F32"))
                  for name, scale in (("a.weight", 0.5), ("b.weight", 3.0))}
        self.assertEqual(files.read_hf(self.at("hf")), wanted)
        self.assertEqual({name: found.whole() for name, found in torch_files.load(self.at("pt/model.pt")).items()}, wanted)

    def test_overflow_is_counted(self):
        """A code of 448 times 1000 is beyond f16, and NaN codes are no overflow."""
        self.write_hf("source", {"a.weight": ("F8_E4M3", (1, 4), b"\x7e\xfe\x38\x7f"), "a.weight_scale": ("F32", (1,), floats([1000]))}, config_of())
        self.assertEqual(self.convert("source", "f16", "--dequantize", "f16")["values_overflowed"], 2)
        self.assertEqual(self.convert("source", "bf16", "--dequantize", "bf16")["values_overflowed"], 0)
        _, _, values = files.read_hf(self.at("f16"))["a.weight"]
        self.assertEqual(values[:6], b"\0\x7c\0\xfc" + struct.pack("<e", 1000))
        self.assertEqual(str(struct.unpack("<e", values[6:])[0]), "nan")

    def gpt_oss(self, experts=2, hidden=96, intermediate=64):
        config = {"model_type": "gpt_oss", "num_local_experts": experts, "hidden_size": hidden, "intermediate_size": intermediate,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 1, "vocab_size": 64,
                  "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["x"]}}
        model = {"model.embed_tokens.weight": tensor(self.rnd, "BF16", 64, hidden), "lm_head.weight": tensor(self.rnd, "BF16", 64, hidden)}
        layer, wanted = "model.layers.0.mlp.experts.", {}
        for name, rows, inner in [("gate_up_proj", 2 * intermediate, hidden), ("down_proj", hidden, intermediate)]:
            blocks, scales, made = mxfp4(self.rnd, experts, rows, inner // 32)
            model[layer + name + "_blocks"] = ("U8", (experts, rows, inner // 32, 16), blocks)
            model[layer + name + "_scales"] = ("U8", (experts, rows, inner // 32), scales)
            model[layer + name + "_bias"] = tensor(self.rnd, "BF16", experts, rows)
            wanted[layer + name] = lambda dtype, made=made, inner=inner, rows=rows: (dtype, (experts, inner, rows), made(dtype))
        plain = {name: value for name, value in model.items() if value[0] == "BF16"}
        self.write_hf("source", model, config)
        return plain, wanted

    def test_mxfp4(self):
        plain, wanted = self.gpt_oss()
        for to, dtype in [("bf16", "BF16"), ("f16", "F16"), ("f32", "F32")]:
            self.convert("source", dtype, "--dequantize", to, "--verify", "--threads", "1", "--max-memory", "1M")
            self.assertEqual(files.read_hf(self.at(dtype)), {**plain, **{name: made(dtype) for name, made in wanted.items()}})
        with open(self.at("BF16/config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual((config["torch_dtype"], "quantization_config" in config), ("bfloat16", False))

    def test_every_scale_and_code_of_mxfp4(self):
        """2^(scale - 127) times the code, also where only numbers below the normal ones are left, and where the dtype ends. Scale 255 is NaN by the
        standard; what GPT-OSS itself computes, with 2^128 in f32, is infinite, and so it is here."""
        def value(scale, code):
            if scale == 255:
                return E2M1[code] * float("inf")
            return E2M1[code] * 2.0**(scale - 127)

        blocks = bytes(j | 15 - j << 4 for _ in range(256) for j in range(16))
        self.write_hf("source", {"a_blocks": ("U8", (1, 256, 1, 16), blocks), "a_scales": ("U8", (1, 256, 1), bytes(range(256)))})
        order = [code for j in range(16) for code in (j, 15 - j)]
        for dtype in ("BF16", "F16", "F32"):
            report = self.convert("source", dtype, "--dequantize", dtype.lower(), "--verify")
            _, shape, found = files.read_hf(self.at(dtype))["a"]
            self.assertEqual(shape, (1, 32, 256))
            width = len(found) // (32 * 256)
            lost = 0
            for i, code in enumerate(order):
                for scale in range(256):
                    bits = found[(i * 256 + scale) * width:(i * 256 + scale + 1) * width]
                    wanted = value(scale, code)
                    if wanted != wanted:
                        self.assertTrue(is_nan(bits, dtype), (scale, code, bits))
                    else:
                        self.assertEqual(bits, narrow(wanted, dtype), (dtype, scale, code))
                    lost += is_nan(bits, dtype) or bits in INFINITE[dtype]
            # Codes are finite, so all of these are told.
            self.assertEqual(report["values_overflowed"], lost, dtype)

    def test_ends_of_e8m0(self):
        """As scales of fp8: 2^-127 and 2^127 are exact in bf16, 255 is NaN."""
        codes = bytes([0x00, 0x38, 0xb8, 0x3c, 0x40, 0x7e, 0x01])  # 0, 1, -1, 1.5, 2, 448 and 2^-9
        scales = [0, 1, 127, 253, 254, 255]
        self.write_hf("source", {"a.weight": ("F8_E4M3", (6, 7), codes * 6), "a.weight_scale_inv": ("F8_E8M0", (6, 1), bytes(scales))}, config_of())
        for dtype in ("BF16", "F32"):
            report = self.convert("source", dtype, "--dequantize", dtype.lower(), "--verify")
            self.assertEqual(report["values_overflowed"], 10)  # 448 at 2^126; 2 and 448 at 2^127; all at 255
            _, _, found = files.read_hf(self.at(dtype))["a.weight"]
            width = len(found) // 42
            bits = [found[i:i + width] for i in range(0, len(found), width)]
            self.assertEqual(b"".join(bits[:35]), b"".join(narrow(e4m3(code) * 2.0**(scale - 127), dtype) for scale in scales[:5] for code in codes))
            self.assertTrue(all(is_nan(part, dtype) for part in bits[35:]), bits[35:])

    def test_cut_before_or_after(self):
        """The same bytes, whether a model is dequantised while it is cut, before, or after."""
        self.gpt_oss()
        model = {}
        for name, shape in [("self_attn.q_proj", (512, 300)), ("self_attn.o_proj", (300, 512)), ("mlp.up_proj", (512, 300))]:
            self.add_blocks(model, f"model.layers.0.{name}.weight", *shape)
        model["model.norm.weight"] = tensor(self.rnd, "BF16", 300)
        config = {**config_of(weight_block_size=[128, 128]), "head_dim": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
                  "hidden_size": 300, "intermediate_size": 512, "num_hidden_layers": 1}
        self.write_hf("fp8", model, config)
        for source, meshes in [("fp8", ["tp=2", "tp=4", "fsdp=3"]), ("source", ["tp=2", "ep=2", "ep=2,tp=2"])]:
            self.convert(source, source + "-whole", "--dequantize", "bf16")
            for mesh in meshes:
                name = f"{source}-{mesh}"
                ranks = ["--to", mesh, "--format", "rank-files"] + (["--rules", "fsdp"] if "fsdp" in mesh else [])
                self.convert(source, name + "-at-once", *ranks, "--dequantize", "bf16", "--verify")
                self.convert(source + "-whole", name + "-after", *ranks)
                self.assertEqual(sorted(os.listdir(self.at(name + "-at-once"))), sorted(os.listdir(self.at(name + "-after"))))
                for file in sorted(os.listdir(self.at(name + "-after"))):
                    if file.endswith(".safetensors"):
                        found = [files.read(self.at(f"{name}-{when}/{file}"))[0] for when in ("at-once", "after")]
                        self.assertTrue(found[0] == found[1] and found[0] != {}, file)
                self.convert(source, name + "-codes", *ranks)
                self.convert(name + "-codes", name + "-back", "--dequantize", "bf16")
                self.check_same(name + "-back", source + "-whole")

    def test_values_are_cut_where_blocks_would_not_be(self):
        """A head is half a block, and 4 ranks share 3 blocks of inner units: codes cannot be cut so, what they mean can."""
        model = {}
        shapes = {"self_attn.q_proj": (256, 256), "self_attn.o_proj": (256, 256), "mlp.up_proj": (384, 256), "mlp.down_proj": (256, 384)}
        made = {f"model.layers.0.{name}.weight": self.add_blocks(model, f"model.layers.0.{name}.weight", *shape) for name, shape in shapes.items()}
        config = {**config_of(weight_block_size=[128, 128]), "head_dim": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
                  "hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 1}
        self.write_hf("source", model, config)
        self.fails("source", "x", "--to", "tp=4", "--format", "rank-files", words="divide")
        self.convert("source", "ranks", "--to", "tp=4", "--format", "rank-files", "--dequantize", "bf16", "--verify")
        self.convert("ranks", "back")
        self.assertEqual(files.read_hf(self.at("back")), {name: value("BF16") for name, value in made.items()})

    def test_small_memory_and_threads(self):
        """Many blocks, and rows that are longer than what is made at a time."""
        model = {}
        wanted = [("a.weight", self.add_blocks(model, "a.weight", 520, 600, 100)), ("b.weight", self.add_blocks(model, "b.weight", 2, 80001, 100))]
        self.write_hf("source", model, config_of(weight_block_size=[100, 100]))
        for number, options in enumerate([["--threads", "1", "--max-memory", "1M"], ["--threads", "3", "--max-memory", "64M"]]):
            self.convert("source", f"out{number}", "--dequantize", "bf16", *options)
            self.assertTrue(files.read_hf(self.at(f"out{number}")) == {name: made("BF16") for name, made in wanted})

    def test_config_keeps_the_rest(self):
        self.write_hf("source", {"a.weight": ("F8_E4M3", (1,), b"\x38"), "a.weight_scale": ("F32", (1,), floats([1]))})
        for number, (before, after) in enumerate([
                ('{"quantization_config": {"a": [1, {"b": 2}]}, "x": 1.50}', '{"x": 1.50,\n  "torch_dtype": "bfloat16"}'),
                ('{"x": NaN, "quantization_config": {"a": 1}, "y": 2 }', '{"x": NaN, "y": 2,\n  "torch_dtype": "bfloat16" }'),
                ('{\n "torch_dtype": "float32",\n "quantization_config": {}\n}\n', '{\n "torch_dtype": "bfloat16"\n}\n'),
                ('{ "quantization_config": {} }', '{ \n  "torch_dtype": "bfloat16"}'),
                ('{"text_config": {"dtype": "f"}, "x": 1}', '{"text_config": {"dtype": "bfloat16"}, "x": 1,\n  "torch_dtype": "bfloat16"}'),
                ('{"dtype": "auto", "text_config": {"quantization_config": {}, "dtype": "f", "z": 1}}',
                 '{"dtype": "bfloat16", "text_config": {"dtype": "bfloat16", "z": 1}}')]):
            self.write_text("source/config.json", before)
            self.convert("source", f"out{number}", "--dequantize", "bf16")
            with open(self.at(f"out{number}/config.json"), encoding="utf-8") as file:
                self.assertEqual(file.read(), after)
        self.write_text("source/hf_quant_config.json", "{}")
        report = self.convert("source", "no-quant", "--dequantize", "bf16")
        self.assertIn("left out: hf_quant_config.json, which says how weights are quantised", report["notes"])
        self.assertNotIn("hf_quant_config.json", os.listdir(self.at("no-quant")))

    def test_scales_that_patterns_leave_behind(self):
        """Codes mean nothing without them: taking one without the other is warned of, unless values are made of both."""
        rnd = random.Random(SEED)
        model = {"a.norm.weight": tensor(rnd, "F32", 8)}
        for name in ("a.k_proj", "a.q_proj"):
            model[name + ".weight"] = ("F8_E4M3", (8, 8), draw_codes(rnd, 64))
            model[name + ".weight_scale"] = ("F32", (), floats([0.5]))
        model["b.proj.weight"] = ("U8", (32, 1), rnd.randbytes(32))
        model["b.proj.weight.absmax"] = tensor(rnd, "F32", 1)
        model["b.proj.weight.quant_state.bitsandbytes__nf4"] = tensor(rnd, "U8", 8)
        blocks, scales, _ = mxfp4(rnd, 2, 4, 1)
        for name in ("down_proj", "gate_up_proj"):
            model |= {f"c.experts.{name}_blocks": ("U8", (2, 4, 1, 16), blocks), f"c.experts.{name}_scales": ("U8", (2, 4, 1), scales)}
        self.write_hf("source", model)
        self.write_hf("fp8", {name: array for name, array in model.items() if name.startswith("a.")})
        cases = [(["--include", "a.*.weight"], "a.k_proj.weight_scale", 2), (["--exclude", "a.q*_scale"], "a.q_proj.weight_scale", 1),
                 (["--include", "b.proj.weight"], "b.proj.weight.absmax", 1), (["--exclude", "*gate_up*_scales"], "c.experts.gate_up_proj_scales", 1),
                 (["--include", "*down_proj*"], None, 0), (["--include", "a.*"], None, 0), (["--exclude", "*.weight", "--exclude", "*_blocks"], None, 0),
                 (["--include", "a.*.weight", "--dequantize", "bf16"], None, 0)]
        for number, (options, first, count) in enumerate(cases):
            source = "fp8" if "--dequantize" in options else "source"
            done = support.run("convert", self.at(source), self.at(f"out{number}"), "--quiet", *options)
            self.assertEqual(done.returncode, 0, done.stderr)
            if first is not None:
                self.assertIn(f'warning: "{first}"{" and others stay" if count > 1 else " stays"} behind by the patterns', done.stderr)
            else:
                self.assertNotIn("warning", done.stderr)

    def test_refusals(self):
        one = ("F32", (1,), floats([1]))
        rows = [
            ({"g.qweight": tensor(self.rnd, "I32", 4, 4), "g.qzeros": tensor(self.rnd, "I32", 1, 1), "g.scales": tensor(self.rnd, "F16", 1, 4)},
             {"quantization_config": {"quant_method": "gptq"}}, 'tensor "g.qweight" (i32) is quantised by gptq'),
            ({"g.qweight": tensor(self.rnd, "I32", 4, 4), "g.scales": tensor(self.rnd, "F16", 1, 4)}, {}, "is quantised by gptq or awq"),
            ({"b.weight": tensor(self.rnd, "U8", 8, 1), "b.weight.absmax": one}, {}, "is quantised by bitsandbytes"),
            ({"b.weight": tensor(self.rnd, "I8", 8, 1), "b.SCB": one}, {}, "is quantised by bitsandbytes"),
            ({"n.weight": tensor(self.rnd, "U8", 8, 8), "n.weight_scale": tensor(self.rnd, "F8_E4M3", 8, 1), "n.weight_scale_2": one}, {}, "by nvfp4"),
            ({"n.weight_packed": tensor(self.rnd, "U8", 8, 8), "n.weight_scale": tensor(self.rnd, "F8_E4M3", 8, 1),
              "n.weight_global_scale": one}, {"quantization_config": {"quant_method": "compressed-tensors"}}, "by nvfp4"),
            ({"a": one}, {}, "no tensor is quantised"),
            ({"a.weight": tensor(self.rnd, "F8_E4M3", 4, 4)}, {"quantization_config": {"quant_method": "fp8"}}, "there are no scales"),
            ({"a.weight": tensor(self.rnd, "F8_E4M3", 300, 10), "a.weight_scale_inv": ("F32", (3, 1), floats([1, 2, 3]))}, {},
             'tensor "a.weight" [300, 10] cannot be dequantised by scales "a.weight_scale_inv" [3, 1] of f32: how many of the 300 elements '
             "of dimension 0 share one of 3 scales is not clear"),
            # 128 would fit, and so would 87 to 129: no config.json says which.
            ({"a.weight": tensor(self.rnd, "F8_E4M3", 260, 256), "a.weight_scale_inv": tensor(self.rnd, "F32", 3, 2)}, {}, "of the 260 elements of dimension 0 share one of 3 scales"),
            # config.json contradicts the scales.
            ({"a.weight": tensor(self.rnd, "F8_E4M3", 256, 256), "a.weight_scale_inv": tensor(self.rnd, "F32", 4, 4)}, config_of(weight_block_size=[128, 128]),
             "by config.json, 128 elements of dimension 0 share a scale, so there are 2 scales for its 256, not 4"),
            ({"a.weight": tensor(self.rnd, "F8_E4M3", 256, 256), "a.weight_scale_inv": tensor(self.rnd, "F32", 2, 1)}, config_of(weight_block_size=[128, 128]),
             "dimension 1 share a scale, so there are 2 scales for its 256, not 1"),
            # Two kinds of scales.
            ({"a.weight": tensor(self.rnd, "F8_E4M3", 4, 4), "a.weight_scale_inv": one, "a.weight_scale": one}, {},
             'two kinds of scales, "a.weight_scale_inv" and "a.weight_scale", and only one can be right'),
            ({"a.weight": tensor(self.rnd, "F8_E4M3", 4, 4), "a.weight_scale": one, "a.weight_scale_2": one}, {}, '"a.weight_scale" and "a.weight_scale_2"'),
            ({"a.weight": tensor(self.rnd, "F8_E4M3", 3, 10), "a.weight_scale_inv": ("F32", (2, 1), floats([1, 2]))}, {}, "is not clear"),
            ({"a_blocks": tensor(self.rnd, "U8", 2, 2, 2, 8), "a_scales": tensor(self.rnd, "U8", 2, 2, 2)}, {}, "mxfp4 has blocks"),
        ]
        for number, (model, config, words) in enumerate(rows):
            self.write_hf(f"s{number}", model, config)
            self.fails(f"s{number}", "x", "--dequantize", "bf16", words=words)
        self.write_hf("good", {"a.weight": tensor(self.rnd, "F8_E4M3", 4, 4), "a.weight_scale": one})
        self.fails("good", "x", "--dequantize", "f64", words="dequantised to bf16, f16 or f32, not to f64")
        self.fails("good", "x", "--dequantize", "bf17", words='did you mean "bf16"?', code=2)
        self.fails("good", "x", "--dequantize", "bf16", "--dtype", "a.*=f32", words="is dequantised to bf16, so it cannot also be cast")


if __name__ == "__main__":
    support.main()
