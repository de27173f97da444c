# SPDX-License-Identifier: Apache-2.0
"""Agreement between ranks: an error on one is raised on all, so that nobody waits for a rank that has given up."""
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

from .. import _errors
from .._errors import Error


def gather(group: Any, value: Any) -> List[Any]:
    """The values of all ranks, by rank."""
    found: List[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group)
    return found


def _raise_first(found: List[Any], mine: Optional[BaseException]) -> None:
    if mine is not None:
        raise mine
    for rank, failure in enumerate(found):
        if failure is not None:
            kind = getattr(_errors, failure[0], Error)
            raise kind("rank %d: %s" % (rank, failure[1]))


def attempt(group: Any, work: Callable[[], Any]) -> Any:
    """Runs work() on each rank. Returns the results of all ranks, by rank. If it raises on one rank, all ranks raise."""
    mine, value = None, None
    try:
        value = work()
    except Exception as error:  # whatever it is, the others have to learn of it
        mine = error
    found = gather(group, (None if mine is None else (type(mine).__name__, str(mine)), value))
    _raise_first([failure for failure, _ in found], mine)
    return [value for _, value in found]


class Flag:
    """The same for work that is repeated and returns nothing. Unless it fails, ranks exchange one number, not objects."""

    def __init__(self, group: Any, device: Any) -> None:
        self.group = group
        self.failed = torch.zeros(1, dtype=torch.int32, device=device)

    def attempt(self, work: Callable[[], None]) -> None:
        mine = None
        try:
            work()
        except Exception as error:
            mine = error
        self.failed.fill_(mine is not None)
        dist.all_reduce(self.failed, group=self.group)
        if int(self.failed):
            _raise_first(gather(self.group, None if mine is None else (type(mine).__name__, str(mine))), mine)
