# SPDX-License-Identifier: Apache-2.0
"""`reshard layout`: tables, JSON, and texts that are no specs and no shapes."""
import itertools

from support import CommandTest, main, run

TABLE = """\
4: S(0)  shape 10x7, 4 ranks

rank  box          size  elements  share
   0  [0:3, 0:7]   3x7         21  30.0%
   1  [3:6, 0:7]   3x7         21  30.0%
   2  [6:9, 0:7]   3x7         21  30.0%
   3  [9:10, 0:7]  1x7          7  10.0%
"""

TABLE_OF_PIECES = """\
2: S(0/2)  shape 7x3, 2 ranks

rank  box                size  elements  share
   0  2 pieces           4x3         12  57.1%
        [0:2, 0:3] at 0  2x3          6  28.6%
        [4:6, 0:3] at 6  2x3          6  28.6%
   1  2 pieces           3x3          9  42.9%
        [2:4, 0:3] at 0  2x3          6  28.6%
        [6:7, 0:3] at 6  1x3          3  14.3%
"""

TABLE_OF_PARTIALS = """\
2: P(sum)  shape 5, 2 ranks

rank  box    size  elements   share  partial
   0  [0:5]  5            5  100.0%  sum, 1 of 2
   1  [0:5]  5            5  100.0%  sum, 2 of 2
"""

WRONG_SPECS = [
    "", " ", ":", "4", "4:", "4: ", "4: Q", "4: S", "4: S()", "4: S(", "4: S(0", "4: S(0))", "4: S(x)",
    "4: S(0,)", "4: S(0, unit)", "4: S(0, unit=)", "4: S(0, unit=0)", "4: S(0, unit=-1)", "4: S(0, max=0)",
    "4: S(0, huge=1)", "4: S(2)", "4: S(-3)", "4: S(99999999999999999999)", "4: S(0) S(1)", "4: S(0), S(1)",
    "2,2: S(0)@x", "x=2,y=2: S(0)@x, S(1)@x", "x=2,x=2: R, R", "2,2: S(0)", "0: S(0)", "-1: S(0)",
    "4294967296: S(0)", "2147483648: S(0)", "65536,65536: R, R", "4[0,1,2]: S(0)", "2,2[0,1,2,2]: S(0), R",
    "4[0,1,2,-1]: S(0)", "4[0,1,2,2147483648]: S(0)", "4[3..0]: S(0)", "4[0..6/0]: S(0)", "4[]: S(0)",
    "4: S(0=3,3,3)", "4: S(0=3,3,3,3)", "4: S(0=3,3,3,-1)", "4: S(0=)", "4: S(0;4,4)", "4: S(0;)",
    "4: S(0*0)", "4: S(0/0)", "4: S(0/)", "4: P(mode)", "4: P()", "4: A()", "4: A(4)", "4: A(0,0)", "4: R(1)",
    "boxes", "boxes 10x7", "boxes 10x7:", "boxes 10x7: 0", "boxes 10x7: 0[]", "boxes 10x7: 0[0:10]",
    "boxes 10x7: 0[0:10,0:8]", "boxes 10x7: 0[0:9,0:7]", "boxes 10x7: 0[0:10,0:7] 1[0:1,0:1]",
    "boxes 10x7: 0[5:4,0:7]", "boxes 10x7: 0[-1:10,0:7]", "boxes 9x7: 0[0:9,0:7]", "cover 10x7: 0[0:9,0:7]",
    "boxes 9999999999x9999999999: 0[0:1,0:1]", "4: S(0)\n\nS(1)", "\x1b[31m4: S(0)", "\xff\xfe", "4: S(0) extra",
]

WRONG_SHAPES = [
    "", "x", "10x", "x7", "10xx7", "10x7x", "10 7", "-1", "10x-7", "1.5", "10X7", "ten", "scalarx3",
    "9223372036854775808", "4294967296x4294967296", "1x2x3x4x5x6x7x8x9", "99999999999999999999",
]


class LargeTest(CommandTest):
    def test_more_pieces_than_can_be_listed(self):
        huge = ["layout", "4: S(0/1)", "--shape", "9223372036854775807"]
        text = self.read_text(*huge)
        self.assertEqual(text.count("2305843009213693952 pieces "), 3)
        self.assertEqual(text.count(" pieces more"), 4)
        self.assertLess(text.count("\n"), 200)
        self.check_fails([*huge, "--json"], 2, "rank 0 has about 2305843009213693952 pieces; at most 4194304 can be listed")

    def test_more_ranks_than_can_be_listed(self):
        huge = ["layout", "4194305: S(0)", "--shape", "9223372036854775807"]
        self.assertIn("4194265 ranks left out", self.read_text(*huge))
        self.check_fails([*huge, "--all"], 2, "4194305 ranks; --all and --json list at most 4194304")
        self.check_fails([*huge, "--json"], 2, "4194305 ranks")
        self.assertEqual(self.read_json(*huge, "--rank", "4194304")["shards"][0]["rank"], 4194304)


class LayoutTest(CommandTest):
    def layout(self, spec, shape, *arguments, **options):
        return self.read_json("layout", spec, "--shape", shape, *arguments, **options)

    def test_tables(self):
        for spec, shape, wanted in [
            ("4: S(0)", "10x7", TABLE),
            ("2: S(0/2)", "7x3", TABLE_OF_PIECES),
            ("2: P", "5", TABLE_OF_PARTIALS),
        ]:
            self.assertEqual(self.read_text("layout", spec, "--shape", shape), wanted)

    def test_json(self):
        wanted = {"shape": [10, 7], "ranks": 4, "spec": "4: S(0)", "shards": [
            {"rank": 0, "offset": [0, 0], "size": [3, 7]}, {"rank": 1, "offset": [3, 0], "size": [3, 7]},
            {"rank": 2, "offset": [6, 0], "size": [3, 7]}, {"rank": 3, "offset": [9, 0], "size": [1, 7]}]}
        self.assertEqual(self.layout("4: S(0)", "10x7"), wanted)
        self.assertEqual(self.layout(" 4 :S0 ", "10x7"), wanted)

    def test_json_begins_as_documented(self):
        text = self.read_text("layout", "2: S(0)", "--shape", "3", "--json")
        self.assertTrue(text.startswith('{"shape":[3],"ranks":2,'), text)
        self.assertIn('"shards":[{"rank":0,"offset":[0],"size":[2]},{"rank":1,"offset":[2],"size":[1]}]', text)

    def test_empty_shards_are_clamped(self):
        shards = self.layout("4: S(0)", "5x2")["shards"]
        self.assertEqual([(s["offset"], s["size"]) for s in shards],
                         [([0, 0], [2, 2]), ([2, 0], [2, 2]), ([4, 0], [1, 2]), ([5, 0], [0, 2])])
        text = self.read_text("layout", "4: S(0)", "--shape", "5x2")
        self.assertIn("   3  [5:5, 0:2]  0x2          0   0.0%\n", text)

    def test_scalar(self):
        self.assertEqual(self.layout("2: R", "scalar"), {"shape": [], "ranks": 2, "spec": "2: R", "shards": [
            {"rank": 0, "offset": [], "size": []}, {"rank": 1, "offset": [], "size": []}]})
        self.assertIn("0  []   scalar         1  100.0%", self.read_text("layout", "1: R", "--shape", "scalar"))

    def test_no_elements(self):
        self.assertEqual(self.layout("2: S(0)", "0x3")["shards"], [
            {"rank": 0, "offset": [0, 0], "size": [0, 3]}, {"rank": 1, "offset": [0, 0], "size": [0, 3]}])
        self.assertRegex(self.read_text("layout", "2: S(0)", "--shape", "0x3"), r"0x3 +0 +-\n")

    def test_partial(self):
        shards = self.layout("2,2: P(max), S(0)", "4")["shards"]
        self.assertEqual([s["partial"] for s in shards], ["max"] * 4)
        self.assertEqual([(s["contributor"], s["contributors"]) for s in shards],
                         [(0, 2), (0, 2), (1, 2), (1, 2)])

    def test_pieces(self):
        shards = self.layout("2: S(0;2,4)", "6x5")["shards"]
        self.assertEqual(shards[1], {"rank": 1, "offset": [1, 0], "size": [3, 5], "pieces": [
            {"offset": [1, 0], "size": [1, 5], "at": 0, "strides": [5, 1]},
            {"offset": [4, 0], "size": [2, 5], "at": 5, "strides": [5, 1]}]})

    def test_flat(self):
        shards = self.layout("2: S(flat)", "3x4")["shards"]
        self.assertEqual([s["size"] for s in shards], [[6], [6]])
        for shard in shards:
            self.assertEqual(sum(p["size"][0] * p["size"][1] for p in shard["pieces"]), 6)
        self.assertEqual(shards[0]["offset"], [0, 0])

    def test_boxes_cover_and_other_ranks(self):
        boxes = "boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]"
        found = self.layout(boxes, "6x6")
        self.assertEqual([(s["offset"], s["size"]) for s in found["shards"]],
                         [([0, 0], [2, 4]), ([0, 4], [4, 2]), ([2, 0], [4, 4]), ([4, 4], [2, 2])])
        self.assertEqual(self.layout(found["spec"], "6x6"), found)
        found = self.layout("2[4..5]: S(0)", "4")
        self.assertEqual([s["rank"] for s in found["shards"]], [4, 5])
        self.assertEqual(found["ranks"], 2)

    def test_one_rank(self):
        found = self.layout("131072: S(0)", "131072x4", "--rank", "77777")
        self.assertEqual(found["ranks"], 131072)
        self.assertEqual(found["shards"], [{"rank": 77777, "offset": [77777, 0], "size": [1, 4]}])
        self.assertEqual(self.layout("2: S(0)", "4", "--rank", "9")["shards"], [])
        self.assertIn("rank 9 takes no part", self.read_text("layout", "2: S(0)", "--shape", "4", "--rank", "9"))

    def test_many_ranks_are_left_out(self):
        lines = self.read_text("layout", "100: S(0)", "--shape", "100x4").splitlines()
        self.assertEqual(len(lines), 3 + 32 + 1 + 8)
        self.assertEqual(lines[35], "  ... 60 ranks left out; --all prints them")
        self.assertTrue(lines[34].lstrip().startswith("31 ") and lines[36].lstrip().startswith("92 "))
        self.assertEqual(len(self.read_text("layout", "100: S(0)", "--shape", "100", "--all").splitlines()), 103)
        self.assertEqual(len(self.read_text("layout", "64: S(0)", "--shape", "100").splitlines()), 67)
        self.assertEqual(len(self.layout("100: S(0)", "100")["shards"]), 100)

    def test_spec_from_file(self):
        wanted = self.layout("4: S(0)", "10x7")
        self.assertEqual(self.layout("@" + self.write_file(b"4: S(0)\n"), "10x7"), wanted)
        self.assertEqual(self.layout("@-", "10x7", stdin=b" 4 : S(0) "), wanted)

    def test_unreadable_files(self):
        for name, words in [("/nonexistent/file", "cannot be opened"), ("", "cannot be opened"),
                            ("/", "cannot be read")]:
            self.check_fails(["layout", "@" + name, "--shape", "4"], 1, words)

    def test_wrong_specs(self):
        for spec in WRONG_SPECS:
            with self.subTest(spec=spec):
                argument = spec.encode("latin-1")
                self.check_fails(["layout", argument.decode("utf-8", "surrogateescape"), "--shape", "10x7"])

    def test_wrong_shapes(self):
        for shape in WRONG_SHAPES:
            with self.subTest(shape=shape):
                self.check_fails(["layout", "4: S(0)", "--shape", shape])

    def test_wrong_files(self):
        many = b"boxes 10x7:" + b" 0[0:1,0:1]" * 900000
        for data in [b"", b"\0", b"4: S(0)\0", b"4:\0 S(0)", b"4: S(0\0)", b"\xff" * 100, b"9" * 10000000,
                     b" " * 10000000, b"(" * 10000000, b"4[" + b"0," * 5000000, many,
                     b"4: S(0;" + b"1," * 5000000 + b"1)", b"=2,".join([b"a"] * 3000000)]:
            with self.subTest(data=data[:20], length=len(data)):
                self.check_fails(["layout", "@" + self.write_file(data), "--shape", "10x7"])

    def test_truncated_specs(self):
        """No prefix of a good spec crashes, and every one that is no spec says so."""
        spec = "dp=2,tp=2[3,1,0,2]: S(0;4|1,6, unit=2)@tp, P(max)@dp"
        for length, rest in itertools.product(range(len(spec)), ["", "\x01", "9", ")"]):
            done = run("layout", spec[:length] + rest, "--shape", "10x7")
            self.assertIn(done.returncode, (0, 2), spec[:length] + rest)


if __name__ == "__main__":
    main()
