"""The checkpoints of a training, which all its learners write and read together."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from asrtool.distributed.strategy import Strategy
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.train.checkpoint import (
    ALL,
    Saved,
    State,
    load_checkpoint,
    load_learner,
    load_newest,
    remove_others,
    save_checkpoint,
    save_learner,
)

Loaded = TypeVar("Loaded")


class Checkpointer:
    """Those in `directory`; `info` is that of a model file."""

    def __init__(self, directory: Path, info: dict[str, Any], world: World) -> None:
        self.directory = directory
        self.info = info
        self.world = world

    def load(self) -> tuple[dict[str, Any], State] | None:
        """The newest one that all learners find whole, ``learner`` being this one's own; None when there is none.

        Where the number of learners was another, ``learner`` is that of learner 0. Where every checkpoint lacks what
        some learner had, it is the newest without that: ``learner`` is None. Raises AsrtoolError when all are damaged,
        and when the learners do not find the same ones.
        """
        names = self.world.gather(sorted(path.name for path in self.directory.glob(ALL)))
        for rank, found in enumerate(names):
            if found != names[0]:
                raise AsrtoolError(
                    f"{self.directory}: learner 0 finds {len(names[0])} checkpoints there, learner {rank} {len(found)}",
                    "name a folder that all machines share",
                )
        without: list[Path] = []  # learners
        try:
            return load_newest(self.directory, lambda path: self._load(path, without))
        except AsrtoolError:
            if not without:
                raise
        content, state = load_checkpoint(without[0])
        return {**content, "learner": None}, state

    def _load(self, path: Path, without: list[Path]) -> tuple[dict[str, Any], State]:
        """That of `path`, which is added to `without` where only what learners have of their own is missing."""
        content, state = self._for_all(lambda: load_checkpoint(path))
        rank = self.world.rank
        if state.num_learners == self.world.size:
            without.append(path)
            own = self._for_all(lambda: load_learner(path, rank, state.mark) if rank else content["learner"])
            content["learner"] = own
        return content, state

    def _for_all(self, load: Callable[[], Loaded]) -> Loaded:
        """What `load` returns; AsrtoolError for all learners where it raises one for any."""
        error = ""
        try:
            loaded = load()
        except AsrtoolError as found:
            error = found.what
        errors = [of_one for of_one in self.world.gather(error) if of_one]
        if errors:
            raise AsrtoolError(errors[0])
        return loaded

    def save(self, model: nn.Module, strategy: Strategy, state: State, new: Saved) -> None:
        """Write that of `state`; only those that `state` or `new` name stay. AsrtoolError when the disk is full."""
        learner = strategy.state()
        state.mark = self.world.gather(secrets.token_hex(8))[0]
        if self.world.rank:
            save_learner(self.directory, self.world.rank, learner, state)
        self.world.barrier()  # the file of learner 0 makes the checkpoint whole
        if self.world.rank == 0:
            with strategy.consensus():
                save_checkpoint(self.directory, self.info, model.state_dict(), learner, state)
            self.remove_others([*state.saved, new])
        self.world.barrier()  # who has ended would be taken for lost

    def remove_others(self, saved: list[Saved]) -> None:
        """Remove all but those in `saved`, and what is half-written: for learner 0, while the others write none."""
        remove_others(self.directory, saved)
