"""Phones as tokens, and their lexicon."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from asrtool.cli.lang import tokenizer as command
from asrtool.errors import AsrtoolError
from asrtool.lang.lexicon import build_lang, read_lexicon
from asrtool.lang.phones import TOKENS, PhoneTokenizer, write_phones
from asrtool.lang.text import read_symbols
from asrtool.lang.tokenizer import Tokenizer, train_tokenizer
from asrtool.settings.config import check_conflicts
from asrtool.settings.toml_files import load_config

TEXT = "uh-huh i read the t v guide [laughter]\ni asrtooled to th- two kowalczyks [noise]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phones")
    (folder / "sentences.txt").write_text(TEXT)
    write_phones(folder / "sentences.txt", folder / "tokenizer")
    build_lang(folder / "sentences.txt", folder / "tokenizer", folder / "lang", 0)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder / "tokenizer")


def phones_of(tokenizer: Tokenizer, text: str) -> str:
    return " ".join(tokenizer.pieces[token] for token in tokenizer.encode(text))


def test_tokens_are_blank_unknown_tags_and_phones(folder: Path, tokenizer: Tokenizer) -> None:
    assert tokenizer.pieces[:5] == ["<blk>", "<unk>", "[noise]", "[laughter]", "[vocalized-noise]"]
    assert tokenizer.num_tokens == 5 + 39
    assert read_symbols(folder / "tokenizer" / "tokens.txt", "tokenizer") == tokenizer.pieces


def test_text_is_tokenized_by_the_first_pronunciation_of_each_word(tokenizer: Tokenizer) -> None:
    assert phones_of(tokenizer, "the t v [noise] th-") == "DH AH T IY V IY [noise] DH"
    assert tokenizer.tokenizations("the") == [("DH", "AH"), ("DH", "IY")]
    assert tokenizer.tokenizations("[laughter]") == [("[laughter]",)]
    assert tokenizer.encode("") == []


def test_words_of_later_text_have_tokens_whatever_was_trained_on(tokenizer: Tokenizer) -> None:
    assert phones_of(tokenizer, "baseball") == "B EY S B AO L"
    assert phones_of(tokenizer, "zyxish-") != ""


def test_the_lexicon_has_every_pronunciation(folder: Path) -> None:
    words, tokens = (read_symbols(folder / "lang" / f"{name}.txt", "lang") for name in ("words", "tokens"))
    lexicon = read_lexicon(folder / "lang" / "lexicon.txt", words, tokens)
    assert {word for word, _ in lexicon} == set(TEXT.split()) == set(words[2:-3])
    assert [phones for word, phones in lexicon if word == "read"] == [("R", "EH", "D"), ("R", "IY", "D")]
    assert tokens[: len(TOKENS) + 2] == ["<eps>", *TOKENS, "#0"]


def test_the_log_names_words_that_rules_pronounce(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "text").write_text(TEXT)
    with caplog.at_level("INFO"):
        write_phones(tmp_path / "text", tmp_path / "tokenizer")
    assert "14 words, 3 pronounced by rules: asrtooled kowalczyks th-" in caplog.text


def test_a_pronunciation_fixed_by_hand_is_used(folder: Path, tmp_path: Path) -> None:
    text = (folder / "tokenizer" / "pronunciations.txt").read_text()
    line = next(line for line in text.splitlines() if line.startswith("kowalczyks "))
    (tmp_path / "pronunciations.txt").write_text(text.replace(line, "kowalczyks K AH W AA L CH IH K S"))
    assert phones_of(Tokenizer.load(tmp_path), "kowalczyks") == "K AH W AA L CH IH K S"


def test_a_pronunciation_written_twice_is_one(tmp_path: Path) -> None:
    (tmp_path / "pronunciations.txt").write_text("zog Z AA G\nzog Z AO G\nzog Z AA G\n")
    assert Tokenizer.load(tmp_path).tokenizations("zog") == [("Z", "AA", "G"), ("Z", "AO", "G")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a AH\nb\n", r"pronunciations\.txt:2: 'b', expected a word and its phones"),
        ("a AH\n\n", r"pronunciations\.txt:2: '', expected a word and its phones"),
        ("a AH0\n", r"pronunciations\.txt:1: AH0 is no phone, known are AA AE"),
        ("", r"pronunciations\.txt: empty"),
        ("\udcff", r"pronunciations\.txt: cannot be read"),
    ],
)
def test_malformed_pronunciations_are_errors_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "pronunciations.txt").write_text(content, errors="surrogateescape")
    with pytest.raises(AsrtoolError, match=message):
        Tokenizer.load(tmp_path)


def test_characters_outside_normalised_text_are_named(folder: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(AsrtoolError, match="'caf\u00e9': '\u00e9' outside the alphabet"):
        tokenizer.encode("the caf\u00e9")
    (tmp_path / "text").write_text("four\n4\n")
    with pytest.raises(AsrtoolError, match=r"text: '4': '4' outside the alphabet.*; normalise the text"):
        write_phones(tmp_path / "text", tmp_path / "tokenizer")
    assert not (tmp_path / "tokenizer").exists()


def test_the_setting_chooses_the_unit_and_one_replaces_the_other(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    train_tokenizer(tmp_path / "text", tmp_path / "out", 40)
    run = CliRunner().invoke(
        command,
        [str(tmp_path / "text"), str(tmp_path / "out"), "--set", "tokenizer.unit=phone"],
        catch_exceptions=False,
    )
    assert run.exit_code == 0, run.output
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == ["pronunciations.txt", "tokens.txt"]
    assert isinstance(Tokenizer.load(tmp_path / "out"), PhoneTokenizer)
    train_tokenizer(tmp_path / "text", tmp_path / "out", 40)
    assert Tokenizer.load(tmp_path / "out").num_tokens == 40


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_methods_that_read_words_off_tokens_do_not_go_with_phones(method: str) -> None:
    config = load_config(overrides=["tokenizer.unit=phone", f"decode.methods=graph,{method}"])
    with pytest.raises(AsrtoolError, match=f"decode.methods names {method}, .*use --set decode.methods=graph"):
        check_conflicts(config)
    check_conflicts(load_config(overrides=["tokenizer.unit=phone", "decode.methods=graph"]))


@pytest.mark.no_room
def test_a_full_disk_leaves_no_phones(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    with pytest.raises(AsrtoolError, match="cannot be written, file too large"):
        write_phones(tmp_path / "text", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
