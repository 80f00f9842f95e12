"""Data that were perturbed in speed before: the originals alone are left, whatever the layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lhotse import Recording, RecordingSet, SupervisionSegment, SupervisionSet
from small_releases import dropped, supervisions, write_wav

from asrtool.errors import AsrtoolError
from asrtool.local.layouts.detect import prepare_any
from asrtool.local.layouts.finish import copies_among
from asrtool.settings.data import Data


def write_kaldi(folder: Path, prefixes: tuple[str, ...], with_segments: bool) -> Path:
    """As perturb_data_dir_speed_3way.sh leaves it; its commands for other speeds need a shell and are never run."""
    tables: dict[str, list[str]] = {}
    for prefix in prefixes:
        for i in range(2):
            wav = write_wav(folder.parent / "audio" / f"rec{i}.wav")
            is_copy = prefix not in ("", "sp1.0-")
            place = f"cat {wav} | sox -t wav - -t wav - speed 0.9 |" if is_copy else str(wav)
            name = f"{prefix}rec{i}"
            utterance = f"{prefix}spk{i}-utt" if with_segments else name
            for table, line in (
                ("wav.scp", f"{name} {place}"), ("text", f"{utterance} yes"),
                ("utt2spk", f"{utterance} {prefix}spk{i}"),
                *((("segments", f"{utterance} {name} 0.0 1.5"),) if with_segments else ()),
            ):  # fmt: skip
                tables.setdefault(table, []).append(line)
    folder.mkdir()
    for table, lines in tables.items():
        (folder / table).write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.mark.parametrize("with_segments", [True, False])
@pytest.mark.parametrize("original", ["", "sp1.0-"])
def test_a_kaldi_directory_is_taken_as_it_was_before(
    original: str, with_segments: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_kaldi(tmp_path / "data", (original, "sp0.9-", "sp1.1-"), with_segments)
    prepare_any(data, tmp_path / "m", Data(), "own")
    found = [(s["recording_id"], s["speaker"]) for s in supervisions(tmp_path / "m")]
    assert found == [(f"{original}rec{i}", f"{original}spk{i}") for i in range(2)]
    assert list(dropped(tmp_path / "m").values()) == 4 * ["copy at another speed"]
    first = "sp0.9-spk0-utt" if with_segments else "sp0.9-rec0"
    assert f"4 of 6 utterances are copies at other speeds, the first is {first}: left out" in caplog.text
    assert caplog.text.count("left out") == 1


def test_also_of_manifests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ids = ["a", "sp0.9-a", "sp1.1-a", "b"]
    recordings = [Recording.from_file(write_wav(tmp_path / "audio" / f"{id_}.wav"), id_) for id_ in ids]
    segments = [SupervisionSegment(id_, id_, 0.0, 1.0, text="yes", speaker=id_) for id_ in ids]
    (tmp_path / "data").mkdir()
    RecordingSet.from_recordings(recordings).to_file(tmp_path / "data" / "recordings.jsonl.gz")
    SupervisionSet.from_segments(segments).to_file(tmp_path / "data" / "supervisions.jsonl.gz")
    prepare_any(tmp_path / "data", tmp_path / "m", Data(), "own")
    assert [s["id"] for s in supervisions(tmp_path / "m")] == ["a", "b"]
    assert "2 of 4 utterances are copies at other speeds" in caplog.text


def test_a_name_that_only_looks_like_a_copy_stays() -> None:
    assert copies_among(["sp0.9-a", "sp1.1-b", "b", "sp-c", "c", "spk1-d", "d", "sp1.0-e"]) == {"sp1.1-b"}
    assert copies_among(["sp0.9-e", "sp1.0-e", "sp1.0-f", "f"]) == {"sp0.9-e"}


def test_a_copy_without_its_original_is_refused(tmp_path: Path) -> None:
    """One of a speaker who is called as a copy, too, as Kaldi's scripts write them; an utterance may be called so."""
    sound = write_wav(tmp_path / "data" / "sp0.9-a.wav")
    for speaker in ("b", "sp0.9-b"):
        line = {"audio_filepath": str(sound), "text": "yes", "speaker": speaker}
        (tmp_path / "data" / "train.jsonl").write_text(json.dumps(line))
        if speaker == "b":
            prepare_any(tmp_path / "data", tmp_path / "m", Data(), "own")
            assert [s["id"] for s in supervisions(tmp_path / "m")] == ["sp0.9-a"]
    with pytest.raises(AsrtoolError, match=r"m: utterance sp0.9-a of speaker sp0.9-b is called as a copy.*; rename"):
        prepare_any(tmp_path / "data", tmp_path / "m", Data(), "own")


def test_an_error_behind_copies_names_its_line(tmp_path: Path) -> None:
    data = write_kaldi(tmp_path / "data", ("", "sp0.9-"), with_segments=False)
    with (data / "wav.scp").open("a") as file:
        file.write("last cat x | cat |\n")
    with pytest.raises(AsrtoolError, match=r"wav.scp, line 5: last is the command"):
        prepare_any(data, tmp_path / "m", Data(), "own")
