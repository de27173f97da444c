# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one for each error status of the library, with the library's error text.

Each is also the built-in exception that fits its kind, so that `except KeyError` and `except OSError` work as usual:

>>> import reshard
>>> try:
...     reshard.Spec("4: S(")
... except ValueError as error:
...     type(error).__name__
'Syntax'

Programs decide by fields, because texts may change: `status`, `subject` (the file, tensor, key or value that the error is
about) and `hint` (what would help).

>>> try:
...     reshard.open("nowhere")
... except reshard.Error as error:
...     error.status == reshard.NotFound.status, error.subject, error.hint
(True, 'nowhere', None)
"""
import ctypes
from typing import Any, Dict, Optional, Type

from . import _native


class Error(Exception):
    """An error of the library, with the library's text. The subclasses tell the kind."""

    #: The library's number for this kind of error; 0 if the error is not the library's.
    status = 0
    #: The file, tensor, key or value that the error is about; "" if the library names none.
    subject = ""
    #: What would help, by the name that `reshard --json` has for it ("source-mesh", "set-key", "resume", ..), or None.
    hint: Optional[str] = None
    #: The rank that failed, if the error is one of a group; else None.
    rank: Optional[int] = None
    #: The library's text. The exception's text may have more: which argument the hint is about.
    text = ""

    def __str__(self) -> str:  # KeyError would show its argument in quotes
        return str(self.args[0]) if self.args else ""


class LibraryMissing(Error, ImportError):
    """libreshard was not found, or is not the one that this package was made for."""


class Invalid(Error, ValueError):
    """An argument that makes no sense."""


class Syntax(Error, ValueError):
    """A text that cannot be parsed: a spec, a mesh, rules, the header of a file."""


class Range(Error, ValueError, IndexError):
    """A number that is out of range."""


class Overlap(Error, ValueError):
    """Two shards hold the same element where that is not allowed."""


class Gap(Error, ValueError):
    """Some elements are held by no shard."""


class Unsupported(Error, NotImplementedError):
    """Something that the library recognizes, but cannot do."""


class NotFound(Error, KeyError, FileNotFoundError):
    """There is no such tensor, file, family or dtype."""


class NoMemory(Error, MemoryError):
    """The machine has no memory left."""


class MemoryLimit(Error, MemoryError):
    """More memory would be needed than was allowed."""


class Cancelled(Error):
    """Stopped because the caller asked for it."""


class Mismatch(Error, ValueError):
    """Two things that should agree do not: arguments on different ranks, or a shape in memory and on disk."""


class Unfinished(Error, FileExistsError):
    """An interrupted conversion is in the way of this one."""


class Io(Error, OSError):
    """A file could not be read or written."""


class Corrupt(Error, OSError):
    """A file is damaged."""


class Check(Error):
    """A check failed: what was written or received is not what was read or sent."""


class GroupBroken(Error):
    """A rank of the group has failed or left."""


class Timeout(Error, TimeoutError):
    """Another rank did not answer in time."""


def _by_status() -> Dict[int, Type[Error]]:
    kinds: Dict[int, Type[Error]] = {}
    kind: Type[Error]
    for kind in (Invalid, Syntax, Range, Overlap, Gap, Unsupported, NotFound, NoMemory, MemoryLimit, Cancelled,
                 Mismatch, Unfinished, Io, Corrupt, Check, GroupBroken, Timeout):
        name = "".join("_" + letter if letter.isupper() else letter for letter in kind.__name__)
        kind.status = int(getattr(_native, "RESHARD_ERR" + name.upper()))
        kinds[kind.status] = kind
    return kinds


KINDS = _by_status()


#: The library's hints: their names, and the arguments that they are about.
_ARGUMENTS = {
    "SOURCE_MESH": ' (from_=, as in from_="tp=4")',
    "TARGET_MESH": ' (to=, as in to="tp=4")',
    "SET_KEY": '; set={"%s": N} gives it one',
    "RULES": " (rules=); `reshard rules` lists the families, and drafts rules for other models",
    "CONFIG": " (config=); or give rules (rules=), which `reshard rules --for MODEL` drafts",
    "DTYPE": "; dtype= gives them one",
    "EXCLUDE": " (exclude=)",
    "PADDING": '; padding="any" cuts it off nevertheless',
    "RESUME": "; resume=True continues it",
    "FINISH": " (run it again with resume=True)",
    "DEQUANTIZE": ' (dequantize=, as in dequantize="bf16")',
    "LIKE": ' (like=, as in like="base.gguf")',
    "BLOCK_TYPE": ' (dtype=, as in dtype="q8_0")',
    "ONLY": ' (only="%s")',
}
HINTS: Dict[str, int] = {name: int(getattr(_native, "RESHARD_HINT_" + name)) for name in _ARGUMENTS}
_NAMES = {number: name for name, number in HINTS.items()}


def make_error(status: int, found: Any) -> Error:
    """The exception for a status and the library's fields; a plain Error for a status that this package does not know."""
    text, name = found.text.decode("utf-8", "replace"), _NAMES.get(found.hint)
    subject = found.subject.decode("utf-8", "surrogateescape")
    words = _ARGUMENTS[name] if name is not None else ""
    error = KINDS.get(status, Error)(text + (words % (subject or "KEY") if "%s" in words else words))
    error.status, error.text, error.subject = status, text, subject
    error.hint = name.lower().replace("_", "-") if name is not None else None
    error.rank = found.rank if found.has_rank else None
    return error


def error_fields(status: int, error: BaseException) -> Any:
    """An exception as the library's fields."""
    text, subject, hint = str(error), "", None
    if isinstance(error, Error):
        text, subject, hint = error.text or text, error.subject, error.hint
    return _native.reshard_error(
        size=ctypes.sizeof(_native.reshard_error), status=status,
        hint=HINTS.get((hint or "").upper().replace("-", "_"), _native.RESHARD_HINT_NONE),
        subject=subject.encode("utf-8", "surrogateescape").replace(b"\0", b" "),
        text=text.encode("utf-8", "replace").replace(b"\0", b" "))
