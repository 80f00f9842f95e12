"""Pronunciations from the dictionary and by rules, phones as tokens, and their lexicon."""

from __future__ import annotations

import importlib.metadata
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import run_command
from hypothesis import example, given
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.lang.lexicon import build_lang, read_lexicon
from asrtool.lang.phones import (
    LETTER_NAMES,
    PHONES,
    SPOKEN_NOISE,
    TOKENS,
    PhoneTokenizer,
    pronounce,
    read_cmudict,
    sound_letters,
    write_phones,
)
from asrtool.lang.text import read_symbols
from asrtool.lang.tokenizer import ALPHABET, Tokenizer, train_tokenizer
from asrtool.score.result import edit_distance
from asrtool.settings.config import check_conflicts
from asrtool.settings.toml_files import load_config


@pytest.fixture(scope="module")
def cmudict() -> dict[str, list[tuple[str, ...]]]:
    return read_cmudict()


def said(word: str, dictionary: dict[str, list[tuple[str, ...]]]) -> list[str]:
    return [" ".join(phones) for phones in pronounce(word, dictionary)]


def test_the_dictionary_has_the_phones_known_here_and_no_others(cmudict: dict[str, list[tuple[str, ...]]]) -> None:
    assert len(cmudict) > 120_000
    assert {phone for spoken in cmudict.values() for phones in spoken for phone in phones} == set(PHONES)


def test_pronunciations_are_in_the_order_of_the_dictionary_and_those_that_differ_in_stress_are_one(
    cmudict: dict[str, list[tuple[str, ...]]],
) -> None:
    assert said("the", cmudict) == ["DH AH", "DH IY"]  # DH AH0, DH AH1, DH IY0
    assert said("read", cmudict) == ["R EH D", "R IY D"]
    assert all(len(set(spoken)) == len(spoken) for spoken in cmudict.values())


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("zorb's", "Z AO R B Z"),  # zorb is in no dictionary: by its letters
        ("muffin's", "M AH F AH N Z"),
        ("cat's", "K AE T S"),
        ("coach's", "K OW CH AH Z"),
        ("cats'", "K AE T S"),
        ("hiked", "HH AY K T"),
        ("knitted", "N IH T AH D"),
        ("hugged", "HH AH G D"),
        ("hiking", "HH AY K IH NG"),
        ("hikers", "HH AY K ER Z"),
        ("hiker'll", "HH AY K ER AH L"),
        ("catless", "K AE T L AH S"),
    ],
)
def test_an_inflected_word_sounds_like_its_stem_with_the_ending(word: str, expected: str) -> None:
    stems = {"muffin": "M AH F AH N", "cat": "K AE T", "coach": "K OW CH", "hike": "HH AY K", "knit": "N IH T"}
    stems |= {"hug": "HH AH G", "hiker": "HH AY K ER"}
    assert said(word, {stem: [tuple(phones.split())] for stem, phones in stems.items()}) == [expected]


def test_an_inflected_word_has_every_pronunciation_of_its_stem() -> None:
    assert said("data's", {"data": [("D", "EY"), ("D", "AE")]}) == ["D EY Z", "D AE Z"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("th-", "DH"),  # the, that, they: frequent words are broken off most
        ("wh-", "W"),
        ("l-", "L"),
        ("t-", "T"),  # not the name of the letter
        ("i-", "AY"),
        ("ha-", "HH AE"),
        ("-bout", "B AW T"),
        ("-ny", "N IY"),
    ],
)
def test_a_word_broken_off_is_read_by_its_letters_even_if_they_are_a_word(
    word: str, expected: str, cmudict: dict[str, list[tuple[str, ...]]]
) -> None:
    assert said(word, cmudict) == [expected]


def test_letters_and_words_without_vowels_are_named_letter_by_letter(
    cmudict: dict[str, list[tuple[str, ...]]],
) -> None:
    assert said("t", cmudict) == ["T IY"]
    assert said("bmw", cmudict) == ["B IY EH M D AH B AH L Y UW"]
    assert LETTER_NAMES.keys() == set(ALPHABET) - set("'-")
    for letter, name in LETTER_NAMES.items():
        assert name in said(letter, cmudict)


def test_parts_joined_by_a_hyphen_are_said_one_after_the_other(cmudict: dict[str, list[tuple[str, ...]]]) -> None:
    assert said("dog-tired", cmudict) == ["D AO G T AY ER D"]


WORD = st.text(st.sampled_from(ALPHABET), min_size=1, max_size=10)


@given(WORD)
@example("a-'")
@example("'-'")
def test_every_word_of_letters_apostrophes_and_hyphens_has_a_sound(word: str) -> None:
    for pronunciation in pronounce(word, {"a": [("AH",)]}):
        assert pronunciation
        assert set(pronunciation) <= {*PHONES, SPOKEN_NOISE}
    if re.search("[a-z]", word):
        assert SPOKEN_NOISE not in pronounce(word, {})[0]


def in_letters(phones: Sequence[str]) -> str:
    return "".join(chr(PHONES.index(phone) + 65) for phone in phones)


def test_the_rules_are_wrong_in_at_most_a_fifth_of_the_phones_of_the_dictionary(
    cmudict: dict[str, list[tuple[str, ...]]],
) -> None:
    words = sorted(word for word in cmudict if word.isalpha() and word.isascii())
    errors = phones = 0
    for word in random.Random(3).sample(words, 1000):
        found = in_letters(sound_letters(word))
        distance, length = min((edit_distance(in_letters(said), found), len(said)) for said in cmudict[word])
        errors += distance
        phones += length
    assert errors / phones < 0.2


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(AsrtoolError, match="needs the package pocketsphinx, which is not installed; pip install"):
        read_cmudict()


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
    run_command("tokenizer", tmp_path / "text", tmp_path / "out", "--set", "tokenizer.unit=phone")
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
