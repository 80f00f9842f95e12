"""data/train as Kaldi's recipes of Switchboard and Fisher lay it out, read as it stands, and the pipes in it."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_releases import dropped, read_jsonl, supervisions, write_sound

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.fisher import Corpus as Fisher
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.layouts.kaldi import prepare_kaldi
from asrtool.local.layouts.wav_scp import parse_pipe
from asrtool.settings.data import Data

SPH2PIPE = "/kaldi/tools/sph2pipe_v2.5/sph2pipe"
NOISES = ("[noise]", "[vocalized-noise]", "[laughter]")
Line = tuple[str, str, float, float, str]  # call, side, start, end, words
WORDS = st.text(string.ascii_letters + string.digits + "/._- '\"é,", min_size=1).filter(
    lambda text: text.strip() == text and not text.startswith("-")
)


def write_data(out: Path, audio: Path, name: str, lines: list[Line]) -> Path:
    """`name` is the id of an utterance by call, side, start and end in hundredths."""
    out.mkdir(parents=True)
    tables: dict[str, list[str]] = {}

    def add(table: str, *fields: object) -> None:
        tables.setdefault(table, []).append(" ".join(map(str, fields)) + "\n")

    for path in sorted(audio.rglob("*.sph")):
        for number, side in enumerate("AB", start=1):
            add("wav.scp", f"{path.stem}-{side}", SPH2PIPE, "-f wav -p -c", number, path, "|")
            add("reco2file_and_channel", f"{path.stem}-{side}", path.stem, side)
    for call, side, start_s, end_s, words in sorted(lines):
        id_ = name.format(call=call, side=side, start=round(100 * start_s), end=round(100 * end_s))
        add("segments", id_, f"{call}-{side}", f"{start_s:.2f}", f"{end_s:.2f}")
        add("text", id_, words)
        add("utt2spk", id_, f"{call}-{side}")
    for table, text in tables.items():
        (out / table).write_text("".join(text))
    return out


def swbd_lines(corpus: Path) -> Iterator[Line]:
    """By the mapping of words that Kaldi's recipe has: mispronounced words as they were said, the others as here."""
    for path in sorted((corpus / "swb_ms98_transcriptions").rglob("*-trans.text")):
        for line in path.read_text().splitlines():
            id_, start_s, end_s, text = line.split(maxsplit=3)
            for pattern, kept in (
                (r"\[silence\]|<[be]_aside>", ""),
                (r"\[laughter-([^\]]+)\]", r"\1"),
                (r"\[([^\]/]+)/[^\]]+\]", r"\1"),
                (r"(\S)\[[^\]]+\]-", r"\1-"),
                (r"-\[[^\]]+\](\S)", r"-\1"),
                (r"\{(\S+)\}", r"\1"),
            ):
                text = re.sub(pattern, kept, text)
            if text.strip():
                yield f"sw0{id_[2:6]}", id_[6], float(start_s), float(end_s), " ".join(text.split())


def fisher_lines(corpus: Path) -> Iterator[Line]:
    """Without the turns that somebody was not sure of; sounds of the speaker are noise."""
    for path in sorted(corpus.glob("LDC*T19/**/fe_03_*.txt")):
        for line in path.read_text().splitlines():
            match = re.fullmatch(r"([0-9.]+) ([0-9.]+) ([AB]): *(\S.*)", line)
            if match and "((" not in line:
                text = re.sub(
                    r"\[(sigh|cough|mn|breath|lipsmack)\]", "[noise]", match[4].replace("[laugh]", "[laughter]")
                )
                yield path.stem, match[3], float(match[1]), float(match[2]), text


def facts(folder: Path, ids: set[str] | None = None) -> dict[tuple[Any, ...], str]:
    """(recording, channel, start, end) -> words without sounds, which the two map in other ways."""
    found = {}
    for s in supervisions(folder):
        place = (s["recording_id"], s["channel"], round(s["start"], 2), round(s["start"] + s["duration"], 2))
        if ids is None or s["id"] in ids:
            found[place] = " ".join(word for word in s["text"].split() if word not in NOISES)
    return found


def test_kaldis_switchboard_gives_the_manifests_of_our_own(mini_corpus: Path, tmp_path: Path) -> None:
    Swbd().prepare(mini_corpus, tmp_path / "own", Data())
    name = "{call}-{side}_{start:06d}-{end:06d}"
    data = write_data(tmp_path / "data", mini_corpus / "LDC97S62", name, list(swbd_lines(mini_corpus)))
    prepare_kaldi(data, tmp_path / "kaldi", Data(), "swbd")
    own, kaldi = facts(tmp_path / "own" / "train"), facts(tmp_path / "kaldi")
    assert own.keys() == kaldi.keys()
    differing = [place for place, words in own.items() if kaldi[place] != words]
    meant = sum("/" in line for path in mini_corpus.rglob("*-trans.text") for line in path.read_text().splitlines())
    assert len(differing) <= meant < len(own) / 5
    assert read_jsonl(tmp_path / "own" / "train" / "recordings.jsonl.gz") == read_jsonl(
        tmp_path / "kaldi" / "recordings.jsonl.gz"
    )


def test_kaldis_fisher_gives_the_manifests_of_our_own(mini_corpus: Path, tmp_path: Path) -> None:
    Fisher().prepare(mini_corpus, tmp_path / "own", Data())
    lines = list(fisher_lines(mini_corpus))
    data = write_data(tmp_path / "data", mini_corpus, "{call}-{side}-{start:06d}-{end:06d}", lines)
    prepare_kaldi(data, tmp_path / "kaldi", Data(bad_fraction=1), "fisher")
    own, kaldi = facts(tmp_path / "own" / "train"), facts(tmp_path / "kaldi")
    assert kaldi.keys() <= own.keys()
    assert len(kaldi) > len(own) / 2
    assert kaldi == {place: words for place, words in own.items() if place in kaldi}


@pytest.fixture
def stereo(tmp_path: Path) -> Path:
    path = write_sound(tmp_path / "audio" / "SW02001.SPH")
    data = tmp_path / "data"
    data.mkdir()
    (data / "wav.scp").write_text(
        "".join(f"x-{s} sph2pipe -f wav -p -c {c} {path} |\n" for s, c in (("A", 1), ("B", 2)))
    )
    (data / "segments").write_text("u1 x-A 0 1\nu2 x-B 1 2\n")
    (data / "text").write_text("u1 t._v.'s on\nu2 yes\n")
    (data / "utt2spk").write_text("u1 a\nu2 b\n")
    return data


def test_two_pipes_of_a_file_are_the_channels_of_one_recording(stereo: Path, tmp_path: Path) -> None:
    prepare_kaldi(stereo, tmp_path / "m", Data(), "x")
    found = [(s["recording_id"], s["channel"], s["text"]) for s in supervisions(tmp_path / "m")]
    assert found == [("sw02001", 0, "t v's on"), ("sw02001", 1, "yes")]
    (recording,) = read_jsonl(tmp_path / "m" / "recordings.jsonl.gz")
    assert recording["channel_ids"] == [0, 1]
    assert recording["sources"][0]["source"].endswith("SW02001.SPH")
    assert (tmp_path / "m" / "ref.stm").read_text().splitlines()[-1] == "sw02001/u2 B b 1.000 2.000 <O,x> yes"


def test_tables_may_have_tabs(stereo: Path, tmp_path: Path) -> None:
    for name in ("wav.scp", "segments", "text", "utt2spk"):
        (stereo / name).write_text(re.sub(r"(?m)^(\S+) ", r"\1\t", (stereo / name).read_text()))
    prepare_kaldi(stereo, tmp_path / "m", Data(), "x")
    assert [s["text"] for s in supervisions(tmp_path / "m")] == ["t v's on", "yes"]


def test_a_pipe_of_a_file_that_is_gone_is_set_aside(stereo: Path, tmp_path: Path) -> None:
    (stereo / "wav.scp").write_text((stereo / "wav.scp").read_text() + f"y sph2pipe -f wav {tmp_path}/gone.sph |\n")
    with (stereo / "segments").open("a") as segments, (stereo / "text").open("a") as text:
        segments.write("u3 y 0 1\n")
        text.write("u3 no\n")
    prepare_kaldi(stereo, tmp_path / "m", Data(bad_fraction=0.9), "x")
    assert dropped(tmp_path / "m")["y"] == "unusable audio"


def test_a_side_of_a_file_of_one_channel_has_no_advice_to_mix_channels(
    stereo: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_sound(tmp_path / "audio" / "SW02001.SPH", num_channels=1)
    with pytest.raises(AsrtoolError, match=r"SW02001.SPH: 1 channel, expected 2 channels; fix what"):
        prepare_kaldi(stereo, tmp_path / "m", Data(), "x")
    assert "several channels" not in caplog.text


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        (
            "x-A sw02001 B\nx-B sw02001 A\n",
            r"wav.scp, line 1: x-A is channel 1 of .*, in reco2file_and_channel it is B",
        ),
        (
            "x-A sw02001 A\nx-B sw02001 A\n",
            r"wav.scp, line 2: x-B is channel 2 of .*, in reco2file_and_channel it is A",
        ),
    ],
)
def test_files_that_contradict_each_other_are_named(stereo: Path, tmp_path: Path, sides: str, message: str) -> None:
    (stereo / "reco2file_and_channel").write_text(sides)
    with pytest.raises(AsrtoolError, match=message):
        prepare_kaldi(stereo, tmp_path / "m", Data(), "x")


def test_a_recording_of_two_files_is_named(stereo: Path, tmp_path: Path) -> None:
    (stereo / "wav.scp").write_text("x-A sph2pipe -c 1 /a/1.sph |\nx-B sph2pipe -c 2 /b/1.sph |\n")
    with pytest.raises(AsrtoolError, match=r"line 2: x-B is of the recording 1, which is /a/1.sph in another line"):
        prepare_kaldi(stereo, tmp_path / "m", Data(), "x")


@pytest.mark.parametrize(
    "command",
    [
        "sph2pipe -f wav -p -c 1 x.sph | sox -t wav - -r 8000 - |",
        "sph2pipe -f wav -t 0:10 x.sph |",
        "sph2pipe -f wav x.sph; touch y |",
        "sph2pipe -f wav $DIR/x.sph |",
        "sph2pipe -c 3 x.sph |",
        "sph2pipe -f wav x.sph out.wav |",
        "sph2pipe -f wav 'x.sph |",
        "sph2pipe |",
        "|",
    ],
)
def test_pipes_that_are_not_recognised_are_commands_like_others(
    command: str, stereo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where no program is
    (stereo / "wav.scp").write_text(f"r1 {stereo}/a.wav\nr2 {command}\n")
    message = r"wav.scp, line 2: r2 (is the command .*, (whose . needs a shell|expected)|runs sph2pipe, which is not)"
    with pytest.raises(AsrtoolError, match=message) as caught:
        prepare_kaldi(stereo, tmp_path / "m", Data(), "x")
    assert "\n" not in str(caught.value)


@given(
    WORDS, st.sampled_from([None, 1, 2]), st.permutations(["-f wav", "-p"]), st.booleans(), st.text(" \t", max_size=2)
)
def test_file_and_channel_of_a_pipe_are_those_it_was_made_of(
    name: str, channel: int | None, options: list[str], last: bool, space: str
) -> None:
    words = [*options, *([f"-c {channel}"] if channel else [])]
    words.insert(len(words) if last else 0, shlex.quote(name))
    assert parse_pipe(f"{SPH2PIPE} {' '.join(words)}{space}|{space}") == (name, channel)


@given(st.text(max_size=40))
def test_any_text_is_a_pipe_or_none(text: str) -> None:
    piped = parse_pipe(text)
    assert piped is None or "sph2pipe" in text
