"""A training, and a work directory with what a report reads, whose audio are tones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import soundfile

from asrtool.data.manifests.sets import EvaluationSet, Sets, read_sets, write_sets
from asrtool.report.results import SETTINGS
from asrtool.score.output import score_all
from asrtool.settings.config import format_toml
from asrtool.settings.toml_files import load_config

RATE_HZ, SEGMENT_S = 8000, 2.0
HEADER = """;; LABEL "O" "Overall" "Overall"
;; LABEL "EN" "Callhome" "CallHome"
;; LABEL "SW" "Switchboard" "Switchboard"
"""
HUB5 = EvaluationSet("hub5", "Hub5'00", {"SW": "Switchboard", "EN": "CallHome"})
TUNING = """method\tlm_weight\tword_penalty\twords\twer_percent\tchosen
greedy\t-\t-\t80\t10.00\tyes
graph\t0.3\t0\t80\t7.50\tno
graph\t0.5\t0\t80\t5.00\tyes
graph\t0.5\t1\t80\t6.25\tno
graph\t0.8\t0\t80\t6.25\tno
"""


class Said(NamedTuple):
    """A segment: what was said, and what each method recognised."""

    recording: str
    channel: str
    speaker: str
    label: str
    text: str
    recognised: Mapping[str, str]


def usual() -> list[Said]:
    """20 segments of 4 words of 4 speakers: greedy is wrong in 8 of 80 words, 6 of them EN, graph in 4, all EN."""
    segments = []
    for number in range(20):
        label = "SW" if number < 10 else "EN"
        words = [f"w{number}", "so", "what", "now"]
        greedy, graph = list(words), list(words)
        if number in (0, 1, 10, 11):
            greedy[0] = "x"
        if number in (12, 13, 14):
            greedy, graph = words[:-1], words[:-1]
        if number == 15:
            greedy, graph = [*words, "uh"], [*words, "uh"]
        side = f"{label.lower()}_1", "AB"[number // 5 % 2]
        recognised = {"greedy": " ".join(greedy), "graph": " ".join(graph)}
        segments.append(Said(*side, f"{side[0]}-{side[1]}", label, " ".join(words), recognised))
    return segments


def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have empty figures, which take no time."""
    monkeypatch.setattr("asrtool.report.page.page.narrow_svg", lambda draw, name: "<svg></svg>")
    monkeypatch.setattr("asrtool.report.write.draw_figures", lambda run, folder: None)


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def write_training(train: Path, num_learners: int = 2, num_steps: int = 40) -> None:
    """Learners take turns: a step of a quarter second each, of 2 utterances, without a pause.

    Half of it is compute, a quarter wait, an eighth comm and an eighth data; learner r sends r MB a step.
    """
    step_s = 0.25
    for rank in range(num_learners):
        lines = [
            {
                "epoch": 1, "batch": step, "step": step + 1, "samples": 2 * step + 2,
                "loss": 4.0 - 3 * step / num_steps,
                "begin": 1e9 + (step // num_learners + 0.125) * step_s,
                "compute_s": 0.5 * step_s, "wait_s": 0.25 * step_s, "comm_s": 0.125 * step_s, "data_s": 0.125 * step_s,
                "staleness": rank, "bytes": rank * 10**6, "partners": [1 - rank] if rank < 2 else [], "skipped": 1,
                "frames": 100 * rank + 100,
            }
            for step in range(rank, num_steps, num_learners)
        ]  # fmt: skip
        write_lines(train / f"learners/{rank}.jsonl", lines)
    seconds = step_s * num_steps / num_learners
    half, end = {"samples": num_steps, "step": num_steps // 2}, {"samples": 2 * num_steps, "step": num_steps}
    metrics: list[dict[str, Any]] = [
        {"kind": "train", **half, "loss": 3.0, "seconds": 0.75 * seconds},
        {"kind": "train", **end, "loss": 2.0, "seconds": seconds},
        {"kind": "dev", **end, "epoch": 1, "loss": 1.5},
    ]
    if num_learners > 1:
        metrics.insert(1, {"kind": "learners", "step": half["step"], "consensus_distance": 0.01})
        metrics.append({"kind": "learners", "step": num_steps, "consensus_distance": 0.001, "drift": 1e-7})
    write_lines(train / "metrics.jsonl", metrics)
    strategy = "adpsgd-random" if num_learners > 1 else "single"
    write_lines(
        train / "inputs.json",
        [{"settings": {"distributed": {"strategy": strategy}, "emulation": {"compute_ms": None}}}],
    )
    summary = {"num_parameters": 1234567, "num_steps": num_steps, "num_samples": 2 * num_steps, "seconds": seconds}
    write_lines(train / "train.json", [{**summary, "padding_fraction": 0.034}])


def write_work(work: Path, num_learners: int = 1, said: Sequence[Said] | None = None, audio: bool = True) -> Path:
    """The directory, with sets train, dev and hub5, all of the segments `said`."""
    said = usual() if said is None else said
    methods = list(said[0].recognised)
    write_json(work / "config/run.json", {"command": "asrtool run --config mini", "recipe": "swbd", "work": "exp"})
    config = load_config(overrides=[f"decode.methods={','.join(methods)}"])
    (work / "config/report.toml").write_text(format_toml(config, SETTINGS), encoding="utf-8")
    write_training(work / "train", num_learners=num_learners)
    rtf = {"acoustic_rtf": 0.002, "search_rtf": dict.fromkeys(methods, 0.0001)}
    weights = {"greedy": {"lm_weight": None}, "graph": {"lm_weight": 0.5, "word_penalty": 0.0, "beam": 14.0}}
    decoding = {"methods": {name: weights[name] for name in methods}, "sets": {"dev": rtf, "hub5": rtf}}
    write_json(work / "decode/decode.json", decoding)
    (work / "tune").mkdir()
    head, *tried = TUNING.splitlines(keepends=True)
    lines = [head, *(line for line in tried if line.split("\t")[0] in methods)]
    (work / "tune/tuning.tsv").write_text("".join(lines), encoding="utf-8")
    write_sets(work / "manifests", Sets((HUB5,)))
    for name in ("train", "dev", "hub5"):
        write_set(work, name, said, audio)
    score(work)
    return work


def score(work: Path) -> None:
    """Score as the stage does."""
    score_all(work / "decode", work / "manifests", work / "score", read_sets(work / "manifests").scored)


def write_set(work: Path, name: str, said: Sequence[Said], audio: bool = True) -> None:
    """Manifests, reference and what was decoded; segments of a side follow one another without a pause."""
    folder = work / "manifests" / name
    folder.mkdir(parents=True, exist_ok=True)
    ends: dict[tuple[str, str], float] = {}
    stm, supervisions = [HEADER], []
    ctms: dict[str, list[str]] = {method: [] for method in said[0].recognised}
    for number, (recording, channel, speaker, label, text, recognised) in enumerate(said):
        start_s = ends.get((recording, channel), 0.0)
        ends[recording, channel] = start_s + SEGMENT_S
        stm.append(f"{recording} {channel} {speaker} {start_s} {start_s + SEGMENT_S} <O,{label}> {text}\n")
        for method, words in recognised.items():
            step_s = SEGMENT_S / (len(words.split()) + 1)
            ctms[method] += [
                f"{recording} {channel} {start_s + step_s * at:.2f} 0.05 {word}\n"
                for at, word in enumerate(words.split(), 1)
            ]
        entry = {"id": f"u{number:02d}", "recording_id": recording, "channel": "AB".index(channel), "text": text}
        supervisions.append({**entry, "start": start_s, "duration": SEGMENT_S, "speaker": speaker})
    (folder / "ref.stm").write_text("".join(stm), encoding="utf-8")
    (folder / "ref.glm").write_text('* name "none"\n', encoding="utf-8")
    for method, lines in ctms.items():
        path = work / "decode" / name / f"{method}.ctm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines), encoding="utf-8")
    names = sorted({each.recording for each in said})
    recordings = [_recording(work / "audio", key, max(ends.values()), audio) for key in names]
    _write_manifest(folder / "recordings.jsonl.gz", recordings)
    _write_manifest(folder / "supervisions.jsonl.gz", supervisions)
    hours = len(said) * SEGMENT_S / 3600
    counts = {"num_recordings": len(recordings), "num_utterances": len(said)}
    counts |= {"num_speakers": len(ends), "num_words": sum(len(s.text.split()) for s in said)}
    write_json(folder / "report.json", {**counts, "speech_hours": hours, "audio_hours": hours, "dropped": {"empty": 2}})


def _write_manifest(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(entry) + "\n" for entry in entries).encode(), mtime=0))


def _recording(folder: Path, name: str, duration_s: float, audio: bool) -> dict[str, Any]:
    """Return the entry of a recording with two channels, of 500 and of 1,000 Hz."""
    folder.mkdir(parents=True, exist_ok=True)
    path, num_samples = folder / f"{name}.wav", round(duration_s * RATE_HZ)
    if audio:
        phases = np.arange(num_samples)[:, None] * [500, 1000] * 2 * np.pi / RATE_HZ
        soundfile.write(path, 0.3 * np.sin(phases), RATE_HZ)
    sources = [{"type": "file", "channels": [0, 1], "source": str(path)}]
    sizes = {"sampling_rate": RATE_HZ, "num_samples": num_samples, "duration": duration_s}
    return {"id": name, "sources": sources, **sizes, "channel_ids": [0, 1]}
