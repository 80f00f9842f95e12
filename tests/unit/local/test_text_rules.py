"""Mark-up and text of any language to normalised text."""

from __future__ import annotations

import dataclasses
import functools
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_releases import make_data, supervisions, write_wav

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.an4 import RULES as AN4
from asrtool.local.corpora.fisher import RULES as FISHER
from asrtool.local.corpora.nist import RULES as HUB5
from asrtool.local.corpora.swbd import RULES as SWBD
from asrtool.local.layouts.detect import prepare_any
from asrtool.local.sets.split import split_manifests
from asrtool.local.text.own_text import fold, normalise_unicode, split_characters, text_rule
from asrtool.local.text.references import NO_RULES_GLM, format_reference
from asrtool.local.text.text_rules import TAGS, Rules, Unusable, normalise, normalise_plain
from asrtool.score.hub5 import score_hub5
from asrtool.score.stm_ctm import read_ctm
from asrtool.settings.data import Data
from asrtool.settings.toml_files import load_config

NORMAL_WORD = re.compile(r"-?[a-z']*[a-z][a-z']*-?|uh-huh|uh-uh")

SWBD_CASES = [
    ("[silence]", ""),
    ("hi um yeah I'd like [laughter-okay] [laughter] so", "hi um yeah i'd like okay [laughter] so"),
    ("[noise] [vocalized-noise] yes <b_aside> hold on <e_aside>", "[noise] [vocalized-noise] yes hold on"),
    ("th[is]- -[an]y th[is] [an]y [laughter-th[is]-] -[laughter-[an]y]", "th- -y th- -y th- -y"),
    ("[it'n/isn't] [it'n/isn't]- [lem[guini]-/linguini]", "isn't isn't- lem-"),
    ("ex[specially]-/especially] ammu[n]it- {yuppiedom} [laughter-{sluff}]", "ex- ammu it- yuppiedom sluff"),
    ("them_1 them_1's um-hum uh-huh huh-uh wall-to-wall", "them them's mhm uh-huh uh-uh wall to wall"),
]
FISHER_CASES = [
    ("(( ))", ""),
    ("and i generally prefer (( maybe so )) a [pause] b", "and i generally prefer maybe so a b"),
    ("[laughter] [noise] [laugh]", "[laughter] [noise] [laughter]"),
    ("[mn] [sigh] [lipsmack] [breath] [cough] [sneeze]", " ".join(["[vocalized-noise]"] * 6)),
    ("t._v. a._t._and_t. c._d.s t._v.'s c._n.- t._v.-", "t v a t and t c d's t v's c n t v"),
    ("o._k. ok okay mr. smith, no? wor- the us as is", "okay okay okay mr smith no wor- the us as is"),
    ("mm-hmm mhm uh-huh -- well ok-dokey umhum-yes [noise].", "mhm mhm uh-huh well okay dokey mhm yes [noise]"),
]
# text, what Kaldi makes of it (None where that is not known), what is made of it here: Kaldi has such words in its
# lexicon; here they are written as they are said, which is how references have them
KALDI_CASES = [
    ("th[is]- -[an]y -[a]b[out]-", "th- -y -b-", "th- -y -b-"),
    ("401k -[40]1k 401[k]-", "401k -1k 401-", "four oh one k one k four oh one"),
    ("at&t ph._d. t._v.", "at&t ph._d. t._v.", "a t and t p h d t v"),
    ("[a]b[out] 401k's 737's", None, "-b- four oh one k's seven three seven's"),
    ("at&t's r&b ben&jerry & co", None, "a t and t's r and b ben and jerry and co"),
    ("ph._d.s ph.d. ph._d", None, "p h d's p h d p h d"),
    ("'80 80s '80s 10 42 07", None, "eighty eighties eighties ten forty two oh seven"),
    ("b-52 b52 747", None, "b fifty two b fifty two seven four seven"),
    ("1980s 1980's mid-1980s 1980", None, "nineteen eighties nineteen eighties mid nineteen eighties nineteen eighty"),
    ("1900s 2000s 1500", None, "nineteen hundreds two thousands fifteen hundred"),
    ("2001 1905 1040 0800", None, "two thousand one nineteen oh five ten forty oh eight oh oh"),
    ("401ks 747s", None, "four oh one k's seven four seven's"),
    ("1st 2nd 3rd 5th, 11th 12th 20th", None, "first second third fifth eleventh twelfth twentieth"),
    ("21st-century 99th 4ths 1st's", None, "twenty first century ninety ninth fourths first's"),
    ("100s 300's 1000s 7000s", None, "hundreds three hundreds thousands seven thousands"),
    ("24/7 9/11.", None, "twenty four seven nine eleven"),
    ("a_b_c's a._b._c.s p's_and_q's", None, "a b c's a b c's p's and q's"),
]
# Marks inside marks, and partly spoken words.
PARTIAL_CASES = [
    ("40[1k]- -[40]1k 401-[k]- 4[01k]- -[4]01k", "four oh one k four oh one four oh one k"),
    ("7[47]- -[7]47 74[7]- -[74]7", "seven four seven seven four seven"),
    ("19[80s]- -[19]80s 5[2]- -[5]2 i-9[5]-", "nineteen eighties fifty two i ninety"),
    ("-[a]b[ou]t- com[m]un[i]ty", "-b t- com un ty"),
    ("-[laughter-[an]y] [laughter-401k] [laughter-[it'n/isn't]]", "-y four oh one k isn't"),
    ("th[at]-'s th[at]'s -[th]at's -[h]ow'[s]- th[at's]-", "th's- th's- -at's -ow'- th-"),
    ("o'[clock]- -[o']clock don'[t]- '[cause]", "o'- -clock don'-"),
    ("at[&t]- at&[t]- -[a]t&t r[&d]-", "a t a t and t and t r"),
    ("t._v.[s]- i[bm]-", "t v i-"),
    ("be[cause]_1 the[m]_1- -[th]em_1 them_1's", "be- the- -em them's"),
    ("{w[olmanized]-} {yuppie[dom]-}", "w- yuppie-"),
    ("-[it'n/isn't] [i/i]'m [[a/b]/c] [-[an]y/any]", "-isn't i'm c -y"),
    ("twenty-[five]- twenty[-five]- wall-to-[wall]- -[wall-]to-wall", "twenty twenty wall to to wall"),
    ("wall-[to]-wall s[eventy]-five u[h]-huh uh-[huh]-", "wall wall s- five u- huh uh"),
    ("[1]980s 1[9]80s 19[80]s 2[00]1 2[1]st- [2]1st", "nine eighties one eighties nineteen two one twenty first"),
    ("'[ca]use '[be]cause [be]'cause [24/7]", "-use -cause -'cause seven"),
    ("[noise]- [laughter], ibm-made", "[noise] [laughter] ibm made"),
]
HUB5_CASES = [
    (" HE IS A POLICE OFFICER (%HESITATION) WELL %HESITATION", "he is a police officer uh well uh"),
    ("(TH-) THE (UH-HUH) {MISTER / MR} JONES {@ / A} {A / @}", "th- the uh-huh mister jones a a"),
    ("WATCH T. V. AND C. N. N.'S O. K. THEN", "watch t v and c n n's okay then"),
    ("((WELL <B_ASIDE> NO <E_ASIDE>", "well no"),
]
AN4_CASES = [
    ("<s> ERASE I S L </s> (an311-fkai-b)", "erase i s l"),
    ("<s> ++cough++ YES <sil> </s>", "[noise] yes"),
]
PLAIN_CASES = [
    ("Hello, \u201cWorld\u201d \u2013 it\u2019s 'fine'!", "hello world it's fine"),
    ("A well-known U.S. firm; A.T.&T. ... [laughter] (really)", "a well known u s firm a t t [laughter] really"),
    ("[Noise]. so <unk> hello <UNK>", "[noise] so [vocalized-noise] hello [vocalized-noise]"),
    ("so [pause] <sil> !SIL yes [silence] so < yes", "so yes so yes"),
    ("<laugh> <noise>, <spoken_noise>", "[laughter] [noise] [vocalized-noise]"),
    ("...", ""),
]


@pytest.mark.parametrize(
    ("rules", "text", "expected"),
    [
        *((SWBD, *case) for case in SWBD_CASES + PARTIAL_CASES),
        *((FISHER, *case) for case in FISHER_CASES),
        *((HUB5, *case) for case in HUB5_CASES),
        *((AN4, *case) for case in AN4_CASES),
    ],
)
def test_mark_up_becomes_normalised_text(rules: Rules, text: str, expected: str) -> None:
    assert normalise(text, rules) == expected


@pytest.mark.parametrize(("text", "by_kaldi", "expected"), KALDI_CASES)
def test_words_that_kaldi_keeps_are_kept_as_they_are_said(text: str, by_kaldi: str | None, expected: str) -> None:
    assert normalise(text, SWBD) == expected
    if by_kaldi:  # Kaldi's form is said in the same words
        assert normalise(by_kaldi, SWBD) == normalise(by_kaldi, FISHER) == expected


@pytest.mark.parametrize(("text", "expected"), PLAIN_CASES)
def test_plain_text_loses_case_and_punctuation(text: str, expected: str) -> None:
    assert normalise_plain(text) == expected


@pytest.mark.parametrize(
    ("rules", "text", "reason", "detail"),
    [
        (FISHER, "well (( )) yes", "unintelligible", "well (( )) yes"),
        (FISHER, "yes (( ))", "unintelligible", "yes (( ))"),
        (FISHER, "(( )) yes", "unintelligible", "(( )) yes"),
        (FISHER, "[[skip]]", "skipped", "[[skip]]"),
        (FISHER, "<german ja> okay", "foreign", "<german ja> okay"),
        (SWBD, "my 101st", "unknown characters", "101st"),
        (FISHER, "1/2", "unknown mark-up", "1/2"),
        (FISHER, "c3po2", "unknown characters", "c3po2"),
        (SWBD, "[[weird]", "unknown mark-up", "[[weird]"),
        (FISHER, "a [hm] b", "unknown mark-up", "[hm]"),
        (FISHER, "caf\u00e9 9", "unknown characters", "caf\u00e9"),
    ],
)
def test_what_cannot_be_normalised_is_refused_with_a_reason(rules: Rules, text: str, reason: str, detail: str) -> None:
    with pytest.raises(Unusable) as caught:
        normalise(text, rules)
    assert (caught.value.reason, caught.value.detail) == (reason, detail)


@pytest.mark.parametrize("mark", ["[[skip]]", "[inaudible]", "<b>", "</s>"])
def test_unknown_marks_of_plain_text_are_refused(mark: str) -> None:
    with pytest.raises(Unusable, match="unknown mark-up") as caught:
        normalise_plain(f"so {mark}, yes")
    assert caught.value.detail == mark


def test_acronyms_of_a_dictionary_are_spelled_out_whatever_was_seen_before() -> None:
    spelled = dataclasses.replace(SWBD, acronyms={"ibm": "i b m", "pc": "p c"})
    for _ in range(2):
        assert normalise("an ibm", SWBD) == "an ibm"
        assert normalise("an IBM [laughter-pc]", spelled) == normalise("an IBM-PC", spelled) == "an i b m p c"


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=40)
OWN_RULES = {name: text_rule(Data(text_rules=name)) for name in ("english", "unicode", "characters", "none")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Привет, МИР! «Ёлка» — ёжик…", "привет мир ёлка ёжик"),
        ("L'été à Nîmes, aujourd’hui. e\u0301te\u0301", "l'été à nîmes aujourd'hui été"),
        ("Straße STRASSE ΟΔΟΣ οδός Příliš žluťoučký kůň", "strasse strasse οδοσ οδόσ příliš žluťoučký kůň"),
        ("今天，天气很好。 हिन्दी भाषा।", "今天 天气很好 हिन्दी भाषा"),
        ("می\u200cخواهم \u200cدو\u200c", "می\u200cخواهم دو"),
        ("co\u00adop \u202bשלום\u202c ភាសា\u200bខ្មែរ", "coop שלום ភាសា ខ្មែរ"),
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
    assert OWN_RULES["characters"](text) == expected


@pytest.mark.parametrize("word", ["(x)", "a/b", "{x", "x;y", "<x>", "[so]", "@", "a*", "\u2581a", "a\\b", "#0"])
def test_what_means_something_to_a_scorer_or_a_graph_is_no_word(word: str) -> None:
    with pytest.raises(Unusable, match="unknown mark-up"):
        OWN_RULES["none"](f"so {word}")
    assert OWN_RULES["none"]("  Hello,\tWorld!  Élan\u00a0«x»  [noise]") == "Hello, World! Élan «x» [noise]"


@pytest.mark.parametrize("rule", OWN_RULES)
def test_text_that_was_no_utf8_is_named(rule: str) -> None:
    with pytest.raises(Unusable, match="unknown characters: caf\ufffd is not UTF-8"):
        OWN_RULES[rule]("caf\ufffd no")


@given(TEXTS)
@example("İstanbul ΌΣΟΣ ŉ ͅ ǰ ﬀ")
def test_equal_texts_have_one_form_and_keep_it(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert unicodedata.is_normalized("NFC", folded)
    forms = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert {fold(form) for form in forms} == {folded}


SAID = ["a", "th", "is", "um", "hum", "ok", "ph", "d", "ibm", "0", "1", "80", "4", "s", "'s", "'", "-", "&", ".", "_"]
MARKS = ["[an]", "[1k]", "[", "]", "{", "}", "/", "[laughter-", "[noise]", "_1"]
MARKED_WORD = st.lists(st.sampled_from([*SAID, *MARKS]), min_size=1, max_size=8).map("".join)
ENGLISH = {
    "plain": normalise_plain,
    "swbd": functools.partial(normalise, rules=dataclasses.replace(SWBD, acronyms={"ibm": "i b m"})),
    "fisher": functools.partial(normalise, rules=FISHER),
    "hub5": functools.partial(normalise, rules=HUB5),
    "an4": functools.partial(normalise, rules=AN4),
}


@pytest.mark.parametrize("name", [*ENGLISH, *OWN_RULES])
@given(
    text=st.lists(MARKED_WORD, max_size=4).map(" ".join)
    | st.text("aAhTm'-_.[]{}()/<>1048&skd%@ ", max_size=30)
    | st.text(max_size=30)
    | TEXTS
)
@example("ph._d. -[a]b[out]- '80s at&t & 401k b-52")
@example("ok-ibm umhum-th[at]-'s -[a]b[ou]t- 40[1k]- {w[o]-} 1980s")
@example("a\u200d\u0301 \u200cb")
@example("0'0")
def test_normalised_text_has_no_mark_up_and_is_normalised_to_itself(name: str, text: str) -> None:
    rule = {**ENGLISH, **OWN_RULES}[name]
    try:
        once = rule(text)
    except Unusable:
        return
    assert once == " ".join(once.split())
    if name not in ("hub5", "an4"):  # these texts are for reading alone
        assert rule(once) == once
    if name in ENGLISH:
        assert all(word in TAGS or NORMAL_WORD.fullmatch(word) for word in once.split())


@given(TEXTS)
def test_words_of_a_script_lose_no_letter_and_no_digit(text: str) -> None:
    """All letters, combining characters and digits stay, and nothing else except marks inside words."""
    text = "".join(c for c in text if c not in "[]<>")  # without mark-up
    kept = [c for c in fold(text) if unicodedata.category(c)[0] in "LMN"]
    said = OWN_RULES["unicode"](text).replace(" ", "")
    # \u02bc is a letter, and one form of the apostrophe
    assert [c for c in said if unicodedata.category(c)[0] in "LMN"] == [c for c in kept if c != "\u02bc"]
    assert set(said) - set(kept) <= {"'", "\u200c", "\u200d"}


ANY_WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Z", "Cc"], exclude_characters="\ufffd"), min_size=1, max_size=8
)


@given(words=st.lists(ANY_WORDS, min_size=1, max_size=6), rule=st.sampled_from(["unicode", "characters", "none"]))
def test_what_a_rule_gives_is_scored_as_it_was_said(
    words: list[str], rule: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each word is right against itself as a hypothesis: none is mark-up, optional, or taken apart."""
    try:
        text = OWN_RULES[rule](" ".join(words))
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
        ("カタカナ", "characters"),
        ("วันนี้อากาศดี", "characters"),
        ("room 42, 北京", "characters"),
        ("сегодня хорошая погода", "unicode"),
        ("오늘 날씨가 좋다", "unicode"),
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
