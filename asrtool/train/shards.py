"""The indexed shards of a feature set as a source: each utterance that the model can learn from once an epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from asrtool.corpus.batches import Batch, load_batch, plan_epoch, plan_eval
from asrtool.corpus.index import Utterance
from asrtool.corpus.shard import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.train.batch import NUM_NAMED, TrainingBatch
from asrtool.train.source import BatchSource, Planned, Size, SourceContext


class Shards(BatchSource):
    """The utterances of `features/SET/index.jsonl`.

    Those that the objective cannot be trained on are left out. Raises AsrtoolError naming an utterance whose text the
    tokenizer cannot encode, and when nothing is left.
    """

    def __init__(self, context: SourceContext) -> None:
        cache_bytes = int(context.settings.cache_gib * 2**30)
        self.reader = FeatureReader(context.directory, context.features.cmvn, cache_bytes)
        self.max_frames = context.max_frames
        self.seed = context.seed
        self.targets_of: dict[int, list[int]] = {}  # position in the index -> targets, in storage order
        self.normalisers: dict[int, int] = {}  # and the part of each in the normaliser of the loss
        self._take_those_that_fit(context)

    def _take_those_that_fit(self, context: SourceContext) -> None:
        index, objective = self.reader.index, context.model.objective
        num_frames = torch.tensor([utterance.num_frames for utterance in index])
        num_rows = context.model.encoder.output_lens(num_frames).tolist()
        encoded: dict[str, list[int]] = {}  # speed-perturbed copies share their text
        unfit = []
        for i, utterance in enumerate(index):
            if utterance.text not in encoded:
                encoded[utterance.text] = _encode(context, utterance)
            targets = encoded[utterance.text]
            reason = objective.fits(num_rows[i], targets)
            if reason:
                unfit.append(f"{utterance.id} ({reason})")
            else:
                self.targets_of[i] = targets
                self.normalisers[i] = objective.normaliser(num_rows[i], targets)
        self._report_dropped(unfit)

    def _report_dropped(self, unfit: Sequence[str]) -> None:
        if not unfit:
            return
        named = ", ".join(unfit[:NUM_NAMED]) + (", ..." if len(unfit) > NUM_NAMED else "")
        num_all = len(self.reader.index)
        what = f"{self.reader.directory}: {len(unfit)} of {num_all} utterances are too short for their text: {named}"
        if len(unfit) == num_all:
            raise AsrtoolError(what, "use an encoder with less subsampling, or check that texts belong to their audio")
        logging.info("%s; left out", what)

    def size(self) -> Size:
        return Size(len(self.targets_of), sum(utterance.num_frames for utterance in self._utterances()))

    def describe(self) -> dict[str, Any]:
        num_dropped = len(self.reader.index) - len(self.targets_of)
        return {"num_dropped": num_dropped, "hours": sum(u.duration_s for u in self._utterances()) / 3600}

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        yield from islice(self._planned(plan_epoch(self._utterances(), self.max_frames, self.seed, epoch)), batch, None)

    def plan_eval(self) -> list[Planned]:
        """Batches for evaluation, always the same."""
        return list(self._planned(plan_eval(self._utterances(), self.max_frames)))

    def read(self, batch: Planned) -> TrainingBatch:
        loaded = load_batch(self.reader, batch.content)
        targets = [torch.tensor(self.targets_of[i], dtype=torch.int64) for i in loaded.indices]
        return TrainingBatch(
            ids=[utterance.id for utterance in loaded.utterances],
            texts=[utterance.text for utterance in loaded.utterances],
            inputs_NT=loaded.feats_NTF,
            input_lens_N=loaded.feat_lens_N,
            targets_NU=torch.nn.utils.rnn.pad_sequence(targets, batch_first=True),
            target_lens_N=torch.tensor([len(numbers) for numbers in targets]),
            normaliser=batch.normaliser,
        )

    def _utterances(self) -> list[Utterance]:
        return [self.reader.index[i] for i in self.targets_of]

    def _planned(self, batches: Iterable[Batch]) -> Iterator[Planned]:
        """Batches of `_utterances` as batches of the index."""
        positions = list(self.targets_of)
        for batch in batches:
            indices = tuple(positions[i] for i in batch.indices)
            normaliser = sum(self.normalisers[i] for i in indices)
            yield Planned(Batch(batch.number, indices), len(indices), normaliser, window=batch.window)


def _encode(context: SourceContext, utterance: Utterance) -> list[int]:
    try:
        return context.encode(utterance.text)
    except AsrtoolError as error:
        raise AsrtoolError(f"utterance {utterance.id}: {error.what}", error.hint) from error
