"""Reading features back: the same values whatever the storage, the order and the memory."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, Fbank, FbankConfig

from asrtool.data.batches import Lengths, load_batches, plan_epoch
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.manifests.manifest import read_manifests
from asrtool.data.storage import reader as reader_module
from asrtool.data.storage.reader import FeatureReader
from asrtool.data.storage.shard import Shard
from asrtool.data.storage.shard_offsets import Places
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice

LILCOM_TICK = 2**-5
STORAGES = ("lilcom", "shar")


def test_the_first_copy_is_what_lhotse_computes_from_the_cut(corpus: Path) -> None:
    recordings, supervisions = read_manifests(corpus / "manifests" / "train")
    cuts = CutSet.from_manifests(recordings=recordings, supervisions=supervisions).trim_to_supervisions(
        keep_overlapping=False
    )
    expected = {cut.supervisions[0].id: cut for cut in cuts}
    extractor = Fbank(FbankConfig(sampling_rate=8000, num_filters=23))
    reader = FeatureReader(corpus / "lilcom" / "train", "none")
    assert reader.num_bins == 23
    plain = [i for i, utterance in enumerate(reader.index) if not utterance.id.startswith("sp")]
    assert len(plain) == 24
    for i in plain:
        feats_TF = expected[reader.index[i].id].compute_features(extractor)
        assert reader.read(i).dtype == np.float32
        np.testing.assert_allclose(reader.read(i), feats_TF, atol=LILCOM_TICK)


def test_both_storages_give_the_same_index_and_the_same_values(corpus: Path) -> None:
    lilcom, shar = (FeatureReader(corpus / storage / "train", "speaker") for storage in STORAGES)
    assert lilcom.index == shar.index
    assert len(lilcom.index) == 72
    for i in range(len(lilcom.index)):
        np.testing.assert_array_equal(lilcom.read(i), shar.read(i))


def test_a_speaker_has_mean_zero_and_variance_one(corpus: Path) -> None:
    reader = FeatureReader(corpus / "lilcom" / "train", "speaker")
    speakers = {utterance.speaker for utterance in reader.index}
    assert len(speakers) == 4 * 2 * 3
    for speaker in speakers:
        feats = [reader.read(i) for i, utterance in enumerate(reader.index) if utterance.speaker == speaker]
        whole = np.concatenate(feats)
        assert len(whole) > 500
        # Sums are taken before lilcom rounds.
        np.testing.assert_allclose(whole.mean(axis=0), 0, atol=LILCOM_TICK)
        np.testing.assert_allclose(whole.std(axis=0), 1, atol=LILCOM_TICK)


def test_features_computed_on_reading_are_those_that_are_stored_but_for_their_rounding(corpus: Path) -> None:
    """Copies at other speeds, too, whose audio is not stored; in the index they come behind the others."""
    stored, computed = (FeatureReader(corpus / storage / "train", "none") for storage in ("lilcom", "flac"))
    places = {utterance.id: i for i, utterance in enumerate(stored.index)}
    assert [one.id[:5] for one in computed.index[::24]] == ["train", "sp0.9", "sp1.1"]
    for i, utterance in enumerate(computed.index):
        expected = stored.read(places[utterance.id])
        np.testing.assert_allclose(computed.read(i), expected, atol=LILCOM_TICK / 2 + 1e-5)
    assert places.keys() == {utterance.id for utterance in computed.index}


def test_features_computed_on_reading_are_those_of_audio_beyond_full_scale(
    make_manifests: Callable[..., Path], tmp_path: Path
) -> None:
    manifests = make_manifests()
    for path in (tmp_path / "audio").iterdir():
        samples, rate_hz = soundfile.read(path)
        soundfile.write(path, 20 * samples, rate_hz, subtype="FLOAT")
    small = Features(type=Choice.of("features", "fbank", num_mel_bins=23), num_jobs=1)
    for storage in ("lilcom", "flac"):
        compute_features(manifests, tmp_path / storage, dataclasses.replace(small, storage=storage))
    stored, computed = (FeatureReader(tmp_path / storage / "test", "none") for storage in ("lilcom", "flac"))
    places = {utterance.id: i for i, utterance in enumerate(stored.index)}
    for i, utterance in enumerate(computed.index):
        expected = stored.read(places[utterance.id])
        np.testing.assert_allclose(computed.read(i), expected, atol=LILCOM_TICK / 2 + 1e-5)


def test_computed_features_are_normalised_like_stored_ones(corpus: Path) -> None:
    stored, computed = (np.load(corpus / storage / "train" / "cmvn.npz") for storage in ("lilcom", "flac"))
    orders = [np.argsort(arrays["names"]) for arrays in (stored, computed)]  # of speakers, as shards have them
    assert sorted(stored["names"]) == sorted(computed["names"])
    for name in ("means", "stds"):
        np.testing.assert_allclose(computed[name][orders[1]], stored[name][orders[0]], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # lhotse leaves the tar file open
def test_audio_is_kept_to_the_bit_and_once(corpus: Path) -> None:
    """Which lhotse reads, as docs/guide/features.md has it."""
    directory = corpus / "flac" / "train"
    fields = {"cuts": sorted(directory.glob("cuts.*.gz")), "recording": sorted(directory.glob("recording.*.tar"))}
    cuts = [cut for cut, _ in zip(CutSet.from_shar(fields=fields), range(24), strict=False)]
    recordings = {one.id: one for one in read_manifests(corpus / "manifests" / "train")[0]}
    segments = {one.id: one for one in read_manifests(corpus / "manifests" / "train")[1]}
    for cut in cuts:
        segment = segments[cut.id]
        whole = recordings[segment.recording_id].load_audio(channels=segment.channel)[0]
        begin = round(segment.start * 8000)
        audio = cut.load_audio()[0]
        np.testing.assert_array_equal(audio, whole[begin : begin + len(audio)])
    assert len(Places(directory)) == 3 * 2
    assert len({Places(directory)[number].data for number in range(6)}) == 2


@pytest.mark.parametrize("cache_bytes", [0, 2**30])
def test_any_order_of_reading_gives_the_same_values(
    corpus: Path, cache_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = FeatureReader(corpus / "lilcom" / "train", "global", 2**30)
    monkeypatch.setattr(reader_module, "WINDOW_SHARDS", 1)  # few stay open
    reader = FeatureReader(corpus / "lilcom" / "train", "global", cache_bytes)
    for i in np.random.default_rng(0).permutation(len(reader.index)):
        np.testing.assert_array_equal(reader.read(int(i)), reference.read(int(i)))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("cache_bytes", "times"), [(2**30, 1), (0, 3)])
def test_an_utterance_of_a_set_that_fits_is_decoded_once_and_else_once_an_epoch(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, storage: str, cache_bytes: int, times: int
) -> None:
    decoded: Counter[str] = Counter()
    opened: list[str] = []

    class Counted(Shard):
        def __init__(self, directory: Path, number: int) -> None:
            super().__init__(directory, number)
            opened.append(self.name)

        def read(self, place: int) -> np.ndarray:
            decoded[self.ids[place]] += 1
            return super().read(place)

    monkeypatch.setattr(reader_module, "Shard", Counted)
    reader = FeatureReader(corpus / storage / "train", "speaker", cache_bytes)
    for epoch in range(3):
        plan = plan_epoch(Lengths.of(reader.index), 2000, 1, epoch, window_shards=2)
        assert sum(len(batch.indices) for batch in load_batches(reader, plan)) == 72
    assert decoded == dict.fromkeys((utterance.id for utterance in reader.index), times)
    assert len(opened) == len(set(opened)) == 6


def test_learners_that_share_a_window_decode_what_they_train_and_no_more(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    read = Shard.read

    def counted(self: Shard, place: int) -> np.ndarray:
        decoded.append(self.ids[place])
        return read(self, place)

    monkeypatch.setattr(Shard, "read", counted)
    readers = [FeatureReader(corpus / "lilcom" / "train", "speaker") for _ in range(3)]
    plan = list(plan_epoch(Lengths.of(readers[0].index), 2000, 1, 0))
    for learner, reader in enumerate(readers):
        list(load_batches(reader, plan[learner::3]))
    assert sorted(decoded) == sorted(utterance.id for utterance in readers[0].index)


def test_loading_from_a_batch_on_is_the_tail_of_loading_all(corpus: Path) -> None:
    def batches(first: int) -> list[tuple[int, bytes]]:
        reader = FeatureReader(corpus / "lilcom" / "train", "speaker")
        plan = plan_epoch(Lengths.of(reader.index), 2000, 3, 1)
        return [(batch.number, batch.feats_NTF.tobytes()) for batch in load_batches(reader, islice(plan, first, None))]

    whole = batches(0)
    assert len(whole) > 6
    assert batches(5) == whole[5:]


def test_dev_is_normalised_by_the_training_set_where_a_speaker_says_too_little(corpus: Path) -> None:
    train, dev = (FeatureReader(corpus / "lilcom" / name, "global") for name in ("train", "dev"))
    raw = FeatureReader(corpus / "lilcom" / "dev", "none")
    feats = [FeatureReader(corpus / "lilcom" / "train", "none").read(i) for i in range(len(train.index))]
    whole = np.concatenate(feats).astype(np.float64)
    expected = (raw.read(0) - whole.mean(axis=0)) / whole.std(axis=0)
    np.testing.assert_allclose(dev.read(0), expected, atol=LILCOM_TICK)


@pytest.fixture
def copy(corpus: Path, tmp_path: Path) -> Path:
    """A copy of the features, in another place, that a test may break."""
    for storage in (*STORAGES, "flac"):
        shutil.copytree(corpus / storage / "dev", tmp_path / storage)
    return tmp_path


@pytest.mark.parametrize("storage", STORAGES)
def test_a_set_can_be_moved(corpus: Path, copy: Path, storage: str) -> None:
    there, here = FeatureReader(corpus / storage / "dev", "speaker"), FeatureReader(copy / storage, "speaker")
    for i in range(len(here.index)):
        np.testing.assert_array_equal(here.read(i), there.read(i))


BREAKABLE = [
    ("lilcom", "cuts.000000.jsonl.gz"),
    ("lilcom", "feats.000000.lca"),
    ("shar", "features.000000.tar"),
    ("flac", "recording.000000.tar"),
]


@pytest.mark.parametrize(("storage", "name"), BREAKABLE)
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.6, 0.8])
def test_a_truncated_shard_is_named(copy: Path, storage: str, name: str, fraction: float) -> None:
    path = copy / storage / name
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * fraction)])
    reader = FeatureReader(copy / storage, "speaker")
    with pytest.raises(AsrtoolError, match=r"shard 000000 (cannot be read|is not the one).*; run the features stage"):
        reader.read(0)


@pytest.mark.parametrize("storage", STORAGES)
def test_damage_within_an_archive_is_named_where_it_is_met_and_other_utterances_are_read(
    copy: Path, storage: str
) -> None:
    whole = FeatureReader(copy / storage, "speaker")
    expected = [whole.read(i) for i in range(len(whole.index))]
    path = copy / storage / ("feats.000000.lca" if storage == "lilcom" else "features.000000.tar")
    content = bytearray(path.read_bytes())
    first = content.index(_compressed(copy / storage, 0))
    content[first : first + 8] = bytes(8)
    path.write_bytes(content)
    reader = FeatureReader(copy / storage, "speaker")
    for _ in range(2):
        with pytest.raises(AsrtoolError, match="shard 000000 cannot be read"):
            reader.read(0)
    for i in range(1, len(reader.index)):
        np.testing.assert_array_equal(reader.read(i), expected[i])


def _compressed(directory: Path, place: int) -> bytes:
    """The bytes of an utterance of the first shard, which both storages have."""
    with gzip.open(directory.parent / "lilcom" / "cuts.000000.jsonl.gz") as file:
        cut = list(map(json.loads, file))[place]
    begin, size, *_ = map(int, cut["features"]["storage_key"].split(","))
    return (directory.parent / "lilcom" / "feats.000000.lca").read_bytes()[begin : begin + size]


@pytest.mark.parametrize(("storage", "name"), BREAKABLE)
def test_a_missing_shard_is_named(copy: Path, storage: str, name: str) -> None:
    (copy / storage / name).unlink()
    with pytest.raises(AsrtoolError, match="shard 000000 cannot be read"):
        FeatureReader(copy / storage, "speaker").read(0)


@pytest.mark.parametrize("change", ["one line less", "other length"])
@pytest.mark.parametrize("storage", STORAGES)
def test_an_index_that_describes_other_features_is_refused(copy: Path, storage: str, change: str) -> None:
    path = copy / storage / "index.jsonl"
    lines = path.read_text().splitlines()
    if change == "one line less":
        del lines[-1]
    else:
        lines[-1] = json.dumps({**json.loads(lines[-1]), "num_frames": 3})
    path.write_text("\n".join(lines))
    with pytest.raises(AsrtoolError, match=r"shard 000000 is not the one index\.jsonl describes"):
        FeatureReader(copy / storage, "speaker").read(0)


def test_lhotse_reads_the_lilcom_storage(corpus: Path) -> None:
    directory = corpus / "lilcom" / "train"
    assert len(Places(directory)) == 6
    cuts = CutSet.from_file(directory / "cuts.000000.jsonl.gz").with_features_path_prefix(directory)
    _check_cuts(list(cuts), directory)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # lhotse leaves the tar file open
def test_lhotse_reads_the_shar_storage(corpus: Path) -> None:
    directory = corpus / "shar" / "train"
    fields = {  # as docs/guide/features.md has it
        "cuts": sorted(directory.glob("cuts.*.jsonl.gz")),
        "features": sorted(directory.glob("features.*.tar")),
    }
    _check_cuts(list(CutSet.from_shar(fields=fields)), directory)


def _check_cuts(cuts: list, directory: Path) -> None:
    reader = FeatureReader(directory, "none")
    assert [cut.id for cut in cuts] == [utterance.id for utterance in reader.index]
    for i, (cut, utterance) in enumerate(zip(cuts, reader.index, strict=True)):
        np.testing.assert_array_equal(cut.load_features(), reader.read(i))
        assert cut.num_frames == utterance.num_frames
        (supervision,) = cut.supervisions
        assert (supervision.text, supervision.speaker) == (None, utterance.speaker)
        assert (supervision.recording_id, "AB"[cut.channel]) == (utterance.recording, utterance.channel)


def test_a_set_of_an_earlier_asrtool_is_read(corpus: Path, copy: Path) -> None:
    """It has a shard a file, with the names that files have now, and no table."""
    for storage in STORAGES:
        (copy / storage / "shards.npy").unlink()
        here, there = FeatureReader(copy / storage, "speaker"), FeatureReader(corpus / storage / "dev", "speaker")
        for i in range(len(here.index)):
            np.testing.assert_array_equal(here.read(i), there.read(i))


@pytest.mark.parametrize(("content", "message"), [(b"", "no readable table"), (None, "is in index.jsonl but not in")])
def test_a_table_that_is_broken_or_of_another_set_is_one_line(copy: Path, content: bytes | None, message: str) -> None:
    path = copy / "lilcom" / "shards.npy"
    path.write_bytes(content) if content is not None else np.save(path, np.load(path)[:0])
    with pytest.raises(AsrtoolError, match=f"{message}.*run the features stage again"):
        FeatureReader(copy / "lilcom", "speaker").read(0)


def test_cuts_do_not_name_the_folder_they_were_written_in(copy: Path) -> None:
    for storage, path in itertools.product(STORAGES, ("cuts.000000.jsonl.gz",)):
        with gzip.open(copy / storage / path, "rt") as file:
            assert "tmp" not in file.read()
