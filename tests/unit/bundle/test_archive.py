"""Bundles as files: whole or refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from asrtool.bundle.archive import FORMAT, TABLE, digest_of, is_archive, open_archive, write_archive, write_table
from asrtool.errors import AsrtoolError

ABOUT = {"name": "ä", "methods": ["greedy"]}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    contents = {"a/one.bin": bytes(range(256)) * 9000, "b.txt": "wörter\n".encode(), "empty": b""}
    found = {}
    for number, (name, content) in enumerate(contents.items()):
        found[name] = tmp_path / f"source{number}"
        found[name].write_bytes(content)
    return found


def test_what_is_packed_is_unpacked(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "x.asrtool"
    written = write_archive(path, files, ABOUT)
    archive = open_archive(path)
    assert archive == written
    assert archive.about == ABOUT
    archive.check()
    archive.unpack(tmp_path / "out", archive.files)
    for name, source in files.items():
        assert (tmp_path / "out" / name).read_bytes() == source.read_bytes()
    assert archive.num_bytes == sum(source.stat().st_size for source in files.values())


def test_a_folder_with_the_table_is_a_bundle_whose_damage_is_noticed(files: dict[str, Path], tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "x.asrtool", files, ABOUT)
    folder = tmp_path / "x"
    archive.unpack(folder, archive.files)
    write_table(folder, ABOUT)
    found = open_archive(folder)
    assert (found.about, found.files, found.digest) == (archive.about, archive.files, archive.digest)
    found.check()
    (folder / "b.txt").write_bytes((folder / "b.txt").read_bytes()[::-1])
    with pytest.raises(AsrtoolError, match=r"x: b\.txt is damaged: its checksum does not match"):
        found.check()
    (folder / "b.txt").unlink()
    with pytest.raises(AsrtoolError, match=r"x: b\.txt cannot be read: .*copy it again from where it is whole"):
        found.check()
    (folder / TABLE).write_bytes((folder / TABLE).read_bytes()[:-9])
    with pytest.raises(AsrtoolError, match="no bundle, or a damaged one"):
        open_archive(folder)


def test_the_same_files_give_the_same_bytes(files: dict[str, Path], tmp_path: Path) -> None:
    write_archive(tmp_path / "x", files, ABOUT)
    write_archive(tmp_path / "y", dict(reversed(files.items())), ABOUT)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_a_changed_byte_is_noticed_wherever_it_is(files: dict[str, Path], tmp_path: Path) -> None:
    del files["a/one.bin"]
    path = tmp_path / "x.asrtool"
    write_archive(path, files, ABOUT)
    whole = path.read_bytes()
    texts = set()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            archive = open_archive(path)
            archive.check()
        except AsrtoolError as error:
            texts.add(error.what)
            continue
        # Redundant fields of a zip file, such as the dates of its members, have no influence on reading.
        archive.unpack(tmp_path / "out", archive.files)
        assert all((tmp_path / "out" / name).read_bytes() == source.read_bytes() for name, source in files.items())
    assert len(texts) > 3
    assert all(text.startswith(f"{path}: ") and "\n" not in text for text in texts)


def test_another_file_in_the_place_of_a_member_is_noticed(files: dict[str, Path], tmp_path: Path) -> None:
    """The other file has the same length, and zip finds no fault."""
    path = tmp_path / "x.asrtool"
    write_archive(path, files, ABOUT)
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["b.txt"] = contents["b.txt"][::-1]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with pytest.raises(AsrtoolError, match=r"b\.txt is damaged: its checksum does not match"):
        open_archive(path).check()


def test_a_file_that_is_cut_off_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "x.asrtool"
    write_archive(path, files, ABOUT)
    whole = path.read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert is_archive(path) == (size > 1)
        fault = "a damaged bundle: its end is missing; .* copy it again" if size > 1 else "no bundle, or a damaged one"
        with pytest.raises(AsrtoolError, match=fault):
            open_archive(path)


def rewrite(path: Path, **changed: Any) -> None:
    """Another table in the bundle `path`, with the digest that belongs to it."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    table = {**json.loads(contents.pop(TABLE)), **changed}
    table.pop("digest")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
        archive.writestr(TABLE, json.dumps({**table, "digest": digest_of(table)}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": FORMAT + 1}, rf"format {FORMAT + 1}, expected {FORMAT} at most; install a newer asrtool"),
        *(
            ({"files": {name: {"num_bytes": 1, "sha256": "0"}}}, "it has a file")
            for name in ("../evil", "/etc/evil", "a/../../evil")
        ),
        ({"files": {"gone": {"num_bytes": 1, "sha256": "0"}}}, "gone cannot be read"),
    ],
)
def test_a_newer_format_a_member_outside_and_one_that_is_not_there_are_refused(
    changed: dict[str, Any], message: str, files: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "x.asrtool"
    write_archive(path, files, ABOUT)
    rewrite(path, **changed)
    with pytest.raises(AsrtoolError, match=message):
        open_archive(path).check()


def test_other_files_are_no_bundles(tmp_path: Path) -> None:
    text = tmp_path / "x.txt"
    text.write_text("no zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", "b")
    torch.save({}, tmp_path / "model.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "model.pt").read_bytes()[:-1])
    others = [text, tmp_path, *(tmp_path / name for name in ("missing", "other.zip", "model.pt", "cut.pt"))]
    assert not any(map(is_archive, others))
    with pytest.raises(AsrtoolError, match="cannot be read, No such file"):
        open_archive(tmp_path / "missing")
