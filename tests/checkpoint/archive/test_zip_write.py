# SPDX-License-Identifier: Apache-2.0
"""Zip files that we write, read by Python and by our own reader.

  test_zip_write.py ZIP-WRITE-FILES ZIP-LINES
"""
import io
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib


def content(member, size):
    return bytes((place * 31 + member * 7 + (place >> 8)) & 255 for place in range(size))


def combine(first, second, length):
    """CRC of two runs in a row, the second of `length` bytes; by matrices over GF(2)."""
    def times(matrix, vector):
        result = 0
        for bit, row in enumerate(matrix):
            result ^= row if vector >> bit & 1 else 0
        return result

    matrix = [0xedb88320] + [1 << i for i in range(31)]  # one zero bit
    for _ in range(3):
        matrix = [times(matrix, row) for row in matrix]
    while length:
        if length & 1:
            first = times(matrix, first)
        matrix = [times(matrix, row) for row in matrix]
        length >>= 1
    return first ^ second


def crc_of_zeros(size):
    """By doubling a block of 1 MiB."""
    block = zlib.crc32(bytes(1 << 20))
    crc, all_, length, count = block, 0, 1 << 20, size >> 20
    while count:
        if count & 1:
            all_ = combine(all_, crc, length)
        crc, length, count = combine(crc, crc, length), 2 * length, count >> 1
    rest = size & ((1 << 20) - 1)
    return combine(all_, zlib.crc32(bytes(rest)), rest)


def padding_is_torch_like(data, info):
    """Name, then one field "FB" of Z's."""
    extra = data[info.header_offset + 30 + len(info.filename.encode()):data_at(data, info)]
    length = int.from_bytes(extra[2:4], "little")
    return extra[:2] == b"FB" and extra[4:] == b"Z" * length


def data_at(data, info):
    head = data[info.header_offset:info.header_offset + 30]
    return info.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")


def check_small(data):
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.testzip() is None
        infos = file.infolist()
        assert [info.file_size for info in infos] == [1000, 6, 0, 1, 63, 64, 65, 100003, 3000, 2]
        for i, info in enumerate(infos):
            assert file.read(info) == content(i, info.file_size), info
            assert data_at(data, info) % 64 == 0 and padding_is_torch_like(data, info), info
            assert info.CRC == zlib.crc32(content(i, info.file_size)), info
        # Headers say it too, for readers that do not look at the directory.
        first = data[:30]
        assert int.from_bytes(first[14:18], "little") == infos[0].CRC and int.from_bytes(first[22:26], "little") == 1000


def check_folder(folder, reader):
    path = lambda name: os.path.join(folder, name)
    with open(path("small.zip"), "rb") as file:
        small = file.read()
    with open(path("inside.bin"), "rb") as file:
        assert file.read()[862:] == small
    check_small(small)
    with zipfile.ZipFile(path("many.zip")) as file:
        assert len(file.infolist()) == 70000
        assert all(file.read("many/data/%d" % i) == content(i, i % 3) for i in range(0, 70000, 101))
    with zipfile.ZipFile(path("empty.zip")) as file:
        assert file.infolist() == []
    hole = (5 << 30) + 3
    with zipfile.ZipFile(path("large.zip")) as file:
        infos = file.infolist()
        assert [info.file_size for info in infos] == [10, hole, 1000]
        assert infos[1].CRC == crc_of_zeros(hole) and infos[2].header_offset > hole
        assert file.read("large/last") == content(2, 1000) and file.read("large/first") == content(0, 10)
    arguments = [path("small.zip"), "0", "-1", path("inside.bin"), "862", "-1", path("empty.zip"), "0", "-1", path("many.zip"), "0", "-1"]
    lines = subprocess.run([reader] + arguments, capture_output=True, check=True, text=True).stdout.splitlines()
    assert len(lines) == 11 + 11 + 1 + 70001 and not [line for line in lines if "error" in line], lines[:30]
    assert lines[0] == "10 members" and lines[8].split()[-1] == str(zlib.adler32(content(7, 100003))), lines[8]


def main():
    writer, reader = sys.argv[1:]
    assert combine(zlib.crc32(b"abc"), zlib.crc32(b"defgh"), 5) == zlib.crc32(b"abcdefgh")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([writer, folder], check=True)
        check_folder(folder, reader)
    print("5 zip files are what they should be")


if __name__ == "__main__":
    main()
