# SPDX-License-Identifier: Apache-2.0
"""Malformed and odd files: each row is a file made here, and whether it must be accepted."""
import json
import os
import shutil
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support

F = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
D16 = bytes(range(16))


def text(members, data=D16):
    """A header given as text between its braces."""
    return files.frame(b"{" + members.encode() + b"}", data)


def entry(**changes):
    return files.frame({"a": {**F, **changes}}, D16)


def raw_entry(field, value):
    fields = {"dtype": '"F32"', "shape": "[2,2]", "data_offsets": "[0,16]", field: value}
    return text('"a":{' + ",".join(f'"{k}":{v}' for k, v in fields.items()) + "}")


def named(name):
    return text(f'"{name}":{{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}')


E = '"dtype":"F32","shape":[2,2],"data_offsets":[0,16]'
A = '"a":{' + E + "}"
EMPTY = {"dtype": "U8", "shape": [0], "data_offsets": [8, 8]}
GOOD = {
    "plain": entry(),
    "no tensors": files.frame({}),
    "order of offsets differs from that of names": files.frame(
        {"b": {**F, "shape": [1], "data_offsets": [4, 8]}, "a": {**F, "shape": [1], "data_offsets": [0, 4]}}, D16[:8]),
    "space around": files.frame(b" \t\r\n{" + A.encode() + b"}\n\r\t  ", D16),
    "unpadded and misaligned": files.frame({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                                            "b": {"dtype": "F64", "shape": [1], "data_offsets": [1, 9]}}, D16[:9]),
    "unknown fields": text('"a":{' + E + ',"more":[1,{"x":null}],"more":2.5e3}'),
    "metadata last": text(A + ',"__metadata__":{"format":"pt"}'),
    "metadata empty": text('"__metadata__":{},' + A),
    "metadata null": text('"__metadata__":null,' + A),
    "key twice in metadata": text('"__metadata__":{"x":"1","x":"2"},' + A),
    "empty name": named(""),
    "name with NUL": named("a\\u0000b"),
    "name with escapes": named("a\\\"\\\\\\/\\b\\f\\n\\r\\tb"),
    "name with surrogate pair": named("\\ud83d\\ude00"),
    "name in raw UTF-8": text('"\u00e9\u20ac":{' + E + "}"),
    "scalar": files.frame({"a": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]}}, D16[:8]),
    "empty tensors at every boundary": files.frame(
        {"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}, "b": EMPTY, "c": EMPTY,
         "d": {"dtype": "U8", "shape": [8], "data_offsets": [8, 16]},
         "e": {"dtype": "F32", "shape": [3, 0], "data_offsets": [16, 16]},
         "f": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}, D16),
    "70 dims": files.frame({"a": {"dtype": "U8", "shape": [1] * 69 + [16], "data_offsets": [0, 16]}}, D16),
    "zero, then huge": files.frame(
        {"a": {"dtype": "F32", "shape": [0, 2**63 - 1, 4], "data_offsets": [0, 0]}}, b""),
    "nesting of 127": text('"a":{' + E + ',"x":' + "[" * 125 + "]" * 125 + "}"),
    "sub-byte, whole": files.frame({"a": {"dtype": "F4", "shape": [1, 4], "data_offsets": [0, 2]},
                                    "b": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [2, 5]}}, D16[:5]),
    "header padded with spaces": files.frame(b"{" + A.encode() + b"}" + b" " * 5000, D16),
}
BAD = {
    # the error variants of the reference
    "file too short": (b"\x01\0\0\0\0\0\0", "too few"),
    "empty file": (b"", "too few"),
    "header too large": (struct.pack("<Q", 100000001) + b"{}", "100000001"),
    "top byte set": (struct.pack("<Q", 0xff << 56) + b"{}", "safetensors allows"),
    "header longer than the file": (struct.pack("<Q", 60), "truncated"),
    "header length patched": (struct.pack("<Q", 1000) + entry()[8:], "truncated"),
    "header not UTF-8": (files.frame(b"\xff"), "byte 0"),
    "name not UTF-8": (files.frame(b'{"\xff":{' + E.encode() + b"}}", D16), "UTF-8"),
    "header {": (files.frame(b"{"), "ends too early"),
    "header of no bytes": (files.frame(b""), "ends too early"),
    "unknown dtype": (entry(dtype="F128"), "dtype"),
    "lower-case dtype": (entry(dtype="f32"), "dtype"),
    "dtype as object": (raw_entry("dtype", '{"F32":null}'), "dtype"),
    "no dtype": (text('"a":{"shape":[2,2],"data_offsets":[0,16]}'), "lacks dtype"),
    "no shape": (text('"a":{"dtype":"F32","data_offsets":[0,16]}'), "lacks dtype"),
    "no offsets": (text('"a":{"dtype":"F32","shape":[2,2]}'), "lacks dtype"),
    "hole": (files.frame({"a": {**F, "shape": [1], "data_offsets": [0, 4]},
                          "b": {**F, "shape": [1], "data_offsets": [8, 12]}}, D16[:12]), "should begin at 4"),
    "overlap": (files.frame({"a": {**F, "shape": [2], "data_offsets": [0, 8]},
                             "b": {**F, "shape": [2], "data_offsets": [4, 12]}}, D16[:12]), "should begin at 8"),
    "first does not begin at 0": (entry(data_offsets=[4, 20]), "should begin at 0"),
    "end before begin": (entry(data_offsets=[16, 0]), "should begin at 0"),
    "ten on one range": (files.frame({f"t{i}": F for i in range(10)}, D16), "should begin at 16"),
    "empty inside another": (files.frame(
        {"a": {"dtype": "U8", "shape": [16], "data_offsets": [0, 16]}, "b": EMPTY}, D16), "should begin at 16"),
    "product overflows": (raw_entry("shape", "[2,18446744073709551614]"), "2^63-1"),
    "size overflows": (raw_entry("shape", "[2,9223372036854775807]"), "64 bits"),
    "huge, then zero": (raw_entry("shape", "[9223372036854775807,4,0]"), "64 bits"),
    "misaligned F4": (files.frame({"a": {"dtype": "F4", "shape": [1, 3], "data_offsets": [0, 2]}}, D16[:2]), "whole byte"),
    "misaligned F6": (files.frame({"a": {"dtype": "F6_E3M2", "shape": [3], "data_offsets": [0, 3]}}, D16[:3]), "whole byte"),
    "size differs": (files.frame({"a": {"dtype": "I32", "shape": [2, 2], "data_offsets": [0, 4]}}, D16[:4]), "make 16 bytes"),
    "data too short": (entry()[:-2], "truncated"),
    "data too long": (entry() + b"PK", "too many"),
    # odd input that the reference refuses
    "metadata twice": (text('"__metadata__":{},"__metadata__":{},' + A), "occurs twice"),
    "field twice": (text('"a":{' + E + ',"dtype":"F32"}'), "occurs twice"),
    "one offset": (entry(data_offsets=[16]), "in place of 2"),
    "three offsets": (entry(data_offsets=[0, 8, 16]), "in place of 2"),
    "float extent": (raw_entry("shape", "[2.0,2]"), "whole number"),
    "exponent in offset": (raw_entry("data_offsets", "[0,16e0]"), "whole number"),
    "minus zero": (raw_entry("data_offsets", "[-0,16]"), "whole number"),
    "negative extent": (raw_entry("shape", "[-2,2]"), "whole number"),
    "leading zeros": (raw_entry("shape", "[02,2]"), "leading zeros"),
    "integer of 2^64": (raw_entry("data_offsets", "[0,18446744073709551616]"), "2^64"),
    "string for a number": (raw_entry("shape", '["2",2]'), "whole number"),
    "null tensor": (text('"a":null'), "not an object"),
    "tensor as list": (text('"a":["F32",[2,2],[0,16]]'), "not an object"),
    "NaN": (raw_entry("shape", "NaN"), "no JSON value"),
    "NUL behind the JSON": (files.frame(b"{" + A.encode() + b"}\0", D16), "behind the end"),
    "text behind the JSON": (files.frame(b"{" + A.encode() + b"}x", D16), "behind the end"),
    "BOM": (files.frame(b"\xef\xbb\xbf{" + A.encode() + b"}", D16), "byte 0"),
    "comment": (files.frame(b"{/* */" + A.encode() + b"}", D16), "quotes"),
    "trailing comma": (files.frame(b"{" + A.encode() + b",}", D16), "quotes"),
    "raw control character": (named("a\x01"), "control character"),
    "lone surrogate": (named("\\ud800"), "surrogate"),
    "null": (files.frame(b"null"), "not an object"),
    "list": (files.frame(b"[]"), "not an object"),
    "nesting of 128": (text('"a":{' + E + ',"x":' + "[" * 126 + "]" * 126 + "}"), "127"),
    "tensor called __metadata__": (text('"__metadata__":{' + E + "}"), "strings only"),
    "metadata of numbers": (text('"__metadata__":{"a":1},' + A), "strings only"),
    "metadata a list": (text('"__metadata__":[],' + A), "not an object"),
    # what the reference lets pass and we refuse
    "name twice": (text(A + "," + '"a":{"dtype":"U8","shape":[0],"data_offsets":[16,16]}'), "occurs twice"),
    "name twice, once escaped": (text(A + ',"\\u0061":{"dtype":"U8","shape":[0],"data_offsets":[16,16]}'), "occurs twice"),
}


class FolderTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, data):
        with open(f"{self.folder}/{name}", "wb") as file:
            file.write(data)
        return f"{self.folder}/{name}"


class CorpusTest(FolderTest):
    def test_good_files(self):
        for name, data in GOOD.items():
            with self.subTest(name):
                path = self.write("good.safetensors", data)
                found = self.read_json("inspect", path)
                length = struct.unpack("<Q", data[:8])[0]
                header = json.loads(data[8:8 + length])
                header.pop("__metadata__", None)
                self.assertEqual({t["name"]: (t["dtype"], t["shape"]) for t in found["tensors"]},
                                 {name: (e["dtype"], e["shape"]) for name, e in header.items()})
                self.assertEqual(found["bytes"], len(data) - 8 - length)
                self.read_text("inspect", path)

    def test_bad_files(self):
        for name, (data, words) in BAD.items():
            with self.subTest(name):
                self.check_fails(["inspect", self.write("bad.safetensors", data)], 1, words)

    def test_every_truncation_is_an_error(self):
        data = files.pack({"a": ("F32", (2, 2), D16), "b": ("U8", (3,), b"xyz")}, {"format": "pt"})
        for n in range(0, len(data), 3):
            self.check_fails(["inspect", self.write("cut.safetensors", data[:n])], 1, "cut.safetensors")

    def test_all_dtypes(self):
        model = {f"t{dtype}": (dtype, (4, 2), bytes(bits)) for dtype, bits in files.BITS.items()}
        found = self.read_json("inspect", self.write("all.safetensors", files.pack(model)))
        self.assertEqual({t["name"]: t["dtype"] for t in found["tensors"]}, {f"t{d}": d for d in files.BITS})

    def test_many_entries_on_one_range(self):
        """Must be refused quickly and in bounded memory."""
        one = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
        members = ",".join(f'"{i}":{one}' for i in range(200000))
        self.check_fails(["inspect", self.write("many.safetensors", text(members, b"x"))], 1, "should begin at 1")

    def test_the_longest_header(self):
        """100,000,000 bytes, and not one more."""
        member = b"{" + A.encode() + b"}"
        with tempfile.TemporaryDirectory(prefix="reshard-test-", dir=support.pick_memory(250 << 20)) as self.folder:
            path = self.write("long.safetensors", files.frame(member.ljust(100000000), D16))
            self.assertEqual(self.read_json("inspect", path)["bytes"], 16)
            path = self.write("long.safetensors", files.frame(member.ljust(100000001), D16))
            self.check_fails(["inspect", path], 1, "100000001")

    def test_folders(self):
        path = f"{self.folder}/f"
        os.mkdir(path)
        self.check_fails(["inspect", path], 1, "not a checkpoint that reshard knows; it looked for model.safetensors.index.json (hf), metadata.pkl (torch-checkpointing), ")
        self.check_fails(["inspect", f"{self.folder}/none"], 1, "no such file")
        files.write(f"{path}/x.safetensors", {"a": ("U8", (4,), b"abcd")})
        files.write(f"{path}/y.safetensors", {"b": ("U8", (4,), b"abcd")})
        self.assertEqual(self.read_json("inspect", path)["format"], "safetensors")
        files.write(f"{path}/z.safetensors", {"a": ("U8", (4,), b"abcd")})
        self.check_fails(["inspect", path], 1, 'tensor "a" is in x.safetensors and in z.safetensors')


class IndexTest(FolderTest):
    def index(self, text):
        self.write("model.safetensors.index.json", text if isinstance(text, bytes) else json.dumps(text).encode())

    def setUp(self):
        super().setUp()
        files.write(f"{self.folder}/odd-name.safetensors", {"a": ("U8", (4,), b"abcd"), "extra": ("U8", (1,), b"x")})
        files.write(f"{self.folder}/other", {"b": ("I16", (2,), b"efgh")})
        files.write(f"{self.folder}/stale.safetensors", {"a": ("U8", (9,), b"123456789")})

    def test_the_index_rules(self):
        self.index({"metadata": {"total_size": 8.25}, "weight_map": {"a": "odd-name.safetensors", "b": "other"}})
        found = self.read_json("inspect", self.folder)
        self.assertEqual(found["format"], "hf")
        self.assertEqual([(t["name"], t["shards"][0]["file"]) for t in found["tensors"]],
                         [("a", "odd-name.safetensors"), ("b", "other")])
        self.assertEqual(found["notes"], ['left out: 1 file that the index does not list ("stale.safetensors")',
                                          'left out: 1 tensor that the index does not name ("extra")'])

    def test_wrong_indices(self):
        good = {"a": "odd-name.safetensors"}
        for text, words in [
                ({"weight_map": {**good, "b": "none.safetensors"}}, "none.safetensors"),
                ({"weight_map": {**good, "c": "other"}}, 'other holds tensor "c"'),
                ({"weight_map": {**good, "b": "../other"}}, "expected the name of a file"),
                ({"weight_map": {**good, "b": "/etc/passwd"}}, "expected the name of a file"),
                ({"weight_map": {**good, "b": "sub/other"}}, "expected the name of a file"),
                ({"weight_map": {**good, "b": "sub/../../other"}}, "expected the name of a file"),
                ({"weight_map": {**good, "b": "other/"}}, "expected the name of a file"),
                ({"weight_map": {**good, "b": ""}}, "expected the name of a file"),
                ({"weight_map": {**good, "b": "other\0"}}, "expected the name of a file"),
                ({"weight_map": {**good, "b": 1}}, "names of files only"),
                ({"weight_map": []}, "not an object"),
                ({"metadata": {}}, "no weight_map"),
                ([], "not an object"),
                (b'{"weight_map":{"a":"odd-name.safetensors"},"weight_map":{}}', "twice"),
                (b'{"weight_map":{"a":"odd-name.safetensors","a":"stale.safetensors"}}', "twice"),
                (b'{"weight_map":{', "ends too early"),
        ]:
            with self.subTest(text):
                self.index(text)
                self.check_fails(["inspect", self.folder], 1, words)


class ShardedTest(FolderTest):
    def write_pieces(self, *pieces, **options):
        """Each piece: (file, key, shape, info of the key)"""
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)
        by_file = {}
        for file, key, shape, info in pieces:
            by_file.setdefault(file, []).append((key, shape, info))
        for file, items in by_file.items():
            metadata = {"DCP_SHARDING_INFO": json.dumps({key: info for key, _, info in items if info})}
            if options.get("shapes"):
                metadata["RESHARD_SHAPES"] = json.dumps({key: options["shapes"] for key, _, _ in items})
            if options.get("count"):
                metadata["RESHARD_FILES"] = str(options["count"])
            dtype = options.get("dtype", {}).get(file, "U8")
            files.write(f"{self.folder}/{file}.safetensors",
                        {key: (dtype, shape, bytes(files.size_of(dtype, shape))) for key, shape, _ in items}, metadata)

    def test_pieces_of_one_tensor(self):
        self.write_pieces(("x", "w.__dcp_shard_0", (2, 3), {"saved_offsets": [0, 0], "logical_fqn": "w"}),
                          ("x", "w.__dcp_shard_1", (2, 3), {"saved_offsets": [4, 0], "logical_fqn": "w"}),
                          ("y", "w", (2, 3), {"saved_offsets": [2, 0]}),
                          ("y", "norm", (3,), None),
                          ("z", "empty", (0, 3), {"saved_offsets": [6, 0], "logical_fqn": "w"}))
        found = self.read_json("inspect", self.folder)
        self.assertEqual(found["format"], "dcp-safetensors")
        self.assertEqual([(t["name"], t["shape"], len(t["shards"])) for t in found["tensors"]],
                         [("norm", [3], 1), ("w", [6, 3], 3)])
        self.assertIn("full shape of 1 tensor:", found["notes"][0])
        self.read_text("inspect", self.folder)

    def test_what_is_wrong_names_tensor_and_file(self):
        at = lambda *offsets: {"saved_offsets": list(offsets)}
        for pieces, options, words in [
                ([("x", "w", (2,), at(0)), ("y", "w", (2,), at(3))], {}, 'tensor "w": its files (from x.safetensors to '
                 'y.safetensors) hold 4 of the 5 elements'),
                ([("x", "w", (2,), at(0)), ("y", "w", (2,), at(1))], {},
                 'tensor "w": what y.safetensors holds of it overlaps with what x.safetensors'),
                ([("x", "w", (2,), at(0)), ("y", "w", (2,), at(0))], {}, "overlaps"),
                ([("x", "w", (2,), at(0)), ("y", "w", (2,), at(2))], {"shapes": [6]}, "hold 4 of the 6"),
                ([("x", "w", (2,), at(0)), ("y", "w", (2,), at(2))], {"shapes": [3]}, "beyond its full shape"),
                ([("x", "w", (2,), at(0)), ("y", "w", (2,), at(2))], {"count": 3}, "one of 3 files, but there are 2"),
                ([("x", "w", (2,), at(0)), ("y", "w", (2,), at(2))], {"dtype": {"y": "I8"}}, "do not agree on its dtype"),
                ([("x", "w", (2,), at(0)), ("y", "w", (2, 1), at(2, 0))], {}, "number of dimensions"),
                ([("x", "w", (2,), at(0, 0))], {}, "one number for each dimension"),
                ([("x", "w", (2,), at())], {}, "one number for each dimension"),
                ([("x", "w", (2,), {"logical_fqn": "v"})], {}, "saved_offsets are missing"),
                ([("x", "w", (2,), at(1))], {}, "hold 2 of the 3"),
                ([("x", "w", (2,), at(2**63 - 1))], {}, "out of range"),
                ([("x", "w", (2,), at(-1))], {}, "whole number"),
                ([("x", "w", (8,), at(0)), ("y", "w", (8,), at(8))], {"dtype": {"x": "F4", "y": "F4"}}, "copied whole"),
        ]:
            with self.subTest(words):
                self.write_pieces(*pieces, **options)
                self.check_fails(["inspect", self.folder], 1, words)


if __name__ == "__main__":
    support.main()
