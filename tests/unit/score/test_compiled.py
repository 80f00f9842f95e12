"""The compiled scorer does what the Python modules do, or declines; test_sctk.py compares both with sclite."""

from __future__ import annotations

import hashlib
import re
import shutil
import sysconfig
from pathlib import Path
from random import Random

import pytest
from hub5_cases import GLM, Case, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.score import hub5
from asrtool.score.filter import filter_segment
from asrtool.score.formats.glm import HYPOTHESIS, REFERENCE, Rule, RuleSet, read_glm
from asrtool.score.formats.lines import Place, Side
from asrtool.score.formats.stm import StmSegment
from asrtool.score.hub5 import compiled, score_hub5
from asrtool.score.result import Pair, Result

needs_compiled = pytest.mark.skipif(compiled is None, reason="the compiled scorer is not installed")


def test_it_is_there_wherever_it_can_be_compiled() -> None:
    has_compiler = shutil.which("c++") or shutil.which("g++")
    has_headers = Path(sysconfig.get_paths()["include"], "Python.h").exists()
    if compiled is None and not (has_compiler and has_headers):
        pytest.skip("no C++ compiler, or no headers of Python (Debian package python3-dev)")
    assert compiled is not None, "run make setup"


@needs_compiled
def test_it_is_compiled_from_the_source_beside_it() -> None:
    folder = Path(hub5.__file__).parent
    sources = b"".join(path.read_bytes() for path in (folder / "_hub5.cpp", *sorted(folder.glob("cpp/*.h"))))
    assert hashlib.sha256(sources).hexdigest() == compiled.SOURCE_DIGEST, "run make setup"


def score(folder: Path, stm: str, ctm: str, glm: str) -> object:
    """What the compiled scorer returns."""
    write(folder, stm, ctm, glm)
    ref_rules, hyp_rules = (read_glm(folder / "g.glm", inputs).rules for inputs in (REFERENCE, HYPOTHESIS))
    return compiled.score(stm, ctm, ref_rules, hyp_rules, Pair)


def score_both(folder: Path) -> tuple[Result, Result]:
    files = folder / "r.stm", folder / "h.ctm", folder / "g.glm"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub5, "compiled", None)
        expected = score_hub5(*files)
    return score_hub5(*files), expected


def check_same_or_declined(folder: Path, stm: str, ctm: str, glm: str) -> None:
    write(folder, stm, ctm, glm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub5, "compiled", None)
        expected = rows_or_error(folder)
    assert rows_or_error(folder) == expected


def rows_or_error(folder: Path) -> object:
    try:
        return rows(score_hub5(folder / "r.stm", folder / "h.ctm", folder / "g.glm"))
    except AsrtoolError as error:
        return str(error)


def rows(result: Result) -> list[tuple[object, ...]]:
    return [(*segment[:4], *segment[5:], segment.alignment.pairs) for segment in result.segments]


@needs_compiled
@pytest.mark.parametrize("seed", range(40))
def test_it_makes_the_same_segments_word_by_word(seed: int, tmp_path: Path) -> None:
    random, case = Random(seed), Case(seed, num_files=4, rare=False)
    glm = random.choice([GLM, GLM.replace("case_sensitive = 'F'", "case_sensitive = 'T'")])
    other = random.choice(["the", "{ the / @ }", "\u00e9t\u00e9", "th-", "{{A / @} / b-c}"])
    stm = re.sub(r"\bthe\b(?=[^()]*$)", other, case.stm, flags=re.MULTILINE)
    # times with decimals that csrfilt rounds away
    ctm = re.sub(r"\d\.\d\d(?= .)", lambda match: f"{match[0]}{random.choice(['', '5', '49', '4999'])}", case.ctm)
    assert score(tmp_path, stm, ctm, glm) is not None
    found, expected = score_both(tmp_path)
    assert rows(found) == rows(expected)
    assert len(found.segments) > 5
    assert found.to_dict() == expected.to_dict()


WORDS = "a/ a// a/b 0.5 1- {a x}y {a/b} () (a) @ * ** a* - -- -a a- a-b (-) % can't nully GONE"


@needs_compiled
@pytest.mark.parametrize("confidence", ["", " 0.5"])
@pytest.mark.parametrize("word", WORDS.split())
def test_odd_words_are_the_same_where_they_are_taken(word: str, confidence: str, tmp_path: Path) -> None:
    ctm = f"f A 0 0.0015 {word}{confidence}\nf A 0.5 0.0625 {word}{confidence}\nf A 0.5 0.1 b{confidence}\n"
    stm = "f A spk 0 0.5625 a b\nf A spk 0.5 1 (a) {b / @}\n"
    check_same_or_declined(tmp_path, stm, ctm, f"{GLM}GONE => A / [ ] __ [ ]\n")


@needs_compiled
@given(st.integers(0, 400), st.integers(0, 400), st.integers(-60, 60), st.sampled_from(["", " 0.5"]))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_word_at_the_end_of_a_segment_falls_into_the_same(
    tmp_path: Path, start: int, duration: int, end: int, confidence: str
) -> None:
    end = max(0, start + duration // 2 + end)  # all in units of 10 microseconds
    times = [f"{time / 100000:.5f}" for time in (start, duration, end)]
    stm = f"f A spk 0 {times[2]} a\nf A spk {times[2]} 1 b\n"
    write(tmp_path, stm, f"f A {times[0]} {times[1]} a{confidence}\n", GLM)
    found, expected = score_both(tmp_path)
    assert rows(found) == rows(expected)


TEXTS = st.text("AB -(", max_size=2)
RULES = st.lists(st.builds(Rule, st.text("AB -", min_size=1, max_size=2), TEXTS, TEXTS, TEXTS), max_size=8)


@needs_compiled
@given(RULES, st.text("ab c-", max_size=20))
@settings(max_examples=300, deadline=None)
def test_rules_with_any_contexts_apply_in_the_same_order(rules: list[Rule], text: str) -> None:
    segment = StmSegment(Place(Path("r.stm"), 1), Side("f", " ", "A"), "spk", 0, 1, (), " ".join(text.split()))
    found = compiled.score(f"f A spk 0 1 {text}\n", "", rules, None, Pair)
    try:
        expected = " ".join(filter_segment(segment, RuleSet(rules, case_sensitive=True)).split())
    except AsrtoolError:  # a rule took the space before the first word
        assert found is None
    else:
        ((*_, reference, _),) = found
        assert reference == expected


STM, CTM = "f A spk 0 1 <O,SW> hello\n", "f A 0 1 hello\n"


@needs_compiled
@pytest.mark.parametrize(
    ("stm", "ctm"),
    [
        (STM, CTM[:-1]),
        (STM[:-1], CTM),
        (STM, "f A 0 1\n"),
        (STM, "f A 0 -1 a\n"),
        (STM, "f A 0 1e1 a\n"),
        (STM, "f A 1234567890 1 a\n"),
        (STM, "f A 0 1 a 1e-5\n"),
        (STM, "f{ A 0 1 a\n"),
        ("f A> spk 0 1 a\n", "f A> 0 1 a\n"),
        (STM, "f A * * <ALT_BEGIN>\nf A 0 1 a\nf A * * <ALT_END>\n"),
        (STM, "f A 0 1 a;tag\n"),
        (STM, "f A 0 1 (a\n"),
        (STM, "f A 0 1 /a 0.5\n"),
        (STM, "f A 0 1 GONE 0.5\n"),  # a rule makes nothing of it
        (STM, "g A 0 1 hello\n"),
        ("", CTM),
        ("f A spk 1 0 a\n", CTM),
        ("f A spk 0 1e0 a\n", CTM),
        ("f A spk 0 1 <O hello\n", CTM),
        ("f A spk 0 1 ( a ( b ) )\n", CTM),
        ("f A spk 0 1 ( )\n", CTM),
        ("f A spk 0 1 { a / b\n", CTM),
        ("f A spk 0 1 a }\n", CTM),
        ("f A spk 0 1 { / }\n", CTM),
        (f"f A spk 0 1 {'{ ' * 60}a{' }' * 60}\n", CTM),
        ("f A spk 0 1 a\\;b\n", CTM),
    ],
)
def test_what_is_malformed_or_rare_is_declined(stm: str, ctm: str, tmp_path: Path) -> None:
    assert score(tmp_path, STM, CTM, GLM) is not None
    assert score(tmp_path, stm, ctm, ";; rules\nGONE => [] / [ ] __ [ ]\n") is None


TOKENS = [
    "f",
    "A",
    "spk",
    "0",
    "1",
    "1.5",
    "-1",
    ".5",
    "<O>",
    "{",
    "}",
    "/",
    "@",
    "(",
    ")",
    "word",
    "wor-",
    "-ord",
    "a-b",
    "a/b",
    "}y",
    "}{",
    "uh",
    "can't",
    "REFONLY",
    "@}",
    "{a",
    "(uh)",
    "*",
    "a*",
    "0.9",
]
LINES = ['\n;; LABEL "O" "" ""', "\nf A spk 0 1 ", "\nf A spk 1 2 <O> ", "\nf A 0 1 ", "\nf A 0.5 .25 ", "\nf A 1 "]
PIECES = st.lists(st.sampled_from([*TOKENS, *LINES, *"    \t\n"]), max_size=30).map("".join)


@needs_compiled
@given(st.lists(st.sampled_from(TOKENS), max_size=20).map(" ".join), PIECES, st.booleans())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_it_takes_no_text_that_the_python_modules_take_otherwise(
    tmp_path: Path, words: str, pieces: str, in_ctm: bool
) -> None:
    heard = "".join(f"f A {number / 8} 0.25 {word} 0.5\n" for number, word in enumerate(words.split()))
    stm, ctm = (f"f A spk 0 1 {words}\n", f"{pieces}\n") if in_ctm else (f"{pieces}\nf A spk 1 2 {words}\n", heard)
    check_same_or_declined(tmp_path, stm, ctm, GLM)
