# SPDX-License-Identifier: Apache-2.0
"""--trace: files that keep the rules of their format (trace_rules.py), whose bytes are those of the plan or of the conversion's
own report. What tracing costs, the benchmarks tell."""
import itertools
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "checkpoint", "support"))
import files
import support
from support import CommandTest, main
from trace_rules import KEPT, BrokenRule, Trace, demand

MOVES = [
    ("60x100", "f32", "2: S(0)", "2: S(1)"),
    ("64x4096", "f32", "4: S(1)", "4: S(0)"),  # each its own way: who walks depends on the runs
    ("4096x64", "f32", "4: S(0)", "4: S(1)"),
    ("70x50x3", "i32", "2,2: S(0), S(2)", "3: S(flat~)"),
    ("1300", "i64", "2[1,0]: S(0)", "4: R"),
    ("80x80", "f32", "3: P(sum)", "3: S(1~)"),
    ("600x60", "f32", "4: P(sum)", "4: R"),  # two stages
    ("700x700", "u8", "3: S(0/1)", "3: S(0)"),  # many small copies
    ("800x700", "f64", "4: S(0)", "2: S(1)"),
]
WAYS = [[], ["--messages"], ["--plain"]]
RUNS = 2


def mpi_environment():
    """What mpirun needs here; or None, where it cannot be run."""
    library = os.path.join(os.path.dirname(os.path.abspath(support.COMMAND)), "libreshard_mpi.so")
    if shutil.which("mpirun") is None or not os.path.exists(library) or \
            os.path.basename(os.path.dirname(library)) in ("asan", "tsan"):
        return None
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}


class TraceTest(CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-", dir=support.pick_memory(200 << 20))
        self.addCleanup(shutil.rmtree, self.folder)

    def at(self, name):
        return os.path.join(self.folder, name)

    # ---- moves -----------------------------------------------------------------------------------

    def arguments(self, case):
        shape, dtype, source, target = case
        return ["bench", "move", "--shape", shape, "--dtype", dtype, "--from", source, "--to", target, "--runs", str(RUNS),
                "--dump", self.at("dump"), "--trace", self.at("trace.json")]

    def check_move(self, case):
        """Every run of the trace has moved, and kept, what the plan says."""
        shape, dtype, source, target = case
        trace = Trace(self.at("trace.json"))
        trace.check_flows()
        self.assertEqual(trace.other["dropped"], 0)
        plan = self.read_json("plan", "--shape", shape, "--dtype", dtype, "--from", source, "--to", target)
        self.assertEqual(trace.runs(), list(range(RUNS + 1)))  # one warms up
        for run in trace.runs():
            self.assertEqual(trace.total(run=run), plan["bytes_moved"])
            self.assertLessEqual(trace.total("kept", KEPT, run=run), plan["bytes_kept"])
            if plan["stages"] == 1:  # an intermediate may lie where the target is, and then need not be copied
                self.assertEqual(trace.total("kept", KEPT, run=run), plan["bytes_kept"])
        self.assertTrue(trace.flows, "no arrows")
        ranks = {span.rank for span in trace.spans}
        self.assertEqual(ranks, set(range(len(trace.other["ranks"]))))
        for span in trace.spans:
            if span.name in ("pack", "send", "receive", "unpack"):
                sends = span.name in ("pack", "send")
                distance = span.args["peer"] - span.rank if sends else span.rank - span.args["peer"]
                self.assertEqual(span.args["round"], distance % len(ranks))
                self.assertIn("tensor", span.args)
            demand(span.category in ("plan", "exec"), span)
        self.assertEqual(sum(span.name == "plan" for span in trace.spans), len(ranks))
        return trace

    def test_threads(self):
        for case, way in itertools.product(MOVES, WAYS[:2]):
            with self.subTest(case=case, way=way):
                found = self.read_json(*self.arguments(case), *way)
                self.assertTrue(found["verified"])
                self.assertGreater(found["traced_gb_per_s"], 0)
                trace = self.check_move(case)
                names = {span.name for span in trace.spans}
                self.assertEqual("send" in names, bool(way))
                self.assertEqual("ready" in names, not way)

    def test_pairs(self):
        """What each rank receives from each other one, beside the plan's matrix."""
        case = ("96x128", "f32", "4: S(0)", "2,2: S(1), S(0)")
        self.read_json(*self.arguments(case), "--messages")
        trace = self.check_move(case)
        matrix = self.read_json("plan", "--shape", case[0], "--dtype", case[1], "--from", case[2], "--to", case[3])["matrix"]
        for source, row in enumerate(matrix):
            for target, wanted in enumerate(row):
                found = sum(span.args["bytes"] for span in trace.spans if span.name in ("receive", "unpack") and
                            span.rank == target and span.args["peer"] == source and span.args["run"] == 0)
                self.assertEqual(found, wanted if source != target else 0)

    def test_mpi(self):
        environment = mpi_environment()
        if environment is None:
            self.skipTest("no mpirun, no MPI backend in this build, or sanitizers, which do not know what MPI does to memory")
        for ranks, case, way in [(2, MOVES[0], WAYS[0]), (4, MOVES[2], WAYS[1]), (4, MOVES[3], WAYS[2]), (3, MOVES[5], WAYS[2])]:
            with self.subTest(ranks=ranks, case=case, way=way):
                done = subprocess.run(["mpirun", "-n", str(ranks), support.COMMAND, *self.arguments(case), "--json", *way],
                                      env=environment, capture_output=True, text=True, timeout=200, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                trace = self.check_move(case)
                self.assertEqual(trace.other["clock"], "CLOCK_MONOTONIC of one host")
                self.assertEqual("unpack" in {span.name for span in trace.spans}, way == WAYS[2])

    def test_environment(self):
        """RESHARD_TRACE stands in for --trace, and an empty one for nothing."""
        case = self.arguments(MOVES[0])[:-2]
        self.read_json(*case, env={**os.environ, "RESHARD_TRACE": self.at("other.json")})
        Trace(self.at("other.json")).check_flows()
        self.assertNotIn("traced_ratio", self.read_json(*case, env={**os.environ, "RESHARD_TRACE": ""}))
        self.assertEqual(sorted(os.listdir(self.folder)), ["dump", "other.json"])

    def test_drops(self):
        """What does not fit is counted: in the file, and on standard error."""
        self.read_text(*self.arguments(MOVES[2]))
        whole = Trace(self.at("trace.json"))
        done = support.run(*self.arguments(MOVES[2]), "--trace-events", "5")
        self.assertEqual(done.returncode, 0)
        cut = Trace(self.at("trace.json"))
        for one in cut.other["ranks"]:
            self.assertEqual(one["events"], 5)
            self.assertGreater(one["dropped"], 0)
        waits = sum(span.name == "wait" for span in whole.spans)  # these alone depend on the time of day
        total = sum(one["events"] for one in whole.other["ranks"])
        found = sum(one["events"] + one["dropped"] for one in cut.other["ranks"])
        self.assertGreaterEqual(found, total - waits)
        self.assertIn(f"trace.json: {cut.other['dropped']} events did not fit and were dropped", done.stderr)
        with self.assertRaises(BrokenRule):  # half of the arrows are gone
            cut.check_flows()

    # ---- conversions -----------------------------------------------------------------------------

    def write_model(self, count=6, rows=300):
        rnd = random.Random(1)
        model = {f"t{i}": ("F32", (rows, 700), rnd.randbytes(rows * 700 * 4)) for i in range(count)}
        files.write(self.at("source/model.safetensors"), model)
        with open(self.at("r.rules"), "w", encoding="utf-8") as file:
            file.write("t{0..1} S(0)@tp\nt{2..4} S(1)@tp\n* R\n")
        return ["convert", self.at("source"), self.at("out"), "--to", "tp=3", "--rules", self.at("r.rules"),
                "--trace", self.at("trace.json")]

    def check_conversion(self, report):
        """To verify is to read all of the source once more, and to compare all that was written with it."""
        trace = Trace(self.at("trace.json"))
        again = 6 * 300 * 700 * 4 if report["bytes_verified"] else 0
        self.assertEqual(trace.total(names={"read", "kernel copy"}), report["bytes_read"] + again)
        self.assertEqual(trace.total(names={"write", "kernel copy"}), report["bytes_written"])
        self.assertEqual(trace.total(names={"compare"}), report["bytes_verified"])
        self.assertEqual(sum(span.name == "plan" for span in trace.spans), report["ranks"])
        self.assertEqual({span.args["tensor"] for span in trace.spans if "tensor" in span.args}, {f"t{i}" for i in range(6)})
        self.assertIn("sync", {span.name for span in trace.spans})
        self.assertEqual(trace.flows, {})
        return trace

    def test_convert(self):
        case = self.write_model()
        for options in ([], ["--threads", "3", "--max-memory", "3M"], ["--dtype", "bf16", "--verify"]):
            with self.subTest(options=options):
                report = self.read_json(*case, *options)
                threads = {span.thread for span in self.check_conversion(report).spans}
                self.assertTrue(threads <= set(range(report["threads"])) and 0 in threads, threads)
                shutil.rmtree(self.at("out"))

    def test_resume(self):
        """The trace of the second run has what that run did, and no more."""
        case = [*self.write_model(rows=4000), "--journal-bytes", "256K", "--threads", "2", "--max-memory", "2M"]
        self.kill_after_a_record(*case, target=self.at("out"), besides=[self.at("trace.json")])
        self.assertEqual(os.path.getsize(self.at("trace.json")), 0)  # the first run never came to write it
        report = self.read_json(*case, "--resume")
        self.assertGreater(report["bytes_resumed"], 0)
        trace = Trace(self.at("trace.json"))
        self.assertEqual(trace.total(names={"write", "kernel copy"}), report["bytes_written"])
        self.assertEqual(trace.total(names={"read", "kernel copy"}), report["bytes_read"])

    def test_convert_mpi(self):
        environment = mpi_environment()
        if environment is None:
            self.skipTest("no mpirun, no MPI backend in this build, or sanitizers, which do not know what MPI does to memory")
        case = self.write_model()
        done = subprocess.run(["mpirun", "-n", "2", support.COMMAND, *case, "--journal-bytes", "1M", "--json"],
                              env=environment, capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        trace = self.check_conversion(support.json.loads(done.stdout))
        for rank in (0, 1):
            self.assertGreater(sum(span.rank == rank and span.name == "write" for span in trace.spans), 0)
            self.assertGreater(sum(span.rank == rank and span.name == "wait" for span in trace.spans), 0)

    def test_failures(self):
        """A file that cannot be written is found before any work is done; what is not a trace is left alone; and a conversion that
        fails leaves what it did until then."""
        case = self.write_model()[:-2]
        for path, code, words in [("/dev/null/t.json", 1, "/dev/null/t.json"), (self.at("none/t.json"), 2, "none/t.json"),
                                  (self.folder, 2, "only be written to a file"), (self.at("r.rules"), 2, "is not a trace"),
                                  ("/dev/null", 2, "only be written to a file")]:
            self.check_fails([*case, "--trace", path], 1, words)
            self.assertEqual(sorted(os.listdir(self.folder)), ["r.rules", "source"])
            self.check_fails([*self.arguments(MOVES[0])[:-2], "--trace", path], code, words)
            shutil.rmtree(self.at("dump"), ignore_errors=True)
        os.mkdir(self.at("out"))
        self.check_fails([*case, "--trace", self.at("trace.json")], 1, "exists already")
        self.assertEqual(Trace(self.at("trace.json")).spans, [])  # found before anything is planned
        os.rmdir(self.at("out"))
        os.unlink(self.at("trace.json"))
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        done = support.run(*case, "--trace", self.at("trace.json"), preexec_fn=limit)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual([span.name for span in Trace(self.at("trace.json")).spans][:2], ["plan", "compare"])

    # ---- predictions -----------------------------------------------------------------------------

    def predict(self, shape, source, target, cluster, *options):
        plan = self.read_json("plan", "--shape", shape, "--dtype", "f32", "--from", source, "--to", target, "--cluster", cluster,
                              "--trace", self.at("trace.json"), *options)
        trace = Trace(self.at("trace.json"))
        self.assertIn("predicted", trace.other["clock"])
        self.assertEqual(trace.flows, {})
        return plan, trace

    def test_predictions(self):
        """Messages on both ends are the plan's, and rows are as long as the bytes over the speed and the latencies. Parts of rows are
        packed for another node, in short runs and by four ranks of one memory."""
        for source, target in (("8: S(0)", "8: S(1)"), ("8: P(sum)", "8: R"), ("8: S(0)", "2,4: S(1), R"), ("4: S(0)", "8: S(0~)")):
            plan, trace = self.predict("512x512", source, target, "nodes=2,nic=10GB/s,intra=40GB/s,memory=20GB/s,scattered=5GB/s,latency=5us")
            in_columns = "S(1)" in target
            for name in ("send", "receive"):
                self.assertEqual(trace.total(names={name}), plan["bytes_moved"])
            pairs = {(span.rank, span.args["peer"], span.args["stage"]): span for span in trace.spans if span.name == "send"}
            for span in trace.spans:
                if span.name == "receive":
                    self.assertEqual(span.args["bytes"], pairs[span.args["peer"], span.rank, span.args["stage"]].args["bytes"])
                if span.name in ("send", "receive"):
                    near = span.rank // 4 == span.args["peer"] // 4
                    wanted = 5000 + span.args["bytes"] / (40 if near else 10)
                    if in_columns and span.name == "send" and not near:
                        wanted += 4 * span.args["bytes"] / 5
                    self.assertAlmostEqual(span.end - span.begin, wanted, delta=1.01)
                    self.assertEqual(trace.names["thread_name", span.rank, span.thread],
                                     ("to " if span.name == "send" else "from ") + ("its node" if near else "other nodes"))
                if span.name == "copy":
                    self.assertAlmostEqual(span.end - span.begin, span.args["bytes"] / (5 if in_columns else 20), delta=1.01)
            end = max(span.end for span in trace.spans)
            self.assertAlmostEqual(end, plan["prediction"]["seconds"] * 1e9, delta=2)
            self.assertEqual({span.end for span in trace.spans if span.name == "stage" and span.args["stage"] == plan["stages"] - 1},
                             {end})
            memory = sum(span.args["bytes"] for span in trace.spans if span.name == "copy")
            self.assertEqual(memory, sum(stage["bytes_within_nodes"] + stage["bytes_kept"]
                                         for stage in plan["prediction"]["stages"]))

    def test_predictions_of_many_ranks(self):
        """Are cut, and say so."""
        done = support.run("plan", "--shape", "4096", "--dtype", "f32", "--from", "1500: S(0)", "--to", "1500: S(0~)", "--cluster",
                           "nodes=2,nic=1GB/s", "--trace", self.at("trace.json"))
        self.assertEqual((done.returncode, done.stderr), (0, "reshard: --trace: only the first 1024 of 1500 ranks are in the file\n"))
        trace = Trace(self.at("trace.json"))
        self.assertEqual(trace.other["ranks_left_out"], 476)
        self.assertEqual({span.rank for span in trace.spans}, set(range(1024)))

    def test_predictions_need_a_cluster(self):
        case = ["plan", "--shape", "64", "--dtype", "f32", "--from", "2: S(0)", "--to", "2: R", "--trace"]
        self.check_fails([*case, self.at("trace.json")], 2, "add --cluster")
        self.check_fails([*case, "/dev/null/x", "--cluster", "nic=1GB/s"], 1, "/dev/null/x")
        self.assertEqual(os.listdir(self.folder), [])

    def test_off(self):
        self.read_text(*self.write_model()[:-2])
        self.assertEqual(sorted(os.listdir(self.folder)), ["out", "r.rules", "source"])


if __name__ == "__main__":
    main()
