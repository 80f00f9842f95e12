"""What the learners of a sync group find together: each step of theirs has a batch for every one of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from asrtool.distributed.world import World


class SyncGroup:
    """The `size` learners of a sync group, neighbours by rank, of which this process is one."""

    def __init__(self, world: World, size: int) -> None:
        self.size = size
        self.number, self.member = divmod(world.rank, size)
        self._store = world.store
        self._counts = itertools.count()

    def share(self, find: Callable[[], Any]) -> Any:
        """What `find` returns at the first member, in the form of JSON at others. All call this, in the same order."""
        if self.size == 1:
            return find()
        key = f"group{self.number}/{next(self._counts)}"
        if self.member:
            return json.loads(self._store.get(key))
        found = find()
        self._store.set(key, json.dumps(found))
        return found
