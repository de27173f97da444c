# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel: a build backend (PEP 517) without dependencies, so that pip works offline.

  pip install ./python                        builds libreshard and the command with cmake, in build/wheel of the tree
  RESHARD_LIBRARY=.. pip install ./python     takes that library, and static/reshard beside it if it exists
  python3 python/backend.py [FOLDER]          writes the wheel into FOLDER (default: build)
  python3 python/backend.py --sdist FOLDER    writes the source distribution, from which pip builds the same wheel offline

One wheel serves every Python from 3.8 on. Its tag says which glibc it needs: the newest version of any symbol that the
files inside ask for, read from the files themselves. A file that needs other libraries than libc's is refused.
"""
import base64
import gzip
import hashlib
import io
import os
import re
import struct
import subprocess
import sys
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
MACHINES = {62: "x86_64", 183: "aarch64"}
OF_LIBC = re.compile(r"(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|ld-linux-[\w-]+\.so\.\d)$")
SECTION_DYNAMIC, SECTION_NEEDS = 6, 0x6FFFFFFE
TAG_NEEDED, TAG_SONAME = 1, 14
SUMMARY = "Converts, re-splits and reads model checkpoints (FSDP, DCP, DeepSpeed, Megatron, safetensors, .pt, GGUF), without PyTorch"


# ---- ELF --------------------------------------------------------------------------------------

class Elf:
    """The parts of a 64-bit little-endian ELF file that the dynamic linker reads."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:6] != b"\x7fELF\x02\x01":
            sys.exit("%s is not a 64-bit little-endian ELF file" % path)
        self.machine, = struct.unpack_from("<H", self.data, 18)
        at, = struct.unpack_from("<Q", self.data, 40)
        size, count = struct.unpack_from("<HH", self.data, 58)
        # name, kind, flags, address, offset, bytes, link, info, alignment, entry size
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, at + i * size) for i in range(count)]

    def text(self, section, at):
        begin = self.sections[section][4] + at
        return self.data[begin:self.data.index(b"\0", begin)].decode("ascii")

    def dynamic(self, wanted):
        """The strings of the dynamic entries with this tag."""
        found = []
        for _, kind, _, _, offset, count, link, _, _, _ in self.sections:
            for at in range(offset, offset + count, 16) if kind == SECTION_DYNAMIC else ():
                tag, value = struct.unpack_from("<QQ", self.data, at)
                if tag == wanted:
                    found.append(self.text(link, value))
        return found

    def versions(self):
        """The symbol versions that the file needs: ["GLIBC_2.17", ..]."""
        found = []
        for _, kind, _, _, offset, _, link, needs, _, _ in self.sections:
            if kind != SECTION_NEEDS:
                continue
            for _ in range(needs):
                _, count, _, first, following = struct.unpack_from("<HHIII", self.data, offset)
                at = offset + first
                for _ in range(count):
                    _, _, _, name, step = struct.unpack_from("<IHHII", self.data, at)
                    found.append(self.text(link, name))
                    at += step
                offset += following
        return found


def find_tag(paths):
    """The platform tag that holds for all of these files, such as manylinux_2_28_x86_64."""
    newest, machines = (2, 17), set()
    for path in paths:
        elf = Elf(path)
        machines.add(MACHINES.get(elf.machine))
        foreign = [name for name in elf.dynamic(TAG_NEEDED) if not OF_LIBC.match(name)]
        if foreign:
            sys.exit("%s needs %s, which a wheel cannot count on" % (path, ", ".join(foreign)))
        numbers = [re.match(r"GLIBC_(\d+)\.(\d+)", version) for version in elf.versions()]
        newest = max([newest, *((int(match.group(1)), int(match.group(2))) for match in numbers if match)])
    if len(machines) != 1 or None in machines:
        sys.exit("a wheel can only be built for one of %s" % ", ".join(sorted(MACHINES.values())))
    return "manylinux_%d_%d_%s" % (*newest, machines.pop())


# ---- the library ------------------------------------------------------------------------------

def read_version():
    with open(os.path.join(ROOT, "include", "reshard", "base.h"), encoding="utf-8") as file:
        text = file.read()
    return ".".join(re.search(r"#define RESHARD_VERSION_%s (\d+)" % part, text).group(1) for part in ("MAJOR", "MINOR", "PATCH"))


def build_library():
    """The path of libreshard, which is built unless RESHARD_LIBRARY names one."""
    given = os.environ.get("RESHARD_LIBRARY")
    if given:
        return os.path.realpath(given)
    if not os.path.exists(os.path.join(ROOT, "CMakeLists.txt")):
        sys.exit("libreshard's sources are not beside this folder: set RESHARD_LIBRARY, or build inside the tree")
    folder = os.path.join(ROOT, "build", "wheel")
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DRESHARD_BUILD_TESTS=OFF",
                    "-DRESHARD_MPI=OFF", "-DRESHARD_NN=OFF", "-DCMAKE_SHARED_LINKER_FLAGS=-s", "-DCMAKE_EXE_LINKER_FLAGS=-s"],
                   check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", folder, "-j", str(os.cpu_count() or 1), "--target", "reshard_shared",
                    "reshard_command_static"], check=True, stdout=sys.stderr)
    return os.path.realpath(os.path.join(folder, "libreshard.so"))


def list_binaries():
    """{name in the wheel: path}. The library is named by its SONAME, so that libreshard_mpi finds the one that is loaded."""
    library = build_library()
    soname, = Elf(library).dynamic(TAG_SONAME) or [None]
    if soname is None or not soname.startswith("libreshard.so."):
        sys.exit("%s is not libreshard: its SONAME is %s" % (library, soname))
    found = {"reshard/lib/" + soname: library}
    command = os.path.join(os.path.dirname(library), "static", "reshard")
    if os.path.exists(command):
        found["reshard/bin/reshard"] = command
    return found


def write_declarations():
    """Writes reshard/_native.py. A source distribution has it already, without the script that writes it."""
    script = os.path.join(ROOT, "scripts", "python-declarations")
    if os.path.exists(script):
        subprocess.run([sys.executable, "-B", script, "--compiler", os.environ.get("CC", "cc")], check=True)


# ---- the wheel --------------------------------------------------------------------------------

def list_sources():
    found = {}
    for folder, _, names in os.walk(os.path.join(HERE, "reshard")):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith((".py", "py.typed")):
                found[os.path.relpath(path, HERE).replace(os.sep, "/")] = path
    return found


def write_metadata(version):
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    return ("Metadata-Version: 2.1\nName: reshard\nVersion: %s\nSummary: %s\nLicense: Apache-2.0\nRequires-Python: >=3.8\n"
            "Provides-Extra: numpy\nRequires-Dist: numpy ; extra == 'numpy'\nDescription-Content-Type: text/markdown\n\n%s" %
            (version, SUMMARY, readme))


class Archive:
    """A wheel being written, and its record. Files have fixed times, so that the same tree gives the same bytes."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")
        self.record.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self, info):
        self.add(info + "RECORD", ("\n".join([*self.record, info + "RECORD,,"]) + "\n").encode("utf-8"))
        self.zip.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517. Returns the name of the wheel."""
    write_declarations()
    version, binaries = read_version(), list_binaries()
    tag = "py3-none-" + find_tag(binaries.values())
    name = "reshard-%s-%s.whl" % (version, tag)
    os.makedirs(wheel_directory, exist_ok=True)
    archive = Archive(os.path.join(wheel_directory, name))
    for entry, path in sorted({**list_sources(), **binaries}.items()):
        with open(path, "rb") as file:
            archive.add(entry, file.read(), 0o755 if entry in binaries else 0o644)
    info = "reshard-%s.dist-info/" % version
    archive.add(info + "METADATA", write_metadata(version).encode("utf-8"))
    archive.add(info + "WHEEL", ("Wheel-Version: 1.0\nGenerator: reshard\nRoot-Is-Purelib: false\nTag: %s\n" % tag).encode("ascii"))
    archive.add(info + "entry_points.txt", b"[console_scripts]\nreshard = reshard.__main__:main\n")
    for path in ("LICENSE", "packaging/NOTICES"):
        with open(os.path.join(ROOT, path), "rb") as file:
            archive.add(info + os.path.basename(path), file.read())
    archive.close(info)
    return name


# ---- the source distribution ------------------------------------------------------------------

# What cmake needs to build the library and the command, and this folder.
SOURCES = ("CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "CHANGELOG.md", "bench", "cli", "cmake", "include",
           "packaging/NOTICES", "python", "src")


def list_tree():
    """The files of SOURCES, relative to the tree; nothing that a build or Python left there."""
    found = []
    for name in SOURCES:
        path = os.path.join(ROOT, name)
        for folder, folders, names in os.walk(path) if os.path.isdir(path) else [(ROOT, [], [name])]:
            folders[:] = sorted(one for one in folders if one not in ("__pycache__", ".mypy_cache", "build"))
            found += [os.path.relpath(os.path.join(folder, one), ROOT) for one in sorted(names) if not one.endswith(".pyc")]
    return found


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: the tree without tests and docs. Its pyproject.toml is this folder's, one level up."""
    write_declarations()
    version = read_version()
    top = "reshard-" + version
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        project = file.read().replace('backend-path = ["."]', 'backend-path = ["python"]')
    os.makedirs(sdist_directory, exist_ok=True)
    path = os.path.join(sdist_directory, top + ".tar.gz")
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        def add(name, data, mode=0o644):
            entry = tarfile.TarInfo(top + "/" + name)
            entry.size, entry.mode, entry.mtime = len(data), mode, 315532800
            archive.addfile(entry, io.BytesIO(data))

        add("PKG-INFO", write_metadata(version).encode("utf-8"))
        add("pyproject.toml", project.encode("utf-8"))
        for name in list_tree():
            with open(os.path.join(ROOT, name), "rb") as file:
                add(name, file.read(), 0o755 if os.access(os.path.join(ROOT, name), os.X_OK) else 0o644)
    return os.path.basename(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sdist"]:
        print(os.path.join(sys.argv[2], build_sdist(sys.argv[2])))
        sys.exit(0)
    where = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build")
    print(os.path.join(where, build_wheel(where)))
