"""Decoding dev and test, once, with the weights that were tuned on dev.

Reads a work directory (docs/guide/files.md) and a tuning.json, writes `{dev,test}/METHOD.ctm` and `decode.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asrtool.config import Config
from asrtool.decode.ctm import Segment, format_ctm
from asrtool.decode.decoder import Decoded, open_decoder
from asrtool.decode.trial import Trial, read_trials
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder

SETS = ("dev", "test")


def decode_run(work: Path, tuning: Path, out: Path, config: Config) -> None:
    """Decode the dev and test sets of `work` into the directory `out`, which appears whole or not at all.

    `tuning` is what tune_run wrote. Raises AsrtoolError when an input is missing or broken, or when tuning, model,
    features, tokenizer and graph do not belong together.
    """
    chosen = read_trials(tuning, [method.name for method in config.decode.methods])
    _check_neural_weight(tuning, chosen, config)
    penalties = {trial.word_penalty for trial in chosen.values() if trial.method == "graph"}
    with open_decoder(work, config, penalties) as decoder, write_folder(out, "decode.json") as folder:
        sets = {}
        for name in SETS:
            reader = decoder.open(name)
            posteriors = decoder.posteriors(reader)
            decoded = decoder.search(posteriors, list(chosen.values()), f"decode {name}", len(reader.index))
            (folder / name).mkdir()
            for trial in chosen.values():
                text = format_ctm(_segments(decoded, trial))
                (folder / name / f"{trial.method}.ctm").write_text(text, encoding="utf-8")
            sets[name] = _describe(decoded)
        report = {"methods": {method: _weights(trial) for method, trial in chosen.items()}, "sets": sets}
        (folder / "decode.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _check_neural_weight(tuning: Path, chosen: Mapping[str, Trial], config: Config) -> None:
    """AsrtoolError where `tuning` weighs a neural language model that the settings leave out."""
    weight = chosen["rescore"].nnlm_weight if "rescore" in chosen else 0.0
    if weight and not config.nnlm.enabled:
        raise AsrtoolError(
            f"{tuning}: rescore has nnlm_weight {weight:g}, but nnlm.enabled is false",
            "use --set nnlm.enabled=true, or run `asrtool tune` with these settings",
        )


def _weights(trial: Trial) -> dict[str, float | None]:
    return {"lm_weight": None, **trial.settings()}


def _segments(decoded: Decoded, trial: Trial) -> list[Segment]:
    return [
        Segment(utterance.recording, utterance.channel, utterance.start_s, utterance.duration_s, words)
        for utterance, words in zip(decoded.utterances, decoded.words[trial], strict=True)
    ]


def _describe(decoded: Decoded) -> dict[str, Any]:
    """Counts and real-time factors: processor seconds for each second of audio."""
    audio_s = sum(utterance.duration_s for utterance in decoded.utterances)
    return {
        "num_utterances": len(decoded.utterances),
        "audio_s": round(audio_s, 3),
        "acoustic_rtf": round(decoded.acoustic_cpu_s / audio_s, 6),
        "search_rtf": {trial.method: round(cpu_s / audio_s, 6) for trial, cpu_s in decoded.search_cpu_s.items()},
    }
