"""Write and read the checkpoints of all learners, in the background.

Training stops for a copy of its state into reused memory. A thread of each learner writes its part; learner 0
completes the checkpoint once all parts exist.
"""

from __future__ import annotations

import contextlib
import copy
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.strategy import Snapshot, Strategy
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.train.checkpoints.checkpoint import (
    ALL,
    Saved,
    State,
    load_checkpoint,
    load_newest,
    load_part,
    remove_others,
    remove_unfinished,
    save_checkpoint,
    save_part,
)

Content = TypeVar("Content")
NICE = 10  # steps of priority that a thread here is below the training: a shared core gives it a tenth


class Background:
    """Thread that calls functions one by one; `check` and `drain` raise their errors."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name, initializer=_yield_to_training)
        self._pending: list[Future[None]] = []

    def submit(self, function: Callable[..., None], *args: Any) -> None:
        """Call `function` after the functions submitted before."""
        self._pending.append(self._executor.submit(function, *args))

    @property
    def busy(self) -> bool:
        """True if a call is running or waiting."""
        return any(not future.done() for future in self._pending)

    def check(self) -> None:
        """Raise the error of a call, if there was one."""
        done = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if not future.done()]
        for future in done:
            future.result()

    def drain(self) -> None:
        """Wait until all calls have ended."""
        while self._pending:
            self._pending.pop(0).result()

    def close(self) -> None:
        """Drop waiting calls, and end the thread after the running one."""
        self._executor.shutdown(cancel_futures=True)


def _yield_to_training() -> None:
    """Lower the priority of this thread (on Linux)."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)


class Staging:
    """Copies of tensors that training changes, in memory that is used again."""

    def __init__(self) -> None:
        self._free: list[list[Tensor]] = []

    def copy(self, content: Content) -> tuple[Content, list[Tensor]]:
        """Return a copy of `content` on the host, and the memory it takes.

        `content` has tensors, numbers, texts, and lists and dicts of them.
        """
        memory = self._free.pop() if self._free else []
        used: list[Tensor] = []

        def copied(value: Any) -> Any:
            if isinstance(value, Tensor):
                place = memory[len(used)] if len(used) < len(memory) else None
                if place is None or place.shape != value.shape or place.dtype != value.dtype:
                    place = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
                used.append(place.copy_(value.detach()))
                return used[-1]
            if isinstance(value, dict):
                return type(value)((key, copied(item)) for key, item in value.items())
            return type(value)(map(copied, value)) if isinstance(value, list | tuple) else value

        return copied(content), used

    def give_back(self, memory: list[Tensor]) -> None:
        """Use `memory` for the next copy."""
        self._free.append(memory)


POLL_S = 0.02
Loaded = TypeVar("Loaded")
Memory = list[Tensor]


class Incomplete(Exception):
    """End of training before the parts of all learners existed."""


class Checkpointer:
    """Writer and reader of checkpoints in `directory`, with `info` as in model files."""

    def __init__(self, directory: Path, info: dict[str, Any], world: World) -> None:
        self.directory = directory
        self.info = info
        self.world = world
        self.background = Background("checkpoint")
        self.staging = Staging()
        self.newest_step: int | None = None  # step of the checkpoint that was loaded or saved last
        self.closing = threading.Event()
        self.run = ""  # token of this training, from its start or resumption to its end

    def load(self) -> tuple[dict[str, Any], State] | None:
        """Load the newest checkpoint that is whole for all learners, or None.

        It has ``learner`` and ``shared`` of this one, None if nothing is left to train. With another number of
        learners they come from one of them; if unreadable, ``learner`` is None and ``shared`` the one of learner 0.
        If every checkpoint lacks some learner's part, the newest is loaded without it. Raises AsrtoolError if all are
        damaged, and if learners find different ones.
        """
        self.run = self.world.gather(secrets.token_hex(8))[0]
        names = self.world.gather(sorted(path.name for path in self.directory.glob(ALL)))
        for rank, found in enumerate(names):
            if found != names[0]:
                raise AsrtoolError(
                    f"{self.directory}: learner 0 finds {len(names[0])} checkpoints there, learner {rank} {len(found)}",
                    "name a folder that all machines share",
                )
        newest = self._load_newest()
        self.newest_step = newest[1].step if newest else None
        if self.world.rank == 0:
            remove_unfinished(self.directory)
        self.world.barrier()  # before any writes
        return newest

    def _load_newest(self) -> tuple[dict[str, Any], State] | None:
        without: list[Path] = []  # parts of learners
        try:
            return load_newest(self.directory, lambda path: self._load(path, without))
        except AsrtoolError:
            if not without:
                raise
        content, state = load_checkpoint(without[0])
        return {**content, "learner": None, "shared": content["part"].get("shared")}, state

    def _load(self, path: Path, without: list[Path]) -> tuple[dict[str, Any], State]:
        """Load `path`; add it to `without` if only a learner's part is missing."""
        content, state = self._for_all(lambda: load_checkpoint(path))
        if content["part"] is None:
            return {**content, "learner": None, "shared": None}, state
        learner, shared = None, content["part"].get("shared")
        are_the_same = state.num_learners == self.world.size
        if are_the_same:
            without.append(path)
        try:
            learner, shared = self._for_all(lambda: self._load_part(path, content["part"], state))
        except AsrtoolError:
            if are_the_same:
                raise
        return {**content, "learner": learner, "shared": shared}, state

    def _load_part(self, path: Path, first: dict[str, Any], state: State) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return this learner's own and shared state; `first` is the first part.

        If there were fewer learners, ranks wrap around.
        """
        ranks = state.learners
        place = self.world.rank % len(ranks)
        rank = ranks[place]
        own = load_part(path, rank, state.mark) if place else first
        keeper = own["keeper"]
        kept = own if keeper == rank else load_part(path, keeper, state.mark) if keeper in ranks[1:] else first
        return own["learner"], kept["shared"]

    def _for_all(self, load: Callable[[], Loaded]) -> Loaded:
        """Call `load`; raise AsrtoolError at all learners if any raises."""
        error = None
        try:
            loaded = load()
        except AsrtoolError as found:
            error = (found.what, found.hint)
        errors = [text for text in self.world.gather(error) if text]
        if errors:
            raise AsrtoolError(*errors[0])
        return loaded

    def save(self, model: nn.Module, strategy: Strategy, state: State, new: Saved, has_parts: bool = True) -> None:
        """Write a checkpoint in the background; remove all that `state` and `new` lack.

        It `has_parts` unless nothing is left to train. All learners call this after a synchronisation. Raises
        AsrtoolError if the disk was full.
        """
        self.drain()
        self.newest_step = state.step
        state.mark = f"{self.run}-{state.step}"
        part, memory = self.stage(strategy.take_snapshot(0), state.mark, {}) if has_parts else (None, [])
        if self.world.index == 0:
            with strategy.consensus(), strategy.ema.consensus() if strategy.ema else contextlib.nullcontext():
                ema = strategy.ema.saved() if strategy.ema else None
                (weights, ema), more = self.staging.copy((model.state_dict(), ema))
            saved = [*state.saved, new]
            self.background.submit(self._write, weights, part, copy.deepcopy(state), saved, [memory, more], ema)
        elif part:
            self.background.submit(self._write_part, state.step, part, memory, f"parts/{state.mark}")

    def stage(self, snapshot: Snapshot, mark: str, more: dict[str, Any]) -> tuple[dict[str, Any], Memory]:
        """Return this learner's part, copies of `snapshot` and `more`, and their memory."""
        copied, memory = self.staging.copy(
            {
                "learner": snapshot.learner,
                "shared": snapshot.shared if snapshot.keeper == self.world.rank else {},
                "more": more,
            }
        )
        part = {"mark": mark, "keeper": snapshot.keeper, "learner": copied["learner"], **copied["more"]}
        part["learner"] |= snapshot.recorded
        if snapshot.values_P is not None:
            part["learner"] |= {"values_P": snapshot.values_P, "offset": snapshot.offset}
        if snapshot.keeper == self.world.rank:
            part["shared"] = copied["shared"]
        return part, memory

    def _write_part(self, step: int, part: dict[str, Any], memory: Memory, announced: str) -> None:
        save_part(self.directory, step, self.world.rank, part)
        self.world.store.add(announced, 1)
        self.staging.give_back(memory)

    def _write(
        self,
        weights: dict[str, Tensor],
        part: dict[str, Any] | None,
        state: State,
        kept: list[Saved],
        memories: list[Memory],
        ema: dict[str, Any] | None,
    ) -> None:
        with contextlib.suppress(Incomplete):
            num_parts = self.world.size - 1 if part else 0
            announced = f"parts/{state.mark}"
            self.write_whole(weights, part, state, kept, lambda: self._wait_for_parts(announced, num_parts), ema)
        for memory in reversed(memories):
            self.staging.give_back(memory)

    def _wait_for_parts(self, announced: str, num_parts: int) -> None:
        """Wait for `num_parts` parts; raises Incomplete if training ends before."""
        while num_parts and self.world.store.add(announced, 0) < num_parts:
            if self.closing.is_set():
                raise Incomplete
            time.sleep(POLL_S)

    def write_whole(
        self,
        weights: dict[str, Tensor],
        part: dict[str, Any] | None,
        state: State,
        kept: list[Saved],
        before_rename: Callable[[], None] = lambda: None,
        ema: dict[str, Any] | None = None,
    ) -> None:
        """Write learner 0's file, which completes the checkpoint; remove all but `kept`."""
        save_checkpoint(self.directory, self.info, weights, part, state, before_rename, ema)
        remove_others(self.directory, kept)

    @property
    def busy(self) -> bool:
        """True while a checkpoint is being written."""
        return self.background.busy

    def check(self) -> None:
        """Raise AsrtoolError if a checkpoint could not be written."""
        self.background.check()

    def drain(self) -> None:
        """Wait for this learner's part; learner 0 waits for the whole checkpoint."""
        self.background.drain()

    def close(self) -> None:
        """End the thread; an unfinished checkpoint stays unfinished."""
        self.closing.set()
        self.background.close()

    def remove_others(self, saved: list[Saved]) -> None:
        """Remove all but `saved` and unfinished files, for learner 0 at the end."""
        remove_others(self.directory, saved)
        remove_unfinished(self.directory)
