"""The acoustic model and the searches side by side: sets of utterances to what was found in them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from asrtool.corpus.index import Utterance
from asrtool.corpus.reader import FeatureReader
from asrtool.decode.forward import AcousticModel, Scored, compute_scores, torch_threads
from asrtool.decode.method import SearchMethod, SearchResult
from asrtool.decode.parallel import Map, cores_left, num_cores, pieces_of, process_pool
from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.settings import Decode
from asrtool.decode.words import Word
from asrtool.log import progress
from asrtool.registry import check_returned

Tried = Sequence[DecodingParameters]
Item = tuple[np.ndarray, Tried]
TOGETHER = 64  # utterances whose searches are completed side by side in this process


class Timed(NamedTuple):
    """What a search found, and the CPU seconds it took."""

    result: SearchResult
    cpu_s: float


@dataclass(frozen=True)
class Searches:
    """The methods, which are open: what a search process does for some utterances."""

    methods: Mapping[str, SearchMethod]

    def __call__(self, items: list[Item]) -> list[list[Timed]]:
        """Search the scores of utterances, float32 (T, V), with each of the parameters; without rows no words."""
        found = [[self._search(scores_TV, each) for each in parameters] for scores_TV, parameters in items]
        return self.complete(found, items[0][1], in_main=False)

    def _search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> Timed:
        start_s = time.thread_time()
        method = self.methods[parameters.method]
        result = method.search(scores_TV, parameters) if len(scores_TV) else SearchResult(())
        check_returned(f"decode.methods = {parameters.method}", result, SearchResult)
        return Timed(result, time.thread_time() - start_s)

    def complete(self, found: list[list[Timed]], parameters: Tried, in_main: bool) -> list[list[Timed]]:
        """What was found in utterances, by parameters, after those methods have completed it that do so here."""
        columns = []
        for column, each in zip(zip(*found, strict=True), parameters, strict=True):
            method = self.methods[each.method]
            columns.append(_complete(method, column) if method.completes_in_main == in_main else column)
        return [list(row) for row in zip(*columns, strict=True)]


def _complete(method: SearchMethod, column: Sequence[Timed]) -> list[Timed]:
    start_s = time.process_time()
    results = method.complete([timed.result for timed in column])
    cpu_s = (time.process_time() - start_s) / len(column)
    return [Timed(result, timed.cpu_s + cpu_s) for result, timed in zip(results, column, strict=True)]


@dataclass
class Decoded:
    """A set after decoding: its utterances, and by parameters what was found in them, in the same order."""

    utterances: list[Utterance] = field(default_factory=list)
    words: dict[DecodingParameters, list[tuple[Word, ...]]] = field(default_factory=dict)
    search_cpu_s: dict[DecodingParameters, float] = field(default_factory=dict)
    acoustic_cpu_s: float = 0.0

    def collect(self, scored: Iterable[Scored], searches: Tried) -> Iterator[Item]:
        """What is sent to the searches, noting whose scores they are."""
        for item in scored:
            self.utterances.append(item.utterance)
            self.acoustic_cpu_s += item.cpu_s
            yield item.scores_TV, searches

    def add(self, parameters: DecodingParameters, words: tuple[Word, ...], cpu_s: float) -> None:
        """What `parameters` find in the next utterance."""
        self.words[parameters].append(words)
        self.search_cpu_s[parameters] += cpu_s


@dataclass(frozen=True)
class Decoder:
    """`search_map` does `searches` in other processes; the methods make their last choice here."""

    acoustic: AcousticModel
    searches: Searches
    max_frames: int
    search_map: Map

    def scores(self, reader: FeatureReader) -> Iterator[Scored]:
        """As compute_scores."""
        return compute_scores(self.acoustic.model, reader, self.max_frames)

    def search(self, scored: Iterable[Scored], parameters: Tried, what: str, total: int) -> Decoded:
        """Decode the `total` utterances of `scored` with each of `parameters`."""
        decoded = Decoded(words={each: [] for each in parameters}, search_cpu_s=dict.fromkeys(parameters, 0.0))
        passes: dict[DecodingParameters, list[DecodingParameters]] = {}
        for each in parameters:
            passes.setdefault(self.searches.methods[each.method].first_pass(each), []).append(each)
        results = self.search_map(decoded.collect(scored, list(passes)), total)
        if any(self.searches.methods[each.method].completes_in_main for each in passes):
            results = self._completed(results, list(passes))
        for found in progress(results, what, total, "utterance"):
            for timed, sharing in zip(found, passes.values(), strict=True):
                start_s = time.process_time()
                words = self.searches.methods[sharing[0].method].choose(timed.result, sharing)
                cpu_s = timed.cpu_s + time.process_time() - start_s
                for each, chosen in zip(sharing, words, strict=True):
                    decoded.add(each, chosen, cpu_s)
        return decoded

    def _completed(self, results: Iterator[list[Timed]], parameters: Tried) -> Iterator[list[Timed]]:
        for some in pieces_of(results, TOGETHER):
            yield from self.searches.complete(some, parameters, in_main=True)


@contextlib.contextmanager
def start_decoder(acoustic: AcousticModel, methods: Mapping[str, SearchMethod], settings: Decode) -> Iterator[Decoder]:
    """Start the processes of the `methods`, which are open, and give torch the cores that they leave."""
    max_frames = round(settings.batch_s * 1000 / acoustic.frame_shift_ms)
    num_jobs = settings.num_jobs or num_cores()
    searches = Searches(methods)
    with process_pool(searches, num_jobs) as search_map, torch_threads(cores_left(num_jobs)):
        yield Decoder(acoustic, searches, max_frames, search_map)
