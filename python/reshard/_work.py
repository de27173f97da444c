# SPDX-License-Identifier: Apache-2.0
"""Long calls: they report progress, can be stopped with Ctrl-C, and raise the exceptions of their callbacks.

Python handles signals on the main thread, between two of its own instructions, so a main thread inside the library would
not notice Ctrl-C. A long call therefore runs on another thread while the main thread waits. An exception in the main
thread, such as KeyboardInterrupt, sets a flag that the library checks every few MiB, and is raised once the call has
returned. Callbacks run on that other thread, where no signal can interrupt them in their first line. Threads other than
the main one get no signals, so they make their calls directly.
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

#: True: a bar. False or None: no reports. A function: called with (what, done, total). "auto": a bar if somebody is watching.
Progress = Union[bool, str, None, Callable[[str, int, int], Any]]
_SECONDS_BETWEEN_REPORTS = 0.05
#: Reads up to this size need no other thread: even at 100 MB/s they are over before anybody grows impatient.
SHORT_BYTES = 8 << 20
_BAR_LENGTH = 30


def _is_watched() -> bool:
    """Whether standard error is a terminal or a notebook."""
    shell = sys.modules.get("IPython")
    if shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell":
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # stderr is closed, or None under pythonw
        return False


def _count(number: float) -> str:
    for unit in ("", "Ki", "Mi", "Gi"):
        if number < 1024:
            return "%.4g %sB" % (number, unit)
        number /= 1024
    return "%.4g TiB" % number


class Bar:
    """A progress bar: one line on standard error that is rewritten in place."""

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
        raise TypeError("progress must be a function, True, False or \"auto\", not %r" % (progress,))
    return progress


class _Call(threading.local):
    """What the callbacks of a call share with its caller. Each thread has a call of its own."""

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
        self._on_progress = kinds["progress"](self._report)  # kept: ctypes does not know that the library uses it
        options = _native.reshard_context_options(size=ctypes.sizeof(_native.reshard_context_options),
                                                  progress=self._on_progress, cancel_flag=ctypes.pointer(self._cancel))
        self.pointer = make(lib.reshard_context_create, ctypes.byref(options))
        _workers.append(self)

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

    def forget_threads(self) -> None:
        """After a fork: the calls of other threads did not come along, and nobody holds the lock."""
        self._lock, self._running, self._cancel.value = threading.Lock(), 0, 0

    def is_called(self) -> bool:
        """Whether this thread is inside a callback."""
        return self._call.listener is not None

    def run(self, work: Callable[[], Any], progress: Progress = None, stop: Optional[Callable[[], None]] = None) -> Any:
        """Makes a long call and returns its result. Raises what a callback raised, even if the call succeeded anyway. stop: ends
        a call that does not look at the context's flag; called after an exception in the main thread."""
        listener = _listener_of(progress)
        with self._lock:
            self._running += 1
        try:
            if threading.current_thread() is threading.main_thread():
                return self._run_beside(work, listener, stop)
            return self._run_here(work, listener)
        finally:
            with self._lock:
                self._running -= 1
                if self._running <= 0:  # another call may not have seen the flag yet
                    self._running = self._cancel.value = 0
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

    def _run_beside(self, work: Callable[[], Any], listener: Any, stop: Optional[Callable[[], None]]) -> Any:
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
        while True:  # until the call has returned, because it uses our memory
            try:
                if struck is not None and stop is not None:
                    stop()
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
    """Makes one call after another for the main thread. It is kept, because a new thread would start with memory that it has
    never touched. There are several only if a signal handler makes a call while another is under way."""

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
            del job  # and everything that it references
            self.done.release()


_idle: List[_Worker] = []
_workers: List[_Worker] = []  # all there are; they are never freed


def _forget_threads() -> None:
    _Thread.idle.clear()
    for worker in _workers:
        worker.forget_threads()


os.register_at_fork(after_in_child=_forget_threads)  # threads do not survive a fork


class Context:
    """A context of the library, for objects whose calls report progress and can be stopped.

    The library frees an object through the context that it was made in. That may be long after this object is gone: a
    layout outlives the checkpoint that it came from, and garbage collection finalises objects in any order. So the
    library's contexts, which are small, are never destroyed; one that is no longer needed is used again.
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
        if worker is not None and _idle is not None:  # it is None while the interpreter shuts down
            _idle.append(worker)
