"""The acoustic model and the searches at work together: sets of utterances to what was found in them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from asrtool.config import Config
from asrtool.corpus.index import Utterance
from asrtool.corpus.reader import FeatureReader
from asrtool.decode.forward import Posteriors, compute_posteriors, torch_threads
from asrtool.decode.inputs import AcousticModel, load_acoustic_model, load_search, load_sentence_lms, open_features
from asrtool.decode.parallel import num_cores, process_pool
from asrtool.decode.rescore import NeuralScorer, NgramScorer, ScoredList, score_list
from asrtool.decode.search import Found
from asrtool.decode.trial import Trial
from asrtool.decode.words import Word
from asrtool.log import progress

Item = tuple[np.ndarray, Sequence[Trial]]
SearchMap = Callable[[Iterable[Item]], Iterator[list[Found]]]


@dataclass
class Decoded:
    """A set after decoding: its utterances, and by trial what was found in them, in the same order."""

    utterances: list[Utterance] = field(default_factory=list)
    words: dict[Trial, list[tuple[Word, ...]]] = field(default_factory=dict)
    search_cpu_s: dict[Trial, float] = field(default_factory=dict)
    acoustic_cpu_s: float = 0.0

    def collect(self, posteriors: Iterable[Posteriors], searches: Sequence[Trial]) -> Iterator[Item]:
        """What is sent to the searches, noting whose posteriors they are."""
        for item in posteriors:
            self.utterances.append(item.utterance)
            self.acoustic_cpu_s += item.cpu_s
            yield item.log_probs_TV, searches


@dataclass
class Decoder:
    """`search_map` makes trials in other processes; `ngram` and `neural` rescore n-best lists here."""

    work: Path
    acoustic: AcousticModel
    max_frames: int
    search_map: SearchMap
    ngram: NgramScorer | None
    neural: NeuralScorer | None

    def open(self, name: str) -> FeatureReader:
        """The features of a set of the work directory."""
        return open_features(self.work / "features" / name, self.acoustic)

    def posteriors(self, reader: FeatureReader) -> Iterator[Posteriors]:
        """As compute_posteriors."""
        return compute_posteriors(self.acoustic.model, reader, self.max_frames)

    def search(self, posteriors: Iterable[Posteriors], trials: Sequence[Trial], what: str, total: int) -> Decoded:
        """Make `trials` on the `total` utterances of `posteriors`; one of rescore needs one of graph before it."""
        decoded = Decoded(words={trial: [] for trial in trials}, search_cpu_s=dict.fromkeys(trials, 0.0))
        searches = [_first_pass(trial, trials) for trial in trials]
        for results in progress(self.search_map(decoded.collect(posteriors, searches)), what, total, "utterance"):
            for trial, found in zip(trials, results, strict=True):
                start_s = time.process_time()
                words = self._rescore(found, trial) if trial.method == "rescore" else found.words
                decoded.words[trial].append(words)
                decoded.search_cpu_s[trial] += found.cpu_s + time.process_time() - start_s
        return decoded

    def lists(self, posteriors: Iterable[Posteriors], graph: Trial, what: str, total: int) -> Iterator[ScoredList]:
        """The n-best lists of search with the weights of `graph`, scored by all language models."""
        items = Decoded().collect(posteriors, [dataclasses.replace(graph, method="rescore")])
        for (found,) in progress(self.search_map(items), what, total, "utterance"):
            yield score_list(found.candidates, self.ngram, self.neural)

    def _rescore(self, found: Found, trial: Trial) -> tuple[Word, ...]:
        best = score_list(found.candidates, self.ngram, self.neural).best(trial)
        return best.words if best else ()


def _first_pass(trial: Trial, trials: Sequence[Trial]) -> Trial:
    """The search that `trial` needs: for rescore the n-best list of search with the weights of graph."""
    if trial.method != "rescore":
        return trial
    (graph,) = (other for other in trials if other.method == "graph")
    return dataclasses.replace(graph, method="rescore")


@contextlib.contextmanager
def open_decoder(work: Path, config: Config, word_penalties: Collection[float]) -> Iterator[Decoder]:
    """Load the models and start the processes; graphs are made for each of `word_penalties`.

    Raises AsrtoolError when an input is missing or broken, or when parts do not belong together.
    """
    settings = config.decode
    acoustic = load_acoustic_model(work / "average" / "model.pt")
    search = load_search(work, settings, acoustic, word_penalties)
    ngram, neural = load_sentence_lms(work, config)
    max_frames = round(settings.batch_s * 1000 / acoustic.frame_shift_ms)
    num_jobs = settings.num_jobs or num_cores()
    num_threads = num_cores() if num_jobs == 1 else max(1, num_cores() - num_jobs)  # the cores the searches leave
    with process_pool(search, num_jobs) as search_map, torch_threads(num_threads):
        yield Decoder(work, acoustic, max_frames, search_map, ngram, neural)
