"""Run the acoustic model and the searches side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from asrtool.data.storage.index import Utterance
from asrtool.data.workers.processes import num_cores, torch_threads
from asrtool.decode.acoustic_model import AcousticModel, Scored, ScoreFile
from asrtool.decode.parallel import cores_left, pieces_of, process_pool
from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.words import Word
from asrtool.log import progress
from asrtool.settings.decode import Decode
from asrtool.settings.registry import check_returned

if TYPE_CHECKING:
    from asrtool.data.storage.reader import FeatureReader

ParameterList = Sequence[DecodingParameters]
Passes = Mapping[DecodingParameters, ParameterList]  # first pass -> parameters that share it
Item = tuple[np.ndarray, ParameterList]
BATCH = 64  # utterances whose searches are completed side by side in this process


class Hypothesis(NamedTuple):
    """Words of an utterance, and the CPU seconds of all that share its search."""

    parameters: DecodingParameters
    words: tuple[Word, ...]
    cpu_s: float


Results = Iterator[list[SearchResult]]  # results of each utterance by parameters
Progress = Callable[[Results], Results]  # results passed through while their number is shown


@dataclass(frozen=True)
class Searches:
    """Open search methods, as a search process applies them to utterances."""

    methods: Mapping[str, SearchMethod]

    def passes(self, parameters: ParameterList) -> Passes:
        """Return the first passes of `parameters`; methods need not be open."""
        passes: dict[DecodingParameters, list[DecodingParameters]] = {}
        for each in parameters:
            passes.setdefault(self.methods[each.method].first_pass(each), []).append(each)
        return passes

    def prepare(self, parameters: ParameterList) -> None:
        """Load the inputs of the first passes `parameters`."""
        for name, method in self.methods.items():
            if own := [each for each in parameters if each.method == name]:
                method.prepare(own)

    def __call__(self, items: list[Item]) -> list[list[SearchResult]]:
        """Search the scores of utterances, float32 (T, V), with each of the parameters.

        An utterance without rows has no words.
        """
        found = [[self._search(scores_TV, each) for each in parameters] for scores_TV, parameters in items]
        return self.complete(found, items[0][1], in_main=False)

    def _search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        start_s = time.thread_time()
        method = self.methods[parameters.method]
        result = method.search(scores_TV, parameters) if len(scores_TV) else SearchResult(())
        check_returned(f"decode.methods = {parameters.method}", result, SearchResult)
        return result._replace(cpu_s=time.thread_time() - start_s)

    def complete(
        self, found: list[list[SearchResult]], parameters: ParameterList, in_main: bool
    ) -> list[list[SearchResult]]:
        """Complete the results of utterances by methods that do so in this process."""
        columns = []
        for column, each in zip(zip(*found, strict=True), parameters, strict=True):
            method = self.methods[each.method]
            if method.completes_in_main == in_main:
                start_s = time.process_time()
                results = method.complete(list(column))
                cpu_s = (time.process_time() - start_s) / len(column)
                column = [new._replace(cpu_s=old.cpu_s + cpu_s) for new, old in zip(results, column, strict=True)]
            columns.append(column)
        return [list(row) for row in zip(*columns, strict=True)]

    def choose(self, found: Sequence[SearchResult], passes: Passes) -> Iterator[Hypothesis]:
        """Yield the words of an utterance by all parameters, from the result of each pass."""
        for result, sharing in zip(found, passes.values(), strict=True):
            start_s = time.process_time()
            words = self.methods[sharing[0].method].choose(result, sharing)
            cpu_s = result.cpu_s + time.process_time() - start_s
            for each, chosen in zip(sharing, words, strict=True):
                yield Hypothesis(each, chosen, cpu_s)


@dataclass
class Decoded:
    """Decoded set: its utterances, and the results by parameters in the same order."""

    utterances: list[Utterance] = field(default_factory=list)
    words: dict[DecodingParameters, list[tuple[Word, ...]]] = field(default_factory=dict)
    search_cpu_s: dict[DecodingParameters, float] = field(default_factory=dict)
    acoustic_cpu_s: float = 0.0

    @classmethod
    def by(cls, parameters: ParameterList) -> Decoded:
        """Return an empty set for results by `parameters`."""
        return cls(words={each: [] for each in parameters}, search_cpu_s=dict.fromkeys(parameters, 0.0))

    def add_utterances(self, scored: Iterable[Scored], searches: ParameterList) -> Iterator[Item]:
        """Add the utterances of `scored`; yield the items for the searches."""
        for item in scored:
            self.begin(item.utterance, item.cpu_s)
            yield item.scores_TV, searches

    def begin(self, utterance: Utterance, cpu_s: float) -> None:
        """Add the next utterance, whose scores took `cpu_s`."""
        self.utterances.append(utterance)
        self.acoustic_cpu_s += cpu_s

    def add(self, chosen: Iterable[Hypothesis]) -> None:
        """Add the result of the next utterance."""
        for parameters, words, cpu_s in chosen:
            self.words[parameters].append(words)
            self.search_cpu_s[parameters] += cpu_s


@dataclass(frozen=True)
class LocalDecoder:
    """Decoder with processes that are forked for each set of searches.

    They share what `searches` holds. Scores are read again from `kept` if given.
    """

    acoustic: AcousticModel
    searches: Searches
    settings: Decode
    kept: ScoreFile | None = None

    def decode(self, reader: FeatureReader, parameters: ParameterList, what: str) -> Decoded:
        """Decode the set of `reader`; if scores are kept, always the same set."""
        total = len(reader.index)
        return self.search(
            self._scores(reader), parameters, total, lambda results: progress(results, what, total, "utterance")
        )

    def _scores(self, reader: FeatureReader) -> Iterable[Scored]:
        if self.kept is not None and self.kept.is_whole:
            return self.kept
        from asrtool.decode.forward import compute_scores

        max_frames = round(self.settings.batch_s * 1000 / self.acoustic.frame_shift_ms)
        scored = compute_scores(self.acoustic.model, reader, max_frames)
        return scored if self.kept is None else self.kept.record(scored)

    def search(self, scored: Iterable[Scored], parameters: ParameterList, total: int, shown: Progress) -> Decoded:
        """Decode about `total` utterances, 0 if unknown, with each of `parameters`.

        `shown` reports progress. Processes, no more than `total`, are forked first; torch gets the cores that all
        would leave.
        """
        decoded = Decoded.by(parameters)
        passes = self.searches.passes(parameters)
        self.searches.prepare(list(passes))
        num_jobs = self.settings.num_jobs or num_cores()
        num_started = min(num_jobs, total or num_jobs)
        with process_pool(self.searches, num_started) as search_map, torch_threads(cores_left(num_jobs)):
            results = search_map(decoded.add_utterances(scored, list(passes)), total)
            if any(self.searches.methods[each.method].completes_in_main for each in passes):
                results = self._completed(results, list(passes))
            for found in shown(results):
                decoded.add(self.searches.choose(found, passes))
        return decoded

    def _completed(self, results: Results, parameters: ParameterList) -> Results:
        for some in pieces_of(results, BATCH):
            yield from self.searches.complete(some, parameters, in_main=True)
