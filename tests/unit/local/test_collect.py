"""Where releases lie: links after a look at the layout, or the mini corpus."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_releases import make_data, write_fisher, write_hub5, write_sound, write_swbd

from asrtool.errors import AsrtoolError
from asrtool.local.releases.releases import collect_corpora, find_files

SWBD = make_data(("swbd",))


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    root = tmp_path / "site with a space"
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
    assert sorted(path.name for path in out.glob("[!.]*")) == [
        "LDC2002S09",
        "LDC2002T43",
        "LDC97S62",
        "swb_ms98_transcriptions",
    ]
    assert (out / "LDC97S62" / "swb1_d1" / "data" / "sw02001.sph").is_file()


def test_without_any_path_the_mini_corpus_is_asked_for_what_the_settings_name(tmp_path: Path) -> None:
    made = []
    data = make_data(test=("hub5", "rt03"))
    collect_corpora(tmp_path / "corpus", data, {"ldc97s62": ""}, lambda *asked: made.append(asked))
    assert made == [(tmp_path / "corpus", ["swbd", "fisher", "hub5", "rt03"])]


@pytest.mark.parametrize(
    ("changed", "extra_text", "message"),
    [
        (
            {"ldc2002t43": ""},
            [],
            r"no path is configured for paths.ldc2002t43 \(Hub5'00(?!.*extra_text).*leave all",
        ),
        ({}, ["fisher"], r"paths.ldc2004t19 .*--set lm.extra_text=\[\]"),
        (
            {"ldc97s62": "nowhere"},
            [],
            r"paths.ldc97s62: .*nowhere does not exist, expected a folder or tar file of",
        ),
        ({"ldc97s62": "LDC2002S09"}, [], r"paths.ldc97s62: .*LDC2002S09 holds no sw\[0-9\]\*.sph, expected the layout"),
        ({"ldc97s62": ("LDC97S62", "nowhere")}, [], r"paths.ldc97s62: .*nowhere does not exist, expected a folder or"),
        ({"ldc97s62": ("LDC2002S09", "LDC2002T43")}, [], r"LDC2002S09 and .*LDC2002T43 hold no sw\[0-9\]\*.sph"),
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


@pytest.mark.parametrize(("train", "key"), [("an4", "paths.an4"), ("own", "paths.own_train")])
def test_corpora_without_a_mini_version_need_a_path(train: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=f"no path is configured for {key}") as caught:
        collect_corpora(tmp_path / "c", make_data((train,), (), (train,)), {}, fail)
    assert "mini" not in str(caught.value)


def test_a_role_brings_its_releases_alone(tmp_path: Path) -> None:
    write_sound(tmp_path / "b" / "x.sph")
    swbd = write_hub5(write_swbd(tmp_path / "site"))
    paths = {**swbd_paths(swbd), "own_test": str(tmp_path / "b"), "own_train": "/nowhere"}
    collect_corpora(tmp_path / "c", make_data(("swbd",), test=("own",)), paths, fail)
    assert sorted(path.name for path in (tmp_path / "c").glob("[!.]*")) == [
        "LDC97S62",
        "own_test",
        "swb_ms98_transcriptions",
    ]


def test_files_behind_links_are_found_once_even_in_a_circle(tmp_path: Path) -> None:
    disc = tmp_path / "elsewhere" / "data"
    write_sound(disc / "sw02001.sph")
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "d1").symlink_to(tmp_path / "elsewhere")
    (disc / "again").symlink_to(tmp_path / "release")
    found = list(find_files(tmp_path / "release", "data/*.sph"))
    assert found == [tmp_path / "release" / "d1" / "data" / "sw02001.sph"]


@pytest.mark.parametrize("role", ["train", "test"])
def test_nothing_to_train_or_test_on_is_one_line(role: str, tmp_path: Path) -> None:
    named = {"train": ("swbd",), "test": ("hub5",), role: ()}
    with pytest.raises(AsrtoolError, match=rf"data\.{role} is empty, expected at least one corpus; name it with --set"):
        collect_corpora(tmp_path, make_data(**named), {}, lambda *_: None)


def test_discs_of_a_release_may_lie_in_several_places(releases: Path, tmp_path: Path) -> None:
    write_sound(tmp_path / "elsewhere" / "swb1_d2" / "sw02003.sph")
    discs = (str(releases / "LDC97S62" / "swb1_d1"), str(tmp_path / "elsewhere" / "swb1_d2"))
    collect_corpora(tmp_path / "corpus", SWBD, {**swbd_paths(releases), "ldc97s62": discs}, fail)
    found = [path.name for path in find_files(tmp_path / "corpus" / "LDC97S62", "swb1_d?/*.sph")]
    assert found == ["sw02003.sph"]  # by the name that the disc has
    assert len(list(find_files(tmp_path / "corpus" / "LDC97S62", "sw0*.sph"))) == 3


@pytest.mark.parametrize("name", ["DATA/SW02001.SPH", "Data/sw02001.Sph", "data/sw02001.sph"])
def test_files_are_found_whatever_their_case(name: str, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "Release" / name)
    for pattern in ("data/sw*.sph", "DATA/*.sph", "sw[0-9]*.sph"):
        assert list(find_files(tmp_path, pattern)) == [path]
    assert not list(find_files(tmp_path, "data/x*.sph"))


def test_a_work_directory_inside_a_release_is_refused(tmp_path: Path) -> None:
    write_sound(tmp_path / "train" / "x.sph")
    own = make_data(("own",), (), ("own",))
    paths = {"own_train": str(tmp_path / "train"), "own_test": str(tmp_path / "train")}
    with pytest.raises(AsrtoolError, match=r"train holds the work directory .*; choose another place with --work"):
        collect_corpora(tmp_path / "train" / "exp" / "corpus", own, paths, fail)
    collect_corpora(tmp_path / "exp" / "corpus", own, paths, fail)
