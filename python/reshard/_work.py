# SPDX-License-Identifier: Apache-2.0
"""Long calls: they report progress, Ctrl-C ends them, and what callbacks raise is raised in the caller.

Python handles signals on the main thread, between two of its own instructions, so a main thread inside the library would
not notice Ctrl-C. A long call therefore runs on another thread, while the caller waits; an exception there, such as
KeyboardInterrupt, sets the flag that the library looks at after every few MiB, and is raised when the call has come back.
Callbacks run on that other thread, where no signal can strike in their first line. Calls from other threads than the main
one, which get no signals, are made where they are.
"""
import _thread
import ctypes
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Union

from . import _native
from ._library import decode, lib, make

#: True: a bar; False or None: none; a function: called with (what, done, total). "auto": a bar where somebody looks.
Progress = Union[bool, str, None, Callable[[str, int, int], Any]]
_SECONDS_BETWEEN_REPORTS = 0.05
#: Less is read before anybody could grow impatient, at 100 MB/s, and without the cost of a thread.
SHORT_BYTES = 8 << 20
_BAR_LENGTH = 30


def _is_watched() -> bool:
    """On a terminal, or in a notebook."""
    shell = sys.modules.get("IPython")
    if shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell":
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # closed, or None under pythonw
        return False


def _count(number: float) -> str:
    for unit in ("", "Ki", "Mi", "Gi"):
        if number < 1024:
            return "%.4g %sB" % (number, unit)
        number /= 1024
    return "%.4g TiB" % number


class Bar:
    """One line on standard error that is written again and again."""

    def __init__(self) -> None:
        self.width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        part = done / total if total else 1.0
        filled = int(part * _BAR_LENGTH)
        line = "%s [%s%s] %3d%%" % (what, "#" * filled, "." * (_BAR_LENGTH - filled), int(part * 100))
        if total >= 1 << 20:  # bytes, not tensors
            line += " %s of %s" % (_count(done), _count(total))
        self.width = max(self.width, len(line))
        sys.stderr.write("\r" + line.ljust(self.width))
        sys.stderr.flush()

    def close(self) -> None:
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()


def _listener_of(progress: Progress) -> Any:
    if progress is True or (progress == "auto" and _is_watched()):
        return Bar()
    if progress is None or progress is False or progress == "auto":
        return None
    if not callable(progress):
        raise TypeError("progress is a function, True, False or \"auto\", not %r" % (progress,))
    return progress


class _Call(threading.local):
    """What the callbacks of a call share with whoever made it; each thread has its own call under way."""

    listener: Optional[Callable[[str, int, int], Any]] = None
    raised: Optional[BaseException] = None
    next_report = 0.0


class _Worker:
    """A context of the library, with its callbacks."""

    def __init__(self) -> None:
        self._call = _Call()
        self._cancel = ctypes.c_int(0)
        self._lock, self._running = threading.Lock(), 0
        kinds: Dict[str, Any] = dict(_native.reshard_context_options._fields_)
        self._on_progress = kinds["progress"](self._report)  # kept here: ctypes does not know that the library holds on to it
        options = _native.reshard_context_options(size=ctypes.sizeof(_native.reshard_context_options),
                                                  progress=self._on_progress, cancel_flag=ctypes.pointer(self._cancel))
        self.pointer = make(lib.reshard_context_create, ctypes.byref(options))

    def _report(self, _user: Any, what: bytes, done: int, total: int) -> None:
        call = self._call
        try:
            if call.listener is None or call.raised is not None:
                return
            now = time.monotonic()
            if done < total and now < call.next_report:
                return
            call.next_report = now + _SECONDS_BETWEEN_REPORTS
            call.listener(decode(what), done, total)
        except BaseException as error:
            call.raised = error
            self._cancel.value = 1

    def is_called(self) -> bool:
        """Whether this thread is in a callback of a call."""
        return self._call.listener is not None

    def run(self, work: Callable[[], Any], progress: Progress = None) -> Any:
        """Makes a long call, and gives its result. Raises what callbacks raised, also when the call did not mind."""
        listener = _listener_of(progress)
        with self._lock:
            self._running += 1
        try:
            if threading.current_thread() is threading.main_thread():
                return self._run_beside(work, listener)
            return self._run_here(work, listener)
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:  # until then some call may not have seen it yet
                    self._cancel.value = 0
            if isinstance(listener, Bar):
                listener.close()

    def _run_here(self, work: Callable[[], Any], listener: Any) -> Any:
        call = self._call
        call.listener, call.raised, call.next_report = listener, None, 0.0
        try:
            result = work()
        except BaseException as error:
            if call.raised is not None:
                raise call.raised from error
            raise
        finally:
            call.listener = None
        if call.raised is not None:
            raise call.raised
        return result

    def _run_beside(self, work: Callable[[], Any], listener: Any) -> Any:
        results: List[Any] = []
        errors: List[BaseException] = []

        def run() -> None:
            try:
                results.append(self._run_here(work, listener))
            except BaseException as error:
                errors.append(error)

        thread = _Thread.take()
        struck: Optional[BaseException] = None
        thread.start(run)
        while True:  # until the call has come back: it uses memory of ours
            try:
                thread.done.acquire()
                break
            except BaseException as error:
                self._cancel.value = 1
                struck = struck or error
        _Thread.idle.append(thread)
        if struck is not None:
            raise struck
        if errors:
            raise errors[0]
        return results[0]


class _Thread:
    """Makes one call after another for the main thread. It is kept, as a new one would begin each call with memory that it has
    never touched. There are several only if a signal's handler calls while a call is under way."""

    idle: List["_Thread"] = []

    def __init__(self) -> None:
        self._go, self.done = _thread.allocate_lock(), _thread.allocate_lock()
        self._go.acquire()
        self.done.acquire()
        self._job: Optional[Callable[[], None]] = None
        _thread.start_new_thread(self._loop, ())

    @classmethod
    def take(cls) -> "_Thread":
        try:
            return cls.idle.pop()
        except IndexError:
            return cls()

    def start(self, job: Callable[[], None]) -> None:
        self._job = job
        self._go.release()

    def _loop(self) -> None:
        while True:
            self._go.acquire()
            job, self._job = self._job, None
            assert job is not None
            job()
            del job  # with all that it holds on to
            self.done.release()


os.register_at_fork(after_in_child=_Thread.idle.clear)  # a child has none of its parent's threads

_idle: List[_Worker] = []


class Context:
    """Where objects of the library are made whose calls can be watched and ended.

    The library frees an object into the context that it was made in, and that may be long after this one is gone: a layout
    outlives the checkpoint that told it, and garbage collection ends objects in any order. So the library's contexts, which
    are small, are never destroyed. One that is not needed any more serves the next who asks.
    """

    def __init__(self) -> None:
        try:
            self._worker = _idle.pop()
        except IndexError:
            self._worker = _Worker()
        self._pointer = self._worker.pointer
        self.run, self.is_called = self._worker.run, self._worker.is_called

    def __del__(self) -> None:
        worker = self.__dict__.pop("_worker", None)
        if worker is not None and _idle is not None:  # the interpreter may be going down
            _idle.append(worker)
