"""Cut long utterances with word times at pauses, or by the alignment of a model."""

from __future__ import annotations

import functools
import itertools
import logging
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from lhotse import Recording, SupervisionSegment
from made_up import acoustic_of

from asrtool.data.features.compute_sets import compute_features
from asrtool.data.manifests.manifest import Drop, read_drops, write_manifests
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.data.storage.index import read_index
from asrtool.data.storage.reader import FeatureReader
from asrtool.decode.align import cut as cut_module
from asrtool.decode.align.cut import KEPT_S, Piece, cut_at_pauses, cut_run, find_words
from asrtool.decode.words import Word, is_spoken
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer, train_tokenizer
from asrtool.models.objectives.topology import CtcTopology
from asrtool.settings.data import Data, Features
from asrtool.settings.decode import Decode
from asrtool.settings.schema import Choice

RATE_HZ = 8000
FRAME_S = 0.03
MAX_S = 4.0
DATA = Data(max_duration_s=MAX_S, cut_long=True)
FEATURES = Features(type=Choice.of("features", "fbank", num_mel_bins=23), speeds=(1.0, 0.9), num_jobs=1)
SENTENCE = ["so", "what", "did", "you", "do", "last", "week"]
SAID_S = {0: 0.2, 1: 0.6, 2: 1.1, 3: 2.4, 4: 2.8, 5: 4.2, 6: 4.6}  # when each of them begins; all last 0.3 s
PAUSES_S = ((1.4, 2.4), (3.1, 4.2))  # those of more than 0.2 s
DURATION_S = 5.2


def scores_of(tokens_at: list[tuple[int, float]], num_tokens: int, duration_s: float = DURATION_S) -> np.ndarray:
    """Log posteriors of a model that is sure of each token at its time and of blank elsewhere."""
    best = np.zeros(round(duration_s / FRAME_S), dtype=int)
    for token, at_s in tokens_at:
        best[round(at_s / FRAME_S)] = token
    scores_TV = np.full((len(best), num_tokens), math.log(0.02 / (num_tokens - 1)), dtype=np.float32)
    scores_TV[np.arange(len(best)), best] = math.log(0.98)
    return scores_TV


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "text").write_text(f"{' '.join(SENTENCE)}\n" * 5)
    train_tokenizer(folder / "text", folder / "tokenizer", 35)
    return folder / "tokenizer"


def heard(tokenizer: Tokenizer) -> np.ndarray:
    """The scores of SENTENCE, the tokens of a word spread over its 0.3 s."""
    at = []
    for i, word in enumerate(SENTENCE):
        tokens = tokenizer.encode(word)
        at += [(token, SAID_S[i] + 0.3 * (n + 0.5) / len(tokens)) for n, token in enumerate(tokens)]
    return scores_of(at, tokenizer.num_tokens)


def item(tokenizer: Tokenizer, words: list[str]) -> tuple[np.ndarray, list[tuple[str, list[int]]]]:
    return heard(tokenizer), [(word, tokenizer.encode(word)) for word in words]


def test_cuts_are_in_pauses_and_pieces_have_their_words(tokenizer: Path) -> None:
    loaded = Tokenizer.load(tokenizer)
    cutter = functools.partial(find_words, CtcTopology(), FRAME_S)
    words = cutter(item(loaded, SENTENCE))
    assert isinstance(words, list)
    pieces = cut_at_pauses(words, DURATION_S, MAX_S)
    assert [piece.text for piece in pieces] == ["so what did you do", "last week"]
    for one, other in itertools.pairwise(pieces):
        assert any(begin - 0.02 <= one.end_s <= other.begin_s <= end + 0.02 for begin, end in PAUSES_S)


def test_what_cannot_be_cut_says_why(tokenizer: Path) -> None:
    loaded = Tokenizer.load(tokenizer)
    cutter = functools.partial(find_words, CtcTopology(), FRAME_S)
    assert cutter((heard(loaded), "'x': no tokens")) == ("no alignment", "'x': no tokens")
    few = heard(loaded)[:5], item(loaded, SENTENCE)[1]
    reason, detail = cutter(few)
    assert (reason, str(detail)[:7]) == ("no alignment", "5 rows,")
    reason, detail = cutter(item(loaded, list(reversed(SENTENCE))))
    assert reason == "text unlike audio"
    assert str(detail).endswith("nats a token behind the best path, 2 allowed")


class Model(torch.nn.Module):
    """Model that gives the scores of SENTENCE for any input."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.subsampling = 3
        self.scores = heard(tokenizer)

    def forward(self, feats_NTF: torch.Tensor, lens_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows_N = lens_N // 3
        scores = torch.from_numpy(self.scores)[: int(rows_N.max())]
        return scores.expand(len(lens_N), -1, -1), torch.clamp(rows_N, max=len(scores))


def make_work(folder: Path, texts: list[str]) -> None:
    """Manifests with an utterance that is not too long and those that are, and the features of the former."""
    noise = np.random.default_rng(1).normal(scale=0.1, size=(RATE_HZ * 40, 2))
    soundfile.write(folder / "r.wav", noise, RATE_HZ)
    recording = Recording.from_file(folder / "r.wav", recording_id="r")

    def segment(name: str, start_s: float, duration_s: float, text: str) -> SupervisionSegment:
        return SupervisionSegment(
            name, "r", start_s, duration_s, 1, text, speaker="r-B", custom={"corpus": "own", "uncertain": True}
        )

    for name in ("train", "dev", "test"):
        write_manifests(folder / "manifests" / name, [recording], [segment(name, 0.5, 3.0, "so")], [], 0.0, {})
    long = [segment(f"u{i}", 4.125 + 6 * i, DURATION_S, text) for i, text in enumerate(texts)]
    if long:
        write_manifests(folder / "manifests" / "long", [recording], long, [], 0.0, {})
    write_sets(folder / "manifests", Sets((EvaluationSet("test"),)))
    compute_features(folder / "manifests", folder / "features", FEATURES)


def run(folder: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut by a model of `tokenizer`."""
    loaded = Tokenizer.load(tokenizer)
    cmvn = {"frame_shift_ms": 10.0, "cmvn": "speaker"}
    acoustic = acoustic_of(loaded, Model(loaded), features=cmvn, num_features=23)
    monkeypatch.setattr(cut_module, "load_acoustic_model", lambda _: acoustic)
    folders = folder / "manifests", folder / "features", tokenizer, folder / "cut"
    cut_run(Path("model.pt"), *folders, Decode(num_jobs=1), DATA)


def test_pieces_are_trained_on_as_utterances(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    right, wrong = " ".join(SENTENCE), " ".join(reversed(SENTENCE))
    make_work(tmp_path, [right, wrong, right])
    run(tmp_path, tokenizer, monkeypatch)
    index = read_index(tmp_path / "cut" / "features" / "train")
    assert [u.id for u in index[:2]] == ["train", "sp0.9-train"]
    pieces = [u for u in index[2:] if not u.id.startswith("sp")]
    assert [u.id for u in pieces] == ["u0-c01", "u0-c02", "u2-c01", "u2-c02"]
    assert [u.id for u in index[6:]] == [f"sp0.9-{u.id}" for u in pieces]
    reader = FeatureReader(tmp_path / "cut" / "features" / "train", "speaker")
    assert reader.texts(index[:3]) == ["so", "so", "so what did you do"]
    assert reader.texts(pieces) == ["so what did you do", "last week"] * 2
    for i, start_s in ((0, 4.125), (2, 16.125)):
        assert pieces[i].start_s == start_s
        assert pieces[i + 1].start_s + pieces[i + 1].duration_s == pytest.approx(start_s + DURATION_S, abs=1e-3)
        for piece in pieces[i : i + 2]:
            assert 1.0 <= piece.duration_s <= 4.0
            assert (piece.recording, piece.channel, piece.speaker) == ("r", "B", "r-B")
            assert (piece.corpus, piece.fields) == ("own", {"uncertain": True})
    rows = [line.split("\t") for line in (tmp_path / "cut" / "pieces.tsv").read_text().splitlines()]
    assert rows[0] == ["id", "recording", "channel", "start_s", "end_s", "text"]
    assert rows[1][:4] == ["u0-c01", "r", "B", "4.125"]
    assert rows[1][5] == "so what did you do"
    (drop,) = read_drops(tmp_path / "cut" / "dropped.tsv")
    assert (drop.id, drop.reason) == ("u1", "text unlike audio")
    assert "3 long utterances, 0.004 h; cut into 4 pieces, 0.003 h; dropped: 1 text unlike audio" in caplog.text
    assert [u.id for u in read_index(tmp_path / "cut" / "features" / "dev")] == ["dev"]
    assert not (tmp_path / "cut" / "features" / "long").exists()


def test_where_nothing_is_too_long_the_features_are_the_same(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_work(tmp_path, [])
    run(tmp_path, tokenizer, monkeypatch)
    features = tmp_path / "features" / "train" / "index.jsonl"
    assert (tmp_path / "cut" / "features" / "train" / "index.jsonl").read_text() == features.read_text()
    assert read_drops(tmp_path / "cut" / "dropped.tsv") == []


def test_where_no_pause_is_long_enough_all_are_dropped_and_named(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_work(tmp_path, [" ".join(SENTENCE)])
    monkeypatch.setattr("asrtool.decode.align.cut.PAUSE_S", 3.0)
    run(tmp_path, tokenizer, monkeypatch)
    assert len(read_index(tmp_path / "cut" / "features" / "train")) == 2
    assert read_drops(tmp_path / "cut" / "dropped.tsv") == [
        Drop("u0", "no pause", "none of 3 s that leaves pieces of 1 to 4 s")
    ]


def test_missing_features_are_one_line(tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AsrtoolError, match=r"features/sets\.json: missing, .*; run the stage that makes it"):
        run(tmp_path, tokenizer, monkeypatch)


@st.composite
def utterances(draw: st.DrawFn) -> tuple[list[Word], float]:
    """Words and tags in hundredths of a second, and how long the utterance is."""
    parts = draw(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "c", "[noise]"]), st.integers(1, 150), st.integers(0, 60)),
            min_size=1,
            max_size=9,
        )
    )
    words, at = [], draw(st.integers(0, 30))
    for text, length, gap in parts:
        words.append(Word(text, at / 100, (at + length) / 100, 1.0))
        at += length + gap
    return words, at / 100


def ways_to_cut(words: list[Word], duration_s: float) -> list[list[int]]:
    """All places of cuts that are allowed, of each way."""
    between = range(1, len(words))
    gaps = {i: words[i].begin_s - words[i - 1].end_s for i in between}
    places = [i for i in between if gaps[i] >= 0.2 and is_spoken(words[i].text) and is_spoken(words[i - 1].text)]
    found = []
    for size in range(len(places) + 1):
        for cuts in itertools.combinations(places, size):
            begins = [0.0, *(words[i].begin_s - min(gaps[i] / 2, KEPT_S) for i in cuts)]
            ends = [*(words[i - 1].end_s + min(gaps[i] / 2, KEPT_S) for i in cuts), duration_s]
            if all(1.0 <= end - begin <= 4.0 for begin, end in zip(begins, ends, strict=True)):
                found.append(list(cuts))
    return found


@given(utterances())
def test_pieces_have_all_words_and_are_the_fewest_with_the_longest_pauses(item: tuple[list[Word], float]) -> None:
    words, duration_s = item
    pieces = cut_at_pauses(words, duration_s, MAX_S)
    ways = ways_to_cut(words, duration_s)
    assert bool(pieces) == bool(ways)
    if ways:
        assert len(pieces) == 1 + min(map(len, ways))
        cuts = list(itertools.accumulate(len(piece.text.split()) for piece in pieces))[:-1]
        assert cuts in ways
        pauses = [sum(words[i].begin_s - words[i - 1].end_s for i in way) for way in ways if len(way) == len(cuts)]
        chosen = sum(words[i].begin_s - words[i - 1].end_s for i in cuts)
        assert abs(chosen - max(pauses)) < 1e-9
        assert " ".join(piece.text for piece in pieces) == " ".join(word.text for word in words)
        assert (pieces[0].begin_s, pieces[-1].end_s) == (0.0, duration_s)
        assert all(one.end_s <= other.begin_s + 1e-9 for one, other in itertools.pairwise(pieces))
        begin = 0
        for piece in pieces:
            assert 1.0 <= piece.end_s - piece.begin_s <= MAX_S
            own = words[begin : begin + len(piece.text.split())]
            assert piece.begin_s <= own[0].begin_s
            assert own[-1].end_s <= piece.end_s
            begin += len(own)


def test_half_a_pause_is_kept_and_no_more_than_a_little() -> None:
    words = [Word("a", 0.0, 2.0, 1.0), Word("b", 2.25, 4.0, 1.0), Word("c", 6.0, 8.0, 1.0)]
    assert cut_at_pauses(words, 8.5, 2.75) == [
        Piece(0.0, 2.125, "a"),
        Piece(2.125, 4.2, "b"),
        Piece(5.8, 8.5, "c"),
    ]


def test_without_words_there_are_no_pieces() -> None:
    assert not cut_at_pauses([], 5.0, MAX_S)
