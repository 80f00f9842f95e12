"""The decode stage: dev with every language-model weight, then test once with the best.

Reads a work directory (docs/guide/files.md), writes `{dev,test}/METHOD.ctm`, `tuning.tsv` and `decode.json`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.config import Decode
from asrtool.corpus.index import Utterance
from asrtool.corpus.reader import FeatureReader
from asrtool.decode.ctm import Segment, format_ctm
from asrtool.decode.forward import compute_posteriors, torch_threads
from asrtool.decode.inputs import AcousticModel, load_acoustic_model, load_search, open_features
from asrtool.decode.parallel import num_cores, process_pool
from asrtool.decode.search import Found, Trial
from asrtool.decode.tune import Result, choose_trials, count_errors, format_tuning
from asrtool.files import write_folder
from asrtool.log import progress

SearchMap = Callable[[Iterable[tuple[np.ndarray, Sequence[Trial]]]], Iterator[list[Found]]]


@dataclass
class Decoded:
    """A set after decoding: its utterances, and of each trial what was found in them, in the same order."""

    trials: Sequence[Trial]
    utterances: list[Utterance] = field(default_factory=list)
    found: list[list[Found]] = field(default_factory=list)  # utterance, trial
    acoustic_cpu_s: float = 0.0

    def of(self, trial: Trial) -> list[Found]:
        """What `trial` found in each utterance."""
        position = self.trials.index(trial)
        return [found[position] for found in self.found]


def decode_run(work: Path, out: Path, settings: Decode) -> None:
    """Decode the dev and test sets of `work` into the directory `out`, which appears whole or not at all.

    The language-model weight of each method is the one with the fewest word errors on dev. Raises AsrtoolError when an
    input is missing or broken, or when model, features, tokenizer and graph do not belong together.
    """
    acoustic = load_acoustic_model(work / "average" / "model.pt")
    readers = {name: open_features(work / "features" / name, acoustic) for name in ("dev", "test")}
    search = load_search(work, settings, acoustic)
    max_frames = round(settings.batch_s * 1000 / acoustic.frame_shift_ms)
    num_jobs = settings.num_jobs or num_cores()
    num_threads = num_cores() if num_jobs == 1 else max(1, num_cores() - num_jobs)  # the cores the searches leave
    with (
        process_pool(search, num_jobs) as search_map,
        torch_threads(num_threads),
        write_folder(out, "decode.json") as folder,
    ):
        dev = _decode_set("dev", readers["dev"], acoustic, max_frames, search_map, _all_trials(settings))
        results = _count_all(dev)
        chosen = choose_trials(results)
        _write(folder / "tuning.tsv", format_tuning(results, chosen))
        trials = tuple(chosen[method] for method in settings.methods)
        test = _decode_set("test", readers["test"], acoustic, max_frames, search_map, trials)
        for name, decoded in (("dev", dev), ("test", test)):
            for trial in trials:
                _write(folder / name / f"{trial.method}.ctm", format_ctm(_segments(decoded, trial)))
        report = {
            "methods": {trial.method: {"lm_weight": trial.lm_weight or None} for trial in trials},
            "sets": {"dev": _describe(dev, trials), "test": _describe(test, trials)},
        }
        _write(folder / "decode.json", json.dumps(report, indent=1) + "\n")


def _all_trials(settings: Decode) -> tuple[Trial, ...]:
    weights = dict.fromkeys(settings.lm_weights)
    return tuple(
        Trial(method, weight)
        for method in dict.fromkeys(settings.methods)
        for weight in ((0.0,) if method == "greedy" else weights)
    )


def _decode_set(
    name: str,
    reader: FeatureReader,
    acoustic: AcousticModel,
    max_frames: int,
    search_map: SearchMap,
    trials: Sequence[Trial],
) -> Decoded:
    decoded = Decoded(trials)

    def items() -> Iterator[tuple[np.ndarray, Sequence[Trial]]]:
        for posteriors in compute_posteriors(acoustic.model, reader, max_frames):
            decoded.utterances.append(posteriors.utterance)
            decoded.acoustic_cpu_s += posteriors.cpu_s
            yield posteriors.log_probs_TV, trials

    for found in progress(search_map(items()), f"decode {name}", len(reader.index), "utterance"):
        decoded.found.append(found)
    return decoded


def _count_all(dev: Decoded) -> list[Result]:
    texts = [utterance.text for utterance in dev.utterances]
    results = []
    for trial in dev.trials:
        counts = count_errors(texts, (found.words for found in dev.of(trial)))
        errors = f"{counts.err} errors in {counts.num_words} words"
        logging.info("dev, %s at lm weight %g: %s", trial.method, trial.lm_weight, errors)
        results.append(Result(trial, counts))
    return results


def _segments(decoded: Decoded, trial: Trial) -> list[Segment]:
    return [
        Segment(utterance.recording, utterance.channel, utterance.start_s, utterance.duration_s, found.words)
        for utterance, found in zip(decoded.utterances, decoded.of(trial), strict=True)
    ]


def _describe(decoded: Decoded, trials: Iterable[Trial]) -> dict[str, Any]:
    """Counts and real-time factors: processor seconds for each second of audio."""
    audio_s = sum(utterance.duration_s for utterance in decoded.utterances)
    search_s = {trial.method: sum(found.cpu_s for found in decoded.of(trial)) for trial in trials}
    return {
        "num_utterances": len(decoded.utterances),
        "audio_s": round(audio_s, 3),
        "acoustic_rtf": round(decoded.acoustic_cpu_s / audio_s, 6),
        "search_rtf": {method: round(cpu_s / audio_s, 6) for method, cpu_s in search_s.items()},
    }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
