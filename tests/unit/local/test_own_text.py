"""Text of any language: what Unicode says about equal texts, and what the formats of scoring can hold."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_releases import make_data, supervisions, write_wav

from asrtool.errors import AsrtoolError
from asrtool.local.layouts.detect import prepare_any
from asrtool.local.sets.split import split_manifests
from asrtool.local.text.own_text import fold, normalise_unicode, split_characters, text_rule
from asrtool.local.text.references import NO_RULES_GLM, format_reference
from asrtool.local.text.text_rules import TAGS, Unusable
from asrtool.score.hub5 import score_hub5
from asrtool.score.stm_ctm import read_ctm
from asrtool.settings.data import Data
from asrtool.settings.toml_files import load_config

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=40)
RULES = {name: text_rule(Data(text_rules=name)) for name in ("english", "unicode", "characters", "none")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Привет, МИР!", "привет мир"),
        ("«Ёлка» — ёжик…", "ёлка ёжик"),
        ("L'été à Nîmes, aujourd’hui.", "l'été à nîmes aujourd'hui"),
        ("Straße STRASSE", "strasse strasse"),
        ("ΟΔΟΣ οδός", "οδοσ οδόσ"),
        ("Příliš žluťoučký kůň", "příliš žluťoučký kůň"),
        ("e\u0301te\u0301", "été"),
        ("今天，天气很好。", "今天 天气很好"),
        ("हिन्दी भाषा।", "हिन्दी भाषा"),
        ("می\u200cخواهم \u200cدو\u200c", "می\u200cخواهم دو"),
        ("co\u00adop \u202bשלום\u202c", "coop שלום"),
        ("ភាសា\u200bខ្មែរ", "ភាសា ខ្មែរ"),
        ("room 42, ٤٢ and 3.5 €", "room 42 ٤٢ and 3 5"),
        ("well-known 'tis rock'n'roll dogs'", "well known tis rock'n'roll dogs"),
        ("oui [Rires] <unk> !SIL <noise> [laughter].", "oui [vocalized-noise] [noise] [laughter]"),
        ("--- … ?", ""),
    ],
)
def test_letters_and_digits_of_any_script_stay(text: str, expected: str) -> None:
    if "[Rires]" in text:
        with pytest.raises(Unusable, match=r"unknown mark-up: \[rires\]"):
            normalise_unicode(text)
        text = text.replace("[Rires] ", "")
    assert normalise_unicode(text) == expected


def test_the_marks_that_stay_inside_words_are_configured() -> None:
    text = "l'été well-known -x- a--b col·legi"
    found = {marks: text_rule(Data(text_rules="unicode", word_marks=marks))(text) for marks in ("", "'", "-", "·'")}
    assert found == {
        "": "l été well known x a b col legi",
        "'": "l'été well known x a b col legi",
        "-": "l été well-known x a b col legi",
        "·'": "l'été well known x a b col·legi",
    }


@pytest.mark.parametrize("marks", ["a", "'\u3000-", "/", "<", "\u2581", "1"])
def test_a_mark_that_is_none_is_refused(marks: str) -> None:
    with pytest.raises(AsrtoolError, match=r"data.word_marks is .*, expected punctuation but"):
        load_config(overrides=[f"data.word_marks={marks}"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("今天，天气很好。", "今 天 天 气 很 好"),
        ("今天 [laughter] ok 3", "今 天 [laughter] o k 3"),
        ("हिन्दी", "हि न् दी"),
        ("ไทย", "ไ ท ย"),
        ("l'été", "l é t é"),
        ("e\u0301t q\u0323\u0307y", "é t q\u0323\u0307 y"),
    ],
)
def test_each_character_is_a_word_with_what_combines_with_it(text: str, expected: str) -> None:
    assert RULES["characters"](text) == expected


@pytest.mark.parametrize("word", ["(x)", "a/b", "{x", "x;y", "<x>", "[so]", "@", "a*", "\u2581a", "a\\b", "#0"])
def test_what_means_something_to_a_scorer_or_a_graph_is_no_word(word: str) -> None:
    with pytest.raises(Unusable, match="unknown mark-up"):
        RULES["none"](f"so {word}")
    assert RULES["none"]("  Hello,\tWorld!  Élan\u00a0«x»  [noise]") == "Hello, World! Élan «x» [noise]"


@pytest.mark.parametrize("rule", RULES)
def test_text_that_was_no_utf8_is_named(rule: str) -> None:
    with pytest.raises(Unusable, match="unknown characters: caf\ufffd is not UTF-8"):
        RULES[rule]("caf\ufffd no")


@given(TEXTS)
@example("İstanbul ΌΣΟΣ ŉ ͅ ǰ ﬀ")
def test_equal_texts_have_one_form_and_keep_it(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert unicodedata.is_normalized("NFC", folded)
    forms = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert {fold(form) for form in forms} == {folded}


@given(TEXTS)
@example("a\u200d\u0301 \u200cb")
@example("0'0")
def test_normalised_text_of_any_language_stays_as_it_is(text: str) -> None:
    for rule in ("unicode", "characters", "none"):
        try:
            once = RULES[rule](text)
        except Unusable:
            continue
        assert RULES[rule](once) == once
        assert once == " ".join(once.split())


@given(TEXTS)
def test_words_of_a_script_lose_no_letter_and_no_digit(text: str) -> None:
    """Of letters, what combines with them and digits none is lost, and nothing else stays but marks inside."""
    text = "".join(c for c in text if c not in "[]<>")  # without mark-up
    kept = [c for c in fold(text) if unicodedata.category(c)[0] in "LMN"]
    said = RULES["unicode"](text).replace(" ", "")
    # \u02bc is a letter, and one form of the apostrophe
    assert [c for c in said if unicodedata.category(c)[0] in "LMN"] == [c for c in kept if c != "\u02bc"]
    assert set(said) - set(kept) <= {"'", "\u200c", "\u200d"}


WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Z", "Cc"], exclude_characters="\ufffd"), min_size=1, max_size=8
)


@given(words=st.lists(WORDS, min_size=1, max_size=6), rule=st.sampled_from(["unicode", "characters", "none"]))
def test_what_a_rule_gives_is_scored_as_it_was_said(
    words: list[str], rule: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Against itself as a hypothesis each word is right: none is mark-up, optional, or taken apart."""
    try:
        text = RULES[rule](" ".join(words))
    except Unusable:
        return
    said = [word for word in text.split() if word not in TAGS]
    folder = tmp_path_factory.mktemp("score")
    entry = {"id": "u", "recording_id": "r", "channel": 0, "speaker": "s", "start": 0, "duration": 100, "text": text}
    (folder / "ref.stm").write_text(format_reference([entry], {"r": "own"}, is_english=False), encoding="utf-8")
    (folder / "ref.glm").write_text(NO_RULES_GLM)
    lines = [f"r/u A {number} 0.5 {word} 0.9\n" for number, word in enumerate(said)]
    (folder / "h.ctm").write_text("".join(lines), encoding="utf-8")
    assert [word.word for words in read_ctm(folder / "h.ctm").sides.values() for word in words] == said
    counts = score_hub5(folder / "ref.stm", folder / "h.ctm", folder / "ref.glm").overall
    assert (counts.err, counts.num_words >= len(said)) == (0, True)
    (folder / "h.ctm").write_text("", encoding="utf-8")  # nothing may be missed
    missed = score_hub5(folder / "ref.stm", folder / "h.ctm", folder / "ref.glm").overall
    assert (missed.del_, missed.corr) == (counts.num_words, 0)


def test_the_set_and_the_split_obey_the_rule(tmp_path: Path) -> None:
    """Text that English does not have, and words that are hesitations in it."""
    text, expected = "Он — ER, ha!", {"unicode": "он er ha", "characters": "о н e r h a", "none": "Он — ER, ha!"}
    write_wav(tmp_path / "data" / "ann" / "one.wav").with_suffix(".txt").write_text(text, encoding="utf-8")
    for rule, words in expected.items():
        data = make_data(("own",), ("own",), ("own",), text_rules=rule)
        out = tmp_path / rule / "corpora" / "own"
        for role in ("train", "dev", "test"):
            prepare_any(tmp_path / "data", out / role, data, "own")
        split_manifests(tmp_path / rule, data)
        assert [s["text"] for s in supervisions(out / "train")] == [words]
        for set_ in ("dev", "own"):
            assert (tmp_path / rule / set_ / "ref.stm").read_text(encoding="utf-8").endswith(f"<O,own> {words}\n")


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("今天天气很好。", "characters"),
        ("今日はいい天気です", "characters"),
        ("カタカナ", "characters"),
        ("วันนี้อากาศดี", "characters"),
        ("房间42号", "characters"),
        ("room 42, 北京", "characters"),
        ("сегодня хорошая погода", "unicode"),
        ("오늘 날씨가 좋다", "unicode"),
        ("straße", "unicode"),
        ("room 42", "unicode"),
    ],
)
def test_the_rules_that_are_advised_can_read_the_text(text: str, rules: str) -> None:
    with pytest.raises(Unusable) as fault:
        text_rule(Data())(text)
    assert f"; data.text_rules = {rules} " in fault.value.detail
    words = text_rule(Data(text_rules=rules))(text).split()
    assert words
    if rules == "characters":
        assert all(len(list(split_characters(word))) == 1 for word in words)
