"""Accumulate gradients over parts of a batch that fit in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.update import Update
from asrtool.errors import AsrtoolError
from asrtool.models.precision import free_unused, is_out_of_memory
from asrtool.train.batches.batch import TrainingBatch, seed_torch
from asrtool.train.loop.loss import EmulatedCompute, LossModule


class StepStrategy(Protocol):
    """Interface of a strategy for a step."""

    task: nn.Module
    update: Update
    optimizer: torch.optim.Optimizer


@dataclasses.dataclass
class StepResult:
    """Results of a step before gradients are applied."""

    nats: Tensor  # loss, summed over the batch; a scalar
    figures: dict[str, float]


@dataclasses.dataclass(eq=False)
class GradientAccumulation:
    """Gradients of batches in parts of up to `max_frames` with padding; 0 is no limit.

    If memory may run out, a batch larger than any before (`sizes_of`) is a probe: it is computed before learners
    exchange anything. If it does not fit, it and all later ones are split further.
    """

    task: LossModule | EmulatedCompute  # the strategy's
    max_frames: int
    frame_ms: float
    probes: bool  # False without a memory limit
    largest: tuple[int, ...] = dataclasses.field(default=(0, 0, 0), init=False)  # sizes of pieces that have fitted

    def backward(
        self, strategy: StepStrategy, batch: TrainingBatch | None, divisor: float, before_others: Callable[[], None]
    ) -> StepResult:
        """Compute gradients of the loss of `batch` over `divisor`.

        Without a batch, take part in the others' averages. `before_others` is called once before these. Raises
        AsrtoolError if memory runs out for a size that has fitted, or for one utterance.
        """
        if batch is None:
            return self._add(strategy, [None], divisor, before_others)
        while True:
            pieces = list(split(batch, self.max_frames))
            is_probe = self.probes and any(new > old for new, old in zip(_largest(pieces), self.largest, strict=True))
            try:
                if not is_probe:
                    return self._add(strategy, pieces, divisor, before_others)
                return self._probe(strategy, pieces, divisor, before_others)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                self._shrink(strategy, batch, _largest(pieces)[0], is_probe, error)

    def _probe(
        self, strategy: StepStrategy, pieces: Sequence[TrainingBatch], divisor: float, before_others: Callable[[], None]
    ) -> StepResult:
        """Compute all gradients of this learner first, then average with others."""
        with _without_averaging(strategy):
            computed = self._add(strategy, pieces, divisor, lambda: None)
        self.largest = tuple(map(max, self.largest, _largest(pieces)))
        self._add(strategy, [None], divisor, before_others)
        return computed

    def _add(
        self,
        strategy: StepStrategy,
        pieces: Sequence[TrainingBatch | None],
        divisor: float,
        before_others: Callable[[], None],
    ) -> StepResult:
        """Add the gradients of all parts; learners average during the last one."""
        totals, figures = [], dict[str, float]()
        for number, piece in enumerate(pieces, 1):
            is_last = number == len(pieces)
            with contextlib.nullcontext() if is_last else _without_averaging(strategy):
                loss = strategy.task(piece)
                if is_last:
                    before_others()
                strategy.update.backward(loss / divisor)
            totals.append(loss.detach())
            for name, value in self.task.figures.items() if piece is not None else ():
                figures[name] = figures.get(name, 0.0) + value
        return StepResult(totals[0] if len(totals) == 1 else torch.stack(totals).sum(), figures)

    def _shrink(
        self, strategy: StepStrategy, batch: TrainingBatch, frames: int, was_probe: bool, error: RuntimeError
    ) -> None:
        longest = int(batch.input_lens_N.max())
        if not was_probe or frames <= longest:
            what = f"{frames * self.frame_ms / 1000:g} s of speech, padding included, do not fit memory"
            setting = f"resume with --set train.max_batch_s={max(longest, frames // 2) * self.frame_ms / 1000:g}"
            way = setting if frames > longest else "leave long utterances out with --set data.max_duration_s"
            raise AsrtoolError(what, f"{way}, or train a smaller model") from error
        strategy.optimizer.zero_grad(set_to_none=True)
        free_unused()
        self.max_frames = max(frames // 2, longest)
        seed_torch(batch.torch_seed)
        seconds = self.max_frames * self.frame_ms / 1000
        logging.info("batches do not fit memory: computing at most %g s of speech at once (train.max_batch_s)", seconds)


def sizes_of(piece: TrainingBatch) -> tuple[int, int, int]:
    """Return the sizes that memory grows with.

    Frames with padding; frames by frames, as for attention; frames by targets, as for a transducer.
    """
    frames = piece.padded_frames
    return frames, frames * piece.inputs_NT.shape[1], frames * piece.targets_NU.shape[1]


def _largest(pieces: Sequence[TrainingBatch]) -> tuple[int, ...]:
    return tuple(map(max, *map(sizes_of, pieces))) if len(pieces) > 1 else sizes_of(pieces[0])


def split(batch: TrainingBatch, max_frames: int) -> Iterator[TrainingBatch]:
    """Yield neighbouring utterances of `batch` within `max_frames`, or single ones.

    0 is all.
    """
    if not max_frames or batch.padded_frames <= max_frames:
        yield batch
        return
    begin = longest = 0
    for end, length in enumerate(batch.input_lens_N.tolist()):
        if end > begin and max(longest, length) * (end + 1 - begin) > max_frames:
            yield batch.rows(begin, end)
            begin, longest = end, 0
        longest = max(longest, length)
    yield batch.rows(begin, len(batch.input_lens_N))


def _without_averaging(strategy: StepStrategy) -> contextlib.AbstractContextManager[None]:
    """Return a context in which gradients accumulate without averaging."""
    no_sync = getattr(strategy.task, "no_sync", contextlib.nullcontext)
    context: contextlib.AbstractContextManager[None] = no_sync()
    return context
