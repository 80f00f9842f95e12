"""Tar files of a release are unpacked once, and nothing of a broken one is taken for a release."""

from __future__ import annotations

import io
import os
import tarfile
import types
from pathlib import Path

import pytest
from small_releases import make_data, supervisions, write_fisher, write_hub5, write_swbd

from asrtool.errors import AsrtoolError
from asrtool.files import mark_files
from asrtool.local.corpus import prepare_all
from asrtool.local.releases.releases import collect_corpora, unpack

FISHER = make_data(("fisher",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        path = tmp_path / "release" / "disc" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}" * 700)
    return tmp_path / "release"


def pack(folder: Path, tar: Path) -> Path:
    with tarfile.open(tar, "w" if tar.suffix == ".tar" else "w:gz") as file:
        file.add(folder, ".")
    return tar


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}


@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "A.TAR.GZ"])
def test_what_is_unpacked_is_what_was_packed(folder: Path, tmp_path: Path, name: str) -> None:
    out = unpack(pack(folder, tmp_path / name), tmp_path / "unpacked")
    assert texts(out) == texts(folder)
    assert out.name.lower().startswith("a-")
    (tmp_path / "other").mkdir()
    assert unpack(pack(folder, tmp_path / "other" / name), tmp_path / "unpacked") != out


def test_a_tar_is_unpacked_once_and_again_when_it_is_another_one(folder: Path, tmp_path: Path) -> None:
    tar = pack(folder, tmp_path / "a.tar")
    out = unpack(tar, tmp_path / "unpacked")
    (out / "trace").touch()
    mark_files(out / "trace")
    assert unpack(tar, tmp_path / "unpacked") == out
    assert (out / "trace").exists()
    before = tar.stat()
    (folder / "disc" / "1.txt").write_text("x" * 700)  # of the same size and time
    pack(folder, tar)
    os.utime(tar, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (tar.stat().st_size, tar.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert unpack(tar, tmp_path / "unpacked") == out
    assert texts(out) == texts(folder)
    assert not (out / "trace").exists()


@pytest.mark.parametrize("name", ["a.tar", "a.tgz"])
def test_a_tar_cut_off_anywhere_or_writing_elsewhere_leaves_nothing(folder: Path, tmp_path: Path, name: str) -> None:
    """Also where a member ends, which the module tarfile takes for the end."""
    tar = pack(folder, tmp_path / name)
    whole = tar.read_bytes()
    end = 512 * -(-len(whole.rstrip(b"\0")) // 512)  # of the last member
    for size in (100, 512, len(whole) // 2, end - 512, end) if name == "a.tar" else (100, len(whole) - 20):
        tar.write_bytes(whole[:size])
        with pytest.raises(AsrtoolError, match=rf"{name}: cannot be unpacked: .*; fetch the file again"):
            unpack(tar, tmp_path / "unpacked")
        assert not list((tmp_path / "unpacked").iterdir())
    with tarfile.open(tar, "w") as file:
        file.addfile(tarfile.TarInfo("../outside.txt"), io.BytesIO())
    with pytest.raises(AsrtoolError, match="cannot be unpacked"):
        unpack(tar, tmp_path / "unpacked")
    assert not (tmp_path / "outside.txt").exists()


def test_too_little_room_is_said_before_anything_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar = pack(folder, tmp_path / "a.tar")
    monkeypatch.setattr("shutil.disk_usage", lambda _: types.SimpleNamespace(free=100))
    with pytest.raises(AsrtoolError, match=r"0\.0 GiB free, expected at least 0\.0 for .*a\.tar; free some space"):
        unpack(tar, tmp_path / "unpacked")
    assert not list((tmp_path / "unpacked").iterdir())


def test_a_release_in_tars_and_folders_is_prepared_as_one_in_a_folder(tmp_path: Path) -> None:
    site = write_hub5(write_fisher(tmp_path / "site"))
    tars = tmp_path / "tars"
    tars.mkdir()
    names = ("LDC2004S13", "LDC2005S13", "LDC2004T19", "LDC2005T19", "LDC2002S09", "LDC2002T43")
    folders: dict[str, str | tuple[str, ...]] = {name.lower(): str(site / name) for name in names}
    mixed = {**folders, "ldc2004s13": str(pack(site / "LDC2004S13", tars / "s13.tgz"))}
    mixed["ldc2004t19"] = (str(pack(site / "LDC2004T19", tars / "t19.tar")),)
    english = site / "LDC2002S09" / "hub5e_00" / "english"
    (tmp_path / "more" / "english").mkdir(parents=True)
    (english / "sw_4390.sph").rename(tmp_path / "more" / "english" / "sw_4390.sph")
    mixed["ldc2002s09"] = (str(site / "LDC2002S09"), str(tmp_path / "more" / "english"))
    found = []
    for name, paths in (("mixed", mixed), ("folders", folders)):
        if name == "folders":
            (tmp_path / "more" / "english" / "sw_4390.sph").rename(english / "sw_4390.sph")
        work = tmp_path / name
        collect_corpora(work / "corpus", FISHER, paths, lambda *_: pytest.fail("no mini corpus"))
        prepare_all(work / "corpus", work / "manifests", FISHER)
        sets = work / "manifests" / "corpora"
        found.append([supervisions(sets / place) for place in ("fisher/train", "hub5/test")])
    assert found[0] == found[1]
    assert [len(segments) for segments in found[0]] == [4, 5]
    assert sorted(path.name for path in (tmp_path / "mixed" / "unpacked").iterdir())[0].startswith("s13-")


def test_a_folder_of_tars_says_so(tmp_path: Path) -> None:
    site = write_hub5(write_swbd(tmp_path / "site"))
    (tmp_path / "tars").mkdir()
    pack(site / "LDC97S62", tmp_path / "tars" / "swb1_d1.tgz")
    names = ("swb_ms98_transcriptions", "LDC2002S09", "LDC2002T43")
    paths = {name.lower(): str(site / name) for name in names} | {"ldc97s62": str(tmp_path / "tars")}
    message = r"paths.ldc97s62: .*tars holds no sw.*; it holds tar files: set paths.ldc97s62 to a list of them"
    with pytest.raises(AsrtoolError, match=message):
        collect_corpora(tmp_path / "c", make_data(("swbd",)), paths, lambda *_: None)


def test_the_progress_of_a_tar_counts_what_is_read_of_it(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        unpack(pack(folder, tmp_path / "a.tgz"), tmp_path / "unpacked")
    assert caplog.messages[-1].startswith("unpack a.tgz: 1/1 MiBs, ")
