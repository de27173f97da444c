# SPDX-License-Identifier: Apache-2.0
"""Zip files as our reader sees them, beside Python's zipfile, and files that must be refused.

  test_zip.py ZIP-LINES
"""
import io
import os
import random
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

SEED = int(os.environ.get("RESHARD_TEST_SEED", "20"))


class Batch:
    """Zip files to be read in one go, each with what is expected of its lines."""

    def __init__(self, program, folder):
        self.program, self.folder, self.cases = program, folder, []

    def add(self, data, judge, begin=0, count=-1):
        path = os.path.join(self.folder, "%d.zip" % len(self.cases))
        with open(path, "wb") as file:
            file.write(data)
        self.cases.append((path, begin, count, judge, data))

    def run(self):
        arguments = [str(x) for case in self.cases for x in case[:3]]
        done = subprocess.run([self.program] + arguments, capture_output=True, check=True)
        lines = iter(done.stdout.decode("utf-8", "replace").splitlines())
        for path, begin, count, judge, data in self.cases:
            head = next(lines)
            rows = [next(lines) for _ in range(int(head.split()[0]))] if head[0] != "e" else []
            judge(head, rows, data)
        assert next(lines, None) is None
        return len(self.cases)


def same_as(archive, shift=0):
    """The lines must be those of a zip file that Python reads; its first byte is at `shift`."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        expected = [(info.filename.encode(), info.compress_size, info.file_size, info.CRC,
                     "deflated" if info.compress_type else "stored", file.read(info)) for info in file.infolist()]

    def judge(head, rows, data):
        assert head == "%d members" % len(expected), (SEED, head)
        for row, (name, stored, size, crc, how, content) in zip(rows, expected):
            words = row.split(" ", 6)
            assert words[0] == name.hex() and words[2:] == [str(stored), str(size), str(crc), how, str(zlib.adler32(content))], (
                SEED, row, name)
            if how == "stored":  # can be read in place
                assert data[int(words[1]):][:stored] == content, (SEED, row)

    return judge


def refused(status, words):
    def judge(head, rows, data):
        assert head.startswith("error %d: " % status) and words in head, (head, rows, words)
    return judge


def damaged(words):
    """Opens; the first member cannot be read."""
    def judge(head, rows, data):
        assert rows and "error -101: " in rows[0] and words in rows[0], (head, rows, words)
    return judge


class Unseekable(io.RawIOBase):
    """Makes zipfile put sizes behind the data."""

    def __init__(self):
        super().__init__()
        self.data = bytearray()

    def writable(self):
        return True

    def write(self, data):
        self.data += data
        return len(data)


def make_content(rng):
    size = rng.choice([0, 1, 100, 5000, 70000, 300000])
    return rng.randbytes(size) if rng.random() < 0.5 else b"reshard " * (size // 8)


def make_archive(rng, streaming):
    target = Unseekable() if streaming else io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        for i in range(rng.choice([0, 1, 3, 12])):
            name = rng.choice(["archive/data/%d", "ü/€%d", "x%d", "a..b/..c%d", "folder%d/"]) % i
            info = zipfile.ZipInfo(name)
            info.compress_type = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
            info.comment = rng.choice([b"", b"comment"])
            info.extra = rng.choice([b"", struct.pack("<HH", 0x4246, 5) + b"ZZZZZ"])
            with file.open(info, "w", force_zip64=rng.random() < 0.3) as member:
                if not name.endswith("/"):
                    member.write(make_content(rng))
        file.comment = rng.choice([b"", b"a comment", b"c" * 65535])
    return bytes(target.data) if streaming else target.getvalue()


def add_python_zips(batch):
    rng = random.Random(SEED)
    for i in range(60):
        archive = make_archive(rng, i % 3 == 0)
        before, behind = rng.choice([b"", rng.randbytes(777)]), rng.choice([b"", rng.randbytes(999), b"PK\x05\x06"])
        batch.add(archive, same_as(archive))
        batch.add(before + archive, same_as(archive, len(before)))  # the places count from where the archive begins
        batch.add(archive + behind, same_as(archive)) if len(archive) < 60000 or not behind else None
        batch.add(before + archive + behind, same_as(archive), len(before), len(archive))


# ---- by hand ---------------------------------------------------------------------------------------------------------


def member(name=b"a", content=b"content", **changes):
    """Fields of a member; `changes` replaces some, those that begin with local_ only in the local header."""
    fields = dict(name=name, data=content, flags=0, method=0, crc=zlib.crc32(content), stored=len(content), size=len(content),
                  extra=b"", disk=0, signature=b"PK\1\2", at=None)
    fields.update({"local_" + key: fields[key] for key in ("name", "flags", "method", "crc", "stored", "size")},
                  local_extra=b"", local_signature=b"PK\3\4", behind=b"")
    for key, value in changes.items():
        fields[key] = value
        if "local_" + key in fields and "local_" + key not in changes and key in ("name", "flags", "method"):
            fields["local_" + key] = value
    return fields


def build(members, comment=b"", zip64=False, torch=False, **end):
    data, directory = b"", b""
    for m in members:
        at = len(data) if m["at"] is None else m["at"]
        local_extra = m["local_extra"]
        if torch:
            pad = -(len(data) + 34 + len(m["name"])) % 64
            local_extra = struct.pack("<HH", 0x4246, pad) + b"Z" * pad
        data += m["local_signature"] + struct.pack("<HHHHHIIIHH", 0, m["local_flags"], m["local_method"], 0, 0, m["local_crc"],
                                                   m["local_stored"], m["local_size"], len(m["local_name"]), len(local_extra))
        data += m["local_name"] + local_extra + m["data"] + m["behind"]
        directory += m["signature"] + struct.pack("<HHHHHHIIIHHHHHII", 0, 0, m["flags"], m["method"], 0, 0, m["crc"],
                                                  m["stored"], m["size"], len(m["name"]), len(m["extra"]), 0, m["disk"], 0, 0, at)
        directory += m["name"] + m["extra"]
    e = dict(disk=0, entries_here=len(members), entries=len(members), size=len(directory), offset=len(data), locator_disks=1,
             entries64=len(members), size64=len(directory), offset64=len(data), signature64=b"PK\6\6")
    e.update(end)
    tail = b""
    if zip64:
        tail = e["signature64"] + struct.pack("<QHHIIQQQQ", 44, 0, 0, 0, 0, e["entries64"], e["entries64"], e["size64"], e["offset64"])
        tail += b"PK\6\7" + struct.pack("<IQI", 0, len(data) + len(directory), e["locator_disks"])
    tail += b"PK\5\6" + struct.pack("<HHHHIIH", e["disk"], 0, e["entries_here"], e["entries"], e["size"], e["offset"], len(comment))
    return data + directory + tail + comment


def deflate(content):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def deflated(content, **changes):
    data = changes.pop("data", deflate(content))
    return member(content=content, data=data, **{**dict(method=8, stored=len(data), local_stored=len(data)), **changes})


def torch_member(name, content):
    crc = zlib.crc32(content)
    return member(name, content, flags=0x0808, local_crc=0, local_stored=0, local_size=0,
                  behind=b"PK\7\x08" + struct.pack("<III", crc, len(content), len(content)))


def add_built(batch):
    """As torch writes them, and oddities that are fine."""
    storages = [torch_member(b"archive/data/%d" % i, os.urandom(100 * i)) for i in range(5)]
    as_torch = build([torch_member(b"archive/data.pkl", b"\x80\x02N.")] + storages, zip64=True, torch=True)
    full = dict(entries=0xffff, entries_here=0xffff, size=0xffffffff, offset=0xffffffff)

    def aligned(head, rows, data):
        same_as(as_torch)(head, rows, data)
        assert all(int(row.split()[1]) % 64 == 0 for row in rows), rows
    batch.add(as_torch, aligned)
    good = [build([member()], zip64=True, **full), build([]), build([deflated(b"")]), build([deflated(b"x" * 10**6)]),
            build([member(extra=b"\1\2\3")]), build([member(extra=struct.pack("<HHQQ", 1, 16, 7, 7), stored=0xffffffff, size=0xffffffff)]),
            build([member(b"a"), member(b"b", at=None, extra=struct.pack("<HHQ", 9, 8, 5) + struct.pack("<HH", 1, 0))])]
    for archive in good:
        batch.add(archive, same_as(archive))
    batch.add(build([member()], comment=b"PK\5\6 in a comment"), same_as(build([member()])))  # not in Python's eyes
    # The last end record is the one whose own comment fits.
    batch.add(build([member()], comment=b"PK\5\6" + bytes(16) + b"\1\0"), same_as(build([member()])))
    # Without CRCs, as torch writes them on request: Python checks them even then.
    for odd in [member(crc=0, local_crc=0), deflated(b"content", crc=0, local_crc=0)]:
        batch.add(build([odd]), lambda head, rows, data: rows[0].endswith(" %d" % zlib.adler32(b"content")) or sys.exit(rows))


def add_refusals(batch):
    corrupt, unsupported = -101, -6
    two = [member(b"a"), member(b"b")]
    rows = [
        (b"", corrupt, "no end record"), (b"PK", corrupt, "no end record"), (b"x" * 1000, corrupt, "no end record"),
        (build([member()])[:-1], corrupt, "no end record"),
        (build(two, disk=1), unsupported, "several disks"), (build(two, entries_here=1), unsupported, "several disks"),
        (build(two, size=10**6), corrupt, "larger than the file"), (build(two, offset=10**6), corrupt, "larger than the file"),
        (build(two, entries=3, entries_here=3), corrupt, "too small for its members"),
        (build(two, entries=1, entries_here=1), corrupt, "holds more than its members"),
        (build([member(signature=b"PK\1\3")]), corrupt, "lacks its signature"),
        (build([member(local_signature=b"PK\3\5")]), corrupt, "its local header does not begin with the signature of one"),
        (build([member(at=10**6)]), corrupt, "outside the archive"), (build([member(at=20)]), corrupt, "outside the archive"),
        (build([member(stored=10**6, size=10**6, local_stored=0, local_size=0)]), corrupt, "outside the archive"),
        (build([member(local_extra=b"", at=0, data=b"")]), corrupt, "outside the archive"),
        (build([member(b"a", stored=40, size=40, local_stored=40, local_size=40), member(b"b")]), corrupt, "overlaps another"),
        (build([member(b"a", stored=8, size=8, local_stored=8, local_size=8), member(b"b")]), corrupt, "overlaps another"),
        (build([member(b"a"), member(b"a")]), corrupt, "two members have this name"),
        (build([member(b"a"), member(b"b"), member(b"b", at=0)]), corrupt, "contradicts"),
        (build([member(b"a"), member(b"a", at=0)]), corrupt, "overlaps another"),
        (build([member(b"")]), corrupt, "has no name"), (build([member(b"a\0b")]), corrupt, "NUL"),
        (build([member(b"/etc/passwd")]), corrupt, "absolute"), (build([member(b"\\x")]), corrupt, "absolute"),
        (build([member(b"..")]), corrupt, "leads outside"), (build([member(b"../x")]), corrupt, "leads outside"),
        (build([member(b"a/../../x")]), corrupt, "leads outside"), (build([member(b"a\\..\\x")]), corrupt, "leads outside"),
        (build([member(b"a/..")]), corrupt, "leads outside"),
        (build([member(flags=1)]), unsupported, "encrypted"), (build([member(local_flags=1)]), unsupported, "encrypted"),
        (build([member(flags=1 << 6)]), unsupported, "encrypted"), (build([member(flags=1 << 13)]), unsupported, "encrypted"),
        (build([member(flags=1 << 5)]), unsupported, "patch"),
        (build([member(method=12)]), unsupported, "another method"), (build([member(method=9)]), unsupported, "another method"),
        (build([member(disk=2)]), unsupported, "another disk"),
        (build([member(stored=6, local_stored=6)]), corrupt, "two sizes"),
        (build([member(local_name=b"b")]), corrupt, "contradicts"), (build([member(local_name=b"aa")]), corrupt, "contradicts"),
        (build([member(local_method=8)]), corrupt, "contradicts"), (build([member(local_size=8)]), corrupt, "contradicts"),
        (build([member(local_stored=8)]), corrupt, "contradicts"), (build([member(local_crc=8)]), corrupt, "contradicts"),
        (build([member(extra=struct.pack("<HH", 9, 5))]), corrupt, "cut off"),
        (build([member(extra=struct.pack("<HHQ", 1, 8, 7), stored=0xffffffff, size=0xffffffff)]), corrupt, "zip64 is cut off"),
        (build([member(extra=struct.pack("<HHQQQ", 1, 24, 7, 7, 2**63), stored=0xffffffff, size=0xffffffff, at=0xffffffff)]),
         corrupt, "outside the archive"),
        (build([member(extra=struct.pack("<HHQQ", 1, 16, 2**64 - 1, 2**64 - 1), stored=0xffffffff, size=0xffffffff, local_stored=0,
                       local_size=0)]),
         corrupt, "outside the archive"),
        (build(two, zip64=True, signature64=b"PK\6\5"), corrupt, "not where it should be"),
        (build(two, zip64=True, locator_disks=2), unsupported, "several disks"),
        (build(two, zip64=True, entries64=3), corrupt, "contradict each other"),
        (build(two, zip64=True, size64=2**63, size=0xffffffff), corrupt, "larger than the file"),
        (build(two, zip64=True, entries64=2**62, entries=0xffff, entries_here=0xffff), corrupt, "too small for its members"),
        (build([deflated(b"x" * 10, size=10**6, local_size=10**6)]), corrupt, "more bytes than its compressed data can make"),
    ]
    for data, status, words in rows:
        batch.add(data, refused(status, words))
    stream = deflate(b"content")
    for odd, words in [
            (member(crc=1, local_crc=1), "CRC is wrong"), (deflated(b"content", crc=1, local_crc=1), "CRC is wrong"),
            (deflated(b"content", size=6, local_size=6), "holds more than it announced"),
            (deflated(b"content", size=8, local_size=8), "holds less than it announced"),
            (deflated(b"x" * 10**6, size=10**5, local_size=10**5), "holds more than it announced"),
            (deflated(b"content", data=stream + b"!"), "left over"), (deflated(b"content", data=stream[:-1]), "cut off"),
            (deflated(b"content", data=b"\xff" * 9), "stream is damaged"), (deflated(b"", data=b""), "cut off")]:
        batch.add(build([odd]), damaged(words))


def add_prefixes(batch):
    """No part of an archive is taken for one, from either side."""
    archive = build([member(b"a"), deflated(b"y" * 50, name=b"b")], zip64=True)
    for end in range(0, len(archive), 3):
        batch.add(archive[:end], refused(-101, "no end record"))
    for begin in range(1, len(archive) - 22, 7):
        batch.add(archive[begin:], lambda head, rows, data: head.startswith("error -101: ") or sys.exit(head))


def main():
    with tempfile.TemporaryDirectory() as folder:
        batch = Batch(sys.argv[1], folder)
        add_python_zips(batch)
        add_built(batch)
        add_refusals(batch)
        add_prefixes(batch)
        print("%d zip files judged as they should be" % batch.run())


if __name__ == "__main__":
    main()
