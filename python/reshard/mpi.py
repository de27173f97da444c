# SPDX-License-Identifier: Apache-2.0
"""Groups over MPI, made from an mpi4py communicator.

    from mpi4py import MPI
    import reshard.mpi

    with reshard.mpi.group(MPI.COMM_WORLD) as group:
        columns = group.redistribute(rows, "4: S(0)", "4: S(1)")

libreshard_mpi is taken from RESHARD_MPI_LIBRARY, from the folder of libreshard, or from the system. It must use the same
MPI as mpi4py. `with` matters: a rank that leaves it by an exception breaks the group, so that no other rank waits for it.
"""
import ctypes
import os
from ctypes import byref, c_double, c_int, c_size_t, c_void_p
from typing import Any, List, Optional

from ._errors import LibraryMissing
from ._group import Group
from ._library import SONAME, lib, library_path


class _Options(ctypes.Structure):
    """reshard_mpi_options. It is declared here because its header needs that of MPI."""

    _fields_ = [("size", c_size_t), ("timeout_seconds", c_double)]


_library: Optional[ctypes.CDLL] = None


def _candidates() -> List[str]:
    asked = os.environ.get("RESHARD_MPI_LIBRARY")
    if asked:
        return [asked]
    name = SONAME.replace("libreshard.", "libreshard_mpi.")
    return [os.path.join(os.path.dirname(library_path()), name), name]


def _load() -> ctypes.CDLL:
    global _library
    if _library is not None:
        return _library
    library_path()  # load libreshard first, so that libreshard_mpi finds it by its SONAME
    tried = []
    for path in _candidates():
        try:
            problem = _problem_with(ctypes.CDLL(path))  # local until it is known to be the right one
            if problem is None:
                _library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
                return _library
        except OSError as error:
            problem = str(error)
        tried.append("%s (%s)" % (path, problem))
    raise LibraryMissing("libreshard_mpi was not found. Tried, in this order: %s. Set RESHARD_MPI_LIBRARY to use another one." %
                         "; ".join(tried))


def _problem_with(library: ctypes.CDLL) -> Optional[str]:
    """Why the library cannot be used, or None. It must use the same MPI as mpi4py, whose communicators it is given."""
    from mpi4py import MPI
    text, length = ctypes.create_string_buffer(8192), c_int()
    try:
        function = library.MPI_Get_library_version  # of the MPI that it is linked with
    except AttributeError:
        return "is not linked with any MPI"
    function(text, byref(length))
    theirs, ours = MPI.Get_library_version(), text.value.decode("utf-8", "replace")
    if theirs.strip("\0\n ") == ours.strip("\0\n "):
        return None
    return "uses %s, but mpi4py uses %s" % (_first_line(ours), _first_line(theirs))


def _first_line(version: str) -> str:
    """The first line of a version text. MPICH adds how it was built."""
    return " ".join(version.strip("\0\n ").partition("\n")[0].split())


def group(comm: Any, *, timeout: float = 0.0) -> Group:
    """A group of the ranks of an mpi4py communicator, all of which call this. timeout: seconds without any message after
    which a rank gives up; 0: never. All ranks have to close it before MPI is finalized."""
    from mpi4py import MPI
    library = _load()
    # A communicator is a pointer for Open MPI, a number for MPICH.
    kind: Any = c_void_p if MPI._sizeof(MPI.Comm) == ctypes.sizeof(c_void_p) else c_int
    function = library.reshard_group_from_mpi
    function.restype = ctypes.c_int32
    function.argtypes = [c_void_p, kind, ctypes.POINTER(_Options), ctypes.POINTER(c_void_p)]
    options, pointer = _Options(ctypes.sizeof(_Options), timeout), c_void_p()
    handle = kind.from_address(MPI._addressof(comm)).value
    status = function(None, handle, byref(options), byref(pointer))
    if status < 0 or pointer.value is None:
        raise lib._error(status)
    return Group(pointer.value)
