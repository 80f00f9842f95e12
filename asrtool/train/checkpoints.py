"""The checkpoints of a training, which all its learners write and read together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from asrtool.dist.strategy import Strategy
from asrtool.dist.world import World
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


class Checkpoints:
    """Those in `directory`; `info` is that of a model file."""

    def __init__(self, directory: Path, info: dict[str, Any], world: World) -> None:
        self.directory = directory
        self.info = info
        self.world = world

    def load(self) -> tuple[dict[str, Any], State] | None:
        """The newest one that all learners find whole, ``learner`` being this one's own; None when there is none.

        Where the number of learners was another, ``learner`` is that of learner 0. Raises AsrtoolError when all are
        damaged, and when the learners do not find the same ones.
        """
        names = self.world.gather(sorted(path.name for path in self.directory.glob(ALL)))
        for rank, found in enumerate(names):
            if found != names[0]:
                raise AsrtoolError(
                    f"{self.directory}: learner 0 finds {len(names[0])} checkpoints there, learner {rank} {len(found)}",
                    "name a folder that all machines share",
                )
        return load_newest(self.directory, self._load)

    def _load(self, path: Path) -> tuple[dict[str, Any], State]:
        error = ""
        try:
            content, state = load_checkpoint(path)
            if self.world.rank and state.num_learners == self.world.size:
                content["learner"] = load_learner(path, self.world.rank)
        except AsrtoolError as found:
            error = found.what
        errors = [told for told in self.world.gather(error) if told]
        if errors:
            raise AsrtoolError(errors[0])
        return content, state

    def save(self, model: nn.Module, strategy: Strategy, state: State, new: Saved) -> None:
        """Write that of `state`; only those that `state` or `new` name stay. AsrtoolError when the disk is full."""
        learner = strategy.state()
        if self.world.rank:
            save_learner(self.directory, state.step, self.world.rank, learner)
        self.world.barrier()  # the file of learner 0 makes the checkpoint whole
        if self.world.rank == 0:
            with strategy.consensus():
                save_checkpoint(self.directory, self.info, model.state_dict(), learner, state)
            self.remove_others([*state.saved, new])
        self.world.barrier()  # who has ended would be taken for lost

    def remove_others(self, saved: list[Saved]) -> None:
        """Remove all but those in `saved`, and what is half-written: for learner 0, while the others write none."""
        remove_others(self.directory, saved)
