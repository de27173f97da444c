# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by several processes: what one process alone does, one voice, and nothing half done.

    python3 test_convert_mpi.py COMMAND mpirun -n
"""
import fcntl
import filecmp
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "checkpoint", "support"))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))
import dcp_files
import files
import support

LAUNCHER = []
SEED = int(os.environ.get("RESHARD_TEST_SEED", "1"))


class MpiTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-", dir=support.pick_memory(200 << 20))
        self.addCleanup(shutil.rmtree, self.folder)
        handle, self.pids = tempfile.mkstemp(prefix="reshard-test-")
        os.close(handle)
        self.addCleanup(os.unlink, self.pids)
        rnd = random.Random(SEED)
        self.model = {f"t{i}": ("F32", (300, 700), rnd.randbytes(300 * 700 * 4)) for i in range(8)}
        files.write(self.at("source/model.safetensors"), self.model)
        with open(self.at("r.rules"), "w", encoding="utf-8") as file:
            file.write("t{0..2} S(0)@tp\nt{3..5} S(1)@tp\n* R\n")
        self.options = ["--to", "tp=3", "--rules", self.at("r.rules"), "--journal-bytes", "128K", "--max-memory", "1M"]

    def at(self, name):
        return f"{self.folder}/{name}"

    def start(self, ranks, *arguments, command="convert"):
        """In a session of its own, so that all of it can be killed. Each rank leaves its process id in the file `pids`, and begins with a
        line like those that MPI and hwloc write on some machines."""
        noisy = ["sh", "-c", f'echo $$ >>{self.pids}; echo "mpirun: a line of its own" >&2; exec "$@"', "sh"]
        return subprocess.Popen([*LAUNCHER, str(ranks), *noisy, support.COMMAND, command, *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True)

    def mpirun(self, ranks, *arguments, **options):
        running = self.start(ranks, *arguments, **options)
        output, errors = running.communicate(timeout=200)
        if b"mpirun: a line of its own" not in errors:
            self.fail(f"the ranks did not begin: {errors}")
        return running.returncode, output.decode(), self.find_ours(errors.decode())

    @staticmethod
    def find_ours(errors):
        """The lines of standard error that the command wrote."""
        return "".join(re.findall(r"^reshard: .*\n", errors, re.MULTILINE))

    def check_same(self, a, b):
        names = sorted(os.listdir(self.at(a)))
        self.assertEqual(names, sorted(os.listdir(self.at(b))))
        self.assertEqual(filecmp.cmpfiles(self.at(a), self.at(b), names, shallow=False)[1:], ([], []))

    def fail_on(self, rank, instead):
        """Runs three ranks, of which one runs the shell command `instead`. What was said, once all have ended."""
        choose = f'if [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = {rank} ]; then {instead}; fi; exec "$@"'
        running = subprocess.Popen([*LAUNCHER, "3", "sh", "-c", choose, "sh", support.COMMAND, "convert", self.at("source"), self.at("out"),
                                    *self.options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            errors = running.communicate(timeout=100)[1].decode()
        except subprocess.TimeoutExpired:
            running.terminate()  # mpirun, which ends the ranks
            running.communicate(timeout=100)
            self.fail("the other ranks wait for one that has failed")
        self.assertNotEqual(running.returncode, 0, errors)
        self.assertFalse(os.path.exists(self.at("out")))
        return self.find_ours(errors)

    def test_one_rank_fails_before_mpi_starts(self):
        """It says so itself: the others know nothing of it, and mpirun ends them because it fails."""
        self.assertEqual(self.fail_on(2, 'exec "$@" --oops'), 'reshard: rank 2: convert: unknown option --oops; reshard convert --help lists them\n')
        for words in ("", "nonsense", "--nonsense"):
            self.assertRegex(self.fail_on(2, f'exec {support.COMMAND} {words}'), r"\Areshard: rank 2: [^\n]*; reshard --help lists them\n\Z")
        shutil.copy(support.COMMAND, self.at("reshard"))  # beside which there is no MPI backend
        self.assertRegex(self.fail_on(1, f'shift; exec {self.at("reshard")} "$@"'),
                         r"\Areshard: rank 1: started by mpirun, but the MPI backend cannot be loaded: [^\n]*\n\Z")

    def test_one_rank_runs_another_command(self):
        for rank in (0, 2):
            names = ("convert", "verify") if rank == 0 else ("verify", "convert")
            self.assertEqual(self.fail_on(rank, f'exec {support.COMMAND} verify {self.at("source")}'),
                             f'reshard: rank {max(rank, 1)} runs "{names[0]}", but rank 0 runs "{names[1]}": all ranks have to run the same command\n')

    def test_one_rank_runs_a_command_without_ranks(self):
        """Nobody waits for a rank that has nothing to share, nor for a page of help."""
        for arguments, job in ((f'inspect {self.at("source")}', "inspect"), (f'plan {self.at("source")} --to tp=3', "plan"), ("rules", "rules"), ("info", "info"),
                               ("convert --help", "help"), ("--version", "help"), ("help", "help"), ("bench --help", "help"),
                               ("bench plan --ranks 4", "bench plan"), ("bench move --help", "help")):
            for rank in (0, 2) if job == "inspect" else (2,):
                names = ("convert", job) if rank == 0 else (job, "convert")
                self.assertEqual(self.fail_on(rank, f'exec {support.COMMAND} {arguments}'),
                                 f'reshard: rank {max(rank, 1)} runs "{names[0]}", but rank 0 runs "{names[1]}": all ranks have to run the same command\n')

    def test_all_ranks_fail_before_mpi_starts(self):
        code, output, errors = self.mpirun(3, self.at("source"), self.at("out"), "--oops", "--json")
        self.assertEqual((code, errors), (2, 'reshard: convert: unknown option --oops; reshard convert --help lists them\n'))
        self.assertEqual(json.loads(output)["error"]["status"], "USAGE")

    def test_same_bytes_as_one_process(self):
        for number, form in enumerate(["dcp-safetensors", "rank-files"]):
            one, three, back = f"one{number}", f"three{number}", f"back{number}"
            options = [*self.options, "--format", form, "--json"]
            alone = self.read_json("convert", self.at("source"), self.at(one), *options)
            code, output, errors = self.mpirun(3, self.at("source"), self.at(three), *options, "--verify")
            self.assertEqual((code, errors), (0, ""))
            report = json.loads(output)  # one rank speaks, once
            self.assertEqual((report["ranks"], report["bytes_read"]), (3, alone["bytes_read"]))
            self.check_same(one, three)
            # Replicas are compared on the way back.
            reading = ["--from", "tp=3", "--rules", self.at("r.rules")] if form == "rank-files" else []
            self.read_json("convert", self.at(three), self.at(back), *reading)
            code, _, errors = self.mpirun(3, self.at(three), self.at(back + "3"), *reading, "--quiet")
            self.assertEqual((code, errors), (0, ""))
            self.check_same(back, back + "3")
            self.assertTrue(self.read_json("verify", self.at("source"), self.at(back + "3"))["same"])

    def test_archives(self):
        """CRCs of entries whose bytes several ranks wrote are those of one process, and right."""
        for number, form in enumerate(["dcp", "torch"]):
            one, three = f"one{number}", f"three{number}"
            options = [*self.options, "--format", form]
            self.read_json("convert", self.at("source"), self.at(one), *options)
            code, _, errors = self.mpirun(3, self.at("source"), self.at(three), *options, "--quiet")
            self.assertEqual((code, errors), (0, ""))
            self.check_same(one, three)
        self.assertEqual(dcp_files.read(self.at("three0"))[0], self.model)
        for name in os.listdir(self.at("three1")):
            self.assertIsNone(zipfile.ZipFile(self.at(f"three1/{name}")).testzip())

    def test_a_tensor_larger_than_memory(self):
        """Each rank stays near --max-memory, beside what MPI takes, and tells the same digest."""
        columns = 20000
        model = {"w": ("U8", (3000, columns), random.Random(SEED).randbytes(3000 * columns))}
        files.write(self.at("large/model.safetensors"), model)
        with open(self.at("large.rules"), "w", encoding="utf-8") as file:
            file.write("w S(1)@tp\n")
        alone = self.read_json("digest", self.at("large"))["checkpoint"]
        os.mkdir(self.at("peaks"))  # files, since mpirun may mix the lines of ranks
        launch = ("import os, sys; pid = os.spawnv(os.P_NOWAIT, sys.argv[2], sys.argv[2:]); _, how, used = os.wait4(pid, 0); "
                  "open(f'{sys.argv[1]}/{pid}', 'w').write(f'{used.ru_maxrss} {how}')")
        done = subprocess.run([*LAUNCHER, "3", sys.executable, "-c", launch, self.at("peaks"), support.COMMAND, "convert",
                               self.at("large"), self.at("out"), "--to", "tp=4", "--rules", self.at("large.rules"), "--max-memory", "16M",
                               "--threads", "8", "--json", "--no-sync"], stdout=subprocess.PIPE, check=True, timeout=200)
        report = json.loads(done.stdout)
        self.assertEqual((report["bytes_read"], report["bytes_digested"], report["digest"]), (60000000, 60000000, alone))
        peaks = []
        for name in os.listdir(self.at("peaks")):
            with open(self.at("peaks/" + name), encoding="utf-8") as file:
                peaks.append(file.read().split())
        self.assertEqual([int(how) for _, how in peaks], [0, 0, 0])
        self.assertEqual(self.read_json("digest", self.at("out"))["checkpoint"], alone)
        if "san" not in os.path.basename(os.path.dirname(support.COMMAND)):
            for peak, _ in peaks:
                self.assertLessEqual(int(peak), (16 + 32 + 32) << 10)

    def check_fails(self, words, *arguments):
        code, output, errors = self.mpirun(3, *arguments, "--quiet")
        self.assertEqual((code, output), (1, ""), errors)
        self.assertRegex(errors, r"\Areshard: rank \d: (?!rank).*\n\Z")
        self.assertIn(words, errors)

    def test_one_voice_for_errors(self):
        self.check_fails("exists already", self.at("source"), self.at("r.rules"))
        self.check_fails("no such file", self.at("none"), self.at("x"), *self.options)
        self.assertEqual(sorted(os.listdir(self.folder)), ["r.rules", "source"])

    def test_other_commands_print_what_one_process_prints(self):
        """Digest and verify share the reading; inspect, plan and pages of help are one rank's."""
        self.read_json("convert", self.at("source"), self.at("ranks"), *self.options, "--format", "rank-files")
        reading = ["--rules", self.at("r.rules")]
        for command, *arguments in [["digest", self.at("source")], ["digest", self.at("ranks"), "--from", "tp=3", *reading, "--json"],
                                    ["verify", self.at("ranks"), self.at("source"), "--from", "tp=3", *reading],
                                    ["verify", self.at("ranks"), self.at("source"), "--from", "tp=3", *reading, "--digest"],
                                    ["digest", self.at("source"), "--sha256"],
                                    ["inspect", self.at("source")], ["digest", "--help"]]:
            with self.subTest(command=command, arguments=arguments):
                code, output, errors = self.mpirun(3, *arguments, command=command)
                self.assertEqual((code, errors), (0, ""))
                self.assertEqual(output, self.read_text(command, *arguments))

    def test_verify_finds_the_same_differences(self):
        """The first element of each tensor, whichever rank has found it."""
        shutil.copytree(self.at("source"), self.at("changed"))
        name = next(name for name in sorted(os.listdir(self.at("changed"))) if name.endswith(".safetensors"))
        with open(self.at(f"changed/{name}"), "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            for place in (size - 1, size - 2000, size - 2001):
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 0x10]))
        arguments = [self.at("source"), self.at("changed"), "--json"]
        alone = support.run("verify", *arguments)
        self.assertEqual(alone.returncode, 1)
        self.assertGreaterEqual(len(json.loads(alone.stdout)["elements"]), 1)
        code, output, errors = self.mpirun(3, *arguments, command="verify")
        self.assertEqual((code, output, errors), (1, alone.stdout, alone.stderr))

    def test_mistakes_are_said_once(self):
        """Before ranks are connected and behind that: one line, and the exit status of one process."""
        for command, *arguments in [["digest", self.at("source"), "--thread", "2"], ["convert", self.at("source")],
                                    ["digest", self.at("none")], ["verify", self.at("source"), self.at("none")],
                                    ["inspect", self.at("none")], ["no-such-command"]]:
            with self.subTest(command=command, arguments=arguments):
                alone = support.run(command, *arguments)
                code, output, errors = self.mpirun(3, *arguments, command=command)
                said = re.sub(r"^reshard: rank \d: ", "reshard: ", errors, flags=re.MULTILINE)
                self.assertEqual((code, output, said), (alone.returncode, "", alone.stderr))

    def test_renamed(self):
        with open(self.at("r.rules"), "w", encoding="utf-8") as file:
            file.write("model.{0..3} S(0)@tp name(x.{1})\n* S(1)@tp\n")
        options = [*self.options, "--rename", "t{0..}=model.{1}"]
        self.read_json("convert", self.at("source"), self.at("one"), *options)
        code, _, errors = self.mpirun(3, self.at("source"), self.at("three"), *options)
        self.assertEqual((code, errors), (0, ""))
        self.check_same("one", "three")

    def test_killed_and_gone_on_with_by_others(self):
        """One rank or all of them die at some point; one process, or other ranks, go on."""
        rnd = random.Random(SEED)
        self.read_json("convert", self.at("source"), self.at("expected"), *self.options)
        kills = 0
        for _ in range(30):  # a busy machine may let many of them finish before it lets us kill
            os.truncate(self.pids, 0)
            running = self.start(3, self.at("source"), self.at("out"), *self.options, "--quiet")
            while not os.path.exists(self.at("out.partial/.reshard-journal")) and running.poll() is None:
                time.sleep(0.001)
            with open(self.pids, encoding="utf-8") as file:
                ranks = [int(line) for line in file]
            time.sleep(rnd.random() * 0.02)
            victims = [rnd.choice(ranks)] if ranks and rnd.random() < 0.5 else [running.pid, *ranks]
            for victim in victims:
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it was faster
            running.communicate(timeout=200)
            if os.path.exists(self.at("out")):
                if os.path.exists(self.at("out/.reshard-journal")):
                    os.unlink(self.at("out/.reshard-journal"))
                self.check_same("expected", "out")
            elif os.path.exists(self.at("out.partial")):
                kills += 1
                self.wait_for_lock()
                code, _, errors = self.mpirun(kills % 2 + 1, self.at("source"), self.at("out"), *self.options,
                                              "--resume", "--quiet")
                self.assertEqual((code, errors), (0, ""))
                self.check_same("expected", "out")
            shutil.rmtree(self.at("out"), ignore_errors=True)
            if kills == 3:
                break
        self.assertGreater(kills, 0)

    def test_ranks_that_see_other_folders(self):
        """Each rank in a folder of its own, as on machines with local disks. What an earlier run left on one of them is not taken
        for the folder that the others write into."""
        for rank in range(2):
            os.mkdir(self.at(str(rank)))
        launch = f'cd {self.folder}/${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} && exec "$@"'
        command = [*LAUNCHER, "2", "sh", "-c", launch, "sh", support.COMMAND, "convert", self.at("source"), "out", *self.options]
        for left in [False, True]:
            if left:
                self.read_json("convert", self.at("source"), self.at("1/out"), *self.options)
                os.rename(self.at("1/out"), self.at("1/out.partial"))
                os.chmod(self.at("1/out.partial"), 0o700)
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=200)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(self.find_ours(done.stderr.decode()), "reshard: rank 1: out.partial: is not the folder that rank 0 writes into; "
                             "all ranks have to see the same files\n")
            self.assertFalse(os.path.exists(self.at("0/out")) or os.path.exists(self.at("1/out")))
            shutil.rmtree(self.at("0/out.partial"))

    def wait_for_lock(self):
        """Until no process of the killed run has the journal open."""
        with open(self.at("out.partial/.reshard-journal"), "rb") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} COMMAND MPIRUN -n [TEST..]")
    support.COMMAND = os.path.abspath(sys.argv.pop(1))
    LAUNCHER = [sys.argv.pop(1), sys.argv.pop(1)]
    unittest.main(module="__main__")
