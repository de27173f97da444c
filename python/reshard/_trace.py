# SPDX-License-Identifier: Apache-2.0
"""Traces: what threads do, and when, as files that chrome://tracing and Perfetto show."""
import ctypes
import warnings
from contextlib import contextmanager
from ctypes import byref
from typing import Any, Iterator, Optional

from . import _native
from ._errors import Error
from ._library import Handle, encode, lib, make, whole_number


class Trace(Handle):
    """A trace that several calls record in, as `trace`; for one call, the path of a file will do.

    The file is opened at once, so that a path that cannot be written is found before any work is done, and written by `write`
    or at the end of `with`, also after an exception. events: kept for each thread, 64 bytes each; 0: 65536. What is in
    the file, docs/trace.md tells.

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
        """Writes all that was recorded so far, while nobody records."""
        lib.reshard_trace_write(self._pointer)

    @property
    def dropped(self) -> int:
        """How many events did not fit."""
        return int(lib.reshard_trace_dropped(self._pointer))

    def __enter__(self) -> "Trace":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.write()
        except Error:
            if kind is None:  # else what went wrong before is what matters
                raise
        if self.dropped:
            warnings.warn("%s: %d events did not fit and were dropped; Trace(path, events=..) keeps more" %
                          (self.path, self.dropped), stacklevel=2)


@contextmanager
def tracing(trace: Any) -> Iterator[Optional[Trace]]:
    """What a call takes as `trace`: a trace, a path, or None."""
    if trace is None or isinstance(trace, Trace):
        yield trace
    else:
        with Trace(trace) as made:
            yield made
