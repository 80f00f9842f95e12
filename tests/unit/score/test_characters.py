"""Characters against a table of distances, and words and characters of any script against sclite in UTF-8."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path

import pytest
from commands import run_command
from hypothesis import example, given
from hypothesis import strategies as st

import asrtool
from asrtool.score.align import align_words
from asrtool.score.hub5 import score_hub5
from asrtool.score.result import Alignment, Characters, edit_distance
from asrtool.score.wer import score_wer

SCLITE = Path("/usr/lib/sctk/bin/sclite")
needs_sclite = pytest.mark.skipif(not SCLITE.exists(), reason="Debian's package sctk is not installed")
TEXTS = st.text("abcd é今", max_size=12)


def distance(a: str, b: str) -> int:
    """Return the edit distance by the whole table."""
    row = list(range(len(b) + 1))
    for number, one in enumerate(a, 1):
        above, row = row, [number]
        for place, other in enumerate(b):
            row.append(min(above[place] + (one != other), above[place + 1] + 1, row[-1] + 1))
    return row[-1]


@given(TEXTS, TEXTS)
@example("", "")
@example("a", "")
@example("kitten", "sitting")
def test_the_distance_is_the_one_of_the_table(a: str, b: str) -> None:
    assert edit_distance(a, b) == distance(a, b)


@given(st.lists(st.sampled_from(["a", "bc", "été", "今"]), max_size=6), st.lists(TEXTS.map(str.strip), max_size=6))
def test_characters_of_a_segment_are_those_of_its_words_without_blanks(ref: list[str], hyp: list[str]) -> None:
    hyp = " ".join(hyp).split()
    found = align_words(ref, hyp).characters()
    assert found == (len("".join(ref)), distance("".join(ref), "".join(hyp)))


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("C", "word", "word")], (4, 0)),
        ([("C", "(uh)", "")], (0, 0)),
        ([("C", "", "(uh)"), ("C", "a", "a")], (1, 0)),
        ([("C", "(uh)", "(uh)")], (4, 0)),
        ([("C", "th-", "that")], (3, 0)),
        ([("S", "(ah)", "oh")], (2, 1)),
        ([("D", "word", ""), ("I", "", "wood")], (4, 1)),
        ([("S", "ab", "b"), ("S", "c", "ac")], (3, 2)),
    ],
)
def test_what_a_word_is_forgiven_its_characters_are(
    pairs: list[tuple[str, str, str]], expected: tuple[int, int]
) -> None:
    assert Alignment(*zip(*pairs, strict=True)).characters() == expected


def test_the_function_of_the_package_leaves_out_blanks() -> None:
    assert asrtool.cer(" 今天 天 气 ", "今天气") == 1 / 4
    assert asrtool.cer(["ab", ""], ["a b", "c"]) == 1 / 2


def test_parentheses_of_plain_text_are_characters(tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("(x) y\nz\n")
    (tmp_path / "hyp").write_text("x y\nz\n")
    result = score_wer(tmp_path / "ref", tmp_path / "hyp")
    assert result.characters == Characters(5, 2)
    assert (result.characters.cer, Characters().cer) == (40.0, None)


def write_case(folder: Path, seed: int) -> None:
    """Segments in several scripts, with hypotheses: words missing, changed, or in another case."""
    draw = random.Random(seed)
    words = ["Привет", "мир", "ёлка", "ЁЛКА", "été", "ÉTÉ", "Hello", "hello"]
    words += ["今", "天", "气", "ação", "straße", "İ", "ς"]
    segments, heard = [], []
    for number in range(40):
        said = draw.choices(words, k=draw.randint(1, 9))
        segments.append(f"f A s{number % 3} {10 * number} {10 * number + 10} <O> {' '.join(said)}\n")
        noisy = [draw.choice([word, word, word.upper(), word.lower(), draw.choice(words), ""]) for word in said]
        for place, word in enumerate(filter(None, noisy)):
            heard.append(f"f A {10 * number + place} 0.5 {word} 0.9\n")
    (folder / "r.stm").write_text(';; LABEL "O" "Overall" ""\n' + "".join(segments), encoding="utf-8")
    (folder / "h.ctm").write_text("".join(heard), encoding="utf-8")


def sclite(folder: Path, *options: str) -> dict[str, tuple[int, ...]]:
    """Counts of each segment: correct, substituted, deleted, inserted."""
    command = [SCLITE, "-e", "utf-8", *options, "-F", "-D", "-r", "r.stm", "stm", "-h", "h.ctm", "ctm", "-o", "pralign"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    text = (folder / "h.ctm.pra").read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"id: \((.*)\)\n(?:.*\n)*?Scores: .*\) (\d+) (\d+) (\d+) (\d+)\n", text)
    return {key: tuple(map(int, counts)) for key, *counts in found}


@needs_sclite
@pytest.mark.parametrize("seed", range(3))
def test_words_of_any_script_are_counted_as_sclite_counts_them_in_utf8(seed: int, tmp_path: Path) -> None:
    """Case is folded for a-z alone: é and É, п and П are other letters for it, too."""
    write_case(tmp_path, seed)
    result = score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm")
    counts = {s.id: s.alignment.counts for s in result.segments}
    assert {key: (of.corr, of.sub, of.del_, of.ins) for key, of in counts.items()} == sclite(tmp_path)
    assert result.overall.sub > 20


@needs_sclite
@pytest.mark.parametrize("seed", range(3))
def test_as_many_characters_as_sclite_counts_and_never_more_errors(seed: int, tmp_path: Path) -> None:
    """sclite's alignment may have more errors than needed: a substitution costs less than twice a gap."""
    write_case(tmp_path, seed)
    result = score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm")
    theirs = sclite(tmp_path, "-c")
    for segment in result.segments:
        ours = segment.alignment.characters()
        corr, sub, deleted, inserted = theirs[segment.id]
        assert ours.chars == corr + sub + deleted
        assert ours.char_err <= sub + deleted + inserted <= ours.char_err + 2
    assert result.characters.chars == sum(sum(of[:3]) for of in theirs.values())


def test_characters_are_in_every_table(tmp_path: Path) -> None:
    write_case(tmp_path, 1)
    options = ["--ref", tmp_path / "r.stm", "--hyp", tmp_path / "h.ctm", "--out", tmp_path / "out"]
    done = run_command("score", "hub5", *options)
    result = score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm")
    overall = json.loads((tmp_path / "out" / "score.json").read_text())
    assert (overall["overall"]["chars"], overall["overall"]["char_err"]) == result.characters
    for group in ("speakers", "labels"):
        each = overall[group].values()
        assert tuple(sum(of[key] for of in each) for key in ("chars", "char_err")) == result.characters
    rates = [f"{result.overall.wer:.2f}", f"{result.characters.cer:.2f}"]
    assert done.output.splitlines()[-1].split()[-2:] == rates
    assert f"<td>{result.characters.cer:.1f}</td></tr>" in (tmp_path / "out" / "alignment.html").read_text()
