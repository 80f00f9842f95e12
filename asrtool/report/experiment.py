"""Read the contents of a work directory for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asrtool.data.manifests.sets import EvaluationSet, Sets, read_sets
from asrtool.errors import AsrtoolError
from asrtool.report.training import TrainingRun, existing, read_json, read_training
from asrtool.score.output import SCORE
from asrtool.score.result import BY_TIME, Result
from asrtool.score.segments import FILE, read_segments
from asrtool.score.tables import SIZES, name_of
from asrtool.settings.config import Config
from asrtool.settings.toml_files import load_config

RUN, SETTINGS = "config/run.json", "config/report.toml"
PIECES = "pieces of long utterances"  # in the table of data
HINT = "run stage score again with --force"


@dataclass(frozen=True)
class Experiment:
    """Finished run; `name` is its folder, with as much of the path as is needed."""

    name: str
    work: Path
    config: Config
    run: Mapping[str, Any]  # config/run.json
    training: Mapping[str, Any]  # train/train.json
    decoding: Mapping[str, Any]  # decode/decode.json
    sets: Sets
    manifests: Mapping[str, Mapping[str, Any]]  # set -> its report.json
    scores: Mapping[str, Mapping[str, Result]]  # set that is scored -> method
    learners: TrainingRun

    @property
    def tested(self) -> list[str]:
        """Names of the test sets, without the set that settings are tuned on."""
        return [item.name for item in self.sets.test]

    @property
    def best(self) -> str:
        """Method with the lowest word error rate on dev, the first of equal ones."""
        scores = self.scores[self.sets.dev]
        return min(scores, key=lambda method: scores[method].overall.wer or 0.0)

    def evaluation(self, name: str) -> EvaluationSet:
        """Return the test set of this name, or dev as a set without title."""
        return next((item for item in self.sets.test if item.name == name), EvaluationSet(name))

    def title(self, name: str) -> str:
        """Return the title of a set; the published one only if the set is whole."""
        item = self.evaluation(name)
        title = f"{item.name} (not {item.title})" if item.title in SIZES else item.title or item.name
        return name_of(next(iter(self.scores[name].values())), title)


def read_experiments(works: Sequence[Path], configs: Sequence[Path] = ()) -> list[Experiment]:
    """Read the work directories `works`, with settings of `configs` or of the runs.

    Raises AsrtoolError for two of one folder, and naming a missing or broken file and its stage.
    """
    folders = [work.resolve() for work in works]
    if len(set(folders)) < len(folders):
        raise AsrtoolError(f"{', '.join(map(str, works))}: the same work directory twice", "name different ones")
    return [_read(work, name, configs) for work, name in zip(works, _names(folders), strict=True)]


def _read(work: Path, name: str, configs: Sequence[Path]) -> Experiment:
    if not (work / RUN).is_file():
        raise AsrtoolError(
            f"{work}: not a folder that `asrtool run` wrote, it has no {RUN}", "name the --work of a run"
        )
    run = read_json(work / RUN, "report")
    training = read_json(work / "train" / "train.json", "train")
    decoding = read_json(work / "decode" / "decode.json", "decode")
    config = load_config(configs or [existing(work / SETTINGS, "report")], warn=bool(configs))
    sets = read_sets(work / "manifests")
    manifests = {name: read_json(work / "manifests" / name / "report.json", "prepare") for name in sets.names}
    cut = work / "cut" / "manifests" / "report.json"
    if config.data.cut_long and cut.exists():
        manifests[PIECES] = read_json(cut, "cut")
    methods = [method.name for method in config.decode.methods]
    scores = {name: {method: _read_score(work, name, method) for method in methods} for name in sets.scored}
    learners = read_training(work / "train")
    return Experiment(name, work, config, run, training, decoding, sets, manifests, scores, learners)


def _read_score(work: Path, name: str, method: str) -> Result:
    path = existing(work / "score" / name / method / FILE, "score")
    segments = read_segments(path)
    if any(len(segment.alignment.refs) < len(segment.alignment.outcomes) for segment in segments):
        raise AsrtoolError(f"{path}: no aligned words, as an earlier asrtool wrote it", HINT)
    if not segments:
        raise AsrtoolError(f"{path}: no segments", HINT)
    scored = read_json(path.parent / SCORE, "score").get("scored", BY_TIME)  # an earlier asrtool scored by time
    return Result(tuple(segments), scored=scored)


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths, equally long, that all differ."""
    length = 1
    while len(names := {"/".join(folder.parts[-length:]) for folder in folders}) < len(folders):
        length += 1
    assert names
    return ["/".join(folder.parts[-length:]) for folder in folders]
