"""Processes that are learners, started once for many tests; and what learners are to have trained."""

from __future__ import annotations

import contextlib
import json
import os
import re
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from rendezvous import rendezvous_address
from toy_task import TOY_CONFIG
from warm import warm_context

from asrtool.errors import AsrtoolError
from asrtool.settings.config import Config
from asrtool.settings.toml_files import load_config
from asrtool.train.batches.source import Epoch
from asrtool.train.checkpoints.checkpoint import load_checkpoint
from asrtool.train.train import build_components

ANSWER_S = 480
FAILED_S = 3
# Batches of two utterances, so that each learner has some of them.
MANY_BATCHES = TOY_CONFIG.replace("batch_s = 1.5", "batch_s = 0.9").replace("every_steps = 3", "every_steps = 9")


class Learners:
    """`num` processes, each of which runs what it gets with the environment of a learner."""

    def __init__(self, num: int) -> None:
        self._started = [Started() for _ in range(num)]

    def run(self, function: Callable[..., Any], *args: Any, num: int | None = None) -> list[Any]:
        """Return the results of `function` of a module in `num` learners; AssertionError if one fails.

        After that all are new processes: an old one may still be busy, and would answer the next call by what it found.
        """
        started = self._started[:num]
        with rendezvous_address() as place:
            for rank, one in enumerate(started):
                ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": len(started), "LOCAL_WORLD_SIZE": len(started)}
                one.pipe.send(({name: str(value) for name, value in ranks.items()} | place, function, args))
            answers = _answers([one.pipe for one in started])
            failed = [f"learner {rank}: {answers[rank][0]}" for rank in sorted(answers) if answers[rank][0]]
            silent = [rank for rank in range(len(started)) if rank not in answers]
            failed += [f"learner {rank} gives no answer" for rank in silent]
        if failed:
            self.close()
            self._started = [Started() for _ in self._started]
        assert not failed, "\n".join(failed)
        return [answers[rank][1] for rank in range(len(started))]

    def close(self) -> None:
        """End the processes."""
        for one in self._started:
            one.close()


class Started:
    """The process of a learner, forked from a warm one."""

    def __init__(self) -> None:
        context = warm_context()
        self.pipe, there = context.Pipe()
        self._process = context.Process(target=serve, args=(there,), daemon=True)
        self._process.start()
        there.close()  # so that the end of the process is the end of what it sends

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _answers(pipes: list[Connection]) -> dict[int, tuple[str, Any]]:
    """Return the answers by rank until one has failed, for which others may wait."""
    answers: dict[int, tuple[str, Any]] = {}
    patience_s = ANSWER_S
    while waiting := [pipe for rank, pipe in enumerate(pipes) if rank not in answers]:
        ready = wait(waiting, patience_s)
        if not ready:
            break
        for pipe in ready:
            rank = pipes.index(pipe)  # type: ignore[arg-type]
            try:
                answers[rank] = pipes[rank].recv()
            except EOFError:
                answers[rank] = ("it has ended", None)
            patience_s = FAILED_S if answers[rank][0] else patience_s
    return answers


def serve(pipe: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    while True:
        environment, function, args = pipe.recv()
        os.environ.update(environment)
        try:
            pipe.send(("", function(*args)))
        except BaseException:
            pipe.send((traceback.format_exc(), None))


def batches_trained(out: Path) -> Counter[tuple[int, int]]:
    """Count how often each (epoch, batch) was trained by all learners."""
    lines = [line for path in (out / "learners").glob("*.jsonl") for line in path.read_text().splitlines()]
    return Counter((entry["epoch"], entry["batch"]) for entry in map(json.loads, lines))


def planned(toy: Path, config: Path) -> Counter[tuple[int, int]]:
    """Each (epoch, batch) of the training of a toy once."""
    return batches_planned(toy / "features", toy / "tokenizer", load_config([config]))


def batches_planned(features: Path, tokenizer: Path, config: Config) -> Counter[tuple[int, int]]:
    """Each (epoch, batch) of the training once."""
    source = build_components(features, tokenizer, config).train_set
    sizes = [Epoch(source, epoch).extend(10**6) for epoch in range(config.train.num_epochs)]
    return Counter((number, batch) for number, size in enumerate(sizes, 1) for batch in range(size))


def processes_of(out: Path) -> dict[int, tuple[int, int]]:
    """Return parent and rank of each learner and supervisor."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ranks = re.findall(r"^learner (\d+)|\0RANK=(\d+)", _name_and_environment(folder))
            ours = str(out) in os.fsdecode((folder / "cmdline").read_bytes()).split("\0")
            ours = ours or (folder / "cwd").readlink() == out.parent  # forked, so that its words are not its own
            parent = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue
        if ours and ranks:
            found[int(folder.name)] = (parent, int("".join(ranks[0])))
    return found


def _name_and_environment(folder: Path) -> str:
    """Return name and environment of a process: the launcher names learners, torchrun sets variables."""
    return (folder / "comm").read_text() + "\0" + os.fsdecode((folder / "environ").read_bytes())


def learners_of(out: Path) -> dict[int, int]:
    """Rank -> process number; without supervisors that have a learner."""
    found = processes_of(out)
    parents = {parent for parent, _ in found.values()}
    return {rank: process for process, (_, rank) in found.items() if process not in parents}


def saved_learners(out: Path) -> list[list[int]]:
    """Return the learners of each checkpoint."""
    found = []
    for path in (out / "checkpoints").glob("step-????????.pt"):
        with contextlib.suppress(AsrtoolError, FileNotFoundError):  # one may be removed meanwhile
            found.append(load_checkpoint(path)[1].learners)
    return found
