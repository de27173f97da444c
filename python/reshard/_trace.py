# SPDX-License-Identifier: Apache-2.0
"""Traces: what threads did when, in files for chrome://tracing and Perfetto."""
import ctypes
import warnings
from contextlib import contextmanager
from ctypes import byref
from typing import Any, Iterator, Optional

from . import _native
from ._errors import Error
from ._library import Handle, encode, lib, make, whole_number


class Trace(Handle):
    """A trace that several calls record in, passed to them as `trace`. For a single call, pass the path of a file instead.

    The file is opened at once, so that a path that cannot be written fails before any work is done. It is written by
    `write`, or at the end of `with`, even after an exception. events: how many to keep for each thread, of 64 bytes each;
    0: 65536. docs/trace.md describes the file.

    >>> import json, numpy, reshard, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> numpy.save(folder + "/w.npy", numpy.zeros((8, 4), "f4"))
    >>> with reshard.Trace(folder + "/trace.json") as trace:
    ...     for rank in range(2):
    ...         _ = reshard.open(folder + "/w.npy").shard("2: S(0)", rank).read(trace=trace)
    >>> [event["args"]["bytes"] for event in json.load(open(folder + "/trace.json"))["traceEvents"] if event["name"] == "read"]
    [64, 64]
    """

    _release = "reshard_trace_destroy"

    def __init__(self, path: Any, *, events: int = 0) -> None:
        super().__init__(None)
        self.path = path
        options = _native.reshard_trace_options(size=ctypes.sizeof(_native.reshard_trace_options),
                                                thread_events_max=whole_number(events, "events"))
        self._pointer = make(lib.reshard_trace_create, None, None, encode(path, "a path"), byref(options))

    def write(self) -> None:
        """Writes everything recorded so far. Nobody may be recording meanwhile."""
        lib.reshard_trace_write(self._pointer)

    @property
    def dropped(self) -> int:
        """The number of events that did not fit."""
        return int(lib.reshard_trace_dropped(self._pointer))

    def __enter__(self) -> "Trace":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.write()
        except Error:
            if kind is None:  # otherwise the earlier exception matters more
                raise
        if self.dropped:
            warnings.warn("%s: %d events did not fit and were dropped; Trace(path, events=..) keeps more" %
                          (self.path, self.dropped), stacklevel=2)


@contextmanager
def tracing(trace: Any, events: int = 0) -> Iterator[Optional[Trace]]:
    """Turns the `trace` argument of a call (a Trace, a path or None) into a Trace or None."""
    if trace is None or isinstance(trace, Trace):
        yield trace
    else:
        with Trace(trace, events=events) as made:
            yield made
