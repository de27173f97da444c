# SPDX-License-Identifier: Apache-2.0
"""How messages get from one rank to another: by torch.distributed, or through memory that the ranks of one machine share.
Both carry one round at a time, in the same order on all ranks."""
import mmap
import os
import secrets
import socket
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

from ._schedule import Message, Round, Stage

Pack = Callable[[Message, Any], None]
#: The bytes of the shard that a message consists of, if they lie in one piece; else None. True: of one that is sent.
Place = Callable[[Message, bool], Optional[Any]]
FOLDER = "/dev/shm"
ALIGNMENT = 64  # bytes; where messages may begin in memory


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def global_rank(group: Any, rank: int) -> int:
    """The rank in the world, by which messages are addressed whatever the group."""
    if group is None or group is dist.group.WORLD:
        return rank
    if hasattr(dist, "get_global_rank"):
        return int(dist.get_global_rank(group, rank))
    from torch.distributed import distributed_c10d
    return int(distributed_c10d._get_global_rank(group, rank))


class Messages:
    """Each message is one isend and one irecv, and all messages of a round are posted together. They are in the same order on
    all ranks, for backends that match calls by their order. What lies in one piece is sent from where it is, or received where it
    goes; the rest goes through `memory`. A round is posted while the one before it is under way, if both have room there, so that
    packing does not wait for the network."""

    name = "messages"

    def __init__(self, group: Any, rank: int, stages: List[Stage], device: Any) -> None:
        self.group, self.rank = group, rank
        most = max([0] + [sum(aligned(message.bytes) for message in each.sends + each.receives)
                          for stage in stages for each in stage.rounds])
        self.memory: Any = torch.empty(most, dtype=torch.uint8, device=device)
        self.used = 0  # bytes of memory that rounds under way have
        self.under_way: List[Tuple[List[Any], List[Tuple[Message, Any]], Pack]] = []

    def carry(self, one: Optional[Round], pack: Pack, unpack: Pack, place: Place) -> None:
        """Posts a round. Others may still be under way afterwards."""
        if one is None or not (one.sends or one.receives):
            return
        messages = [(message, sending, place(message, sending)) for sending, each in ((True, one.sends), (False, one.receives)) for message in each]
        if len(self.under_way) == 2 or self.used + sum(aligned(message.bytes) for message, _, buffer in messages
                                                       if buffer is None) > self.memory.numel():
            self.finish()
        posted: List[Tuple[Tuple[int, int], Any]] = []
        arriving = []
        for message, sending, buffer in messages:
            if buffer is None:
                buffer = self.memory[self.used:self.used + message.bytes]
                self.used += aligned(message.bytes)
                if sending:
                    pack(message, buffer)
                else:
                    arriving.append((message, buffer))
            pair = (self.rank, message.peer) if sending else (message.peer, self.rank)
            posted.append((pair, dist.P2POp(dist.isend if sending else dist.irecv, buffer,
                                            global_rank(self.group, message.peer), self.group)))
        posted.sort(key=lambda each: each[0])
        self.under_way.append((dist.batch_isend_irecv([operation for _, operation in posted]), arriving, unpack))

    def finish(self) -> None:
        """Waits for all rounds under way."""
        for requests, arriving, unpack in self.under_way:
            for request in requests:
                request.wait()
            for message, buffer in arriving:
                unpack(message, buffer)
        self.under_way, self.used = [], 0


class SharedMemory:
    """Each rank writes what it sends into a file in memory, and the others read it there. The two halves of the file are used
    in turn, so that one barrier per round is enough: a rank that has passed it knows that all others have finished reading
    the half that it writes next."""

    name = "shared memory"

    def __init__(self, group: Any, memory: Any, theirs: Dict[int, Any], slots: Dict[int, int], half: int) -> None:
        self.group, self.memory, self.theirs, self.slots, self.half = group, memory, theirs, slots, half
        self.turn = 0

    def carry(self, one: Optional[Round], pack: Pack, unpack: Pack, place: Place) -> None:
        for message in one.sends if one else ():
            at = self.turn * self.half + self.slots[message.peer]
            pack(message, self.memory[at:at + message.bytes])
        dist.barrier(self.group)
        for message in one.receives if one else ():
            memory, slot, half = self.theirs[message.peer]
            at = self.turn * half + slot
            unpack(message, memory[at:at + message.bytes])
        self.turn = 1 - self.turn

    def finish(self) -> None:
        """A round is over when it was carried."""


def machine() -> Optional[str]:
    """A text that is equal for two processes if they can open each other's files in memory; None if there is no such place."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return "%s %s %d" % (file.read().strip(), socket.gethostname(), os.stat(FOLDER).st_dev)
    except OSError:
        return None


def _map(path: str, flags: int, size: int) -> Any:
    handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        if flags & os.O_CREAT:
            os.posix_fallocate(handle, 0, size)
        return torch.frombuffer(mmap.mmap(handle, size), dtype=torch.uint8)
    except OSError:
        if flags & os.O_CREAT:
            os.unlink(path)
        raise
    finally:
        os.close(handle)


def _lay_out(stages: List[Stage]) -> Tuple[Dict[int, int], int]:
    """Where the messages to each peer begin, and the size of one half in bytes."""
    largest: Dict[int, int] = {}
    for stage in stages:
        for each in stage.rounds:
            for message in each.sends:
                largest[message.peer] = max(largest.get(message.peer, 0), message.bytes)
    slots, half = {}, 0
    for peer, size in sorted(largest.items()):
        slots[peer] = half
        half += aligned(size)
    return slots, half


def share_memory(group: Any, rank: int, stages: List[Stage], gather: Callable[[Any], List[Any]]) -> Optional[SharedMemory]:
    """Collective. None on all ranks if one of them cannot take part, for lack of memory or of access to the folder."""
    slots, half = _lay_out(stages)
    path = os.path.join(FOLDER, "reshard-%d-%s" % (os.getpid(), secrets.token_hex(8)))
    memory = None
    try:
        if half:
            memory = _map(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 2 * half)
        offers = gather((path, slots, half))
    except OSError:
        offers = gather(None)
    theirs: Dict[int, Any] = {}
    try:
        if None not in offers:
            for peer in {message.peer for stage in stages for each in stage.rounds for message in each.receives}:
                their_path, their_slots, their_half = offers[peer]
                theirs[peer] = (_map(their_path, os.O_RDWR, 2 * their_half), their_slots[rank], their_half)
        opened = None not in offers
    except OSError:
        opened = False
    all_opened = all(gather(opened))  # now every rank has opened what it needs, so the files can be unlinked
    if memory is not None:
        os.unlink(path)
    return SharedMemory(group, memory, theirs, slots, half) if all_opened else None
