"""Audio at addresses: lhotse manifests and Lhotse Shar, and the features that are computed of them."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from servers import NOTHING, WebServer, patient_no_more, serving, upload
from small_releases import make_data, read_jsonl, supervisions

from asrtool.data.features.compute_sets import compute_features
from asrtool.data.manifests.sets import Sets, write_sets
from asrtool.data.storage.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import prepare_all
from asrtool.local.layouts.detect import prepare_any
from asrtool.local.layouts.lhotse import prepare_lhotse
from asrtool.local.layouts.shar import prepare_shar
from asrtool.local.releases.releases import collect_corpora
from asrtool.settings.data import Data, Features
from asrtool.url import below

RATE_HZ = 8000
LENIENT = Data(bad_fraction=0.9)
NUM = 5


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    patient_no_more(monkeypatch, (0.001,))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings r0 to r4 with a segment each: as `lhotse` manifests with relative paths, and as `shar`."""
    root = tmp_path_factory.mktemp("remote")
    (root / "lhotse" / "audio").mkdir(parents=True)
    recordings, segments = [], []
    for i in range(NUM):
        path = root / "lhotse" / "audio" / f"r{i}.flac"
        soundfile.write(path, np.random.default_rng(i).normal(0, 0.1, (1 + i) * RATE_HZ), RATE_HZ)
        recordings.append(Recording.from_file(path))
        where = {"start": 0.25, "duration": 0.5 + i / 2, "channel": 0}
        segments.append(SupervisionSegment(f"s{i}", f"r{i}", **where, text=f"Word {'abcde'[i]}.", speaker=f"p{i}"))
    cuts = CutSet.from_manifests(RecordingSet.from_recordings(recordings), SupervisionSet.from_segments(segments))
    (root / "shar").mkdir()
    cuts.to_eager().to_shar(root / "shar", {"recording": "flac"}, shard_size=3)
    for recording in recordings:
        recording.sources[0].source = f"audio/{recording.id}.flac"
    RecordingSet.from_recordings(recordings).to_file(root / "lhotse" / "recordings.jsonl.gz")
    SupervisionSet.from_segments(segments).to_file(root / "lhotse" / "supervisions.jsonl.gz")
    return root


@pytest.fixture
def web(original: Path, tmp_path: Path) -> Iterator[WebServer]:
    shutil.copytree(original, tmp_path / "web")
    with serving(tmp_path / "web") as server:
        yield server


def left_out(folder: Path) -> list[list[str]]:
    """Id, reason and detail of each that was."""
    return [line.split("\t") for line in (folder / "dropped.tsv").read_text().splitlines()[1:]]


def features_of(manifests: Path, out: Path, bad_fraction: float = 0.01) -> list[np.ndarray]:
    """Return the features of a training set by the ids of its speakers."""
    root = manifests.parent / f"sets-{manifests.name}"
    for name in ("train", "dev"):
        shutil.copytree(manifests, root / name)
    write_sets(root, Sets(()))
    compute_features(root, out, Features(speeds=(1.0,), num_jobs=1, bad_fraction=bad_fraction))
    reader = FeatureReader(out / "train", "none")
    order = sorted(range(len(reader.index)), key=lambda i: reader.index[i].speaker)
    return [reader.read(i) for i in order]


def test_audio_of_both_layouts_and_all_places_gives_the_same_features(
    original: Path, web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(original / "lhotse")  # to which the paths of the manifest are relative
    prepare_lhotse(original / "lhotse", tmp_path / "m" / "local", Data(), "own")
    expected = features_of(tmp_path / "m" / "local", tmp_path / "f" / "local")
    monkeypatch.chdir(tmp_path)
    for name, place in (
        ("shar", original / "shar"),
        ("http-shar", Path(f"{web.url}/shar")),
        ("http", Path(f"{web.url}/lhotse")),
    ):
        prepare_any(place, tmp_path / "m" / name, Data(), "own")
        assert [s["text"] for s in supervisions(tmp_path / "m" / name)] == [f"word {c}" for c in "abcde"]
        found = features_of(tmp_path / "m" / name, tmp_path / "f" / name)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_both_layouts_are_read_from_s3(
    original: Path, tmp_path: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for layout in ("lhotse", "shar"):
        url = upload(bucket, original / layout, f"raw/{layout}")
        prepare_any(Path(url), tmp_path / layout, Data(), "own")
        assert [s["speaker"] for s in supervisions(tmp_path / layout)] == [f"p{i}" for i in range(NUM)]
        (source,) = read_jsonl(tmp_path / layout / "recordings.jsonl.gz")[0]["sources"]
        assert source["type"] == "url"
        assert source["source"].startswith(url)
    with pytest.raises(AsrtoolError, match=r"s3://speech/raw: 0 files \*recordings\*.jsonl.gz, expected one"):
        prepare_any(Path("s3://speech/raw"), tmp_path / "none", Data(), "own")


def test_marks_of_addresses_in_names_of_files_are_part_of_the_name(web: WebServer, tmp_path: Path) -> None:
    folder, odd = web.folder / "lhotse", "one & 100%41 #1?.flac"
    (folder / "audio" / "r1.flac").rename(folder / "audio" / odd)
    manifest = folder / "recordings.jsonl.gz"
    lines = gzip.decompress(manifest.read_bytes()).decode().replace("audio/r1.flac", f"audio/{odd}")
    manifest.write_bytes(gzip.compress(lines.encode()))
    prepare_lhotse(Path(f"{web.url}/lhotse".replace("http", "HTTP")), tmp_path / "m", Data(), "own")
    sources = [entry["sources"][0]["source"] for entry in read_jsonl(tmp_path / "m" / "recordings.jsonl.gz")]
    assert sources[1] == f"{web.url}/lhotse/audio/one & 100%2541 %231%3F.flac"
    assert below("s3://speech/raw/", odd) == f"s3://speech/raw/{odd}"
    assert len(features_of(tmp_path / "m", tmp_path / "f")) == NUM


def test_what_is_missing_or_cut_short_is_set_aside_with_its_reason(web: WebServer, tmp_path: Path) -> None:
    folder = web.folder / "lhotse" / "audio"
    (folder / "r0.flac").unlink()
    (folder / "r1.flac").write_bytes(b"RIFF")
    out = tmp_path / "m"
    prepare_lhotse(Path(f"{web.url}/lhotse"), out, LENIENT, "own")
    assert {reason for _, reason, _ in left_out(out)} == {"unusable audio", "lost recording"}
    details = {id_: detail for id_, _, detail in left_out(out)}
    assert details["r0"].endswith("/audio/r0.flac: no such file (404 Not Found)")
    assert "/audio/r1.flac: no readable audio" in details["r1"]
    (folder / "r2.flac").unlink()  # between prepare and features
    web.faults["/lhotse/audio/r3.flac"] = [NOTHING] * 8
    assert len(features_of(out, tmp_path / "f", 0.9)) == 1
    rows = left_out(tmp_path / "f" / "train")
    assert [row[0] for row in rows] == ["s2", "s3"]
    assert "no such file" in rows[0][2]
    assert "bytes come" in rows[1][2]


def test_a_file_of_another_rate_or_fewer_samples_is_refused_or_set_aside(web: WebServer, tmp_path: Path) -> None:
    folder = web.folder / "lhotse" / "audio"
    prepare_lhotse(Path(f"{web.url}/lhotse"), tmp_path / "m", Data(), "own")
    soundfile.write(folder / "r4.flac", np.zeros(100), RATE_HZ)
    prepare_lhotse(Path(f"{web.url}/lhotse"), tmp_path / "short", LENIENT, "own")
    (id_, _, detail), (_, reason, _) = left_out(tmp_path / "short")
    expected = f"{web.url}/lhotse/audio/r4.flac: 100 samples at {RATE_HZ} Hz, expected {5 * RATE_HZ} at {RATE_HZ} Hz"
    assert (id_, detail, reason) == ("r4", expected, "lost recording")
    soundfile.write(folder / "r4.flac", np.zeros(10 * RATE_HZ), 2 * RATE_HZ)
    with pytest.raises(AsrtoolError, match=r"r4.flac \(recording r4\) has 16000 samples a second, expected 8000"):
        features_of(tmp_path / "m", tmp_path / "f")


def test_a_server_that_is_down_is_one_line(web: WebServer, tmp_path: Path) -> None:
    web.faults["/lhotse/audio/r2.flac"] = [503] * 2
    with pytest.raises(AsrtoolError, match=r"r2.flac: 503 Service Unavailable, 2 times within 0.001 s; see whether"):
        prepare_lhotse(Path(f"{web.url}/lhotse"), tmp_path / "m", Data(), "own")
    prepare_lhotse(Path(f"{web.url}/lhotse"), tmp_path / "m", Data(), "own")
    web.faults["/lhotse/audio/r2.flac"] = [403]
    with pytest.raises(AsrtoolError, match=r"r2.flac: the server refuses access \(403 Forbidden\)"):
        features_of(tmp_path / "m", tmp_path / "f")


@pytest.fixture
def shar(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original / "shar", tmp_path / "shar"))


def test_a_tar_that_is_missing_or_cut_short_costs_its_utterances(shar: Path, tmp_path: Path) -> None:
    tar = shar / "recording.000000.tar"
    tar.write_bytes(tar.read_bytes()[: tar.stat().st_size // 2])
    prepare_shar(shar, tmp_path / "m", LENIENT, "own")
    ((id_, _, detail),) = left_out(tmp_path / "m")
    assert id_ == "r2-2"
    assert "recording.000000.tar: unexpected end of data" in detail
    (shar / "recording.000001.tar").unlink()
    prepare_shar(shar, tmp_path / "m", LENIENT, "own")
    assert [id_ for id_, _, _ in left_out(tmp_path / "m")] == ["r2-2", "r3-3", "r4-4"]


def write_cuts(path: Path, cuts: list[dict[str, Any]]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(cut) + "\n" for cut in cuts).encode()))


def test_cuts_that_cannot_be_used_are_set_aside(shar: Path, tmp_path: Path) -> None:
    path = shar / "cuts.000001.jsonl.gz"
    mixed, late = read_jsonl(path)
    mixed["type"] = "MixedCut"
    late["supervisions"][0]["start"] = 4.9
    write_cuts(path, [mixed, late])
    prepare_shar(shar, tmp_path / "m", LENIENT, "own")
    assert [(id_, reason) for id_, reason, _ in left_out(tmp_path / "m")] == [
        (mixed["id"], "unusable audio"),
        ("s4", "bad times"),
    ]
    path.write_bytes(b"no gzip")
    with pytest.raises(AsrtoolError, match=r"cuts.000001.jsonl.gz: no readable cuts: Not a gzipped file"):
        prepare_shar(shar, tmp_path / "m", LENIENT, "own")


def test_the_address_of_a_release_is_prepared_like_a_folder(web: WebServer, tmp_path: Path) -> None:
    data = make_data(("own",), ("own",), ("own",))
    places = {"own_train": f"{web.url}/shar", "own_test": f"{web.url}/lhotse/"}
    collect_corpora(tmp_path / "corpus", data, places, lambda *_: None)
    prepare_all(tmp_path / "corpus", tmp_path / "manifests", data)
    for role in ("train", "test"):
        assert len(supervisions(tmp_path / "manifests" / "corpora" / "own" / role)) == NUM


@pytest.mark.parametrize(
    ("key", "value"),
    [("recording", {"num_samples": "x"}), ("recording", 3), ("supervisions", [{"id": "a"}]), ("start", None),
     ("supervisions", None), ("id", ["a"])],
)  # fmt: skip
def test_a_cut_that_is_malformed_is_one_line_with_its_number(
    shar: Path, tmp_path: Path, key: str, value: object
) -> None:
    cuts = read_jsonl(shar / "cuts.000000.jsonl.gz")
    cuts[1][key] = value
    write_cuts(shar / "cuts.000000.jsonl.gz", cuts)
    with pytest.raises(AsrtoolError, match=r"cuts.000000.jsonl.gz:2: no cut that can be read, \w+Error: ") as raised:
        prepare_shar(shar, tmp_path / "m", LENIENT, "own")
    assert "\n" not in str(raised.value)
