"""The decode stage on a made-up model whose scores are its input."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from made_up import MadeUpReader, acoustic_of, open_searches, write_graph

from asrtool.data.storage.index import Utterance
from asrtool.decode import decode, forward, resources, tune
from asrtool.decode.acoustic_model import AcousticModel, load_acoustic_model
from asrtool.decode.decode import decode_run
from asrtool.decode.forward import open_features
from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.resources import check_graph_tokens
from asrtool.decode.search.graph import GraphSearch
from asrtool.decode.tune import tune_run
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer, train_tokenizer
from asrtool.settings.config import Config, Decode
from asrtool.settings.schema import SEARCHED, Choice

SENTENCES = ["so what did you do", "uh i went to the sea", "the sea was fine", "[noise] yeah i see the sea th-"] * 3
SAID = {"dev": SENTENCES[:4], "test": ["yeah the sea was fine", "[noise]", "i see what you did"]}
STACK_FRAMES = 3
METHODS = ("greedy", "beam", "graph", "rescore")


class Echo(torch.nn.Module):
    """Model whose logits are every third frame of the features."""

    subsampling = STACK_FRAMES

    def forward(self, feats_NTF: torch.Tensor, lens_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return feats_NTF[:, ::STACK_FRAMES].log_softmax(dim=-1), (lens_N + STACK_FRAMES - 1) // STACK_FRAMES


class Reader(MadeUpReader):
    """Utterances whose features encode their text: each token is one output row, then two rows of blank."""

    def __init__(self, name: str, tokenizer: Tokenizer) -> None:
        random = np.random.default_rng(len(name))
        self.num_bins = tokenizer.num_tokens
        self.feats: list[np.ndarray] = []
        self.index: list[Utterance] = []
        for number, text in enumerate(SAID[name]):
            tokens = [token for spoken in tokenizer.encode(text) for token in (spoken, 0, 0)]
            logits = random.normal(size=(len(tokens), self.num_bins))
            logits[np.arange(len(tokens)), tokens] += 9.0
            self.feats.append(np.repeat(logits, STACK_FRAMES, axis=0).astype(np.float32))
            num_frames = len(self.feats[-1])
            start, side = 10.0 * number, "AB"[number % 2]
            self.index.append(
                Utterance(f"{name}-{number}", f"sw_{name}", side, start, num_frames / 100, "s", text, 0, num_frames)
            )

    def read(self, i: int) -> np.ndarray:
        return self.feats[i]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work directory with tokenizer, lexicon, language model and graph."""
    work = tmp_path_factory.mktemp("work")
    sentences = work / "sentences.txt"
    sentences.write_text("\n".join(SENTENCES) + "\n")
    train_tokenizer(sentences, work / "tokenizer", 40)
    return write_graph(work, sentences)


@pytest.fixture
def acoustic(work: Path, monkeypatch: pytest.MonkeyPatch) -> AcousticModel:
    return echo(work, monkeypatch)


def echo(work: Path, monkeypatch: pytest.MonkeyPatch) -> AcousticModel:
    """The echo model, and features that stand for what was said, in place of those read from disk."""
    tokenizer = Tokenizer.load(work / "tokenizer")
    model = acoustic_of(tokenizer, Echo(), num_features=tokenizer.num_tokens)
    for module in (decode, tune):
        monkeypatch.setattr(module, "load_searched_model", lambda path, settings: model)
    monkeypatch.setattr(forward, "FeatureReader", lambda path, *_: Reader(path.name, tokenizer))
    return model


TUNED = {
    "greedy": {},
    "beam": {"lm_weight": 0.5, "word_penalty": 0.0, "beam": 16.0},
    "graph": {"lm_weight": 0.5, "word_penalty": 0.5, "beam": 14.0},
    "rescore": {"lm_weight": 0.5, "word_penalty": 0.0, "beam": 14.0, "nnlm_weight": 0.0},
}


def configure(methods: Sequence[str] = ("greedy", "beam", "graph"), **settings: Any) -> Config:
    """Settings of `methods`; those named as one of them are its own."""
    own = {name: settings.pop(name, {}) for name in methods}
    chosen = tuple(Choice.of("search", name, **own[name]) for name in methods)
    return Config(decode=Decode(methods=chosen, **{"num_jobs": 1, **settings}))


def folders(work: Path) -> dict[str, Path | None]:
    return {name: work / name for name in SEARCHED}


@pytest.fixture
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sets."""
    features = tmp_path_factory.mktemp("features")
    for name in ("train", *SAID):
        (features / name).mkdir()
        (features / name / "index.jsonl").touch()
    return features


def run(work: Path, features: Path, out: Path, **settings: Any) -> None:
    """Decode with weights that nobody tuned."""
    tuning = out.with_name("tuning.json")
    tuning.write_text(json.dumps({"methods": TUNED}))
    decode_run(Path("model.pt"), features, tuning, out, folders(work), configure(**settings))
    tuning.unlink()


def spoken(text: str) -> list[str]:
    return [word for word in text.split() if not word.startswith("[")]


def test_every_method_writes_what_was_said_with_times_inside_its_utterance(
    work: Path, features: Path, acoustic: AcousticModel, tmp_path: Path
) -> None:
    for num_jobs in (1, 2):
        run(work, features, tmp_path / str(num_jobs), methods=METHODS, num_jobs=num_jobs, batch_s=2.0)
    for name, texts in SAID.items():
        for method in METHODS:
            ctm = (tmp_path / "1" / name / f"{method}.ctm").read_text()
            assert (tmp_path / "2" / name / f"{method}.ctm").read_text() == ctm
            rows = [line.split() for line in ctm.splitlines()]
            for number, text in enumerate(texts):
                own = [row for row in rows if 10.0 * number <= float(row[2]) < 10.0 * number + 10.0]
                assert [row[4] for row in own] == spoken(text)
                assert {(row[0], row[1]) for row in own} <= {(f"sw_{name}", "AB"[number % 2])}
                assert all(0.5 < float(row[5]) <= 1.0 for row in own)
                ends = [float(row[2]) + float(row[3]) for row in own]
                assert all(end <= float(row[2]) + 1e-9 for end, row in zip(ends, own[1:], strict=False))
    report = json.loads((tmp_path / "1" / "decode.json").read_text())
    assert report["methods"] == {**TUNED, "greedy": {"lm_weight": None}}
    assert report["sets"]["test"]["num_utterances"] == 3
    audio_s = sum(utterance.duration_s for utterance in Reader("test", Tokenizer.load(work / "tokenizer")).index)
    assert report["sets"]["test"]["audio_s"] == pytest.approx(audio_s, abs=0.01)
    assert list(report["sets"]["dev"]["search_rtf"]) == list(METHODS)


def in_cyrillic(text: str) -> str:
    """Replace words except tags by as many letters of another script."""
    letters = str.maketrans({letter: chr(0x430 + i) for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz")})
    return " ".join(word if word[0] == "[" else word.translate(letters) for word in text.split())


def test_every_method_spells_in_bytes_what_the_tokenizer_has_no_characters_for(
    features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cyrillic, of which training had not all letters."""
    for name, texts in SAID.items():
        monkeypatch.setitem(SAID, name, [*map(in_cyrillic, texts)])
    sentences, heard = tmp_path / "sentences.txt", tmp_path / "heard.txt"
    sentences.write_text("".join(f"{in_cyrillic(text)}\n" for text in SENTENCES), encoding="utf-8")
    heard.write_text(re.sub("[\u0434\u043e\u0442]", "", sentences.read_text(encoding="utf-8")), encoding="utf-8")
    train_tokenizer(heard, tmp_path / "tokenizer", 0, byte_fallback=True)
    write_graph(tmp_path, sentences)
    assert "<0xD1> <0x82>" in (tmp_path / "lang" / "lexicon.txt").read_text(encoding="utf-8")
    echo(tmp_path, monkeypatch)
    run(tmp_path, features, tmp_path / "decode", methods=METHODS)
    for name, texts in SAID.items():
        words = [word for text in texts for word in spoken(text)]
        for method in METHODS:
            lines = (tmp_path / "decode" / name / f"{method}.ctm").read_text(encoding="utf-8").splitlines()
            rows = sorted((line.split() for line in lines), key=lambda row: float(row[2]))
            assert [row[4] for row in rows] == words, (name, method)


def tune_dev(work: Path, features: Path, out: Path, **settings: Any) -> list[list[str]]:
    table = tune_run(Path("model.pt"), features / "dev", out, folders(work), configure(**settings))
    assert (out / "tuning.tsv").read_text() == table
    return [line.split("\t") for line in table.splitlines()[1:]]


def test_one_weight_is_tuned_after_the_other_on_scores_computed_once(
    work: Path, features: Path, acoustic: AcousticModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    forward = Echo.forward
    monkeypatch.setattr(Echo, "forward", lambda self, *args: calls.append(1) or forward(self, *args))
    rows = tune_dev(work, features, tmp_path / "tune", methods=("greedy", "graph"),
        graph={"lm_weights": (0.9, 0.4), "word_penalties": (0.5, 0.0), "beams": (10.0, 14.0)},
    )  # fmt: skip
    assert [row[:4] + row[-1:] for row in rows] == [
        ["greedy", "-", "-", "-", "yes"],
        ["graph", "0.9", "0", "14", "no"],
        ["graph", "0.4", "0", "14", "no"],
        ["graph", "0.4", "0.5", "14", "no"],
        ["graph", "0.4", "0", "10", "yes"],
    ]
    assert len(calls) == 1
    assert json.loads((tmp_path / "tune" / "tuning.json").read_text())["methods"] == {
        "greedy": {},
        "graph": {"lm_weight": 0.4, "word_penalty": 0.0, "beam": 10.0},
    }


def test_tuning_holds_the_graph_of_one_penalty_at_a_time(
    work: Path, features: Path, acoustic: AcousticModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph of 31 million arcs takes 600 MB."""
    alive: list[object] = []
    most = [0]

    class Counted(GraphSearch):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            alive.append(None)
            most.append(len(alive))

        def __del__(self) -> None:
            alive.pop()

    monkeypatch.setattr("asrtool.decode.search.graph.GraphSearch", Counted)
    rows = tune_dev(work, features, tmp_path / "tune", methods=("graph",))
    assert [row[2] for row in rows if row[1] == rows[4][1]][1:3] == ["-0.5", "0.5"]
    assert max(most) == 1


def test_what_was_tuned_is_what_decoding_applies(
    work: Path, features: Path, acoustic: AcousticModel, tmp_path: Path
) -> None:
    rows = tune_dev(work, features, tmp_path / "tune", methods=METHODS)
    tuning, out, config = tmp_path / "tune" / "tuning.json", tmp_path / "decode", configure(METHODS)
    decode_run(Path("model.pt"), features, tuning, out, folders(work), config)
    weights = json.loads((tmp_path / "decode" / "decode.json").read_text())["methods"]
    for name, *numbers in (row[:5] for row in rows if row[-1] == "yes"):
        expected = [number for number in numbers if number != "-"]
        assert [f"{value:g}" for value in weights[name].values() if value is not None] == expected
    assert sum(row[-1] == "yes" for row in rows) == len(METHODS)
    assert sum(row[0] == "rescore" for row in rows) == 4 * 3  # all weights and penalties together, no neural model


def test_a_folder_that_a_method_needs_and_nobody_gave_is_named(
    work: Path, features: Path, acoustic: AcousticModel, tmp_path: Path
) -> None:
    given = {"tokenizer": work / "tokenizer", "lang": work / "lang"}
    expected = (
        r"--lm is not given, but decode\.methods = greedy, beam reads it;"
        r" add --lm and the folder that `asrtool lm` writes, or choose other methods"
    )
    with pytest.raises(AsrtoolError, match=expected):
        tune_run(Path("model.pt"), features / "dev", tmp_path / "tune", given, configure(("greedy", "beam")))
    expected = r"decode\.methods has rescore without graph, which it is based on; add graph"
    with pytest.raises(AsrtoolError, match=expected):
        tune_run(Path("model.pt"), features / "dev", tmp_path / "tune", folders(work), configure(("rescore",)))


def test_all_sets_but_train_are_decoded_or_one_with_no_folder_that_the_methods_do_not_need(
    work: Path, features: Path, acoustic: AcousticModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (features / "test").rename(features / "hub5")
    (features / "notes").mkdir()
    monkeypatch.setitem(SAID, "hub5", SAID["test"])
    bare = tmp_path / "work"
    bare.mkdir()
    (bare / "tokenizer").symlink_to(work / "tokenizer")
    run(bare, features, tmp_path / "all", methods=("greedy",))
    assert sorted(path.name for path in (tmp_path / "all").glob("[!.]*")) == ["decode.json", "dev", "hub5"]
    assert sorted(path.name for path in (tmp_path / "all" / "hub5").iterdir()) == [
        *("greedy.ctm", "greedy.text", "greedy.utterances")
    ]
    # Tags among the spoken words are not written.
    text = ["hub5-0 yeah the sea was fine", "hub5-1", "hub5-2 i see what you did"]
    assert (tmp_path / "all" / "hub5" / "greedy.text").read_text().splitlines() == text
    assert list(json.loads((tmp_path / "all" / "decode.json").read_text())["sets"]) == ["dev", "hub5"]
    monkeypatch.chdir(features / "hub5")
    run(bare, Path("."), tmp_path / "one", methods=("greedy",))
    assert sorted(path.name for path in (tmp_path / "one").glob("[!.]*")) == ["decode.json", "hub5"]
    ctms = [(tmp_path / out / "hub5" / "greedy.ctm").read_text() for out in ("all", "one")]
    assert ctms[0] == ctms[1]


def test_a_folder_without_sets_is_one_line(work: Path, acoustic: AcousticModel, tmp_path: Path) -> None:
    with pytest.raises(
        AsrtoolError, match=r"no features to decode, expected index\.jsonl or folders that have one; run"
    ):
        run(work, tmp_path, tmp_path / "decode", methods=("greedy",))


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_scores_that_are_not_numbers_name_their_utterance(
    work: Path, features: Path, acoustic: AcousticModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_jobs: int
) -> None:
    forward = Echo.forward

    def fail(*args: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores_NTV, lens_N = forward(*args)
        return scores_NTV * math.nan, lens_N

    monkeypatch.setattr(Echo, "forward", fail)
    with pytest.raises(AsrtoolError, match=r"utterance dev-\d: the model gives scores that are NaN"):
        run(work, features, tmp_path / "decode", methods=("greedy", "beam"), num_jobs=num_jobs)
    assert not (tmp_path / "decode").exists()


def test_a_model_that_is_missing_or_of_other_features_or_tokens_is_refused(
    work: Path, acoustic: AcousticModel, tmp_path: Path
) -> None:
    with pytest.raises(AsrtoolError, match=r"model\.pt: no acoustic model; run the stages train and average first"):
        load_acoustic_model(tmp_path / "model.pt")
    acoustic.info["num_features"] = 80
    expected = r"features/dev: 40 features a frame, but model\.pt was trained on 80; run the stages train and average"
    with pytest.raises(AsrtoolError, match=expected):
        open_features(tmp_path / "features" / "dev", acoustic)
    acoustic.info["num_tokens"] = 500
    expected = r"tokenizer: 40 tokens, but model\.pt was trained on 500; use the tokenizer"
    with pytest.raises(AsrtoolError, match=expected):
        open_searches(acoustic, folders(work), configure())
    acoustic.info.update(num_tokens=40, tokenizer="another")
    with pytest.raises(AsrtoolError, match=r"tokenizer: model\.pt was trained on 40 other tokens; use the tokenizer"):
        open_searches(acoustic, folders(work), configure())


def test_a_graph_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "tokens.txt"
    table.write_text("<eps> 0\n<blk> 1\n<unk> 2\nx 3\n#0 4\n")
    check_graph_tokens(table, ["<blk>", "<unk>", "x"])
    with pytest.raises(AsrtoolError, match=r"tokens\.txt: label 3 is x, expected y of the tokenizer; run the stages"):
        check_graph_tokens(table, ["<blk>", "<unk>", "y"])
    with pytest.raises(AsrtoolError, match=r"label 4 is #0, expected z"):
        check_graph_tokens(table, ["<blk>", "<unk>", "x", "z"])
    with pytest.raises(AsrtoolError, match=r"label 3 is x, expected nothing"):
        check_graph_tokens(table, ["<blk>", "<unk>"])
    # A piece may begin as the symbols behind the tokens do
    table.write_text("<eps> 0\n<blk> 1\n#1 2\nx 3\n#0 4\n#2 5\n")
    check_graph_tokens(table, ["<blk>", "#1", "x"])
    with pytest.raises(AsrtoolError, match=r"label 2 is #1, expected #3"):
        check_graph_tokens(table, ["<blk>", "#3", "x"])


@pytest.mark.parametrize(("name", "kept"), [("words.txt", 10), ("tokens.txt", 20)])
def test_labels_of_the_graph_that_its_tables_lack_are_refused(
    work: Path,
    features: Path,
    acoustic: AcousticModel,
    tmp_path: Path,
    name: str,
    kept: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for folder in ("tokenizer", "lm", "lang"):
        (tmp_path / folder).symlink_to(work / folder)
    shutil.copytree(work / "graph", tmp_path / "graph")
    lines = (work / "graph" / name).read_text().splitlines(keepends=True)
    (tmp_path / "graph" / name).write_text("".join(lines[:kept]))
    if name == "tokens.txt":
        pieces = Tokenizer.load(work / "tokenizer").pieces[: kept - 1]
        monkeypatch.setattr(resources, "load_tokenizer", lambda *_: SimpleNamespace(pieces=pieces))
    expected = rf"HLG\.fst: has label \d+, but .*graph/{name} ends with {kept - 1}; run the stage graph again"
    with pytest.raises(AsrtoolError, match=expected):
        open_searches(acoustic, folders(tmp_path), configure(("graph",)))


def test_an_utterance_too_short_for_a_row_has_no_words(work: Path, acoustic: AcousticModel) -> None:
    search = open_searches(acoustic, folders(work), configure(METHODS))
    empty_TV = np.zeros((0, 40), dtype=np.float32)
    (found,) = search([(empty_TV, [DecodingParameters.of(name, **TUNED[name]) for name in METHODS])])
    assert [(each.words, each.candidates) for each in found] == [((), ())] * 4
