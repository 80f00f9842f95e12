"""Texts that are joined when a set is read: whose they are, which are gone, and which have no features."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lhotse import Recording
from small_releases import read_manifests
from tones import PLAIN

from asrtool.data.features.cache_key import sizes_and_times
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.manifests.manifest import write_manifests
from asrtool.data.storage.index import Utterance, read_index
from asrtool.data.storage.reader import FeatureReader
from asrtool.data.storage.transcripts import (
    TRANSCRIPTS,
    Transcripts,
    key_of,
    number_words,
    open_text_columns,
    write_transcripts,
)
from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.recipe.contents import CACHE, contents_of

UTTERANCE = Utterance("a-1", "a", "A", 0.5, 1.25, "a-A", None, 0, 125)

names = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), min_size=1)
texts = st.text(st.sampled_from("ab \t\r\x0b\x85\u2028\u00a0'"), max_size=12)


def write(directory: Path, lines: dict[str, str]) -> Transcripts:
    write_transcripts(directory, lines.items())
    return Transcripts(directory)


def named(*ids: str) -> list[Utterance]:
    return [dataclasses.replace(UTTERANCE, id=id_) for id_ in ids]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(names, texts, min_size=1, max_size=6))
def test_each_utterance_has_the_text_of_its_id_read_or_mapped(tmp_path: Path, lines: dict[str, str]) -> None:
    found = write(tmp_path, lines)
    assert found.texts(named(*lines)) == list(lines.values())
    assert found.texts(named("".join(lines) + ".")) == [None]
    for columns in (open_text_columns(tmp_path), number_words(lines.items())):
        assert [columns.text(line) for line in range(len(lines))] == list(lines.values())
        assert columns.keys.tolist() == list(map(key_of, lines))


@pytest.mark.parametrize("damage", ["", "texts", "words", "vocabulary.txt", "about.json"])
def test_words_of_other_texts_or_broken_ones_are_not_taken(tmp_path: Path, damage: str) -> None:
    write_transcripts(tmp_path, [("a", "one two"), ("b", "two")])
    if damage == "texts":
        (tmp_path / "transcripts.tsv").write_text("a\tone two\nb\tone\n")
    elif damage:
        (tmp_path / "words" / damage).write_bytes(b"")
    columns = open_text_columns(tmp_path)
    assert isinstance(columns.keys.base, np.memmap) == (not damage)
    assert [columns.text(line) for line in (0, 1)] == ["one two", "one" if damage == "texts" else "two"]


@pytest.fixture
def dev(corpus: Path, tmp_path: Path) -> Path:
    """Features of dev."""
    shutil.copytree(corpus / "lilcom" / "dev", tmp_path / "dev")
    return tmp_path / "dev"


@pytest.mark.parametrize("name", ["sp1-f", "sp01-f", "sp1.0-f", "sp3-f", "sp0.10-f", "sp.-f", "sp0.9"])
def test_a_speaker_may_have_a_name_like_a_copy(tmp_path: Path, name: str) -> None:
    utterance = dataclasses.replace(UTTERANCE, id=f"{name}-1", speaker=name)
    copy = dataclasses.replace(utterance, id=f"sp0.9-{utterance.id}", speaker=f"sp0.9-{name}")
    assert write(tmp_path, {utterance.id: "hello", "1": "other"}).texts([utterance, copy]) == ["hello"] * 2


@pytest.mark.parametrize("damage", ["missing", "empty", "no tab", "cut off"])
def test_missing_or_broken_texts_are_one_line(dev: Path, damage: str) -> None:
    path = dev / TRANSCRIPTS
    if damage == "missing":
        path.unlink()
    else:
        path.write_text({"empty": "", "no tab": "hello\n", "cut off": "a\tb"}[damage])
    reader = FeatureReader(dev, "none")
    with pytest.raises(AsrtoolError, match=r"transcripts\.tsv.*run the features stage"):
        reader.texts(reader.index)


def test_a_set_without_the_file_has_its_texts_in_its_index(dev: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"utterance dev0-0: its text was not joined; ask `texts`"):
        _ = read_index(dev)[0].transcript
    (dev / TRANSCRIPTS).unlink()
    lines = (dev / "index.jsonl").read_text().replace('"shard"', '"text": "hello", "shard"')
    (dev / "index.jsonl").write_text(lines)
    reader = FeatureReader(dev, "none")
    assert set(reader.texts(reader.index)) == {"hello"}


@pytest.mark.parametrize("line", [("a\tb", "x"), ("a\nb", "x"), ("a", "x\ny")])
def test_ids_and_texts_that_no_line_can_hold_are_refused(tmp_path: Path, line: tuple[str, str]) -> None:
    with pytest.raises(AsrtoolError, match="a tab or a line feed in its id, or a line feed in its text"):
        write_transcripts(tmp_path, [line])
    assert not list(tmp_path.iterdir())


def test_features_are_computed_again_for_new_segments_and_audio_only(
    make_manifests: Callable[..., Path], computed: list[tuple[str, int]]
) -> None:
    manifests = make_manifests(train=2)
    out, settings = manifests.parent / "features", dataclasses.replace(PLAIN, shard_cuts=6)
    compute_features(manifests, out, settings, code="c")
    recordings, supervisions = (list(items) for items in read_manifests(manifests / "train"))

    def said(text: str, kept: slice) -> list[tuple[str, int]]:
        computed.clear()
        changed = [dataclasses.replace(s, text=text) for s in supervisions[kept]]
        write_manifests(manifests / "train", recordings, changed, [], 0.01, {})
        compute_features(manifests, out, settings, code="c")
        reader = FeatureReader(out / "train", "none")
        texts = reader.texts(reader.index)
        assert [one for one in texts if one is not None] == [text] * len(changed)
        return computed

    assert said("other words", slice(None)) == []
    assert said("fewer words", slice(1, None)) == []
    supervisions[3] = dataclasses.replace(supervisions[3], duration=supervisions[3].duration - 0.5)
    assert said("a shorter one", slice(None)) == [("train", 0)]
    moved = shutil.copy(recordings[1].sources[0].source, manifests.parent / "moved.wav")
    recordings[1] = Recording.from_file(moved, recordings[1].id)
    assert said("another file", slice(None)) == [("train", 1)]


def test_features_are_computed_again_where_the_digest_of_their_audio_is_another(
    make_manifests: Callable[..., Path], computed: list[tuple[str, int]]
) -> None:
    manifests = make_manifests(train=1)
    for digest, num in (("a", 3), ("a", 0), ("b", 3)):
        computed.clear()
        of_files = functools.partial(map, lambda _, digest=digest: digest)
        compute_features(manifests, manifests.parent / "f", PLAIN, "c", lambda paths, _, each=of_files: each(paths))
        assert len(computed) == num
        (recording, *_), _ = read_manifests(manifests / "train")
        Path(recording.sources[0].source).touch()


@pytest.mark.parametrize("in_work_folder", [True, False])
def test_the_command_knows_audio_by_its_contents_in_a_work_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_work_folder: bool
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        "asrtool.data.features.compute_sets.compute_features", lambda *arguments: given.append(arguments[-1])
    )
    monkeypatch.setattr("asrtool.recipe.source.code_of", lambda *_: "code")
    if in_work_folder:
        write_text(tmp_path / CACHE, "{}")
    run_command("features", tmp_path / "manifests", tmp_path / "features")
    assert given == [contents_of(tmp_path).of_files if in_work_folder else sizes_and_times]
