# SPDX-License-Identifier: Apache-2.0
"""Conversions on a file system that can share blocks: xfs in a file. Skipped where mkfs.xfs, loop devices or the right to
mount are missing."""
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support

FIEMAP = 0xc020660b
SHARED, LAST, UNWRITTEN = 0x2000, 0x1, 0x800


def extents(path):
    """(place, bytes, flags) of each extent, as the file system tells."""
    found, at = [], 0
    with open(path, "rb") as file:
        while True:
            buffer = bytearray(struct.pack("<QQIIII", at, 2**63, 1, 0, 100, 0) + bytes(100 * 56))
            fcntl.ioctl(file, FIEMAP, buffer)
            count = struct.unpack_from("<I", buffer, 20)[0]
            for i in range(count):
                logical, _, length, _, _, flags = struct.unpack_from("<QQQQQI", buffer, 32 + 56 * i)
                found.append((logical, length, flags))
                at = logical + length
                if flags & LAST:
                    return found
            if count == 0:
                return found


class Reflink(support.CommandTest):
    def setUp(self):
        folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, folder)
        image, self.disk = f"{folder}/image", f"{folder}/disk"
        if os.geteuid() != 0 or shutil.which("mkfs.xfs") is None:
            self.skipTest("mkfs.xfs is missing, or this is not root")
        os.mkdir(self.disk)
        with open(image, "wb") as file:
            file.truncate(400 << 20)
        subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True, timeout=200)
        if subprocess.run(["mount", "-o", "loop", image, self.disk], check=False, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("mounting is not permitted here, or there are no loop devices")
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)
        self.read_text("bench", "model", self.at("whole"), "--bytes", "60M")
        self.read_text("bench", "model", self.at("fsdp"), "--bytes", "60M", "--to", "fsdp=8")
        os.sync()

    def at(self, name):
        return f"{self.disk}/{name}"

    def free(self):
        os.sync()
        room = os.statvfs(self.disk)
        return room.f_bavail * room.f_frsize

    def check_shared(self, report, before):
        """Extents of large tensors belong to the source as well; small tensors, some 14%, and the header took room."""
        path = self.at("out/model.safetensors")
        size = os.path.getsize(path)
        self.assertGreater(report["bytes_shared"], 0.8 * report["bytes_written"])
        found = extents(path)
        self.assertTrue(all(not flags & UNWRITTEN for _, _, flags in found))
        self.assertGreaterEqual(sum(length for _, length, flags in found if flags & SHARED), report["bytes_shared"])
        self.assertLess(before - self.free(), size - report["bytes_shared"] + (1 << 20))
        self.assertTrue(files.read_hf(self.at("out")) == files.read_hf(self.at("whole")))  # no 60 MB in words

    def test_row_merges_share_blocks(self):
        before = self.free()
        report = self.read_json("convert", self.at("fsdp"), self.at("out"))
        self.check_shared(report, before)

    def test_what_cannot_be_shared_is_copied(self):
        """Tensors in a file of PyTorch lie at multiples of 64 bytes, those in ours at multiples of a block."""
        self.read_json("convert", self.at("whole"), self.at("torch"), "--format", "torch")
        report = self.read_json("convert", self.at("torch"), self.at("out"), "--format", "hf")
        self.assertLess(report["bytes_shared"], 0.1 * report["bytes_written"])
        self.assertTrue(files.read_hf(self.at("out")) == files.read_hf(self.at("whole")))  # no 60 MB in words

    def test_what_was_not_read_has_no_digest(self):
        report = self.read_json("convert", self.at("fsdp"), self.at("out"))
        self.assertNotIn("digest", report)
        self.assertEqual(report["bytes_digested"], report["bytes_written"] - report["bytes_shared"])
        report = self.read_json("convert", self.at("fsdp"), self.at("verified"), "--verify")
        self.assertEqual(report["digest"], self.read_json("digest", self.at("whole"))["checkpoint"])

    def test_what_is_shared_needs_no_room(self):
        room = self.free()
        with open(self.at("filler"), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, room - (30 << 20))
        before = self.free()
        self.assertLess(before, 40 << 20)
        report = self.read_json("convert", self.at("fsdp"), self.at("out"), "--verify")
        self.check_shared(report, before)
        self.assertEqual(report["digest"], self.read_json("digest", self.at("whole"))["checkpoint"])
        # What has to be written does need room, and says so.
        self.check_fails(["convert", self.at("fsdp"), self.at("f32"), "--dtype", "f32"], 1, "No space left on device")
        self.assertFalse(os.path.exists(self.at("f32")))


if __name__ == "__main__":
    support.main()
