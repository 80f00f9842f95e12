"""Reading features back: the same values whatever the storage, the order and the memory."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet
from small_releases import read_manifests
from tones import SMALL

from asrtool.data import batches
from asrtool.data.batches import Lengths, plan_epoch
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.storage.reader import FeatureReader
from asrtool.data.storage.shard import Shard
from asrtool.data.storage.shard_offsets import ShardTable
from asrtool.errors import AsrtoolError

LILCOM_TICK = 2**-5
STORAGES = ("lilcom", "shar")


def assert_same(one: FeatureReader, other: FeatureReader) -> None:
    assert one.index == other.index
    for i in range(len(one.index)):
        np.testing.assert_array_equal(one.read(i), other.read(i))


def assert_near(stored: FeatureReader, computed: FeatureReader) -> None:
    """Compare features within rounding; in the index of audio, copies at other speeds come last."""
    places = {utterance.id: i for i, utterance in enumerate(stored.index)}
    for i, utterance in enumerate(computed.index):
        expected = stored.read(places.pop(utterance.id))
        np.testing.assert_allclose(computed.read(i), expected, atol=LILCOM_TICK / 2 + 1e-5)
    assert not places


def test_all_storages_give_the_same_features(corpus: Path) -> None:
    lilcom, shar = (FeatureReader(corpus / storage / "train", "speaker") for storage in STORAGES)
    assert len(lilcom.index) == 72
    assert_same(lilcom, shar)
    stored, computed = (FeatureReader(corpus / storage / "train", "none") for storage in ("lilcom", "flac"))
    assert [one.id[:5] for one in computed.index[::24]] == ["train", "sp0.9", "sp1.1"]
    assert_near(stored, computed)
    sums = [np.load(corpus / storage / "train" / "cmvn.npz") for storage in ("lilcom", "flac")]
    orders = [np.argsort(arrays["names"]) for arrays in sums]  # of speakers, as shards have them
    for name in ("means", "stds"):
        np.testing.assert_allclose(sums[1][name][orders[1]], sums[0][name][orders[0]], rtol=1e-6)


def test_features_computed_on_reading_are_those_of_audio_beyond_full_scale(
    make_manifests: Callable[..., Path], tmp_path: Path
) -> None:
    manifests = make_manifests()
    for path in (tmp_path / "audio").iterdir():
        samples, rate_hz = soundfile.read(path)
        soundfile.write(path, 20 * samples, rate_hz, subtype="FLOAT")
    for storage in ("lilcom", "flac"):
        compute_features(manifests, tmp_path / storage, dataclasses.replace(SMALL, storage=storage))
    assert_near(*(FeatureReader(tmp_path / storage / "train", "none") for storage in ("lilcom", "flac")))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # lhotse leaves the tar file open
def test_audio_is_kept_to_the_bit_and_once(corpus: Path) -> None:
    """lhotse reads it, as docs/guide/features.md says."""
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
    places = ShardTable(directory)
    assert len({places[number].data for number in range(3 * 2)}) == 2


@pytest.mark.parametrize(("cache_bytes", "times"), [(2**30, 1), (0, 3)])
def test_an_utterance_of_a_set_that_fits_is_decoded_once_and_else_once_an_epoch(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, cache_bytes: int, times: int
) -> None:
    """Each of two learners decodes only its own batches; values are the same in any order."""
    reference = FeatureReader(corpus / "lilcom" / "train", "speaker")
    expected = [reference.read(i) for i in range(len(reference.index))]
    decoded, opened, read, open_shard = Counter[str](), Counter[str](), Shard.read, Shard.__init__

    def counted_read(self: Shard, place: int) -> np.ndarray:
        decoded[self.ids[place]] += 1
        return read(self, place)

    def counted_open(self: Shard, *args) -> None:
        open_shard(self, *args)
        opened[self.name] += 1

    monkeypatch.setattr(batches, "WINDOW_SHARDS", 2)
    monkeypatch.setattr(Shard, "read", counted_read)
    monkeypatch.setattr(Shard, "__init__", counted_open)
    readers = [FeatureReader(corpus / "lilcom" / "train", "speaker", cache_bytes) for _ in range(2)]
    plan = list(plan_epoch(Lengths.of(readers[0].index), 2000, 1, 0))
    for _ in range(3):
        for learner, reader in enumerate(readers):
            for batch in plan[learner::2]:
                for i, feats_TF in zip(batch.indices, reader.read_several(batch.indices), strict=True):
                    np.testing.assert_array_equal(feats_TF, expected[i])
    assert decoded == dict.fromkeys((utterance.id for utterance in readers[0].index), times)
    assert max(opened.values()) <= 2
    assert len(opened) == 6


@pytest.fixture
def copy(corpus: Path, tmp_path: Path) -> Path:
    """A copy of the features, in another place, that a test may break."""
    for storage in (*STORAGES, "flac"):
        shutil.copytree(corpus / storage / "dev", tmp_path / storage)
    return tmp_path


@pytest.mark.parametrize("storage", STORAGES)
def test_a_set_can_be_moved_and_may_be_of_an_earlier_asrtool(corpus: Path, copy: Path, storage: str) -> None:
    """An earlier one has a shard a file, with the names that files have now, and no table."""
    expected = FeatureReader(corpus / storage / "dev", "speaker")
    assert_same(FeatureReader(copy / storage, "speaker"), expected)
    (copy / storage / "shards.npy").unlink()
    assert_same(FeatureReader(copy / storage, "speaker"), expected)
    assert b"tmp" not in gzip.decompress((copy / storage / "cuts.000000.jsonl.gz").read_bytes())


FILES = ("lilcom/cuts.000000.jsonl.gz", "lilcom/feats.000000.lca", "shar/features.000000.tar")


@pytest.mark.parametrize("name", [*FILES, "flac/recording.000000.tar"])
def test_a_truncated_or_missing_shard_is_named(copy: Path, name: str) -> None:
    path = copy / name
    content = path.read_bytes()
    for fraction in (0.0, 0.3, 0.6, 0.8, None):
        path.unlink() if fraction is None else path.write_bytes(content[: int(len(content) * fraction)])
        reader = FeatureReader(path.parent, "speaker")
        with pytest.raises(AsrtoolError, match=r"shard 000000 (cannot be|is not the one).*; run the features stage"):
            reader.read(0)


@pytest.mark.parametrize("name", FILES[1:])
def test_damage_within_an_archive_is_named_where_it_is_met_and_other_utterances_are_read(copy: Path, name: str) -> None:
    whole = FeatureReader((copy / name).parent, "speaker")
    expected = [whole.read(i) for i in range(len(whole.index))]
    with gzip.open(copy / "lilcom" / "cuts.000000.jsonl.gz") as file:
        begin, size, *_ = map(int, json.loads(file.readline())["features"]["storage_key"].split(","))
    compressed = (copy / "lilcom" / "feats.000000.lca").read_bytes()[begin : begin + size]  # as in both archives
    content = bytearray((copy / name).read_bytes())
    first = content.index(compressed)
    content[first : first + 8] = bytes(8)
    (copy / name).write_bytes(content)
    reader = FeatureReader((copy / name).parent, "speaker")
    for _ in range(2):
        with pytest.raises(AsrtoolError, match="shard 000000 cannot be read"):
            reader.read(0)
    for i in range(1, len(reader.index)):
        np.testing.assert_array_equal(reader.read(i), expected[i])


@pytest.mark.parametrize("change", ["one line less", "other length"])
def test_an_index_that_describes_other_features_is_refused(copy: Path, change: str) -> None:
    path = copy / "lilcom" / "index.jsonl"
    lines = path.read_text().splitlines()
    if change == "one line less":
        del lines[-1]
    else:
        lines[-1] = json.dumps({**json.loads(lines[-1]), "num_frames": 3})
    path.write_text("\n".join(lines))
    with pytest.raises(AsrtoolError, match=r"shard 000000 is not the one index\.jsonl describes"):
        FeatureReader(copy / "lilcom", "speaker").read(0)


@pytest.mark.parametrize(("content", "message"), [(b"", "no readable table"), (None, "is in index.jsonl but not in")])
def test_a_table_that_is_broken_or_of_another_set_is_one_line(copy: Path, content: bytes | None, message: str) -> None:
    path = copy / "lilcom" / "shards.npy"
    path.write_bytes(content) if content is not None else np.save(path, np.load(path)[:0])
    with pytest.raises(AsrtoolError, match=f"{message}.*run the features stage again"):
        FeatureReader(copy / "lilcom", "speaker").read(0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # lhotse leaves the tar file open
@pytest.mark.parametrize("storage", STORAGES)
def test_lhotse_reads_the_features(corpus: Path, storage: str) -> None:
    """The code is that of docs/guide/features.md."""
    directory = corpus / storage / "train"
    if storage == "lilcom":
        cuts = CutSet.from_file(directory / "cuts.000000.jsonl.gz").with_features_path_prefix(directory)
    else:
        names = {"cuts": "cuts.*.jsonl.gz", "features": "features.*.tar"}
        cuts = CutSet.from_shar(fields={field: sorted(directory.glob(name)) for field, name in names.items()})
    reader = FeatureReader(directory, "none")
    for i, (cut, utterance) in enumerate(zip(cuts, reader.index, strict=True)):
        assert cut.id == utterance.id
        np.testing.assert_array_equal(cut.load_features(), reader.read(i))
        assert cut.num_frames == utterance.num_frames
        (supervision,) = cut.supervisions
        assert (supervision.text, supervision.speaker) == (None, utterance.speaker)
        assert (supervision.recording_id, "AB"[cut.channel]) == (utterance.recording, utterance.channel)
