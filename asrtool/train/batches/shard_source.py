"""Source of a feature set's shards: each trainable utterance once an epoch.

With data.mix it is a number of utterances of each corpus.
"""

from __future__ import annotations

import functools
import itertools
import logging
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrtool.data.batches import Batch, Lengths, pad_feats, plan_epoch, plan_eval, plan_windows, zeros_NTF
from asrtool.data.mix import Mixture
from asrtool.data.remote.cache import cached_set
from asrtool.data.remote.features import Prefetcher, parts_of_shards, prefetching
from asrtool.data.storage.index import RERUN, WINDOW_SHARDS, ShardIndex
from asrtool.data.storage.reader import FeatureReader, reads_audio
from asrtool.data.workers.loader import Decoders
from asrtool.errors import AsrtoolError
from asrtool.train.batches.batch import TrainingBatch, pinned_NTF
from asrtool.train.batches.online_augment import AugmentedSet
from asrtool.train.batches.source import BatchSource, Planned, Portion, Size, SourceContext
from asrtool.train.batches.utterance_columns import open_columns

EVAL_FRAMES = 5000  # minimum frames of a batch: with 1,000 the demo set takes 1.5 times as long
PIECE = 256  # batches whose normalisers are summed at once; one by one doubles the time of a plan

NumbersOf = Callable[[int], Sequence[Sequence[int]]]  # an epoch: the shards of each of its windows


class Shards(BatchSource):
    """Utterances of `features/SET/index.jsonl`; a batch has rows of `columns`.

    Targets are tokens of the text, or pdfs of an alignment. Utterances that the objective cannot be trained on are
    left out, and dev utterances whose text the tokenizer cannot encode. Raises AsrtoolError naming another one that
    it cannot encode, and if nothing is left.
    """

    targets = ("tokens", "leaves")
    augments = True
    mixes = True

    def __init__(self, context: SourceContext) -> None:
        self.directory = context.directory
        self.frame_targets = None
        if context.targets:
            self.frame_targets = context.targets.of_set(context.directory.name, context.model.encoder.subsampling)
        missing_N = self.frame_targets.alignment.missing() if self.frame_targets else None
        about_set = context.directory, context.encode, context.model, context.columns
        self.columns = open_columns(*about_set, missing_N, context.needs_all)
        self.about = self.columns.about
        self.index = ShardIndex(context.directory, self.columns.shards)
        self._report_dropped(context)
        cache_bytes = int(context.settings.cache_gib * 2**30)
        self.decoders = None
        # To compute features holds up a training more than to decode them does.
        num_processes = context.loader_processes or int(reads_audio(context.directory))
        if num_processes and not context.augment:
            open_reader = functools.partial(FeatureReader, context.directory, context.features.cmvn, 0, self.index)
            self.decoders = Decoders(num_processes, open_reader)
        self.reader = FeatureReader(context.directory, context.features.cmvn, cache_bytes, self.index, self.decoders)
        self.max_frames = context.max_frames
        self.hours_a_frame = context.features.frame_shift_ms / 3_600_000
        self.seed = context.seed
        first = np.unique(np.searchsorted(self.columns.positions, self.index.first))
        self.lengths = Lengths(self.columns.num_frames, first[first < self.about["num_samples"]], self._name)
        self.num_windows = -(-len(self.lengths.first) // WINDOW_SHARDS)
        self.mixture = self._open_mixture(context)
        self.audio = AugmentedSet(context, self.columns, self.index, self.lengths) if context.augment else None

        self.prefetcher = None
        if cached_set(context.directory):
            self.prefetcher = ShardPrefetcher(context.directory, self._windows, with_samples=self.audio is not None)

    def _open_mixture(self, context: SourceContext) -> Mixture | None:
        """Return the mixture, or None if an epoch is each utterance once."""
        names = self.about["corpora"]
        try:
            context.mix.check_names(names)
        except ValueError as error:
            hint = "correct data.mix, or run the stages from prepare on again"
            raise AsrtoolError(f"{context.directory}: {error}", hint) from error
        if context.mix.is_plain or len(names) < 2:
            return None
        columns = self.columns
        return Mixture(context.mix, names, columns.corpora, columns.num_frames, self.lengths.first, context.seed)

    def _report_dropped(self, context: SourceContext) -> None:
        num_gone = self.about["num_without_text"] + self.about.get("num_not_encoded", 0)
        num_dropped, num_all = self.about["num_dropped"], len(self.index) - num_gone
        if num_gone := self.about["num_without_text"]:
            logging.info("%s: %d utterances have no text any more; left out", context.directory, num_gone)
        if not num_all:
            what = f"{context.directory}: none of {len(self.index)} utterances has a text"
            raise AsrtoolError(what, RERUN)
        if not num_dropped:
            return
        named = ", ".join(self.about["dropped"]) + (", ..." if num_dropped > len(self.about["dropped"]) else "")
        why = "too short for their text, or without an alignment" if context.targets else "too short for their text"
        what = f"{context.directory}: {num_dropped} of {num_all} utterances are {why}: {named}"
        if num_dropped == num_all:
            raise AsrtoolError(what, "use an encoder with less subsampling, or check that texts belong to their audio")
        logging.info("%s; left out", what)

    def size(self) -> Size:
        """Return the size of an epoch; frames of a mixture are of the first epoch."""
        return Size(self.about["num_samples"], int(self.columns.num_frames[self._rows(0)].sum()))

    def portions(self, epoch: int) -> dict[str, Portion]:
        names = self.about["corpora"]
        if len(names) < 2:
            return {}
        rows = self._rows(epoch)
        corpora, lengths = self.columns.corpora[rows], self._lengths(epoch).num_frames[rows]
        num_samples = np.bincount(corpora, minlength=len(names)).tolist()
        hours = (np.bincount(corpora, lengths, minlength=len(names)) * self.hours_a_frame).tolist()
        return {name: Portion(num_samples[i], num_samples[i] / len(corpora), hours[i]) for i, name in enumerate(names)}

    def describe(self) -> dict[str, Any]:
        return {"num_dropped": self.about["num_dropped"], "hours": self.about["duration_s"] / 3600}

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        windows = self.mixture.windows(epoch, self.num_windows) if self.mixture else None
        batches = plan_epoch(self._lengths(epoch), self.max_frames, self.seed, epoch, windows=windows)
        return itertools.islice(self._planned(batches, epoch), batch, None)

    def plan_eval(self) -> list[Planned]:
        """Return fixed evaluation batches of EVAL_FRAMES; no gradients need memory."""
        return list(self._planned(plan_eval(self.lengths, max(self.max_frames, EVAL_FRAMES))))

    def expect(self, epoch: int, window: int, num_more: int, num_epochs: int) -> None:
        if self.prefetcher:
            self.prefetcher.expect(epoch, window, num_more, num_epochs)

    def load(self, batches: Iterable[Planned], prefetch: int = 4) -> Generator[TrainingBatch, None, None]:
        """Yield the batches of `plan_eval`."""
        items = prefetching(self.directory, batches, lambda batch: batch.window, self._numbers_eval)
        return super().load(items, prefetch)

    def read(self, batch: Planned) -> TrainingBatch:
        epoch, rows = batch.content
        if self.audio and epoch is not None:
            feats = self.audio.read(epoch, rows)
        else:
            feats = self.reader.read_several(self.columns.positions[np.asarray(rows)].tolist())
        feats_NTF, lens_N = pad_feats(feats, pinned_NTF if torch.cuda.is_available() else zeros_NTF)
        lens = lens_N.tolist()
        targets = [torch.from_numpy(self._targets(row, num)) for row, num in zip(rows, lens, strict=True)]
        whole = TrainingBatch(
            ids=[self._name(row) for row in rows],
            inputs_NT=feats_NTF,
            input_lens_N=lens_N,
            targets_NU=torch.nn.utils.rnn.pad_sequence(targets, batch_first=True),
            target_lens_N=torch.tensor([len(numbers) for numbers in targets]),
            normaliser=batch.normaliser,
        )
        return self.frame_targets.cut(whole) if self.frame_targets and self.frame_targets.piece_frames else whole

    def close(self) -> None:
        for part in (self.decoders, self.audio, self.prefetcher):
            if part:
                part.close()

    @classmethod
    def open_dev(cls, context: SourceContext) -> Shards:
        """Open dev by the same settings."""
        return Shards(context)

    def _planned(self, batches: Iterator[Batch], epoch: int | None = None) -> Iterator[Planned]:
        """Yield planned batches, read by their rows and `epoch`, which is None in dev."""
        while several := list(itertools.islice(batches, PIECE)):
            rows = array("I")
            begins = []
            for batch in several:
                begins.append(len(rows))
                rows.extend(batch.indices)
            if self.audio and epoch is not None:
                parts = self.audio.normalisers(epoch, rows)
            else:
                parts = self.columns.normalisers[rows]
            normalisers = np.add.reduceat(parts, begins, dtype=np.int64).tolist()
            for batch, normaliser in zip(several, normalisers, strict=True):
                yield Planned((epoch, batch.indices), len(batch.indices), normaliser, window=batch.window)

    def _lengths(self, epoch: int) -> Lengths:
        return self.audio.lengths(epoch) if self.audio else self.lengths

    def _windows(self, epoch: int) -> list[list[int]]:
        """Return the shard numbers of each window of `epoch`, in the order of `plan`."""
        random = np.random.default_rng((self.seed, epoch))
        mixed = self.mixture.windows(epoch, self.num_windows) if self.mixture else None
        return [self._numbers(rows) for rows in mixed or plan_windows(self.lengths, random=random)]

    def _numbers_eval(self, window: int) -> list[int]:
        first = self.lengths.first[window * WINDOW_SHARDS :][:WINDOW_SHARDS]
        return self._numbers(first)

    def _numbers(self, rows: np.ndarray) -> list[int]:
        """Return the shard numbers of some rows."""
        shards = np.searchsorted(self.index.first, self.columns.positions[rows], side="right") - 1
        numbers: list[int] = self.index.numbers[np.unique(shards)].tolist()
        return numbers

    def _rows(self, epoch: int) -> np.ndarray | slice:
        """Return the rows of `epoch`, in no order."""
        return np.concatenate([*self.mixture.windows(epoch, 1)]) if self.mixture else slice(None)

    def _targets(self, row: int, num_frames: int) -> np.ndarray:
        """Return tokens, or a pdf for each model row of `num_frames`."""
        if not self.frame_targets:
            return self.columns.targets(row)
        position, num_aligned = int(self.columns.positions[row]), int(self.columns.num_frames[row])
        return self.frame_targets.leaves(position, num_frames, num_aligned)

    def _name(self, row: int) -> str:
        return self.index[int(self.columns.positions[row])].id


class ShardPrefetcher:
    """Prefetch of the shards of the next windows."""

    def __init__(self, directory: Path, numbers_of: NumbersOf, with_samples: bool) -> None:
        """Take the folder of the set; `with_samples` reads audio as well."""
        self._parts_of = parts_of_shards(directory, with_samples)
        self._numbers_of = functools.lru_cache(2)(numbers_of)
        self._prefetcher = Prefetcher(directory)
        self._at: tuple[int, int] | None = None

    def expect(self, epoch: int, window: int, num_more: int, num_epochs: int) -> None:
        """Prefetch for a batch, as BatchSource.expect."""
        if (epoch, window) == self._at:
            return
        self._at = epoch, window
        windows = itertools.islice(self._windows(epoch, window, num_epochs), num_more + 1)
        self._prefetcher.request(part for numbers in windows for number in numbers for part in self._parts_of(number))

    def close(self) -> None:
        """End the threads."""
        self._prefetcher.close()

    def _windows(self, epoch: int, window: int, num_epochs: int) -> Iterator[Sequence[int]]:
        yield from self._numbers_of(epoch)[window:]
        for following in range(epoch + 1, num_epochs):
            yield from self._numbers_of(following)
