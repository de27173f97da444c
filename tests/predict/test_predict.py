# SPDX-License-Identifier: Apache-2.0
"""`reshard plan --cluster` beside predictions made here: from the matrix of bytes alone, and from every element's place in memory."""
import collections
import itertools
import math
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import support

SEED = 1

def predict(matrix, per_node, nic, intra, memory, latency):
    """A stage takes as long as its busiest link, and a message to each peer."""
    ranks = range(len(matrix))
    times, peers, nodes = [0.0], 0, {}
    for rank in ranks:
        here = [peer for peer in ranks if peer != rank and peer // per_node == rank // per_node]
        there = [peer for peer in ranks if peer // per_node != rank // per_node]
        for line in (matrix[rank], [row[rank] for row in matrix]):
            times += [sum(line[peer] for peer in there) / nic, sum(line[peer] for peer in here) / intra]
            peers = max(peers, sum(1 for peer in ranks if peer != rank and line[peer]))
        nodes[rank // per_node] = nodes.get(rank // per_node, 0) + sum(matrix[peer][rank] for peer in [rank, *here])
    times += [copied / memory for copied in nodes.values()]
    return max(times) + latency * peers

def random_spec(rnd):
    axes = rnd.choice([(6,), (2, 3), (4,), (2, 2, 2), (8,), (12,)])
    cuts = [rnd.choice(["R", "S(0)", "S(1)", "S(0/2)", "S(1~)"]) for _ in axes]
    return f"{','.join(map(str, axes))}: {', '.join(cuts)}"

def cut_line(line, cut, count, at):
    """What the coordinate `at` of `count` gets of a line."""
    if cut.endswith("~)"):
        least, more = divmod(len(line), count)
        begin = at * least + min(at, more)
        return line[begin:begin + least + (at < more)]
    if "/" in cut:
        block = int(cut[cut.index("/") + 1:-1])
        return [index for i, index in enumerate(line) if i // block % count == at]
    size = -(-len(line) // count)
    return line[at * size:(at + 1) * size]

def rank_lines(spec, shape):
    """For each rank, the rows and the columns that it holds."""
    mesh, cuts = spec.split(": ")
    axes = [int(count) for count in mesh.split(",")]
    for place in itertools.product(*map(range, axes)):
        lines = [list(range(n)) for n in shape]
        for cut, count, at in zip(cuts.split(", "), axes, place):
            if cut != "R":
                dim = int(cut[2])
                lines[dim] = cut_line(lines[dim], cut, count, at)
        yield lines

def common_pieces(source, target):
    """Of two lines, what they have in common: pieces of (place in the source, place in the target, length)."""
    places, pieces, last = {index: i for i, index in enumerate(source)}, [], None
    for i, index in enumerate(target):
        if index in places:
            if last == (index - 1, places[index] - 1, i - 1):
                pieces[-1][2] += 1
            else:
                pieces.append([places[index], i, 1])
            last = index, places[index], i
    return pieces

def common_runs(rows, columns, source_width, target_width):
    """How many elements lie one after another on both sides: the length of each run."""
    runs, last = [], None
    for (row, to_row, height), (column, to_column, width) in itertools.product(rows, columns):
        for i in range(height):
            at = ((row + i) * source_width + column, (to_row + i) * target_width + to_column)
            runs.append((at[1], at[0], width))
    merged = []
    for to, at, width in sorted(runs):
        if last == (to, at):
            merged[-1] += width
        else:
            merged.append(width)
        last = to + width, at + width
    return merged

def count_pair(source, target, element):
    """(bytes, of which in short runs, of which the source packs, of which the target unpacks) from one rank to another."""
    rows, columns = (common_pieces(source[d], target[d]) for d in (0, 1))
    runs = common_runs(rows, columns, len(source[1]), len(target[1]))
    boxes = [(height, width) for (_, _, height), (_, _, width) in itertools.product(rows, columns)]
    packed = [sum(height * width for height, width in boxes if height > 1 and width < len(lines[1])) for lines in (source, target)]
    return [element * n for n in (sum(runs), sum(run for run in runs if run * element <= 4096), *packed)]

def predict_by_elements(source, target, element, per_node, speeds):
    """The whole model: (seconds, bytes in short runs, packed bytes)."""
    def copy(count, short):
        return (count - short) / speeds["memory"] + short / speeds["scattered"]
    times, nodes, sums = [0.0], collections.Counter(), [0, 0]
    links, peers = collections.Counter(), collections.Counter()
    for s, t in itertools.product(range(len(source)), range(len(target))):
        count, short, *packed = count_pair(source[s], target[t], element)
        if count and s != t:
            peers.update([(s, "out"), (t, "in")])
        if s // per_node == t // per_node:
            nodes[s // per_node] += copy(count, short)
            sums[0] += short
            for end in [(s, "within out"), (t, "within in")] if s != t else []:
                links[end] += count / speeds["intra"]
        else:
            sums[1] += sum(packed)
            for end, bytes_packed in zip([(s, "out"), (t, "in")], packed):
                links[end] += count / speeds["nic"] + per_node * copy(bytes_packed, bytes_packed if short else 0)
    return max([*times, *nodes.values(), *links.values()]) + speeds["latency"] * max([0, *peers.values()]), *sums

class Predictions(support.CommandTest):
    def plan(self, source, target, cluster, shape="48x36", dtype="f32"):
        return self.read_json("plan", "--shape", shape, "--dtype", dtype, "--from", source, "--to", target, "--single-stage",
                              "--cluster", cluster)

    def test_by_elements(self):
        """What lies in short runs and what is packed, found element by element."""
        rnd = random.Random(SEED)
        seen = set()
        for number in range(60):
            source, target, per_node = random_spec(rnd), random_spec(rnd), rnd.choice([1, 2, 3, 4, 12])
            source = source.replace("R", "S(0)") # so that it is known who sends
            shape, dtype = rnd.choice([(24, 18), (96, 64), (128, 48)]), rnd.choice(["f32", "f64"])
            speeds = {name: rnd.choice([1, 2, 7, 50]) * 10**6 for name in ["nic", "intra", "memory", "scattered"]}
            cluster = f"nodes=12,per_node={per_node},latency=3us," + ",".join(f"{name}={speed}B/s" for name, speed in speeds.items())
            case = f"seed {SEED} case {number}: {shape} {dtype} {source} -> {target} {cluster}"
            found = self.plan(source, target, cluster, "x".join(map(str, shape)), dtype)["prediction"]
            seconds, short, packed = predict_by_elements(*(list(rank_lines(spec, shape)) for spec in (source, target)),
                                                         4 if dtype == "f32" else 8, per_node, {**speeds, "latency": 3e-6})
            stage, = found["stages"]
            self.assertEqual((stage["bytes_scattered"], stage["bytes_packed"]), (short, packed), msg=case)
            self.assertAlmostEqual(found["seconds"], seconds, places=8, msg=case)
            seen.add((stage["bottleneck"], 0 < short < stage["bytes_within_nodes"] + stage["bytes_kept"], packed != 0))
        self.assertGreaterEqual(len(seen), 8)

    def test_by_the_matrix(self):
        rnd = random.Random(SEED)
        for number in range(60):
            source, target, per_node = random_spec(rnd), random_spec(rnd), rnd.choice([1, 2, 3, 4, 5, 12])
            nic, intra, memory, latency = (rnd.choice([1, 2, 7, 50]) * 10**6 for _ in range(4))
            cluster = f"nodes=12,per_node={per_node},nic={nic}B/s,intra={intra}B/s,latency={latency}ns"
            if per_node == 12: # else what is packed would count, which the matrix does not know
                cluster += f",memory={memory}B/s"
            found = self.plan(source, target, cluster)
            expected = predict(found["matrix"], per_node, nic, intra, memory if per_node == 12 else float("inf"), latency * 1e-9)
            self.assertAlmostEqual(found["prediction"]["seconds"], expected, places=8,
                                   msg=f"seed {SEED} case {number}: {source} -> {target} {cluster}")

    def test_by_hand(self):
        # 16 ranks on 2 nodes: each sends 8 pieces of 1 MiB to the other node, 7 to its own, and keeps one.
        found = self.plan("16: S(0)", "16: S(1)", "nodes=2,nic=50GB/s,intra=400GB/s,latency=5us", shape="2048x2048")["prediction"]
        stage, = found["stages"]
        piece = 2048 * 2048 * 4 // 256
        self.assertEqual((stage["bytes_between_nodes"], stage["bytes_within_nodes"], stage["bytes_kept"], stage["peers"]),
                         (16 * 8 * piece, 16 * 7 * piece, 16 * piece, 15))
        self.assertAlmostEqual(found["seconds"], 8 * piece / 50e9 + 15 * 5e-6, places=9)
        self.assertEqual((stage["bottleneck"], stage["which"], stage["bytes"]), ("sending to other nodes", 0, 8 * piece))
        # A memory that is slow enough counts instead: all that the node's ranks copy within it.
        stage, = self.plan("16: S(0)", "16: S(1)", "intra=50GB/s,memory=1GB/s", shape="2048x2048")["prediction"]["stages"]
        self.assertEqual((stage["bottleneck"], stage["which"], stage["bytes"]), ("copying within the node", 0, 16 * 16 * piece))
        # Runs of 2 KiB, of a page, and of 16 bytes more than that.
        for shape, times in [("2048x2048", 4), ("4x4096", 4), ("4x4112", 1)]:
            found = self.plan("4: S(0)", "4: S(1)", "memory=1MB/s,scattered=250KB/s", shape)
            self.assertAlmostEqual(found["prediction"]["seconds"], times * found["bytes_total"] / 1e6, places=6)
        # Rows have to be packed to be sent in parts, by 8 ranks of one memory, but not to be received; what lies in one piece not at all.
        found = self.plan("16: S(0)", "16: S(1)", "nodes=2,nic=50GB/s,memory=1GB/s", shape="2048x2048")["prediction"]
        self.assertAlmostEqual(found["seconds"], 8 * piece / 50e9 + 8 * 8 * piece / 1e9, places=9)
        self.assertEqual(found["stages"][0]["bytes_packed"], 16 * 8 * piece)
        found = self.plan("16: S(0)", "16: S(0~)", "nodes=2,nic=50GB/s,memory=1GB/s", shape="2040x2048")["prediction"]
        self.assertEqual(found["stages"][0]["bytes_packed"], 0)
        # Stages follow each other.
        found = self.read_json("plan", "--shape", "64x64", "--dtype", "f32", "--from", "4: P(sum)", "--to", "4: R", "--cluster",
                               "intra=1MB/s,latency=1ms")["prediction"]
        self.assertEqual([stage["bytes"] for stage in found["stages"]], [3 * 4096, 3 * 4096])
        self.assertAlmostEqual(found["seconds"], 2 * (3 * 4096 / 1e6 + 3e-3), places=9)

    def test_nothing_moves(self):
        found = self.plan("4: S(0)", "4: S(0)", "nic=1GB/s,latency=1s")["prediction"]
        self.assertEqual((found["seconds"], found["stages"][0]["bottleneck"]), (0, "nothing"))
        text = self.read_text("plan", "--shape", "8", "--dtype", "f32", "--from", "2: S(0)", "--to", "2: S(0)", "--cluster", "nic=1GB/s")
        self.assertIn("nothing moves", text)

    def test_conversions(self):
        """By the bytes that the plan itself names: those of the kernel, those that are read, those that are written."""
        with tempfile.TemporaryDirectory() as folder:
            self.read_text("bench", "model", "model", "--bytes", "4M", cwd=folder)
            self.read_text("convert", "model", "shards", "--to", "fsdp=8", "--quiet", cwd=folder)
            seen = set()
            for source, *options in [("model", "--to", "tp=4"), ("model", "--format", "hf"), ("shards",), ("shards", "--to", "tp=2", "--dtype", "f32"),
                                     ("model", "--to", "tp=2", "--dtype", "*.mlp.*=f16")]:
                found = self.read_json("plan", source, *options, "--tensors", "--cluster", "read=3MB/s,write=2MB/s,copy=5MB/s,cast=700KB/s", cwd=folder)
                shared = found["bytes_shared"]
                cast = sum(2 * math.prod(tensor["shape"]) for tensor in found["tensor_list"] if tensor["dtype"] != "bf16") # the model is in bf16
                self.assertEqual(cast != 0, "--dtype" in options)
                expected = (found["bytes_read"] - shared) / 3e6 + (found["bytes_written"] - shared) / 2e6 + shared / 5e6 + cast / 7e5
                self.assertAlmostEqual(found["prediction"]["seconds"], expected, places=8)
                seen.add((shared != 0, shared != found["bytes_read"]))
            self.assertGreaterEqual(len(seen), 2)
            text = self.read_text("plan", "shards", "--cluster", "read=1KB/s,write=1KB/s,copy=1KB/s", cwd=folder)
            self.assertRegex(text, r"\npredicted \d+(\.\d+)? s\n")
            self.assertEqual(self.read_json("plan", "shards", "--cluster", "nic=1GB/s", cwd=folder)["prediction"]["seconds"], 0)
            self.check_fails(["plan", "shards", "--cluster", "read=1"], words="read=1; it takes 50GB/s", cwd=folder)

    def test_calibrate(self):
        """What it prints is what plan takes, and predicts by."""
        with tempfile.TemporaryDirectory() as folder:
            found = self.read_json("bench", "calibrate", "--ranks", "2", "--side", "64", "--folder", folder, "--bytes", "300K")
            self.assertEqual((found["ranks"], found["kind"], len(found["memcpy_bytes_per_s"])), (2, "threads", 2))
            for key in ["memory", "link", "read", "write", "copy", "cast"]:
                self.assertGreater(found[key + "_bytes_per_s"], 0)
            self.assertEqual(os.listdir(folder), [])
        stage, = self.plan("2: S(0)", "2: S(1)", found["cluster"], shape="4096x4096")["prediction"]["stages"]
        slowest = max(2**24 / found["link_bytes_per_s"], 2**26 / found["memory_bytes_per_s"])
        self.assertAlmostEqual(stage["seconds"] / (slowest + found["latency_seconds"]), 1, places=2)
        stage, = self.plan("2: S(0)", "2: S(1/1)", found["cluster"], shape="4096x4096")["prediction"]["stages"]
        slowest = max(2**24 / found["link_bytes_per_s"], 2**26 / found["scattered_bytes_per_s"])
        self.assertAlmostEqual(stage["seconds"] / (slowest + found["latency_seconds"]), 1, places=2)
        text = self.read_text("bench", "calibrate", "--ranks", "2", "--side", "64", "--text")
        self.assertRegex(text, r"\Anodes=1,per_node=2,intra=\d+KB/s,memory=\d+KB/s,scattered=\d+KB/s,latency=\d+\.\d+us\n\Z")
        for options, nodes in [(["--ranks", "2", "--messages"], "nodes=2,per_node=1,nic"), (["--ranks", "2", "--plain"], "nodes=1,per_node=2,intra"),
                               (["--ranks", "1"], "nodes=1,per_node=1,intra")]: # nothing scattered to measure
            text = self.read_text("bench", "calibrate", "--side", "64", "--text", *options)
            self.assertRegex(text, r"\A" + nodes + r"=\d+KB/s,memory=\d+KB/s,latency=\d+\.\d+us\n\Z")
        for arguments, words in [(["--ranks", "0"], "--ranks goes from 1"), (["--side", "1", "--ranks", "2"], "--side goes from")]:
            self.check_fails(["bench", "calibrate", *arguments], words=words)
        self.check_fails(["bench", "calibrate", "--ranks", "1", "--side", "64", "--folder", "/nowhere"], code=1, words="/nowhere")

    def test_predicted_beside_measured(self):
        """By given numbers, a prediction is that of plan; one that is far off fails."""
        cluster = "intra=1GB/s,memory=2GB/s,scattered=1GB/s,latency=1us,read=1GB/s,write=1GB/s,copy=1GB/s"
        with tempfile.TemporaryDirectory() as folder:
            small = ["bench", "predict", "--side", "64", "--bytes", "300K", "--runs", "1", "--folder", folder]
            cases = self.read_json(*small, "--cluster", cluster, "--within", "1e9")["cases"]
            self.assertEqual(len(cases), 9)
            for case in cases:
                self.assertGreater(case["measured"], 0)
                # Times are printed to the nanosecond, of which a small case takes only thousands.
                self.assertAlmostEqual(case["ratio"] * case["predicted"] / case["measured"], 1, delta=1e-3)
            for case in cases[:6]:
                shape, dtype, kind = case["what"].split()
                found = self.read_json("plan", "--shape", shape, "--dtype", dtype[:-1], "--from", case["from"], "--to", case["to"], "--cluster", cluster)
                self.assertEqual((kind, case["predicted"]), ("threads", found["prediction"]["seconds"]))
            done = support.run(*small, "--cluster", "memory=1B/s,read=1B/s,write=1B/s,copy=1B/s")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
            self.assertIn("times the predicted time, and a factor of 2 is allowed", done.stderr)
            self.assertIn("ratio", done.stdout)
            self.assertEqual(os.listdir(folder), [])
            self.check_fails([*small, "--within", "0.5"], words='--within "0.5": expected a factor')
            self.check_fails([*small, "--cluster", "speed=1"], code=2, words='"speed=1"')

    def test_bad_clusters(self):
        for cluster, words in [("", 'there are nodes, per_node'), ("nic", 'it takes 50GB/s'), ("nic=", "it takes 50GB/s"), ("nic=5", "nic=5; it takes 50GB/s"),
                               ("nic=0GB/s", "out of range"), ("scattered=0B/s", "out of range"), ("scattered=1us", "it takes 50GB/s"), ("nodes=0", "nodes=0 is out of range"), ("nodes=1.5", "out of range"),
                               ("nodes=-1", "nodes=-1"), ("nic=nanGB/s", "nan"), ("nic=0x1GB/s", "0x1"), ("latency=5", "5us"),
                               ("latency=1e400s", "1e400s"), ("nic=1GB/s,nic=2GB/s", "twice"), ("speed=1", '"speed=1"'), ("nodes=2,,", 'there are'),
                               ("nodes=2,per_node=1", "2 nodes of 1 ranks are too few for a plan of 4 ranks"), ("x" * 500, "xxx"),
                               ("nodes=99999999999", "out of range"), ("nic=" + "1" * 400 + "GB/s", "nic")]:
            with self.subTest(cluster=cluster):
                self.check_fails(["plan", "--shape", "8x8", "--dtype", "f32", "--from", "4: S(0)", "--to", "4: S(1)", "--cluster", cluster],
                                 words=words)

if __name__ == "__main__":
    support.main()
