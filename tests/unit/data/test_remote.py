"""Features on servers: what a reader gets, what is fetched and kept, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import BUCKET, NOTHING, WebServer, patient_no_more, serving

from asrtool.data.features import compute_sets
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.remote import cache, transfer
from asrtool.data.remote.cache import FETCHED, cached_set
from asrtool.data.remote.features import Prefetcher, open_features, parts_of_shards
from asrtool.data.remote.transfer import Missing
from asrtool.data.storage.reader import FeatureReader
from asrtool.data.storage.shard_offsets import TABLE, ShardTable, open_byte_range
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features, Remote
from asrtool.settings.schema import Choice

SMALL = Features(type=Choice.of("features", "fbank", num_mel_bins=23), num_jobs=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    patient_no_more(monkeypatch, (0.001, 0.001))


@pytest.fixture
def web(corpus: Path, tmp_path: Path) -> Iterator[WebServer]:
    """A server of copies of the features, which a test may change."""
    for storage in ("lilcom", "shar"):
        shutil.copytree(corpus / storage, tmp_path / "web" / storage)
    with serving(tmp_path / "web") as server:
        yield server


def in_cache(tmp_path: Path, gib: float = 1.0) -> Remote:
    return Remote(str(tmp_path / "cache"), gib)


def assert_same(found: Path, expected: Path) -> None:
    one, other = FeatureReader(found, "speaker"), FeatureReader(expected, "speaker")
    assert [utterance.id for utterance in one.index] == [utterance.id for utterance in other.index]
    assert one.texts(one.index) == other.texts(other.index)
    for i in range(len(one.index)):
        np.testing.assert_array_equal(one.read(i), other.read(i))


@pytest.mark.parametrize("storage", ["lilcom", "shar", "flac"])
def test_parts_of_files_of_several_shards_are_fetched_and_read(
    storage: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_sets, "FILE_BYTES", 70_000)  # a shard has 39,000 or so
    settings = dataclasses.replace(SMALL, shard_cuts=6, storage=storage)
    compute_features(corpus / "manifests", tmp_path / "web", settings)
    places = ShardTable(tmp_path / "web" / "train")
    spans = [places[number].data for number in np.load(tmp_path / "web" / "train" / TABLE)[:, 0]]
    assert len({span.file for span in spans}) < len(spans), "several shards a file"
    with serving(tmp_path / "web") as server:
        found = open_features(Path(server.url), in_cache(tmp_path), ("train",)) / "train"
        with contextlib.closing(Prefetcher(found)) as prefetcher:
            prefetcher.request(parts_of_shards(found)(1))
            wait(prefetcher.waiting)
        kept = {path.name for path in (found / FETCHED).iterdir() if "-" in path.name and not path.name.startswith(".")}
        assert {name.rpartition(".")[2] for name in kept} == {
            f"{span.begin}-{span.end}" for span in (places[1].cuts, places[1].data)
        }
        assert_same(found, tmp_path / "web" / "train")


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_what_is_read_by_http_is_what_is_read_from_the_folder(
    knows_ranges: bool, web: WebServer, tmp_path: Path
) -> None:
    web.knows_ranges = knows_ranges
    web.faults["/lilcom/train/feats.000001.lca"] = [503, -1000, -1]
    web.faults["/lilcom/train/index.jsonl"] = [-700]
    found = open_features(Path(f"{web.url}/lilcom/"), in_cache(tmp_path), ("train",))
    assert_same(found / "train", web.folder / "lilcom" / "train")


def test_the_address_of_a_set_stands_for_that_set(web: WebServer, tmp_path: Path) -> None:
    remote = in_cache(tmp_path)
    whole = open_features(Path(f"{web.url}/lilcom"), remote)
    assert sorted(path.parent.name for path in whole.glob("*/index.jsonl")) == ["dev", "test"]
    one = open_features(Path(f"{web.url}/lilcom/dev"), remote)
    assert one == whole / "dev"
    with pytest.raises(AsrtoolError, match="/lilcom/eval: no set of features, expected one of train, dev, test"):
        open_features(Path(f"{web.url}/lilcom/eval"), remote)
    with pytest.raises(AsrtoolError, match=r"/features.json: missing, expected the features of `asrtool features`"):
        open_features(Path(f"{web.url}/other/dev"), remote)
    assert open_features(tmp_path, remote) == tmp_path


def test_a_part_of_a_file_is_fetched_as_that(web: WebServer, tmp_path: Path) -> None:
    (web.folder / "lilcom/train/large.bin").write_bytes(bytes(range(200)))
    path = open_features(Path(f"{web.url}/lilcom"), in_cache(tmp_path), ("train",)) / "train" / "large.bin"
    for begin, end in ((10, 20), (0, 200), (190, 200)):
        byte_range = open_byte_range(path, begin, end)
        assert byte_range.read() == bytes(range(begin, end))
        assert byte_range.read(3, 4) == bytes(range(begin + 3, begin + 7))
        assert web.requests[-1] == ("GET", "/lilcom/train/large.bin", f"bytes={begin}-{end - 1}")
        web.requests.clear()
        assert open_byte_range(path, begin, end).read() == bytes(range(begin, end))
        assert not web.requests


def test_a_fetch_continues_where_its_answer_ended(web: WebServer) -> None:
    (web.folder / "large.bin").write_bytes(bytes(range(200)))
    web.faults["/large.bin"] = [-7, NOTHING, -5]
    _, found = transfer.read(f"{web.url}/large.bin", 10, 40)
    assert found == bytes(range(10, 40))
    assert [asked for _, _, asked in web.requests] == [f"bytes={begin}-39" for begin in (10, 17, 17, 22)]


def test_a_part_of_a_file_on_the_disk_is_read_as_that(tmp_path: Path) -> None:
    (tmp_path / "large.bin").write_bytes(bytes(range(200)))
    for begin, end, size in ((10, 20, 10), (0, None, 200), (190, 300, 10), (300, None, 0)):
        byte_range = open_byte_range(tmp_path / "large.bin", begin, end)
        assert byte_range.size == size
        assert byte_range.read() == bytes(range(200))[begin:end]
        assert byte_range.read(3, 4) == bytes(range(200))[begin:end][3:7]


def test_readers_side_by_side_fetch_a_file_once(web: WebServer, tmp_path: Path) -> None:
    web.delay_s = 0.02
    path = open_features(Path(f"{web.url}/lilcom"), in_cache(tmp_path), ("train",)) / "train" / "feats.000000.lca"
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(open_byte_range(path).read())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {(web.folder / "lilcom/train/feats.000000.lca").read_bytes()}
    assert len(found) == 4
    assert len(web.got("feats.000000.lca")) == 1


def test_what_was_used_longest_ago_goes(web: WebServer, tmp_path: Path) -> None:
    names = [f"f{i}" for i in range(4)]
    for name in names:
        (web.folder / "lilcom/dev" / name).write_bytes(name.encode() * 500)
    directory = open_features(Path(f"{web.url}/lilcom"), in_cache(tmp_path, 3500 / 2**30)) / "dev"
    held = open_byte_range(directory / "f0")
    for number, name in enumerate(names[1:3], 1):
        open_byte_range(directory / name)
        os.utime(directory / cache.FETCHED / name, (number, number))
    os.utime(directory / cache.FETCHED / "f0", (0, 0))
    open_byte_range(directory / "f0")  # now the last one used
    open_byte_range(directory / "f3")
    kept = {path.name for path in (directory / cache.FETCHED).glob("f?")}
    assert kept == {"f0", "f2", "f3"}
    for name in ("f1", "f2"):
        open_byte_range(directory / name)
    assert not (directory / cache.FETCHED / "f0").exists()
    assert held.read() == b"f0" * 500  # who reads a file is not disturbed
    assert len(web.got("/f1")) == 2


def test_a_killed_fetch_leaves_nothing_that_is_taken_for_whole(
    web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = open_features(Path(f"{web.url}/lilcom"), in_cache(tmp_path)) / "dev" / "feats.000000.lca"
    whole = (web.folder / "lilcom/dev/feats.000000.lca").read_bytes()

    def killed(url: str, write: Any, *_: Any) -> None:
        write(whole[:100])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(transfer, "fetch", killed)
        with pytest.raises(KeyboardInterrupt):
            open_byte_range(path)
    assert open_byte_range(path).read() == whole


def test_a_file_that_changed_on_the_server_is_refused(web: WebServer, tmp_path: Path) -> None:
    remote = in_cache(tmp_path, 1e-9)
    directory = open_features(Path(f"{web.url}/lilcom"), remote) / "dev"
    open_byte_range(directory / "feats.000000.lca")
    open_byte_range(directory / "cuts.000000.jsonl.gz")  # there is room for one
    with (web.folder / "lilcom/dev/feats.000000.lca").open("ab") as file:
        file.write(b"more")
    with pytest.raises(AsrtoolError, match=r"/dev/feats.000000.lca: changed on the server while it was in use") as info:
        open_byte_range(directory / "feats.000000.lca")
    shutil.rmtree(info.value.hint.rpartition(" remove ")[2])  # as it says
    cached_set.cache_clear()
    directory = open_features(Path(f"{web.url}/lilcom"), remote) / "dev"
    assert open_byte_range(directory / "feats.000000.lca").read().endswith(b"more")


def test_other_features_at_the_same_address_are_not_mixed_with_the_first(
    web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_features(Path(f"{web.url}/lilcom"), in_cache(tmp_path)) / "dev"
    assert open_features(Path(f"{web.url}/lilcom"), in_cache(tmp_path)) / "dev" == first
    open_byte_range(first / "cuts.000000.jsonl.gz")
    shutil.copyfile(web.folder / "shar/test/cmvn.npz", web.folder / "lilcom/dev/cmvn.npz")
    monkeypatch.setattr(cache, "CHECK_S", 0.0)
    with pytest.raises(AsrtoolError, match=r"/dev/cmvn.npz: changed on the server"):
        open_byte_range(first / "feats.000000.lca")
    second = open_features(Path(f"{web.url}/lilcom"), in_cache(tmp_path)) / "dev"
    assert second != first
    assert open_byte_range(second / "feats.000000.lca").size


def test_a_missing_file_and_one_that_is_cut_short_are_one_line(web: WebServer, tmp_path: Path) -> None:
    directory = open_features(Path(f"{web.url}/lilcom"), in_cache(tmp_path)) / "dev"
    (web.folder / "lilcom/dev/feats.000000.lca").unlink()
    with pytest.raises(
        AsrtoolError, match=r"feats.000000.lca: no such file \(404 Not Found\); copy the features there"
    ):
        FeatureReader(directory, "none").read(0)
    for faults, expected in (
        ([-9, -1, 503, 503], "503 Service Unavailable, 3 times within 0.002 s; see whether the server runs"),
        ([-9, -1, *[NOTHING] * 2], "0 of [0-9]+ bytes come; copy the features there again"),
    ):
        web.faults["/lilcom/dev/cmvn.npz"] = faults
        with pytest.raises(AsrtoolError, match=f"cmvn.npz: {expected}"):
            open_byte_range(directory / "cmvn.npz")
        assert not web.faults["/lilcom/dev/cmvn.npz"]


def test_a_server_that_is_down_and_one_that_refuses_are_one_line(
    web: WebServer, tmp_path: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = in_cache(tmp_path)
    web.faults["/lilcom/sets.json"] = [403]
    with pytest.raises(AsrtoolError, match=r"/sets.json: the server refuses access \(403 Forbidden\); see your cred"):
        open_features(Path(f"{web.url}/lilcom"), remote)
    web.requests.clear()
    web.faults["/lilcom/features.json"] = [500] * 3
    with pytest.raises(AsrtoolError, match=r"/features.json: 500 Internal Server Error, 3 times within 0.002 s"):
        open_features(Path(f"{web.url}/lilcom"), remote)
    assert len([1 for _, path, _ in web.requests if path == "/lilcom/features.json"]) == 3
    with pytest.raises(AsrtoolError, match="there is no bucket nowhere"):
        transfer.read("s3://nowhere/key")
    with pytest.raises(Missing, match="no such file"):
        transfer.read(f"s3://{BUCKET}/key")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    transfer.s3_client.cache_clear()
    for url in ("http://127.0.0.1:9/x", f"s3://{BUCKET}/x"):
        with pytest.raises(AsrtoolError, match="see whether the server runs"):
            open_features(Path(url), remote)


def test_without_boto3_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(AsrtoolError, match=r"s3:// needs the package boto3, .*; pip install 'asrtool\[s3\]'"):
        open_features(Path("s3://bucket/features"), in_cache(tmp_path))


def test_names_of_a_bucket_are_listed_without_folders(bucket: Any) -> None:
    for name in ("many/1", "many/0", "many/below/x"):
        bucket.put_object(Bucket=BUCKET, Key=name, Body=b"")
    assert transfer.names_in(f"s3://{BUCKET}/many") == ["0", "1"]
