"""Features behind those of a set: the ones of the set stay, the others are as if they had been computed with them."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_releases import read_manifests
from tones import SMALL

from asrtool.data.features import cache_key
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.features.further_sets import link_files, write_extended_set
from asrtool.data.manifests.manifest import read_drops, write_manifests
from asrtool.data.storage.index_columns import open_index_columns
from asrtool.data.storage.reader import FeatureReader, SampleReader
from asrtool.data.storage.transcripts import open_text_columns
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features

MORE = dataclasses.replace(SMALL, shard_cuts=4, keep_audio=True)


def write_halves(work: Path, speaker: str = "", without: str = "", part: float = 0.5) -> Path:
    """Manifests of the first half of each utterance, or `part`; no audio is there of the recording `without`."""
    recordings, segments = read_manifests(work / "manifests" / "train")
    halves = [
        dataclasses.replace(s, id=f"{s.id}-c01", duration=s.duration * part, speaker=speaker or s.speaker)
        for s in segments
    ]
    found = []
    for recording in recordings:
        gone = dataclasses.replace(recording.sources[0], source=str(work / "nowhere.wav"))
        found.append(dataclasses.replace(recording, sources=[gone]) if recording.id == without else recording)
    write_manifests(work / "halves", found, halves, [], 1.0, {})
    return work / "halves"


@pytest.fixture(scope="module")
def made(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Manifests and features of a few recordings to train on. To be read only."""
    folder = tmp_path_factory.mktemp("made") / "work"
    shutil.copytree(corpus / "manifests", folder / "manifests")
    compute_features(folder / "manifests", folder / "features", MORE)
    return folder


@pytest.fixture
def work(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "work")


def write_pieces(work: Path, features: Features = MORE, speaker: str = "", part: float = 0.5) -> Path:
    (work / "cut" / "features").mkdir(parents=True)
    directory = work / "cut" / "features" / "train"
    assert not write_extended_set(
        directory, work / "features" / "train", write_halves(work, speaker, part=part), features
    )
    return directory


def test_the_set_stays_and_the_pieces_follow_at_each_speed_with_their_stretch_of_sound(work: Path) -> None:
    directory, train = write_pieces(work), work / "features" / "train"
    base, both = FeatureReader(train, "none"), FeatureReader(directory, "none")
    num = len(base.index)
    for columns in (open_index_columns(directory), open_text_columns(directory)):  # written, not parsed again
        assert isinstance(columns.keys.base, np.memmap)
    assert list(both.index[:num]) == list(base.index)
    assert [u.id for u in both.index[num:]] == [
        u.id + "-c01" for u in sorted(base.index, key=lambda u: MORE.speeds.index(speed_of(u.id)))
    ]
    assert both.texts(both.index[:num]) == base.texts(base.index)
    assert set(both.texts(both.index[num:])) == set(base.texts(base.index))
    assert min(u.shard for u in both.index[num:]) == 1 + max(u.shard for u in base.index)
    places = {u.id: i for i, u in enumerate(both.index)}
    samples = SampleReader(directory, both.index, MORE.sampling_rate_hz)
    for i, utterance in enumerate(base.index):
        whole_TF, half_TF = base.read(i), both.read(place := places[f"{utterance.id}-c01"])
        np.testing.assert_array_equal(both.read(i), whole_TF)
        np.testing.assert_allclose(half_TF[:-3], whole_TF[: len(half_TF) - 3], atol=0.15)
        assert abs(len(samples.read(place)) - len(samples.read(i)) / 2) <= 2


def speed_of(name: str) -> float:
    return float(name[2:].split("-")[0]) if name.startswith("sp") else 1.0


def normalisations(directory: Path) -> dict[str, list[list[float]]]:
    with np.load(directory / "cmvn.npz") as arrays:
        rows = zip(arrays["names"].tolist(), arrays["means"].tolist(), arrays["stds"].tolist(), strict=True)
        return {name: [mean, std] for name, mean, std in rows}


def test_speakers_are_normalised_as_before_and_new_ones_by_what_they_say(work: Path) -> None:
    before = normalisations(work / "features" / "train")
    same = write_pieces(work, part=0.9)  # long enough for a mean of their own
    assert normalisations(same) == before
    shutil.rmtree(work / "cut")
    new = write_pieces(work, speaker="stranger")
    after = normalisations(new)
    assert after.keys() == before.keys() | {f"{prefix}stranger" for prefix in ("", "sp0.9-", "sp1.1-")}
    assert {name: after[name] for name in before} == before


def test_when_audio_was_touched_leaves_no_trace(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training data are compared by content."""
    monkeypatch.delattr(cache_key, "stat_file")
    write_pieces(work)


def test_links_hold_when_the_work_directory_is_moved(work: Path) -> None:
    write_pieces(work)
    link_files(work / "cut" / "features" / "dev", work / "features" / "dev")
    moved = work.with_name("moved")
    work.rename(moved)
    for name in ("train", "dev"):
        reader = FeatureReader(moved / "cut" / "features" / name, "speaker")
        assert len([reader.read(i) for i in range(len(reader.index))]) > 5
    links = [path for path in (moved / "cut" / "features" / "train").iterdir() if path.is_symlink()]
    assert len(links) > 3
    assert not any(os.path.isabs(os.readlink(path)) for path in links)


def test_what_has_no_usable_audio_is_listed_behind_what_had_none(work: Path) -> None:
    recordings, segments = read_manifests(work / "manifests" / "train")
    without = sorted(recordings.ids)[1]
    old = work / "features" / "train" / "dropped.tsv"
    old.write_text(old.read_text() + "x\ttoo short\t1 sample\n")
    drops = write_extended_set(work / "cut", work / "features" / "train", write_halves(work, without=without), MORE)
    assert len(drops) == 3 * sum(s.recording_id == without for s in segments)
    assert [drop.id for drop in read_drops(work / "cut" / "dropped.tsv")] == ["x", *(drop.id for drop in drops)]


def test_a_set_of_an_earlier_asrtool_takes_no_pieces(work: Path) -> None:
    (work / "features" / "train" / "transcripts.tsv").unlink()
    with pytest.raises(AsrtoolError, match=r"features/train: no transcripts\.tsv, .*; run the features stage again"):
        write_extended_set(work / "again", work / "features" / "train", None, MORE)
