"""Every layout tolerates the same faults of data, and reports each lost utterance."""

from __future__ import annotations

import collections
import itertools
import json
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.audio.utils import AudioLoadingError
from lhotse.shar import SharWriter
from small_releases import dropped, make_data, read_manifests, supervisions, write_wav

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.own import Corpus as Own
from asrtool.local.layouts.detect import prepare_any
from asrtool.local.releases.releases import collect_corpora
from asrtool.local.sets.split import split_manifests
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=1.0)
RATE_HZ = 8000


class Said(NamedTuple):
    start: float
    end: float
    text: str | None
    speaker: str | None = "ann"


# Utterances of a recording of four seconds, each with the reason of its drop or its times and speaker.
CASES = {
    Said(0.0, 1.0, "one"): (0.0, 1.0, "ann"),
    Said(1.0, 2.0, "two", None): (1.0, 1.0, "rec"),
    Said(2.5, 4.005, "three"): (2.5, 1.5, "ann"),
    Said(3.0, 4.5, "four"): (3.0, 1.0, "ann"),
    Said(1.25, 4.502, "five"): "bad times",
    Said(-1.0, 2.0, "six"): "bad times",
    Said(3.5, 2.0, "seven"): "bad times",
    Said(3.25, 3.25, "eight"): "bad times",
    Said(5.0, 6.0, "nine"): "bad times",
    Said(3.999999, 4.0, "ten"): "bad times",
    Said(0.5, 1.5, ""): "empty",
    Said(0.25, 1.25, None): "empty",
    Said(0.75, 1.5, "room 42"): "unknown characters",
}


def segments(said: Sequence[Said], recording: str) -> list[SupervisionSegment]:
    return [SupervisionSegment(f"u{i}", recording, s.start, round(s.end - s.start, 8), 0, s.text, speaker=s.speaker)
            for i, s in enumerate(said)]  # fmt: skip


def write_lhotse(folder: Path, said: Sequence[Said]) -> Path:
    RecordingSet.from_recordings([Recording.from_file(folder / "rec.wav")]).to_file(folder / "recordings.jsonl.gz")
    SupervisionSet.from_segments(segments(said, "rec")).to_file(folder / "supervisions.jsonl.gz")
    return folder


def write_cuts(folder: Path, said: Sequence[Said]) -> Path:
    recording = Recording.from_file(folder / "rec.wav")
    cut = MonoCut("rec", 0.0, recording.duration, 0, segments(said, "rec"), recording=recording)
    CutSet.from_cuts([cut]).to_file(folder / "cuts.jsonl.gz")
    return folder


def write_shar(folder: Path, said: Sequence[Said]) -> Path:
    (folder / "shar").mkdir()
    write_cuts(folder, said)
    with SharWriter(str(folder / "shar"), {"recording": "wav"}) as writer:
        for cut in CutSet.from_file(folder / "cuts.jsonl.gz"):
            writer.write(cut)
    return folder / "shar"


def write_kaldi(folder: Path, said: Sequence[Said]) -> Path:
    (folder / "wav.scp").write_text("rec rec.wav\n")
    lines = [(f"u{i:02d}", s) for i, s in enumerate(said)]
    (folder / "segments").write_text("".join(f"{id_} rec {s.start} {s.end}\n" for id_, s in lines))
    (folder / "text").write_text("".join(f"{id_} {s.text or ''}\n" for id_, s in lines))
    if speakers := "".join(f"{id_} {s.speaker}\n" for id_, s in lines if s.speaker):
        (folder / "utt2spk").write_text(speakers)
    return folder


def rows(said: Sequence[Said]) -> list[dict[str, object]]:
    return [{"path": "rec.wav", "offset": s.start, "duration": s.end - s.start, "text": s.text, "speaker": s.speaker}
            for s in said]  # fmt: skip


def write_table(folder: Path, said: Sequence[Said]) -> Path:
    lines = [",".join("" if value is None else str(value) for value in row.values()) for row in rows(said)]
    (folder / "x.csv").write_text("\n".join([",".join(rows(said)[0]), *lines]) + "\n")
    return folder / "x.csv"


def write_lines(folder: Path, said: Sequence[Said]) -> Path:
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(said)))
    return folder / "x.jsonl"


def write_array(folder: Path, said: Sequence[Said]) -> Path:
    (folder / "x.json").write_text(json.dumps(rows(said), indent=1))
    return folder / "x.json"


def write_columns(folder: Path, said: Sequence[Said]) -> Path:
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows(said)), folder / "x.parquet")
    return folder / "x.parquet"


WRITERS = [write_lhotse, write_cuts, write_shar, write_kaldi, write_table, write_lines, write_array, write_columns]
Writer = Callable[[Path, Sequence[Said]], Path]
each_layout = pytest.mark.parametrize("write", WRITERS)


@each_layout
def test_each_utterance_is_kept_or_listed_with_the_reason(write: Writer, tmp_path: Path) -> None:
    write_wav(tmp_path / "data" / "rec.wav", 4)
    data = write(tmp_path / "data", list(CASES))
    prepare_any(data, tmp_path / "m", LENIENT, "own")
    found = {s["text"]: (s["start"], s["duration"], s["speaker"]) for s in supervisions(tmp_path / "m")}
    assert found == {said.text: right for said, right in CASES.items() if not isinstance(right, str)}
    assert Counter(dropped(tmp_path / "m").values()) == Counter(r for r in CASES.values() if isinstance(r, str))
    with pytest.raises(AsrtoolError, match=r"7 of 11 utterances cannot be used"):  # texts that are empty are no fault
        prepare_any(data, tmp_path / "n", Data(), "own")


def test_an_utterance_on_a_channel_that_its_recording_lacks_is_set_aside(tmp_path: Path) -> None:
    write_wav(tmp_path / "rec.wav", 4)
    write_lhotse(tmp_path, [Said(0, 1, "one"), Said(1, 2, "two")])
    other = [SupervisionSegment(f"u{i}", "rec", float(i), 1.0, i, "one", speaker="s") for i in range(2)]
    SupervisionSet.from_segments(other).to_file(tmp_path / "supervisions.jsonl.gz")
    prepare_any(tmp_path, tmp_path / "m", LENIENT, "own")
    assert dropped(tmp_path / "m") == {"u1": "no channel"}


@pytest.mark.parametrize("layout", ["cuts", "shar"])
@pytest.mark.parametrize("name", ["u{}", "utt1"])
def test_each_utterance_has_the_audio_that_lhotse_loads_whatever_the_ids(
    layout: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cuts = []
    for number in range(4):
        recording = Recording.from_file(
            write_wav(tmp_path / f"s{number}" / "utt1.wav", (4000 + number) / RATE_HZ, seed=number)
        )
        said = SupervisionSegment(name.format(number), "utt1", 0.0, recording.duration, 0, f"{'abcd'[number]} word")
        cuts.append(MonoCut("utt1", 0.0, recording.duration, 0, [said], recording=recording))
    (tmp_path / "data").mkdir()
    if layout == "cuts":
        CutSet.from_cuts(cuts).to_file(tmp_path / "data" / "cuts.jsonl.gz")
    else:
        with SharWriter(str(tmp_path / "data"), {"recording": "wav"}, shard_size=3) as writer:
            for cut in cuts:
                writer.write(cut)
    prepare_any(tmp_path / "data", tmp_path / "m", Data(), "own")
    recordings, said_there = read_manifests(tmp_path / "m")
    right = {cut.supervisions[0].text: cut.load_audio() for cut in cuts}
    assert {s.text for s in said_there} == set(right)
    for segment in said_there:
        samples_CT = right[segment.text]
        if layout == "cuts":
            assert np.array_equal(recordings[segment.recording_id].load_audio(), samples_CT)
        assert recordings[segment.recording_id].num_samples == samples_CT.shape[1]  # of a part of a tar, too
    assert "have the id of another one with other content, the first is now called utt1-2" in caplog.text


@pytest.mark.parametrize("missing", [-1, 0, 1, RATE_HZ // 2, RATE_HZ // 2 + 1])
def test_a_recording_may_lack_as_many_samples_as_lhotse_tolerates(missing: int, tmp_path: Path) -> None:
    recording = Recording.from_file(write_wav(tmp_path / "data" / "rec.wav", 4))
    data = write_lhotse(tmp_path / "data", [Said(0, 4.0, "yes")])
    write_wav(tmp_path / "data" / "rec.wav", 4 - missing / RATE_HZ)
    try:
        recording.load_audio()
    except AudioLoadingError:
        with pytest.raises(AsrtoolError, match=f"rec.wav: {4 * RATE_HZ - missing} samples at 8000 Hz, expected 32000"):
            prepare_any(data, tmp_path / "m", Data(), "own")
        return
    prepare_any(data, tmp_path / "m", Data(), "own")
    found = read_manifests(tmp_path / "m")[0]["rec"]
    assert (found.num_samples, found.duration) == (4 * RATE_HZ - missing, 4 - missing / RATE_HZ)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("other", ["NFC", "NFD"])
def test_names_in_both_forms_of_unicode_are_one_name(form: str, other: str, tmp_path: Path) -> None:
    name, said = unicodedata.normalize(form, "é"), unicodedata.normalize(other, "é")
    write_wav(tmp_path / "pairs" / f"{name}.wav", 4)
    (tmp_path / "pairs" / f"{said}.txt").write_text("yes")
    write_wav(tmp_path / "kaldi" / f"{name}.wav", 4)
    write_wav(tmp_path / "table" / f"{name}.wav", 4)
    (tmp_path / "table" / "x.csv").write_text(f"path,text\n{said}.wav,yes\n", encoding="utf-8")
    for file, line in (("wav.scp", f"{said}.wav"), ("text", "yes"), ("utt2spk", "s")):
        (tmp_path / "kaldi" / file).write_text(f"u {line}\n", encoding="utf-8")
    for layout in ("pairs", "kaldi", "table"):
        prepare_any(tmp_path / layout, tmp_path / f"m-{layout}", Data(), "own")
        assert [s["text"] for s in supervisions(tmp_path / f"m-{layout}")] == ["yes"]


def test_a_name_that_is_not_utf8_is_set_aside_and_one_that_begins_with_a_dot_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for name in ("a.wav", "._a.wav", ".trash/b.wav", os.fsdecode(b"caf\xe9.wav"), os.fsdecode(b"\xe9/c.wav")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_wav(tmp_path / "x.wav", 4).rename(folder / name)
        (folder / name).with_suffix(".txt").write_text("yes")
    prepare_any(folder, tmp_path / "m", LENIENT, "own")
    assert [s["id"] for s in supervisions(tmp_path / "m")] == ["a"]
    assert dropped(tmp_path / "m") == dict.fromkeys((r"caf\udce9", r"\udce9-c"), "unusable audio")
    with pytest.raises(AsrtoolError, match=r"caf\\udce9.wav: its name is not UTF-8") as raised:
        prepare_any(folder, tmp_path / "n", Data(), "own")
    assert str(raised.value).isascii()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "a.wav,a.txt\n"),
        ("x.csv", "{folder}/a.wav,{folder}/a.txt\n"),
        ("x.json", '{{"root_path": "{folder}", "samples": [{{"wav_path": "a.wav", "transcript_path": "a.txt"}}]}}'),
        ("x.json", '{{"root_path": ".",\n "samples": [{{"wav_path": "a.wav", "transcript_path": "a.txt"}}]}}'),
        ("x.json", '[{{"wav_path": "a.wav",\n "text": "Yes."}}]'),
    ],
)
def test_the_manifests_of_deepspeech_pytorch_and_arrays_are_read(name: str, content: str, tmp_path: Path) -> None:
    (write_wav(tmp_path / "data" / "a.wav", 4).with_suffix(".txt")).write_text("Yes.\n")
    path = tmp_path / "data" / name
    path.write_text(content.format(folder=tmp_path / "data"))
    prepare_any(path, tmp_path / "m", Data(), "own")
    assert [(s["id"], s["text"]) for s in supervisions(tmp_path / "m")] == [("a", "yes")]
    (tmp_path / "data" / "a.txt").unlink()
    if "a.txt" in content:
        with pytest.raises(AsrtoolError, match=r"a: unusable transcript: .*a.txt: No such file"):
            prepare_any(path, tmp_path / "n", Data(), "own")


def test_sets_in_different_layouts_train_together_and_their_ids_do_not_collide(tmp_path: Path) -> None:
    writers = (write_kaldi, write_table, write_cuts, write_lhotse)
    said = [Said(0, 1, "one word", "ann"), Said(1, 2, "two words", "bob"), Said(2, 3, "three words", None)]
    for number, write in enumerate(writers):
        write_wav(tmp_path / str(number) / "data" / "rec.wav", 4, seed=number)
        write(tmp_path / str(number) / "data", said)
    train = tuple(str(tmp_path / str(number) / "data") for number in range(len(writers)))
    data = make_data(("own",), (), ("own",), bad_fraction=0.5)
    collect_corpora(tmp_path / "corpus", data, {"own_train": train, "own_test": train[0]}, lambda *_: None)
    out = tmp_path / "manifests" / "corpora" / "own"
    Own().prepare(tmp_path / "corpus", out, data)
    recordings, found = read_manifests(out / "train")
    assert len(found) == len({s.id for s in found}) == 12
    assert sorted(recordings.ids) == ["2-rec", "3-rec", "4-rec", "rec"]
    assert {s.speaker for s in found} == {"ann", "bob", *recordings.ids}
    for number, id_ in enumerate(["rec", "2-rec", "3-rec", "4-rec"]):
        right = soundfile.read(tmp_path / str(number) / "data" / "rec.wav", dtype="float32")[0]
        assert np.array_equal(recordings[id_].load_audio()[0], right)
    split_manifests(tmp_path / "manifests", data)


@pytest.mark.parametrize("write", [write_lhotse, write_cuts, write_shar, write_kaldi])
def test_a_recording_of_which_nothing_is_said_is_listed(write: Writer, tmp_path: Path) -> None:
    write_wav(tmp_path / "data" / "rec.wav", 4)
    with pytest.raises(AsrtoolError, match=r"1 of 1 recordings cannot be used; the first is rec: no transcript: "):
        prepare_any(write(tmp_path / "data", []), tmp_path / "m", Data(), "own")


def write_perturbed(folder: Path, prefixes: tuple[str, ...], with_segments: bool) -> Path:
    """Write the output of perturb_data_dir_speed_3way.sh; its commands for other speeds are never run."""
    tables = collections.defaultdict(list)
    for prefix, i in itertools.product(prefixes, range(2)):
        wav = write_wav(folder.parent / "audio" / f"rec{i}.wav")
        is_copy = prefix not in ("", "sp1.0-")
        name = f"{prefix}rec{i}"
        utterance = f"{prefix}spk{i}-utt" if with_segments else name
        tables["wav.scp"].append(
            f"{name} cat {wav} | sox -t wav - -t wav - speed 0.9 |" if is_copy else f"{name} {wav}"
        )
        tables["text"].append(f"{utterance} yes")
        tables["utt2spk"].append(f"{utterance} {prefix}spk{i}")
        if with_segments:
            tables["segments"].append(f"{utterance} {name} 0.0 1.5")
    folder.mkdir()
    for table, lines in tables.items():
        (folder / table).write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.mark.parametrize(("original", "with_segments"), [("", True), ("sp1.0-", False)])
def test_a_kaldi_directory_is_taken_as_it_was_before(
    original: str, with_segments: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_perturbed(tmp_path / "data", (original, "sp0.9-", "sp1.1-"), with_segments)
    prepare_any(data, tmp_path / "m", Data(), "own")
    found = [(s["recording_id"], s["speaker"]) for s in supervisions(tmp_path / "m")]
    assert found == [(f"{original}rec{i}", f"{original}spk{i}") for i in range(2)]
    assert list(dropped(tmp_path / "m").values()) == 4 * ["copy at another speed"]
    first = "sp0.9-spk0-utt" if with_segments else "sp0.9-rec0"
    assert f"4 of 6 utterances are copies at other speeds, the first is {first}: left out" in caplog.text
    assert caplog.text.count("left out") == 1
    with (data / "wav.scp").open("a") as file:
        file.write("last cat x | cat |\n")
    with pytest.raises(AsrtoolError, match=r"wav.scp, line 7: last is the command"):
        prepare_any(data, tmp_path / "m", Data(), "own")


def test_copies_among_the_lines_of_a_manifest_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Names that only look like copies stay."""
    kept = ["a", "b", "c", "d", "e", "sp-c", "sp1.0-e", "spk1-d"]
    paths = [write_wav(tmp_path / "data" / f"{id_}.wav", 0.1) for id_ in (*kept, "sp0.9-a", "sp1.1-a", "sp0.9-e")]
    lines = [json.dumps({"path": path.name, "text": "yes", "speaker": path.stem}) for path in paths]
    (tmp_path / "data" / "x.jsonl").write_text("\n".join(lines))
    prepare_any(tmp_path / "data", tmp_path / "m", Data(), "own")
    assert [s["id"] for s in supervisions(tmp_path / "m")] == sorted(kept)
    assert "3 of 11 utterances are copies at other speeds" in caplog.text


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
