"""Decode sets of utterances, once, with the weights that were tuned on dev.

Reads a model file, features and a tuning.json, writes `SET/METHOD.ctm`, the same by utterance for the scorer as
`SET/METHOD.utterances`, the words alone as `SET/METHOD.text` as in Kaldi, and `decode.json`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asrtool.data.workers.executor import dask_map
from asrtool.decode.acoustic_model import ScoreFile, load_searched_model
from asrtool.decode.cluster import ClusterDecoder, DecodingTask, Values
from asrtool.decode.ctm import Segment, format_ctm
from asrtool.decode.decoder import Decoded, LocalDecoder, Searches
from asrtool.decode.forward import open_features
from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import SearchMethod, make_methods, read_tuning
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.score.utterances import SUFFIX, file_of
from asrtool.settings.config import Config
from asrtool.settings.schema import DASK

INDEX = "index.jsonl"  # file that marks the folder of a set
TRAIN = "train"  # the set that is not decoded


def decode_run(
    model: Path, features: Path, tuning: Path, out: Path, folders: Mapping[str, Path | None], config: Config
) -> None:
    """Decode the set or sets of `features` into the folder `out` atomically.

    `tuning` is the output of tune_run; methods need some of `folders` (settings.SEARCHED). Raises AsrtoolError if an
    input is missing or broken, or if inputs do not belong together.
    """
    sets = find_sets(features)
    acoustic = load_searched_model(model, config.decode)
    resources = Resources(acoustic, folders, config)
    methods = make_methods(config.decode, resources)
    chosen = read_tuning(tuning, methods)
    values = {name: {axis: [value] for axis, value in each.items} for name, each in chosen.items()}
    with start_decoder(methods, resources, values) as decoder, write_folder(out, "decode.json") as folder:
        weights = {name: {"lm_weight": None, **each.values()} for name, each in chosen.items()}
        report: dict[str, Any] = {"methods": weights, "sets": {}}
        for path in sets:
            reader = open_features(path, acoustic)
            decoded = decoder.decode(reader, list(chosen.values()), f"decode {path.name}")
            (folder / path.name).mkdir()
            for method_name, parameters in chosen.items():
                segments = _segments(decoded, parameters)
                by_utterance = [
                    dataclasses.replace(segment, recording=file_of(segment.recording, utterance.id))
                    for segment, utterance in zip(segments, decoded.utterances, strict=True)
                ]
                for suffix, each in ((".ctm", segments), (SUFFIX, by_utterance)):
                    file = folder / path.name / f"{method_name}{suffix}"
                    file.write_text(format_ctm(each), encoding="utf-8")
                pairs = zip(decoded.utterances, segments, strict=True)
                lines = sorted(" ".join([each.id, *(word.text for word in found.words)]) for each, found in pairs)
                text = "".join(f"{line}\n" for line in lines)
                (folder / path.name / f"{method_name}.text").write_text(text, encoding="utf-8")
            report["sets"][path.name] = _describe(decoded)
        (folder / "decode.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


@contextlib.contextmanager
def start_decoder(
    methods: Mapping[str, SearchMethod], resources: Resources, values: Values, keep: Path | None = None
) -> Iterator[LocalDecoder | ClusterDecoder]:
    """Open `methods` for these `values` of their axes, by decode.executor.

    With `keep`, scores of one set are computed once and stored there. Raises AsrtoolError as SearchMethod.open, and
    as dask_map.
    """
    executor = resources.config.decode.executor
    if executor.startswith(DASK):
        task = DecodingTask.of(resources, values)
        with (
            dask_map(executor.removeprefix(DASK), "decode.executor") as map_pieces,
            tempfile.TemporaryDirectory(prefix="scores-", dir=keep) if keep else contextlib.nullcontext() as kept,
        ):
            yield ClusterDecoder(resources.acoustic, methods, task, map_pieces, Path(kept).absolute() if kept else None)
        return
    for name, method in methods.items():
        method.open(values[name])
    with tempfile.TemporaryFile(dir=keep) if keep else contextlib.nullcontext() as file:
        scores = ScoreFile(file) if file else None
        yield LocalDecoder(resources.acoustic, Searches(methods), resources.config.decode, scores)


def find_sets(features: Path) -> list[Path]:
    """Return `features` if it is a set, else its sets but train; AsrtoolError if none."""
    if (features / INDEX).exists():
        return [Path(os.path.abspath(features))]  # `features` may be a dot, which has no name
    found = sorted(path.parent for path in features.glob(f"*/{INDEX}") if path.parent.name != TRAIN)
    if not found:
        raise AsrtoolError(
            f"{features}: no features to decode, expected {INDEX} or folders that have one", "run `asrtool features`"
        )
    return found


def _segments(decoded: Decoded, parameters: DecodingParameters) -> list[Segment]:
    return [
        Segment(utterance.recording, utterance.channel, utterance.start_s, utterance.duration_s, words)
        for utterance, words in zip(decoded.utterances, decoded.words[parameters], strict=True)
    ]


def _describe(decoded: Decoded) -> dict[str, Any]:
    """Return counts, and real-time factors in CPU seconds a second of audio."""
    audio_s = sum(utterance.duration_s for utterance in decoded.utterances)
    return {
        "num_utterances": len(decoded.utterances),
        "audio_s": round(audio_s, 3),
        "acoustic_rtf": round(decoded.acoustic_cpu_s / audio_s, 6),
        "search_rtf": {each.method: round(cpu_s / audio_s, 6) for each, cpu_s in decoded.search_cpu_s.items()},
    }
