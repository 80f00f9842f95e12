"""A search method and an encoder of a person's own, in a package outside asrtool, from the settings to the ctm."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import run_command
from made_up import MadeUpReader

from asrtool.data.storage.index import Utterance
from asrtool.decode import forward
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model, save_model
from asrtool.settings import registry
from asrtool.settings.config import to_table
from asrtool.settings.toml_files import load_config

OWN = '''
from dataclasses import dataclass

import torch

from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.parameters import Axis
from asrtool.decode.words import Word
from asrtool.models.acoustic import Encoder


class Every(SearchMethod):
    """The word "tick" in every row, or in every other."""

    @dataclass(frozen=True)
    class Settings:
        steps: tuple[int, ...] = (2, 1)  # rows, tried on dev
        objectives = ("ctc",)

    def axes(self):
        return (Axis("step", self.settings.steps),)

    def search(self, scores_TV, parameters):
        row_s = self.resources.acoustic.frame_s
        rows = range(0, len(scores_TV), int(parameters["step"]))
        return SearchResult(tuple(Word("tick", row * row_s, (row + 1) * row_s, 1.0) for row in rows))


class Louder(Every):
    """Starts from what was chosen for Every."""

    based_on = "own_search.methods:Every"

    def axes(self):
        return (Axis("step"), Axis("volume", (1.0, 2.0)))


class Bare(Every):
    """Returns the words alone."""

    def search(self, scores_TV, parameters):
        return super().search(scores_TV, parameters).words


class Mute:
    """No search."""


class Pool(Encoder):
    """Five frames a row, without frames that are stacked."""

    def __init__(self, settings, num_features):
        super().__init__()
        self.subsampling, self.output_size = 5, num_features

    def forward(self, feats_NTF, feat_lens_N):
        return feats_NTF[:, ::5], self.output_lens(feat_lens_N)
'''
EVERY, LOUDER = "own_search.methods:Every", "own_search.methods:Louder"
MODEL = ["model.encoder=own_search.methods:Pool"]
FRAME_S, NUM_FRAMES = 0.01, 20


class Reader(MadeUpReader):
    """Reader of two utterances of four rows of the pooled model."""

    num_bins = 3

    def __init__(self, directory: Path, *_: object) -> None:
        text = "tick tick tick tick"
        self.index = [
            Utterance(f"u{i}", f"{directory.name}_1", "A", 9.0 * i, NUM_FRAMES * FRAME_S, "s", text, 0, NUM_FRAMES)
            for i in range(2)
        ]

    def read(self, i: int) -> np.ndarray:
        return np.full((NUM_FRAMES, 3), float(i), dtype=np.float32)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model file of the own encoder, and folders of features whose content is made up."""
    package = tmp_path / "site" / "own_search"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "methods.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(forward, "FeatureReader", Reader)
    model = load_config([], MODEL).model
    info = {"model": to_table(model), "features": {"frame_shift_ms": 1000 * FRAME_S, "cmvn": "none"}}
    sizes = {"num_features": 3, "num_tokens": 4}
    save_model(tmp_path / "model.pt", build_model(model, **sizes), {**info, **sizes})
    for name in ("train", "dev", "rt03"):
        (tmp_path / "features" / name).mkdir(parents=True)
        (tmp_path / "features" / name / "index.jsonl").touch()
    return tmp_path


def run(work: Path, command: str, methods: str, *options: object) -> None:
    settings = ["--set", f"decode.methods={methods}", "--set", "decode.num_jobs=2"]
    run_command(command, work / "model.pt", *settings, *options)


def test_an_own_method_tunes_and_decodes_what_it_says(work: Path) -> None:
    features, out = work / "features", work / "tune"
    run(work, "tune", f"{EVERY},{LOUDER}", features / "dev", out)
    rows = [line.split("\t") for line in (out / "tuning.tsv").read_text().splitlines()]
    assert rows[0][:7] == ["method", "lm_weight", "word_penalty", "beam", "nnlm_weight", "step", "volume"]
    assert [[row[0], *row[5:7], row[-1]] for row in rows[1:]] == [
        [EVERY, "2", "-", "no"],
        [EVERY, "1", "-", "yes"],
        [LOUDER, "1", "1", "yes"],
        [LOUDER, "1", "2", "no"],
    ]
    run(work, "decode", f"{EVERY},{LOUDER}", features, work / "decode", "--tuning", out / "tuning.json")
    assert sorted(path.name for path in (work / "decode").glob("[!.]*")) == ["decode.json", "dev", "rt03"]
    lines = [line.split() for line in (work / "decode" / "rt03" / f"{EVERY}.ctm").read_text().splitlines()]
    assert [float(line[2]) for line in lines] == [0.0, 0.05, 0.1, 0.15, 9.0, 9.05, 9.1, 9.15]  # rows of five frames
    weights = json.loads((work / "decode" / "decode.json").read_text())["methods"]
    assert weights == {EVERY: {"lm_weight": None, "step": 1.0}, LOUDER: {"lm_weight": None, "step": 1.0, "volume": 1.0}}


def test_the_settings_of_an_own_method_have_a_table_of_its_name(work: Path) -> None:
    run(work, "tune", EVERY, work / "features" / "dev", work / "tune", "--set", "decode.Every.steps=2")
    assert json.loads((work / "tune" / "tuning.json").read_text())["methods"][EVERY] == {"step": 2.0}


def test_a_class_that_cannot_search_is_named_with_what_it_lacks(work: Path) -> None:
    with pytest.raises(
        AsrtoolError, match=r"own_search\.methods:Mute: no search, it lacks search; see docs/guide/exten"
    ):
        run(work, "tune", "own_search.methods:Mute", str(work / "features" / "dev"), str(work / "tune"))


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_a_search_that_returns_words_alone_is_refused(num_jobs: int, work: Path) -> None:
    jobs = ["--set", f"decode.num_jobs={num_jobs}"]
    message = r"^decode.methods = own_search\.methods:Bare returned tuple, expected asrtool\.decode\.\S+:SearchRes"
    with pytest.raises(AsrtoolError, match=message):
        run(work, "tune", "own_search.methods:Bare", str(work / "features" / "dev"), str(work / "tune"), *jobs)


def test_a_method_that_cannot_search_the_scores_of_the_model_is_refused(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of the command name no objective: what counts is the one in the model file."""
    monkeypatch.setattr(registry.settings_class("search", EVERY), "objectives", ("transducer",))
    with pytest.raises(AsrtoolError, match=r"model\.pt: decode.methods names .*Every, which cannot search .* = ctc"):
        run(work, "tune", EVERY, str(work / "features" / "dev"), str(work / "tune"))


def test_a_tuning_of_an_own_method_must_have_its_parameters(work: Path) -> None:
    tuning = work / "tuning.json"
    tuning.write_text(json.dumps({"methods": {EVERY: {"beam": 3}}}))
    with pytest.raises(AsrtoolError, match=r"expected a number for each of step; run `asrtool tune`"):
        run(work, "decode", EVERY, str(work / "features"), str(work / "decode"), "--tuning", str(tuning))
