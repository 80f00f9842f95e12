"""Pronunciations from the dictionary, and those made where it has none."""

from __future__ import annotations

import importlib.metadata
import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.lang import phones
from asrtool.lang.phones import LETTER_NAMES, PHONES, RULES, SPOKEN_NOISE, pronounce, read_cmudict, sound_letters
from asrtool.lang.tokenizer import ALPHABET


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


def num_errors(expected: Sequence[str], found: Sequence[str]) -> int:
    """Levenshtein distance."""
    row = list(range(len(found) + 1))
    for i, left in enumerate(expected, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(found, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def test_the_rules_are_wrong_in_at_most_a_fifth_of_the_phones_of_the_dictionary(
    cmudict: dict[str, list[tuple[str, ...]]],
) -> None:
    words = sorted(word for word in cmudict if word.isalpha() and word.isascii())
    errors = phones = 0
    for word in random.Random(3).sample(words, 1000):
        distance, length = min((num_errors(said, sound_letters(word)), len(said)) for said in cmudict[word])
        errors += distance
        phones += length
    assert errors / phones < 0.2


def test_every_rule_is_used_by_some_word(cmudict: dict[str, list[tuple[str, ...]]]) -> None:
    """A rule behind one that always matches first would be dead."""
    words = ["th-", "i-", *(word for word in cmudict if word.isalpha())]
    for number, (pattern, _) in enumerate(phones.parse_rules(RULES)):
        candidates = filter(re.compile(pattern).search, words)
        assert any(number in rules_of(word) for word in candidates), pattern


def rules_of(word: str) -> set[int]:
    position, used = 0, set()
    while position < len(word):
        match = phones._PATTERN.match(word, position)
        assert match is not None, word
        assert match.lastindex is not None, word
        used.add(match.lastindex - 1)
        position = match.end()
    return used


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(AsrtoolError, match="needs the package pocketsphinx, which is not installed; pip install"):
        read_cmudict()
