"""The mini corpus on disk, as lhotse, libsndfile and NIST's scorer read it."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrtool.errors import AsrtoolError
from asrtool.files import MARK
from asrtool.local.mini import corpus as mini
from asrtool.local.mini.corpus import make_corpus
from asrtool.local.mini.evaluations import HUB5_REFERENCE
from asrtool.score.hub5 import score_hub5
from asrtool.settings.data import Mini

TINY = Mini(train_hours=0.02, test_minutes=0.2, seed=11)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve minutes of speech: enough for every mark-up to occur."""
    out = tmp_path_factory.mktemp("mini") / "corpus"
    make_corpus(out, Mini(train_hours=0.16, test_minutes=2.5, seed=5), num_jobs=1)
    return out


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mini") / "tiny"
    make_corpus(out, TINY, num_jobs=1)
    return out


def ms98(corpus: Path) -> dict[str, list[list[str]]]:
    """Lines of the MS-State transcripts by side: id, start, end, words."""
    files = sorted(corpus.glob("swb_ms98_transcriptions/*/*/*-trans.text"))
    return {path.name[2:7]: [line.split(None, 3) for line in path.read_text().splitlines()] for path in files}


def stm(corpus: Path) -> list[list[str]]:
    """Lines of the reference that are scored: file, channel, speaker, start, end, label, text."""
    text = (corpus / HUB5_REFERENCE / "hub5e00.english.000405.stm").read_text()
    lines = [line.split(None, 6) for line in text.splitlines() if not line.startswith(";;")]
    return [line for line in lines if line[6] != "IGNORE_TIME_SEGMENT_IN_SCORING"]


def digest(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != MARK)
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_segments_tile_a_side_and_are_heard_where_the_transcript_has_them(corpus: Path) -> None:
    for side, segments in ms98(corpus).items():
        path = next(corpus.glob(f"LDC97S62/*/data/sw0{side[:4]}.sph"))
        info = soundfile.info(path)
        assert (info.format, info.subtype, info.channels, info.samplerate) == ("NIST", "ULAW", 2, 8000)
        audio, rate_hz = soundfile.read(path)
        assert float(segments[0][1]) == 0
        assert float(segments[-1][2]) == pytest.approx(len(audio) / rate_hz, abs=1e-5)
        assert all(a[2] == b[1] for a, b in itertools.pairwise(segments))
        power: dict[bool, list[float]] = {True: [], False: []}
        for _, start, end, text in segments:
            part = audio[round(float(start) * rate_hz) : round(float(end) * rate_hz), "AB".index(side[4])]
            power[text == "[silence]"] += (part**2).tolist()
        assert 10 * np.log10(np.mean(power[False]) / np.mean(power[True])) > 9


def test_every_mark_up_occurs(corpus: Path) -> None:
    swbd = "\n".join(line[3] for lines in ms98(corpus).values() for line in lines)
    for pattern in (
        r"\[silence\]",
        r"\[noise\]",
        r"\[laughter\]",
        r"\[vocalized-noise\]",
        r"\[laughter-[a-z'.]+",
        r"\w+\[\w+\]-",
        r"-\[\w+\]\w+",
        r"\[\w+/\w+\]",
        r"\{\w+\}",
        r"<b_aside> .* <e_aside>",
        r"\b(uh|um)\b",
        "uh-huh",
    ):
        assert re.search(pattern, swbd), pattern
    fisher = "".join(path.read_text() for path in corpus.glob("LDC200?T19/*/data/trans/*/*.txt"))
    for pattern in (r"\(\( \w+", r"\(\( \)\)", r"\[laughter\]", r"\[noise\]", r"\[breath\]", r"t\._v\.", r"\w+- "):
        assert re.search(pattern, fisher), pattern
    reference = "\n".join(line[6] for line in stm(corpus))
    for pattern in (r"\(%HESITATION\)", r"\([A-Z]+-\)", r"\{[A-Z]+ / [A-Z]+\}", r"\([A-Z]+\)", r"T\. V\."):
        assert re.search(pattern, reference), pattern


def test_speech_is_as_long_as_asked(corpus: Path) -> None:
    trans = [line for lines in ms98(corpus).values() for line in lines]
    with_words = [line for line in trans if re.search(r"[a-z]", re.sub(r"\[[a-z-]+\]", "", line[3]))]
    assert sum(float(e) - float(s) for _, s, e, _ in with_words) == pytest.approx(0.6 * 0.16 * 3600, rel=0.06)
    for prefix in ("en_", "sw_"):
        scored = [line for line in stm(corpus) if line[0].startswith(prefix)]
        assert sum(float(line[4]) - float(line[3]) for line in scored) == pytest.approx(75, rel=0.15)
        assert len({line[0] for line in scored}) == 2


def test_the_table_names_the_speakers_of_each_side(corpus: Path) -> None:
    text = (corpus / "LDC97S62/docs/call_con_tab.csv").read_text().splitlines()
    rows = [[field.strip() for field in row] for row in csv.reader(text, skipinitialspace=True)]
    calls = sorted(path.stem[3:] for path in corpus.glob("LDC97S62/*/data/*.sph"))
    assert [(row[0], row[1]) for row in rows] == [(call, side) for call in calls for side in "AB"]
    assert len({row[2] for row in rows}) < len(rows)  # some speak in two conversations


def test_the_same_seed_gives_the_same_bytes_whatever_the_processes_and_the_other_corpora(
    tiny: Path, mini_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mini, "CALLS_PER_PROCESS", 4)
    make_corpus(tmp_path, TINY, ["swbd", "hub5", "rt03"], num_jobs=2)
    one, two, other = map(digest, (tiny, tmp_path, mini_corpus))
    assert {path: two[path] for path in one} == one
    assert {path.partition("/")[0] for path in two.keys() - one.keys()} == {"LDC2007S10"}
    assert other.keys() == one.keys()  # three conversations of each kind at least
    assert not set(other.values()) & {digest_ for path, digest_ in one.items() if path.endswith(".sph")}


def test_a_corpus_that_failed_half_way_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mini, "write_sphere", full)
    with pytest.raises(AsrtoolError, match="no space left on device; free some space"):
        make_corpus(tmp_path / "corpus", TINY, num_jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_whole_turns_are_the_same_sound_and_words_in_longer_utterances(tiny: Path, tmp_path: Path) -> None:
    make_corpus(tmp_path, dataclasses.replace(TINY, whole_turns=True), num_jobs=1)
    apart, whole = digest(tiny), digest(tmp_path)
    assert apart.keys() == whole.keys()
    assert {Path(name).suffix for name in apart if apart[name] != whole[name]} == {".text", ".txt"}
    words = [
        {side: [w for line in lines for w in line[3].split() if w != "[silence]"] for side, lines in ms98(of).items()}
        for of in (tiny, tmp_path)
    ]
    assert words[0] == words[1]
    lengths_s = [
        [float(line[2]) - float(line[1]) for lines in of.values() for line in lines if line[3] != "[silence]"]
        for of in (ms98(tiny), ms98(tmp_path))
    ]
    assert len(lengths_s[1]) < 0.8 * len(lengths_s[0])
    assert max(lengths_s[1]) > max(lengths_s[0])


def test_a_perfect_hypothesis_has_no_error(corpus: Path, tmp_path: Path) -> None:
    lines = stm(corpus)
    (tmp_path / "hyp.ctm").write_text("".join(line for segment in lines for line in perfect_ctm(segment)))
    files = (corpus / HUB5_REFERENCE / name for name in ("hub5e00.english.000405.stm", "en20000405_hub5.glm"))
    reference, rules = files
    result = score_hub5(reference, tmp_path / "hyp.ctm", rules)
    assert (result.overall.segments, result.overall.err) == (len(lines), 0)
    assert result.overall.num_words > 3 * len(lines)
    assert {"O", "EN", "SW", "F", "M", "EN-F"} <= set(result.labels)


def perfect_ctm(segment: list[str]) -> list[str]:
    """The words of a reference line as a recogniser would write them, contractions joined again."""
    text = re.sub(r"\{([^/}]*)/[^}]*\}", r"\1", segment[6]).replace("(%HESITATION)", "uh")
    text = re.sub(r"[()]", "", text).lower().replace("t. v.", "t v")
    for written, contraction in (("it is", "it's"), ("do not", "don't"), ("can not", "can't"), ("i have", "i've")):
        text = re.sub(rf"\b{written}\b", contraction, text)
    words, start_s, end_s = text.split(), float(segment[3]), float(segment[4])
    step_s = (end_s - start_s) / len(words)
    return [f"{segment[0]} {segment[1]} {start_s + i * step_s:.3f} {step_s:.3f} {w}\n" for i, w in enumerate(words)]
