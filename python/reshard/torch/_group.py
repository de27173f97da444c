# SPDX-License-Identifier: Apache-2.0
"""A group of the library over a torch process group: the library's messages become isend and irecv.

gloo cannot say whether a message has arrived; it can only wait for it. So each message gets a thread that waits. That is good
enough for the few small messages by which ranks agree, which is all that this is used for. Tensors go through Redistribute.
"""
import ctypes
import secrets
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple

import torch
import torch.distributed as dist

from .. import _native
from .._errors import Error, Unsupported
from .._library import Handle, lib, make
from ._agree import attempt
from ._wire import global_rank

_TAG = 0x5253 << 8  # unlikely to be a tag of the program's own
_LOOK_SECONDS = 0.25


class _Endpoint:
    """The functions of reshard_endpoint for one rank. Exceptions cannot pass through C, so they become a status."""

    def __init__(self, group: Any, key: str) -> None:
        self.group, self.key = group, key
        self.store = dist.distributed_c10d._get_default_store()
        self.waiting: Dict[int, Tuple[threading.Event, Any]] = {}
        self.failed: Dict[int, str] = {}
        self.count, self.looked, self.broken = 0, 0.0, False
        self.woken = threading.Event()
        self.error: Optional[BaseException] = None

    def guarded(self, call: Callable[..., Any], otherwise: Any) -> Callable[..., Any]:
        """Wraps a call so that it never raises. The exception is kept, and raised by Group.run."""
        def run(_state: Any, *arguments: Any) -> Any:
            try:
                return call(*arguments)
            except BaseException as error:
                self.error = error
                return otherwise
        return run

    def start(self, post: Callable[..., Any], peer: int, channel: int, address: Any, count: int, request: Any) -> int:
        if self.broken:
            return int(_native.RESHARD_ERR_GROUP_BROKEN)
        self.count += 1
        number, done = self.count, threading.Event()
        request.contents.words[0] = number
        self.waiting[number] = (done, None)
        if count == 0:
            done.set()
            return int(_native.RESHARD_OK)
        memory = torch.frombuffer((ctypes.c_char * count).from_address(address), dtype=torch.uint8)
        work = post(memory, global_rank(self.group, peer), self.group, _TAG + channel)
        threading.Thread(target=self.wait, args=(number, done, work, memory), daemon=True).start()
        return int(_native.RESHARD_OK)

    def wait(self, number: int, done: threading.Event, work: Any, _memory: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            self.failed[number] = str(error)
        done.set()
        self.woken.set()

    def test(self, request: Any, out_done: Any) -> int:
        number = int(request.contents.words[0])
        if number in self.failed or self.is_broken():
            return int(_native.RESHARD_ERR_GROUP_BROKEN)
        done = self.waiting[number][0].is_set()
        if done:
            del self.waiting[number]
        out_done[0] = int(done)
        return int(_native.RESHARD_OK)

    def idle(self) -> None:
        self.woken.wait(0.01)
        self.woken.clear()

    def is_broken(self) -> bool:
        """Whether a rank has failed. It then has incremented a counter in the store through which the ranks met."""
        now = time.monotonic()
        if not self.broken and now - self.looked > _LOOK_SECONDS:
            self.looked = now
            self.broken = self.store.add(self.key, 0) > 0
        return self.broken

    def fail(self, _why: bytes) -> None:
        self.broken = True
        self.store.add(self.key, 1)


class Group(Handle):
    """Collective. The library's group over a torch process group, for calls that are Collective themselves."""

    _release = "reshard_group_release"

    def __init__(self, group: Any) -> None:
        super().__init__(None)
        if dist.get_backend(group) == "nccl":
            raise Unsupported("files are written from CPU memory: pass a gloo group")
        key = "reshard/%s" % attempt(group, lambda: secrets.token_hex(8))[0]
        self._endpoint = made = _Endpoint(group, key)
        broken = int(_native.RESHARD_ERR_GROUP_BROKEN)
        calls = {
            "send": made.guarded(lambda *given: made.start(dist.isend, *given), broken),
            "receive": made.guarded(lambda *given: made.start(dist.irecv, *given), broken),
            "test": made.guarded(made.test, broken), "idle": made.guarded(made.idle, None), "fail": made.guarded(made.fail, None),
            "quiesce": made.guarded(lambda: None, None), "close": made.guarded(lambda: None, None),
        }
        kinds: Dict[str, Any] = dict(_native.reshard_endpoint._fields_)
        self._calls = {name: kinds[name](call) for name, call in calls.items()}  # kept, because C has their addresses
        endpoint = _native.reshard_endpoint(size=ctypes.sizeof(_native.reshard_endpoint), name=b"torch", rank=dist.get_rank(group),
                                            rank_count=dist.get_world_size(group), message_bytes_max=1 << 30, **self._calls)
        self._pointer = make(lib.reshard_group_create, None, ctypes.byref(endpoint))

    def run(self, call: Callable[[], Any]) -> Any:
        """Makes a Collective call of the library. Raises what a callback raised in it."""
        try:
            return call()
        except Error:
            if self._endpoint.error is not None:
                raise self._endpoint.error
            raise
