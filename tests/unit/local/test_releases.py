"""Places of releases: folders, links and tar files, or the mini corpus; and decoding of shorten."""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import shutil
import tarfile
import types
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_releases import make_data, supervisions, write_fisher, write_hub5, write_sound, write_swbd

from asrtool.data.manifests.manifest import Drop
from asrtool.data.workers import processes
from asrtool.errors import AsrtoolError
from asrtool.files import mark_files
from asrtool.local.corpus import prepare_all
from asrtool.local.releases import shortened
from asrtool.local.releases.releases import collect_corpora, find_files, unpack
from asrtool.local.releases.shortened import decode_shortened
from asrtool.local.utterances import Sound

SWBD = make_data(("swbd",))


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    root = tmp_path / "site with a space"
    (root / "tars").mkdir(parents=True)
    (root / "tars" / "swb1_d1.tgz").touch()
    return write_hub5(write_fisher(write_swbd(root)))


def swbd_paths(root: Path) -> dict[str, str]:
    names = ("LDC97S62", "swb_ms98_transcriptions", "LDC2002S09", "LDC2002T43")
    return {name.lower(): str(root / name) for name in names}


def fail(*_: object) -> None:
    pytest.fail("the mini corpus is not to be made here")


def test_configured_releases_are_linked_by_their_names(releases: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    (out / "LDC97S62").mkdir(parents=True)  # of an earlier mini corpus
    collect_corpora(out, SWBD, swbd_paths(releases), fail)
    assert {path.name.lower() for path in out.glob("[!.]*")} == swbd_paths(releases).keys()
    assert (out / "LDC97S62" / "swb1_d1" / "data" / "sw02001.sph").is_file()


@pytest.mark.parametrize(("train", "key"), [("an4", "paths.an4"), ("own", "paths.own_train")])
def test_without_any_path_the_mini_corpus_is_asked_for_what_the_settings_name_if_it_has_that(
    train: str, key: str, tmp_path: Path
) -> None:
    with pytest.raises(AsrtoolError, match=f"no path is configured for {key}") as caught:
        collect_corpora(tmp_path / "c", make_data((train,), (), (train,)), {}, fail)
    assert "mini" not in str(caught.value)
    made = []
    data = make_data(test=("hub5", "rt03"))
    collect_corpora(tmp_path / "corpus", data, {"ldc97s62": ""}, lambda *asked: made.append(asked))
    assert made == [(tmp_path / "corpus", ["swbd", "fisher", "hub5", "rt03"])]


@pytest.mark.parametrize(
    ("changed", "extra_text", "message"),
    [
        ({"ldc2002t43": ""}, [], r"no path is configured for paths.ldc2002t43 \(Hub5'00(?!.*extra_text).*leave all"),
        ({}, ["fisher"], r"for paths.ldc2004t19 [^,]*, paths.ldc2005t19 [^,]*, or .*--set lm.extra_text=\[\]"),
        ({}, ["Fisher"], r"lm.extra_text: Fisher: no such file; name a file of sentences, or one of an4"),
        ({}, ["/"], r"lm.extra_text: /: a folder; name"),
        ({"ldc97s62": "LDC2002S09"}, [], r"paths.ldc97s62: .*LDC2002S09 holds no sw\[0-9\]\*.sph, expected the layout"),
        ({"ldc97s62": ("LDC97S62", "nowhere")}, [], r"paths.ldc97s62: .*nowhere does not exist, expected a folder or "),
        ({"ldc97s62": ("LDC2002S09", "LDC2002T43")}, [], r"LDC2002S09 and .*LDC2002T43 hold no sw\[0-9\]\*.sph"),
        ({"ldc97s62": "tars"}, [], r"tars holds no sw.*; it holds tar files: set paths.ldc97s62 to a list of them"),
    ],
)
def test_a_release_that_is_not_where_its_path_says_is_named_with_its_key(
    changed: dict[str, str | tuple[str, ...]], extra_text: list[str], message: str, releases: Path, tmp_path: Path
) -> None:
    def place(name: str) -> str:
        return str(releases / name) if name else ""

    places = {key: place(name) if isinstance(name, str) else tuple(map(place, name)) for key, name in changed.items()}
    with pytest.raises(AsrtoolError, match=message):
        collect_corpora(tmp_path / "c", SWBD, swbd_paths(releases) | places, fail, extra_text)
    assert not (tmp_path / "c").exists()


def test_a_folder_of_own_data_that_is_not_there_is_a_short_line(tmp_path: Path) -> None:
    data, paths = make_data(("own",), (), ("own",)), {"own_train": "nodir", "own_test": "nodir"}
    with pytest.raises(AsrtoolError) as caught:
        collect_corpora(tmp_path / "c", data, paths, fail)
    what, _, files = str(caught.value).partition(", expected a folder or a file ")
    assert what == f"paths.own_train: {Path('nodir').absolute()} does not exist"
    assert files == ".csv, .tsv, .jsonl, .json, .parquet, .arrow, .jsonl.gz; correct the path"


def test_a_role_brings_its_releases_alone(tmp_path: Path) -> None:
    write_sound(tmp_path / "b" / "x.sph")
    swbd = write_hub5(write_swbd(tmp_path / "site"))
    paths = {**swbd_paths(swbd), "own_test": str(tmp_path / "b"), "own_train": "/nowhere"}
    collect_corpora(tmp_path / "c", make_data(("swbd",), test=("own",)), paths, fail)
    found = {path.name for path in (tmp_path / "c").glob("[!.]*")}
    assert found == {"LDC97S62", "own_test", "swb_ms98_transcriptions"}


def test_files_behind_links_are_found_once_even_in_a_circle(tmp_path: Path) -> None:
    disc = tmp_path / "elsewhere" / "data"
    write_sound(disc / "sw02001.sph")
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "d1").symlink_to(tmp_path / "elsewhere")
    (disc / "again").symlink_to(tmp_path / "release")
    found = list(find_files(tmp_path / "release", "data/*.sph"))
    assert found == [tmp_path / "release" / "d1" / "data" / "sw02001.sph"]


def test_nothing_to_train_on_is_one_line_and_nothing_to_test_on_needs_no_path(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"data\.train is empty, expected at least one corpus; name it with --set"):
        collect_corpora(tmp_path, make_data(()), {}, fail)
    (tmp_path / "train").mkdir()
    collect_corpora(tmp_path / "c", make_data(("own",), test=()), {"own_train": str(tmp_path / "train")}, fail)
    assert [path.name for path in (tmp_path / "c").glob("[!.]*")] == ["own_train"]


def test_files_are_found_whatever_their_case(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "Release" / "DATA/SW02001.Sph")
    for pattern in ("data/sw*.sph", "DATA/*.sph", "sw[0-9]*.sph"):
        assert list(find_files(tmp_path, pattern)) == [path]
    assert not list(find_files(tmp_path, "data/x*.sph"))


def test_a_corpus_folder_inside_a_release_is_refused(tmp_path: Path) -> None:
    write_sound(tmp_path / "train" / "x.sph")
    own = make_data(("own",), (), ("own",))
    paths = {"own_train": str(tmp_path / "train"), "own_test": str(tmp_path / "train")}
    with pytest.raises(
        AsrtoolError, match=r"corpus: lies in the data .*train, expected the two apart; choose another OUT"
    ):
        collect_corpora(tmp_path / "train" / "exp" / "corpus", own, paths, fail)
    collect_corpora(tmp_path / "exp" / "corpus", own, paths, fail)


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
def test_what_is_unpacked_is_what_was_packed(
    folder: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    out = unpack(pack(folder, tmp_path / name), tmp_path / "unpacked")
    assert caplog.messages[-1].startswith(f"unpack {name}: 1/1 MiBs, ")  # of what is read
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
    """One cut is at the end of a member, which the module tarfile takes for the end."""
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
        collect_corpora(work / "corpus", FISHER, paths, fail)
        prepare_all(work / "corpus", work / "manifests", FISHER)
        sets = work / "manifests" / "corpora"
        found.append([supervisions(sets / place) for place in ("fisher/train", "hub5/test")])
    assert found[0] == found[1]
    assert [len(segments) for segments in found[0]] == [4, 5]
    assert sorted(path.name for path in (tmp_path / "mixed" / "unpacked").iterdir())[0].startswith("s13-")


NUM_SAMPLES = 4000


def write_shortened(path: Path) -> Sound:
    """A header that says shorten; what is behind it only sph2pipe reads."""
    lines = ["NIST_1A", "   1024", "sample_rate -i 8000", "channel_count -i 1", f"sample_count -i {NUM_SAMPLES}",
             "sample_n_bytes -i 2", "sample_coding -s26 pcm,embedded-shorten-v2.00", "end_head", ""]  # fmt: skip
    path.write_bytes("\n".join(lines).encode().ljust(1024) + b"ajkg" + path.name.encode())
    return Sound(path, NUM_SAMPLES, 8000)


def samples(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1000, 1000, NUM_SAMPLES, dtype=np.int16)


@pytest.fixture
def sounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Sound]:
    """Six, and a program for them that writes the WAV beside each."""
    for seed in range(6):
        soundfile.write(tmp_path / f"call{seed}.sph.wav", samples(seed), 8000)
    program = tmp_path / "bin" / "sph2pipe"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'case "$4" in *call3.sph) mkdir {tmp_path}/killed 2>/dev/null && kill -9 $PPID && exit 1;; esac\n'
        f'case "$4" in *call5.sph) test -e {tmp_path}/broken && echo "cut off" >&2 && exit 1;; esac\n'
        'cat "$4.wav"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    # A server that forks would have the PATH of when it began.
    monkeypatch.setattr(processes, "process_context", lambda _: multiprocessing.get_context("fork"))
    return {f"call{seed}": write_shortened(tmp_path / f"call{seed}.sph") for seed in range(6)}


def test_a_process_that_is_killed_costs_nothing(sounds: dict[str, Sound], tmp_path: Path) -> None:
    drops: list[Drop] = []
    found = decode_shortened(sounds, tmp_path / "m" / "audio", drops)
    assert (tmp_path / "killed").is_dir()
    assert not drops
    for seed in range(6):
        sound = found[f"call{seed}"]
        assert (sound.num_samples, sound.path.parent) == (NUM_SAMPLES, tmp_path / "m" / "audio")
        np.testing.assert_array_equal(soundfile.read(sound.path, dtype="int16")[0], samples(seed))


def test_what_cannot_be_decoded_is_set_aside_and_the_rest_not_decoded_again(
    sounds: dict[str, Sound], tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    drops: list[Drop] = []
    assert set(decode_shortened(sounds, tmp_path / "audio", drops)) == {f"call{seed}" for seed in range(5)}
    assert [(drop.id, drop.reason) for drop in drops] == [("call5", "unusable audio")]
    assert "cut off" in drops[0].detail
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "audio").iterdir()}
    (tmp_path / "broken").unlink()
    assert len(decode_shortened(sounds, tmp_path / "audio", [])) == 6
    assert before == {name: (tmp_path / "audio" / name).stat().st_mtime_ns for name in before}


def test_a_file_of_the_same_name_is_decoded_anew(sounds: dict[str, Sound], tmp_path: Path) -> None:
    """Into one folder, with an older set in it and a file of a user."""
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio" / "a.flac").write_bytes(b"of a user")
    soundfile.write(tmp_path / "b.wav", samples(0), 8000)
    plain = {"b": Sound(tmp_path / "b.wav", NUM_SAMPLES, 8000)}  # which stays where it is
    assert decode_shortened(plain, tmp_path / "audio", []) == plain
    for seed in (0, 1):
        decoded = decode_shortened({"a": sounds[f"call{seed}"]}, tmp_path / "audio", [])["a"].path
        np.testing.assert_array_equal(soundfile.read(decoded, dtype="int16")[0], samples(seed))
    assert (tmp_path / "audio" / "a.flac").read_bytes() == b"of a user"


def test_a_disk_without_room_is_found_before_anything_is_decoded(
    sounds: dict[str, Sound], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    needed, one = NUM_SAMPLES * shortened.BYTES_A_SAMPLE, {"call0": sounds["call0"]}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=needed - 1))
    with pytest.raises(AsrtoolError, match=r"audio: audio with shorten or of joined files needs about 3\.8e-06 GB of"):
        decode_shortened(one, tmp_path / "m" / "audio", [])
    assert not (tmp_path / "m").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=needed + 1))
    assert decode_shortened(one, tmp_path / "m" / "audio", [])
    assert "decoded once, by sph2pipe: about" in caplog.text
