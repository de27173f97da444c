# SPDX-License-Identifier: Apache-2.0
"""The bounds of docs/limits.md that files and options can reach: what is at one passes, one beyond is refused in one line,
at once."""
import json
import os
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files  # noqa: E402
from support import CommandTest, main  # noqa: E402

MODEL = {"model.w": ("U8", (6, 4), bytes(24))}
# Of processor time: what is not bounded takes minutes. Sanitizers, which set a small scale, are slow.
SECONDS = 20 if float(os.environ.get("RESHARD_TEST_SCALE", "1")) >= 1 else 200


def spent():
    """The processor time of all commands so far."""
    return os.times().children_user + os.times().children_system


class LimitsTest(CommandTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="reshard-test-")
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        files.write(self.at("source/model.safetensors"), MODEL)
        self.count = 0

    def at(self, name):
        return os.path.join(self.folder, name)

    def refuse(self, words, *arguments, code=1):
        before = spent()
        self.check_fails(arguments, code, words)
        self.assertLess(spent() - before, SECONDS)

    def sparse(self, name, size, head=b""):
        """A file that is long and takes no room."""
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        with open(self.at(name), "wb") as file:
            file.write(head)
            file.truncate(size)

    def plan(self, rules, mesh="tp=2"):
        """The arguments that apply some rules."""
        self.count += 1
        path = self.at(f"{self.count}.rules")
        with open(path, "w", encoding="utf-8") as file:
            file.write(rules)
        return ["plan", self.at("source"), "--to", mesh, "--rules", path]

    # ---- headers and texts of files ------------------------------------------------------------

    def test_header_bytes(self):
        self.sparse("long/model.safetensors", 200_000_000, struct.pack("<Q", 100_000_001))
        self.refuse("100000001", "inspect", self.at("long"))

    def test_json_depth(self):
        """127 levels in all, of which the index itself is one."""
        for depth, passes in [(126, True), (127, False)]:
            folder = self.at(f"deep{depth}")
            files.write(f"{folder}/a.safetensors", MODEL)
            with open(f"{folder}/model.safetensors.index.json", "w", encoding="utf-8") as file:
                file.write('{"x":' + "[" * depth + "]" * depth + ',"weight_map":{"model.w":"a.safetensors"}}')
            if passes:
                self.read_json("inspect", folder)
            else:
                self.refuse("127", "inspect", folder)

    def test_index_bytes(self):
        files.write(self.at("index/a.safetensors"), MODEL)
        self.sparse("index/model.safetensors.index.json", (256 << 20) + 1)
        self.refuse("268435457", "inspect", self.at("index"))

    def test_config_bytes(self):
        self.sparse("source/config.json", (16 << 20) + 1)
        self.refuse("16777217", *self.plan("model.w S(0, unit=$n)@tp\n"))

    def test_rules_bytes(self):
        self.sparse("huge.rules", (16 << 20) + 1)
        self.refuse("16777217", "plan", self.at("source"), "--to", "tp=2", "--rules", self.at("huge.rules"))

    def test_dims_and_elements(self):
        """More than 8 dims cannot be cut, and are carried whole; sizes beyond 64 bits are refused."""
        files.write(self.at("nine/model.safetensors"), {"t": ("U8", (1,) * 9, b"x")})
        self.read_text("convert", self.at("nine"), self.at("out"), "--quiet")
        self.refuse('"t"', "convert", self.at("nine"), self.at("out2"), "--to", "tp=2", "--rules",
                    self.plan("t S(0)@tp\n")[-1])
        for extent in (2**63, 2**64):
            with open(self.at("big.safetensors"), "wb") as file:
                file.write(files.frame({"t": {"dtype": "U8", "shape": [extent], "data_offsets": [0, 1]}}, b"x"))
            self.refuse('"t"', "inspect", self.at("big.safetensors"))

    def test_many_pieces(self):
        """A tensor in one-element boxes, dealt out to two files; inspect's time for 100,000 is measured by processor time."""
        for count in (16384, 100_000):
            for rank in range(2):
                keys = range(rank, count, 2)
                header = {f"t.{i}": {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]} for n, i in enumerate(keys)}
                info = {f"t.{i}": {"saved_offsets": [i], "logical_fqn": "t"} for i in keys}
                header["__metadata__"] = {"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0",
                                          "RESHARD_SHAPES": json.dumps({f"t.{i}": [count] for i in keys})}
                path = self.at(f"boxes{count}/shard-{rank + 1:05d}-model-00001-of-00001.safetensors")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(files.frame(header, bytes(len(keys))))
            before = spent()
            text = self.read_text("inspect", self.at(f"boxes{count}"))
            self.assertIn(f"boxes {count}: 0[0:1] 0[2:3]" if count == 16384 else "100000 boxes in 2 files\n", text)
            self.assertLess(spent() - before, SECONDS / 4)  # it took 21, and grew with the square

    # ---- rules ---------------------------------------------------------------------------------

    def test_rules_of_a_set(self):
        line = "x S(0)@tp\n"
        self.read_text(*self.plan("model.w S(0)@tp\n" + line * 9999))
        self.refuse("10000 rules", *self.plan("model.w S(0)@tp\n" + line * 10000))

    def test_axes_of_a_set(self):
        many = [f"x{i} S(0)@axis{i}\n" for i in range(64)]
        self.read_text(*self.plan("model.w S(0)@axis0\n" + "".join(many), "axis0=2"))
        self.refuse("64", *self.plan("model.w S(0)@axis0\n" + "".join(many) + "y S(0)@axis64\n", "axis0=2"))

    def test_patterns(self):
        self.read_text(*self.plan(f"model.w S(0)@tp\n{'a' * 4096} R\n"))
        self.refuse("4096", *self.plan(f"model.w S(0)@tp\n{'a' * 4097} R\n"))
        texts = [f"t{i}" for i in range(65)]
        self.read_text(*self.plan("model.w S(0)@tp\n{" + ",".join(texts[:64]) + "} R\n"))
        self.refuse("64 texts", *self.plan("model.w S(0)@tp\n{" + ",".join(texts) + "} R\n"))

    def test_names_that_patterns_match(self):
        for count, passes in [(65535, True), (65536, False)]:
            files.write(self.at("source/model.safetensors"), {"n" * count: ("U8", (2,), b"ab")})
            self.read_text("inspect", self.at("source"))
            if passes:
                self.read_text(*self.plan("* S(0)@tp\n"))
            else:
                self.refuse("65535", *self.plan("* S(0)@tp\n"))

    def test_new_names(self):
        """{1} may be repeated; what it makes is as long as a name may be, and no longer."""
        files.write(self.at("source/model.safetensors"), {"n" * 13107: ("U8", (2,), b"ab")})
        for new, passes in [("{1}" * 5, True), ("{1}" * 5 + "x", False), ("{1}" * 1300, False)]:
            for arguments in (["convert", self.at("source"), self.at("out"), "--rename", "*=" + new, "--dry-run"],
                              self.plan(f"* S(0)@tp name({new})\n")):
                if passes:
                    self.read_text(*arguments)
                else:
                    self.refuse("more than 65535 bytes", *arguments)

    def test_numbers(self):
        for depth, passes in [(32, True), (33, False)]:
            arguments = self.plan("model.w S(0)@tp pad(0, " + "(" * depth + "2" + ")" * depth + ")\n")
            if passes:
                self.read_text(*arguments)
            else:
                self.refuse("32 levels", *arguments)

    def test_tiny_blocks(self):
        """Rules that cut into more pieces than can be listed are refused at once, also of files that are there; those that
        cut into many are carried out, both ways, in time that grows with their number."""
        size = 1 << 36
        header = {"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
        self.sparse("source/model.safetensors", len(files.frame(header)) + size, files.frame(header))
        for rules in ("* S(0/1)@tp\n", "* S(0*1000000000)@tp\n", "* S(flat/1)@tp\n"):
            self.refuse("pieces; at most 4194304 can be listed", *self.plan(rules))
        count = 60000
        files.write(self.at("source/model.safetensors"), {"t": ("U8", (count,), bytes(i % 251 for i in range(count)))})
        rules = ["--rules", self.plan("* S(0/1)@tp\n")[-1]]
        for extra in (["--format", "rank-files"], []):
            before = spent()
            out = self.at("out" + "-".join(extra))
            self.read_text("convert", self.at("source"), out, "--to", "tp=3", *rules, "--quiet", "--no-sync", *extra)
            reading = ["--from-b", "tp=3", *rules] if extra else []
            self.read_text("verify", self.at("source"), out, *reading)
            self.assertLess(spent() - before, SECONDS)

    # ---- options -------------------------------------------------------------------------------

    def test_threads(self):
        self.read_text("digest", self.at("source"), "--threads", "256")
        for words in (["digest", self.at("source")], ["verify", self.at("source"), self.at("source")],
                      ["convert", self.at("source"), self.at("out")]):
            self.refuse("257 threads", *words, "--threads", "257")
        self.assertFalse(os.path.exists(self.at("out")))
        found = self.read_json("convert", self.at("source"), self.at("out"), "--threads", "256", "--max-memory", "256M")
        self.assertEqual(found["threads"], 256)

    def test_memory(self):
        self.read_text("convert", self.at("source"), self.at("out"), "--max-memory", "1M", "--quiet")
        self.refuse("1048575", "convert", self.at("source"), self.at("out2"), "--max-memory", "1048575")
        # Numbers that contradict each other are refused, rather than one of them changed.
        self.refuse("2 threads need at least 2097152", "convert", self.at("source"), self.at("out2"), "--max-memory", "2097151", "--threads", "2")
        found = self.read_json("convert", self.at("source"), self.at("out2"), "--max-memory", "2M", "--threads", "2")
        self.assertEqual(found["threads"], 2)

    def test_journal_bytes(self):
        os.mkdir(self.at("out.partial"), 0o700)
        self.sparse("out.partial/.reshard-journal", (1 << 30) + 1)
        self.refuse("out.partial", "convert", self.at("source"), self.at("out"), "--resume")
        self.assertFalse(os.path.exists(self.at("out")))


if __name__ == "__main__":
    main()
