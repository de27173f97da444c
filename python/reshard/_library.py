# SPDX-License-Identifier: Apache-2.0
"""Finds libreshard, and calls it.

    lib.reshard_spec_parse(None, b"4: S(0)", byref(handle))

`lib` loads the library at the first call. A call that fails raises the exception for its status (_errors.py). All calls
release the GIL while they run. Only modules that wrap a part of the library call `lib`.
"""
import ctypes
import os
import threading
from ctypes import byref, c_size_t, c_void_p, create_string_buffer
from typing import Any, List, Optional, Sequence, Tuple

from . import _native
from ._errors import Error, LibraryMissing, Range, make_error

#: The library's name for the dynamic linker. It has the minor version in it, which may break compatibility before 1.0.
SONAME = "libreshard.so." + (str(_native.RESHARD_VERSION_MAJOR) if _native.RESHARD_VERSION_MAJOR else
                             "0.%d" % _native.RESHARD_VERSION_MINOR)
HERE = os.path.dirname(os.path.abspath(__file__))


def find_candidates() -> List[str]:
    """Where to look, in this order. If RESHARD_LIBRARY names a library, only that one is tried."""
    asked = os.environ.get("RESHARD_LIBRARY")
    if asked:
        return [asked]
    return [os.path.join(HERE, "lib", SONAME), SONAME]


def load_library() -> ctypes.CDLL:
    tried = []
    for path in find_candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append("%s (%s)" % (path, error))
            continue
        check_abi(library, path)
        return library
    raise LibraryMissing("libreshard was not found. Tried, in this order: %s. Set RESHARD_LIBRARY=/path/to/%s to use "
                         "another one." % ("; ".join(tried), SONAME))


def check_abi(library: ctypes.CDLL, path: str) -> None:
    try:
        found = library.reshard_abi_version
    except AttributeError:
        raise LibraryMissing("%s is not libreshard" % path) from None
    found.restype = ctypes.c_int32
    if found() != _native.RESHARD_ABI_VERSION:
        raise LibraryMissing("%s has version %d of the binary interface, but this package needs %d" %
                             (path, found(), _native.RESHARD_ABI_VERSION))


class Library:
    """The functions of libreshard, as attributes. Each gets its argument types when it is first used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: Optional[ctypes.CDLL] = None

    def _load(self) -> ctypes.CDLL:
        with self._lock:
            if self._loaded is None:
                self._loaded = load_library()
        return self._loaded

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        function = self._bind(self._load(), name)
        setattr(self, name, function)
        return function

    def _bind(self, library: ctypes.CDLL, name: str) -> Any:
        declare: Any = _native.FUNCTIONS[name]
        result, parameters = declare()
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LibraryMissing("%s has no %s: it is older than this package" % (library._name, name)) from None
        function.argtypes = parameters
        function.restype = ctypes.c_int32 if result is _native.STATUS else result
        if result is _native.STATUS and name not in ("reshard_error_put", "reshard_error_set"):
            function.errcheck = self._check
        return function

    def _check(self, status: int, _function: Any, _arguments: Any) -> int:
        if status < 0:
            raise self._error(status)
        return status

    def _error(self, status: int) -> Error:
        # Errors are kept for each thread, and this is still the thread of the call.
        found = _native.reshard_error(size=ctypes.sizeof(_native.reshard_error))
        self.reshard_error_get(ctypes.byref(found))
        return make_error(status, found)


lib = Library()


def library_path() -> str:
    """The path of the library, which is loaded if it has not been yet.

    >>> import reshard
    >>> "libreshard.so" in reshard.library_path()
    True
    """
    return str(lib._load()._name)


class Handle:
    """Owns an object of the library, and releases it together with itself, but after all handles that need it.

    Python references alone do not ensure that order: objects that are collected together, as part of a cycle, may be
    finalised in any order.
    """

    _release = ""  # the name of the function that releases it
    _pointer: Optional[int] = None
    _ended = False
    _needs: Tuple["Handle", ...] = ()
    _users: Any = ()  # an item for each handle that needs this one

    def __init__(self, pointer: Optional[int]) -> None:
        self._pointer = pointer
        self._users = []

    def _need(self, *handles: "Handle") -> None:
        """Makes sure that the library's objects of these handles outlive that of this one."""
        self._needs += handles
        for handle in handles:
            handle._users.append(None)

    def __del__(self) -> None:
        self._ended = True
        self._let_go()

    def _let_go(self) -> None:
        if not self._ended or self._users:
            return
        pointer, self._pointer = self._pointer, None
        needs, self._needs = self._needs, ()
        if pointer and lib is not None:  # it is None while the interpreter shuts down
            getattr(lib, self._release)(pointer)
        for handle in needs:
            handle._users.pop()
            handle._let_go()

    def __reduce__(self) -> Any:
        # Two handles of one object would release it twice. copy.copy calls this as well.
        raise TypeError("a %s can be neither copied nor pickled" % type(self).__name__)


def make(function: Any, *arguments: Any) -> int:
    """Calls a function whose last argument is an out_ pointer, and returns that pointer."""
    pointer = c_void_p()
    function(*arguments, byref(pointer))
    assert pointer.value is not None
    return pointer.value


def encode(text: Any, what: str = "text") -> bytes:
    """Encodes a text for the library, for which it must not contain a NUL. Paths may be of any type that os takes."""
    found = os.fsencode(text)
    if b"\0" in found:
        raise ValueError("%s contains a NUL: %r" % (what, text))
    return found


def whole_number(number: Any, what: str, low: int = -2**63, end: int = 2**63) -> int:
    """An int from any integer type, such as NumPy's. Raises TypeError for strings, floats and bools, and Range unless
    low <= number < end: ctypes would cut off the upper bits of a number that its C type cannot hold."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError("%s must be a whole number, not %r" % (what, number))
    found = int(number.__index__())
    if not low <= found < end:
        raise Range("%s must be from %d to %d, not %d" % (what, low, end - 1, found))
    return found


def rank_number(rank: Any) -> int:
    return whole_number(rank, "a rank", 0, 2**31)


def rank_count(count: Any) -> int:
    """A number of ranks. The library refuses those that are not positive."""
    return whole_number(count, "the number of ranks", -2**31, 2**31)


def thread_count(count: Any) -> int:
    """A number of threads. The library refuses negative ones."""
    return whole_number(count, "threads", -2**31, 2**31)


def byte_count(count: Any, what: str) -> int:
    return whole_number(count, what, 0)


def encode_list(texts: Sequence[str], what: str) -> Any:
    """An array of C strings, which live as long as the result."""
    return (ctypes.c_char_p * len(texts))(*[encode(text, what) for text in texts])


def decode(found: bytes) -> str:
    return found.decode("utf-8", "surrogateescape")


def read_text(function: Any, *arguments: Any) -> str:
    """The text that a function writes whose last arguments are buffer, capacity and out_length."""
    length = c_size_t()
    function(*arguments, None, 0, byref(length))
    buffer = create_string_buffer(length.value + 1)
    function(*arguments, buffer, len(buffer), byref(length))
    return decode(buffer.value)


def read_struct(kind: Any, function: Any, *arguments: Any) -> Any:
    """The struct that a function fills. A struct that may grow begins with its size, which is set here."""
    found = kind()
    if kind._fields_[0][0] == "size":
        found.size = ctypes.sizeof(kind)
    function(*arguments, byref(found))
    return found


def version() -> str:
    """The version of the loaded library.

    >>> import reshard
    >>> reshard.version() == reshard.__version__
    True
    """
    return decode(lib.reshard_version())
