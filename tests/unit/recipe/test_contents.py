"""Digests of contents: what is noticed, and what is read again."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import numpy as np
import pytest

from asrtool.errors import AsrtoolError
from asrtool.files import digest_of
from asrtool.recipe import contents
from asrtool.recipe.contents import CACHE, Contents


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a work folder with two files, old enough to be cached."""
    monkeypatch.setattr(contents, "YOUNG_NS", 0)
    (tmp_path / "exp" / "a").mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / "exp" / "a" / name).write_text(name)
    time.sleep(0.02)  # two ticks of the clock of file systems
    return tmp_path / "exp"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    names: list[str] = []

    def recording(file: Path) -> str:
        names.append(file.name)
        return digest_of(file)

    monkeypatch.setattr(contents, "digest_of", recording)
    return names


def test_a_file_is_read_once_and_again_after_a_touch(work: Path, read: list[str]) -> None:
    digest = Contents(work).digest("a")
    assert sorted(read) == ["one", "two"]
    read.clear()
    assert Contents(work).digest("a") == digest
    assert read == []
    (work / "a" / "two").touch()
    assert Contents(work).digest("a") == digest
    assert read == ["two"]


def test_a_changed_byte_is_noticed_though_size_and_time_are_set_back(work: Path) -> None:
    file, digest = work / "a" / "one", Contents(work).digest("a")
    before = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"O")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    assert Contents(work).digest("a") != digest


def test_a_file_that_has_just_changed_is_not_cached(
    work: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "YOUNG_NS", 10**12)
    for _ in range(2):
        Contents(work).digest("a")
    assert sorted(read) == ["one", "one", "two", "two"]


def test_a_broken_cache_is_not_trusted(work: Path) -> None:
    digest = Contents(work).digest("a")
    rows, whole = np.load(work / CACHE), (work / CACHE).read_bytes()
    for damaged in (b"", b"{", b"\x93NUMPY", whole[:-1]):
        (work / CACHE).write_bytes(damaged)
        assert Contents(work).digest("a") == digest
    np.save(work / CACHE, rows["key"])
    assert Contents(work).digest("a") == digest


def test_a_cache_with_the_column_of_earlier_versions_is_used(work: Path, read: list[str]) -> None:
    digest = Contents(work).digest("a")
    rows = np.load(work / CACHE)
    before = np.zeros(len(rows), [("key", "u8"), ("group", "u8"), ("digest", "V32")])
    before["key"], before["digest"] = rows["key"], rows["digest"]
    np.save(work / CACHE, before)
    read.clear()
    assert Contents(work).digest("a") == digest
    assert read == []


def test_a_link_counts_by_the_name_of_a_file_of_the_work_directory_and_by_what_another_holds(
    work: Path, tmp_path: Path
) -> None:
    (work / "b").mkdir()
    (work / "b" / "link").symlink_to("../a/one")
    digest = Contents(work).digest("b")
    (work / "a" / "one").write_text("changed")
    assert Contents(work).digest("b") == digest
    (work / "b" / "link").unlink()
    (work / "b" / "link").symlink_to("../a/two")
    assert Contents(work).digest("b") != digest
    (tmp_path / "outside").write_text("one")
    (work / "link").symlink_to(tmp_path / "outside")
    digest = Contents(work).digest("link")
    (tmp_path / "outside").write_text("two")
    assert Contents(work).digest("link") != digest
    (tmp_path / "outside").unlink()
    Contents(work).digest("link")


def test_a_folder_that_takes_long_is_reported_and_has_the_same_digest(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        (tmp_path / "release" / "disc").mkdir(parents=True, exist_ok=True)
        (tmp_path / "release" / "disc" / f"{number}.sph").write_bytes(bytes([number]))
    (work / "corpus").mkdir()
    (work / "corpus" / "release").symlink_to(tmp_path / "release")
    caplog.set_level("INFO")
    at_once = Contents(work).digest("corpus")
    assert "for changes" not in caplog.text
    monkeypatch.setattr(contents, "SILENT_S", -1.0)
    (work / CACHE).unlink(missing_ok=True)
    assert Contents(work).digest("corpus") == at_once
    assert "corpus: read 20 files for changes: 19/19 files" in caplog.text


def of_files(work: Path, *paths: Path) -> list[str]:
    return list(Contents(work).of_files([str(path) for path in paths], "audio"))


def test_files_have_the_digests_of_what_is_in_them_also_by_a_link(work: Path, read: list[str]) -> None:
    link, copy, outside = work / "link", work / "copy", work.parent / "outside"
    link.symlink_to(work / "a" / "one")
    for file in (copy, outside):
        file.write_text("one")
    found = of_files(work, work / "a" / "two", link, copy, outside, work / "gone")
    assert found[1] == found[2] == found[3] != found[0]
    assert found[4] == "nothing"
    read.clear()
    assert of_files(work, work / "a" / "two", link, copy, outside, work / "gone") == found
    assert read == []


def test_a_file_is_read_once_by_whatever_link_to_its_folder_it_is_found(work: Path, read: list[str]) -> None:
    (work.parent / "release").mkdir()
    (work.parent / "release" / "x.sph").write_text("x")
    (work / "corpus").symlink_to(work.parent / "release")
    Contents(work).digest("corpus")
    of_files(work, work.parent / "release" / "x.sph")
    assert read == ["x.sph"]


def test_what_another_process_has_digested_meanwhile_stays_in_the_cache(work: Path, read: list[str]) -> None:
    mine, outside = Contents(work), work.parent / "outside"
    outside.write_text("outside")
    of_files(work, outside)
    mine.digest("a")
    read.clear()
    of_files(work, outside, work / "a" / "one")
    assert read == []


def test_what_an_interrupted_command_has_read_is_not_read_again(work: Path, read: list[str]) -> None:
    one, two, three = (work / "a" / name for name in ("one", "two", "three"))
    three.write_text("three")
    of_files(work, one, two)
    digests = Contents(work).of_files([str(three), str(one), str(two)], "audio")
    next(digests)
    digests.close()
    read.clear()
    of_files(work, one, two, three)
    assert read == []


def test_a_file_that_cannot_be_read_is_as_none(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(file: Path) -> str:
        raise AsrtoolError(f"{file}: cannot be read, permission denied")

    monkeypatch.setattr(contents, "digest_of", failing)
    one = work / "a" / "one"
    assert of_files(work, one) == ["nothing"]
    monkeypatch.undo()
    assert of_files(work, one) != ["nothing"]


def test_the_digest_is_of_names_and_contents_in_the_order_of_paths(work: Path) -> None:
    """The definition that finished stages were recorded by: names sort as whole paths, not folder by folder."""
    names = ["a-b/x", "a.txt", "a/one", "a/sub/deep", "a/two", "ab", "é", "b\udcff"]
    for name in names:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("text of " + name.encode(errors="surrogateescape").hex())
    expected = hashlib.sha256()
    for name in sorted(names):
        of_file = hashlib.sha256((work / name).read_bytes()).hexdigest()
        expected.update(f"{name}\0{of_file}\n".encode(errors="surrogateescape"))
    assert Contents(work).digest("") == expected.hexdigest()[:16]


def test_a_link_to_itself_hides_no_file_beside_it(work: Path) -> None:
    (work / "a" / "self").symlink_to("self")
    digest = Contents(work).digest("a")
    (work / "a" / "one").write_text("changed")
    assert Contents(work).digest("a") != digest
