# SPDX-License-Identifier: Apache-2.0
"""`reshard plan --cluster` beside a prediction made here, from the matrix of bytes alone."""
import random

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

class Predictions(support.CommandTest):
    def plan(self, source, target, cluster, shape="48x36"):
        return self.read_json("plan", "--shape", shape, "--dtype", "f32", "--from", source, "--to", target, "--single-stage",
                              "--cluster", cluster)

    def test_by_the_matrix(self):
        rnd = random.Random(SEED)
        for number in range(60):
            source, target, per_node = random_spec(rnd), random_spec(rnd), rnd.choice([1, 2, 3, 4, 5, 12])
            nic, intra, memory, latency = (rnd.choice([1, 2, 7, 50]) * 10**6 for _ in range(4))
            cluster = f"nodes=12,per_node={per_node},nic={nic}B/s,intra={intra}B/s,memory={memory}B/s,latency={latency}ns"
            found = self.plan(source, target, cluster)
            expected = predict(found["matrix"], per_node, nic, intra, memory, latency * 1e-9)
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
        stage, = self.plan("16: S(0)", "16: S(1)", "nodes=2,nic=50GB/s,memory=1GB/s", shape="2048x2048")["prediction"]["stages"]
        self.assertEqual((stage["bottleneck"], stage["which"], stage["bytes"]), ("copying within the node", 0, 8 * 8 * piece))
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

    def test_bad_clusters(self):
        for cluster, words in [("", 'there are nodes, per_node'), ("nic", 'it takes 50GB/s'), ("nic=", "it takes 50GB/s"), ("nic=5", "nic=5; it takes 50GB/s"),
                               ("nic=0GB/s", "out of range"), ("nodes=0", "nodes=0 is out of range"), ("nodes=1.5", "out of range"),
                               ("nodes=-1", "nodes=-1"), ("nic=nanGB/s", "nan"), ("nic=0x1GB/s", "0x1"), ("latency=5", "5us"),
                               ("latency=1e400s", "1e400s"), ("nic=1GB/s,nic=2GB/s", "twice"), ("speed=1", '"speed=1"'), ("nodes=2,,", 'there are'),
                               ("nodes=2,per_node=1", "2 nodes of 1 ranks are too few for a plan of 4 ranks"), ("x" * 500, "xxx"),
                               ("nodes=99999999999", "out of range"), ("nic=" + "1" * 400 + "GB/s", "nic")]:
            with self.subTest(cluster=cluster):
                self.check_fails(["plan", "--shape", "8x8", "--dtype", "f32", "--from", "4: S(0)", "--to", "4: S(1)", "--cluster", cluster],
                                 words=words)

if __name__ == "__main__":
    support.main()
