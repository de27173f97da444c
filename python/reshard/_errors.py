# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one for each error status of the library, with the library's error text.

Each is also the built-in exception that fits its kind, so that `except KeyError` and `except OSError` work as usual:

>>> import reshard
>>> try:
...     reshard.Spec("4: S(")
... except ValueError as error:
...     type(error).__name__
'Syntax'
"""
from typing import Dict, Type

from . import _native


class Error(Exception):
    """An error of the library, with the library's text. The subclasses tell the kind."""

    #: The library's number for this kind of error; 0 if the error is not the library's.
    status = 0

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


def make_error(status: int, text: str) -> Error:
    """The exception for a status; a plain Error for one that this package does not know yet."""
    error = KINDS.get(status, Error)(text)
    error.status = status
    return error
