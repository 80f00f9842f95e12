"""Texts for language models: transcripts of a corpus without its audio, and files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from small_releases import write_fisher_call

from asrtool.cli.prepare import prepare
from asrtool.errors import AsrtoolError
from asrtool.local.text.own_text import write_extra_texts
from asrtool.settings.config import check_conflicts
from asrtool.settings.toml_files import load_config


@pytest.fixture
def transcripts(tmp_path: Path) -> Path:
    """Fisher without audio."""
    root = tmp_path / "corpus"
    for part, number in ((1, 1), (2, 5851)):
        sound, _ = write_fisher_call(root, part, number, ["0.5 1.5 A: at&t (( maybe )) [laugh]", "1.6 2 B: well (( ))"])
        sound.unlink()
    return root


def test_transcripts_are_read_without_audio_and_files_as_plain_text(transcripts: Path, tmp_path: Path) -> None:
    (tmp_path / "My web.text").write_text("Hello, World!\nroom 42\n\nuh-huh th- [noise]\n")
    names = ["fisher", str(tmp_path / "My web.text")]
    write_extra_texts(transcripts, tmp_path / "text", names)
    written = {path.name: path.read_text() for path in (tmp_path / "text").glob("[!.]*")}
    assert written == {
        "1.fisher.txt": "a t and t maybe [laughter]\n" * 2,
        "2.My_web.txt": "hello world\nuh-huh th- [noise]\n",
    }
    command = ["text", str(transcripts), str(tmp_path / "text"), "--set", f"lm.extra_text=[{','.join(names)}]"]
    assert CliRunner().invoke(prepare, [*command, "--set", "data.text_rules=unicode"]).exit_code == 0
    assert (tmp_path / "text" / "2.My_web.txt").read_text() == "hello world\nroom 42\nuh huh th [noise]\n"
    assert (tmp_path / "text" / "1.fisher.txt").read_text() == written["1.fisher.txt"]
    write_extra_texts(transcripts, tmp_path / "text", names[:1])
    assert [path.name for path in (tmp_path / "text").glob("[!.]*")] == ["1.fisher.txt"]


def test_what_cannot_be_read_of_the_transcripts_is_a_warning(
    transcripts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = sorted(transcripts.rglob("fe_03_*.txt"))
    first.write_text("# a comment\n\n0.5 1.5 A: yes\n1.5 hello\n")
    second.write_text("\n")
    write_extra_texts(transcripts, tmp_path / "text", ["fisher"])
    assert (tmp_path / "text" / "1.fisher.txt").read_text() == "yes\n"
    assert "2 transcripts or lines cannot be read and are left out of the text" in caplog.text
    assert "the first is fe_03_00001:4: broken line: 1.5" in caplog.text


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("nowhere.txt", r"nowhere.txt: cannot be read, No such file"),
        ("swbd", r"lm.extra_text names swbd, whose transcripts are not read alone; name a file of its sentences"),
        ("42.txt", r"lm.extra_text: 42.txt has no line of words; name another text"),
    ],
)
def test_a_text_that_gives_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, found: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "42.txt").write_text("42\n")
    with pytest.raises(AsrtoolError, match=found):
        write_extra_texts(tmp_path, tmp_path / "text", [name])


@pytest.mark.parametrize(
    ("train", "extra", "fault"),
    [
        ("swbd,fisher_swbd", "", "data.train has speech twice, in swbd and fisher_swbd, expected one of"),
        ("swbd,fisher", "fisher", "both name fisher, expected one of them"),
        ("fisher_swbd", "fisher", "both name fisher, the second as part of fisher_swbd"),
        ("asrtool.local.corpora.fisher:Corpus", "fisher", "both name fisher, the second as part of asrtool.local"),
        ("swbd", "more.txt,fisher,more.txt", "lm.extra_text has a text twice, as more.txt and more.txt, expected one"),
        ("swbd", "fisher,fisher", "lm.extra_text has a text twice, as fisher and fisher"),
        ("swbd", "fisher,more.txt,fisher_swbd", "lm.extra_text has a text twice, as fisher and fisher_swbd"),
    ],
)
def test_no_speech_and_no_text_is_taken_twice(train: str, extra: str, fault: str) -> None:
    with pytest.raises(AsrtoolError, match=fault):
        check_conflicts(load_config([], [f"data.train={train}", "data.test=hub5", f"lm.extra_text=[{extra}]"]))
