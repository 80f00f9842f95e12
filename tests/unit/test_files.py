"""Atomic files: a half-written one is never taken for finished."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from asrtool.errors import AsrtoolError
from asrtool.files import MARK, check_files, move_aside, write_beside, write_folder, write_text, writing


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != MARK)


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_temporary_keeps_the_suffixes_by_which_writers_choose_a_format(tmp_path: Path) -> None:
    with write_beside(tmp_path / "cuts.jsonl.gz") as temporary:
        assert temporary.suffixes[-2:] == [".jsonl", ".gz"]
        assert temporary.parent == tmp_path
        temporary.touch()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_the_old_file_is_there_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    write_text(tmp_path / "a.txt", "old")

    def write_half() -> None:
        with write_beside(tmp_path / "a.txt") as temporary:
            temporary.write_text("ha")
            raise error

    with pytest.raises(error):
        write_half()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    for generation in ("one", "two"):
        with write_folder(tmp_path / "out", "*") as temporary:
            (temporary / generation).touch()
    assert names(tmp_path / "out") == ["two"]
    assert names(tmp_path) == ["out"]


def test_a_folder_takes_the_place_of_a_link_and_what_it_pointed_to_stays(tmp_path: Path) -> None:
    with write_folder(tmp_path / "release", "*.sph") as temporary:
        (temporary / "precious.sph").touch()
    (tmp_path / "out").symlink_to(tmp_path / "release")
    with write_folder(tmp_path / "out", "*.sph"):
        pass
    assert not (tmp_path / "out").is_symlink()
    assert names(tmp_path / "release") == ["precious.sph"]


@pytest.mark.parametrize("place", ["thesis", ".", "..", "thesis/.."])
def test_a_file_never_takes_the_place_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (tmp_path / "here" / "thesis").mkdir(parents=True)
    (tmp_path / "here" / "thesis" / "thesis.tex").touch()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(AsrtoolError, match=rf"^{re.escape(place)}: is a folder, expected a file name"):
        write_text(place, "text")
    assert names(tmp_path / "here" / "thesis") == ["thesis.tex"]


def test_a_folder_made_while_a_file_is_written_stays(tmp_path: Path) -> None:
    def write() -> None:
        with write_beside(tmp_path / "out") as temporary:
            temporary.touch()
            (tmp_path / "out").mkdir()

    with pytest.raises(AsrtoolError, match="out: cannot be written, is a directory"):
        write()
    assert names(tmp_path) == ["out"]


def test_a_link_takes_the_place_of_a_link(tmp_path: Path) -> None:
    for release in ("a", "b"):
        (tmp_path / release).mkdir()
        with write_beside(tmp_path / "out") as temporary:
            temporary.symlink_to(tmp_path / release)
    assert (tmp_path / "out").readlink() == tmp_path / "b"
    assert names(tmp_path) == ["a", "b", "out"]


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed, alive = dead_process(), os.getppid()
    (tmp_path / f".{killed}.tmp.out").mkdir()
    (tmp_path / f".{killed}.old.out").mkdir()
    (tmp_path / f".{alive}.tmp.out").mkdir()
    (tmp_path / f".{killed}.tmp.other").mkdir()
    write_text(tmp_path / "out", "")
    assert names(tmp_path) == sorted([f".{alive}.tmp.out", f".{killed}.tmp.other", "out"])


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys; from asrtool.errors import AsrtoolError; from asrtool.files import write_text\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_text(sys.argv[1], 'x' * 5000)\n"
        "except AsrtoolError as error: print(error)\n"
    )
    path = tmp_path / "big.txt"
    finished = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert finished.stdout == (
        f"{path}: cannot be written, file too large; free some space or choose another place,"
        " then run the same command again\n"
    )
    assert names(tmp_path) == []


@pytest.mark.parametrize("place", ["a.txt/b.txt", "a.txt/new/b.txt"])
def test_a_place_in_a_file_is_one_line(tmp_path: Path, place: str) -> None:
    write_text(tmp_path / "a.txt", "text")
    with pytest.raises(AsrtoolError, match=r"b\.txt: cannot be written, .* is not a folder; choose another place"):
        write_text(tmp_path / place, "other")
    assert (tmp_path / "a.txt").read_text() == "text"


def test_a_place_that_may_not_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(AsrtoolError, match=r"b\.txt: cannot be written, permission denied; choose another place"):
        write_text(tmp_path / "a" / "b.txt", "text")
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(AsrtoolError, match=r"b\.txt: cannot be written, .*a: permission denied; choose another place"):
        write_text(tmp_path / "a" / "b.txt", "text")


@pytest.mark.parametrize("name", ["thesis.tex", "a.txt", "deep/b.txt", "link"])
@pytest.mark.parametrize("is_written", [False, True])
def test_a_folder_with_a_file_of_a_user_is_not_replaced(tmp_path: Path, name: str, is_written: bool) -> None:
    """Whatever it is called: what asrtool wrote is known by its mark."""
    out = tmp_path / "out"
    if is_written:
        with write_folder(out, "c.txt") as temporary:
            (temporary / "c.txt").touch()
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).symlink_to(tmp_path) if name == "link" else (out / name).touch()
    before = sorted(out.rglob("*"))
    with pytest.raises(AsrtoolError, match=r"holds other files|asrtool did not write"), write_folder(out, "*.txt"):
        pass
    assert sorted(out.rglob("*")) == before


def test_a_file_is_replaced_only_if_asrtool_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "G.arpa"
    for each in (tmp_path / 'a"G.arpa', path, path):
        with writing(each):
            write_text(each, "text")
    assert len((tmp_path / MARK).read_text().splitlines()) == 2
    check_files(path, tmp_path / "new")
    shutil.copytree(tmp_path, tmp_path / "copy")  # the mark goes with a copy
    check_files(tmp_path / "copy" / "G.arpa")
    (tmp_path / "other").symlink_to("nowhere")
    for other in (tmp_path / "other", Path("/dev/null")):
        with pytest.raises(AsrtoolError, match="would be replaced although asrtool did not write it"):
            check_files(other)


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_file_that_was_edited_is_not_replaced_and_one_that_was_copied_is(tmp_path: Path, is_folder: bool) -> None:
    out = tmp_path / "out"
    out.mkdir()

    def write(text: str, name: str = "a.srt") -> None:
        with write_folder(out, "*") if is_folder else writing(out / name) as folder:
            write_text((folder or out) / name, text)

    for text in ("one", "two", "one"):
        write(text)
    shutil.copytree(out, tmp_path / "copy", copy_function=shutil.copyfile)  # as cp -r does, with other times
    out.rename(tmp_path / "moved")
    (tmp_path / "copy").rename(out)
    write("two")
    (out / "a.srt").write_text("twö")
    with pytest.raises(AsrtoolError, match=r"out.* would be replaced.* or it was edited since; choose another"):
        write("two")
    assert (out / "a.srt").read_text() == "twö"
    (out / "a.srt").unlink()
    write("binary\0", "model.pt")
    (out / "model.pt").write_text("damaged\0")
    write("binary\0", "model.pt")


def test_a_mark_without_digests_stands_for_any_content(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text("one")
    (tmp_path / MARK).write_text('"a.srt"\n')
    with writing(tmp_path / "a.srt"):
        write_text(tmp_path / "a.srt", "two")
    (tmp_path / "a.srt").write_text("three")
    with pytest.raises(AsrtoolError, match="edited since"):
        check_files(tmp_path / "a.srt")


def test_what_was_written_before_an_error_is_marked(tmp_path: Path) -> None:
    def fail() -> None:
        with writing(tmp_path / "a.srt"):
            write_text(tmp_path / "a.srt", "one")
            raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError, match=r"^$"):
            fail()


def test_what_was_written_before_there_were_marks_is_known_by_its_work_folder(tmp_path: Path) -> None:
    (tmp_path / ".stages").mkdir()
    (tmp_path / "lm").mkdir()
    (tmp_path / "lm" / "G.arpa").touch()
    check_files(tmp_path / "lm" / "G.arpa")
    (tmp_path / MARK).touch()
    with pytest.raises(AsrtoolError, match="asrtool did not write it"):
        check_files(tmp_path / "lm" / "G.arpa")


@pytest.mark.parametrize("place", [".", "..", "../folder"])
def test_the_current_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    with (
        pytest.raises(AsrtoolError, match="the current folder cannot be replaced; name a folder below it"),
        write_folder(place, "a.txt"),
    ):
        pass


def test_what_is_moved_aside_takes_the_first_free_number(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "train").mkdir()
        move_aside(tmp_path / "train")
    assert names(tmp_path) == ["train.old-1", "train.old-2"]
