"""The rules of Hub5 in small: which word counts as what, and in which segment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hub5_cases import GLM, Case, write

from asrtool.score.hub5 import score_hub5
from asrtool.score.result import Counts, Result, total
from asrtool.score.utterances import escape, unescape

HEADER = ';; LABEL "O" "Overall" "all"\n'


def score(folder: Path, stm: str, ctm: str, glm: str = GLM) -> Result:
    write(folder, HEADER + stm, ctm, glm)
    return score_hub5(folder / "r.stm", folder / "h.ctm", folder / "g.glm")


def score_text(folder: Path, ref: str, hyp: str) -> Counts:
    ctm = "".join(f"f A {number} 0.5 {word}\n" for number, word in enumerate(hyp.split()))
    return score(folder, f"f A s 0 100 <O> {ref}\n", ctm).overall


@pytest.mark.parametrize("seed", range(3))
def test_counts_add_up_by_speaker_and_by_label(seed: int, tmp_path: Path) -> None:
    case = Case(seed, num_files=8)
    result = score(tmp_path, case.stm, case.ctm)
    assert total(part.overall for part in result.speakers.values()) == result.overall
    for label, part in result.labels.items():
        assert part.overall == total(s.alignment.counts for s in result.segments if label in s.labels)
    assert result.overall.err == result.overall.sub + result.overall.del_ + result.overall.ins


@pytest.mark.parametrize(
    ("ref", "hyp", "words", "err"),
    [
        ("hello (world)", "hello", 2, 0),  # left out, an optional word is correct and stays in N
        ("hello (%HESITATION)", "hello uh", 2, 0),  # a hesitation against an optional one
        ("hello", "hello uh", 1, 1),  # against nothing it is inserted
        ("(TH-) the", "th- the", 2, 0),
        ("i { went / go } home", "i go home", 3, 0),
        ("i { went / @ } home", "i home", 2, 0),
        ("i am gonna go", "i am going to go", 5, 0),
        ("well-known", "well known", 2, 0),
        ("cannot", "can't", 1, 0),  # contractions are expanded in the hypothesis alone
        ("can't", "cannot", 1, 1),
    ],
)
def test_what_is_forgiven(ref: str, hyp: str, words: int, err: int, tmp_path: Path) -> None:
    counts = score_text(tmp_path, ref, hyp)
    assert (counts.num_words, counts.err) == (words, err)


MAPPINGS = "b b => x / [ ] __ [ ]\nb => y / [ ] __ [ ]\nb => z / [ ] __ [ ]\na => x / [] __ []\n"


@pytest.mark.parametrize(
    ("word", "mapped"),
    [("b", "y"), ("b b", "x"), ("b c b", "y c y"), ("aa", "xx"), ("ab", "xb"), ("c-d", "c d")],
)
def test_the_first_rule_that_fits_applies_and_then_the_next_after_it(word: str, mapped: str, tmp_path: Path) -> None:
    rules = f";; rules\n* format = 'NIST1'\n* case_sensitive = 'F'\n{MAPPINGS}"
    stm, ctm = f"f A s 0 9 <O> {word}\n", "".join(f"f A {at} 0.5 {x}\n" for at, x in enumerate(mapped.split()))
    assert score(tmp_path, stm, ctm, rules).overall.err == 0


REAL_WORDS = "laughter slaughterhouse time him five clothes the other day i went home daycare oh hum aw john's noise"


def test_words_that_clean_up_rules_of_other_scorers_damage_are_words(tmp_path: Path) -> None:
    counts = score_text(tmp_path, REAL_WORDS, REAL_WORDS)
    assert (counts.corr, counts.err) == (len(REAL_WORDS.split()), 0)
    missing = score_text(tmp_path, REAL_WORDS, "")
    assert missing.del_ == len(REAL_WORDS.split())


def test_a_word_belongs_to_the_segment_of_its_midpoint(tmp_path: Path) -> None:
    stm = "f A s 1 2 <O> one\nf A s 2 3 <O> two\nf A s 5 6 <O> three\n"
    result = score(tmp_path, stm, "f A 1.9 0.3 two\nf A 1.2 0.1 one\nf A 4 0.1 three\nf A 99 1 late\nf A 0 0 early\n")
    texts = [" ".join(pair.hyp for pair in segment.alignment.pairs) for segment in result.segments]
    assert texts == ["early one", "two", "three late"]


def test_words_of_an_ignored_segment_are_dropped(tmp_path: Path) -> None:
    stm = "f A s 0 1 IGNORE_TIME_SEGMENT_IN_SCORING\nf A s 1 2 <O> hello\n"
    result = score(tmp_path, stm, "f A 0.1 0.1 nonsense\nf A 1.1 0.1 hello\n")
    assert result.overall == Counts(segments=1, corr=1)


def test_an_empty_segment_counts_and_its_words_are_inserted(tmp_path: Path) -> None:
    assert score(tmp_path, "f A s 0 1 <O>\n", "f A 0 1 uh\n").overall == Counts(segments=1, ins=1)


def test_a_file_without_words_is_deleted(tmp_path: Path) -> None:
    assert score(tmp_path, "f A s 0 1 <O> a b\n", "").overall == Counts(segments=1, del_=2)


@pytest.mark.parametrize("name", ["Ab", "a b", "\u00e9<1>", "", "a-b_c.d"])
def test_names_are_escaped_as_no_two_are_alike_to_a_scorer_that_ignores_case(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9_.=-]+", escape(name))
    assert unescape(escape(name)) == name


def test_files_and_channels_are_the_same_in_any_case(tmp_path: Path) -> None:
    assert score(tmp_path, "Call_1 A s 0 1 <O> one\n", "call_1 a 0 0.5 one\n").overall == Counts(1, 1)


def test_ends_of_segments_are_of_32_bits_as_those_of_sclite(tmp_path: Path) -> None:
    """The middle of the first word is 0.1, which is below 0.1 in 32 bits."""
    stm = "f A s 0 0.1 <O> one\nf A s 0.1 9 <O> two\n"
    assert score(tmp_path, stm, "f A 0.05 0.1 one\nf A 1 0.1 two\n").overall == Counts(2, 2)
