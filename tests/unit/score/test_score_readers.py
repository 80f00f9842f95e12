"""Readers of stm, ctm and GLM: what they take, and one line that says what is wrong."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hub5_cases import GLM, Case, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.score.glm import HYPOTHESIS, REFERENCE, read_glm
from asrtool.score.hub5 import score_hub5
from asrtool.score.stm_ctm import read_ctm, read_stm, read_titles

LABELS = ';; LABEL "O" "" ""\n;; LABEL "SW" "" ""\n'
STM = f"{LABELS}f A spk 0 1 <O,SW> hello\n"
CTM = "f A 0 1 hello\n"


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_an_stm_line_is_taken_apart(tmp_path: Path) -> None:
    path = put(tmp_path / "r.stm", ';; LABEL "SW" " Switchboard" "x"\n\n f\tA spk 0.5 1.25 <O,SW> i\t{ a / @ } \n')
    (segment,) = read_stm(path)
    assert (segment.side.file, segment.side.channel, segment.speaker, segment.start_s, segment.end_s) == (
        "f",
        "A",
        "spk",
        0.5,
        1.25,
    )
    assert (segment.labels, segment.text, segment.location.line) == (("O", "SW"), "i { a / @ }", 3)
    assert read_titles(path) == {"SW": "Switchboard"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("f A spk 0\n", "r.stm:1: 4 fields; expected FILE CHANNEL SPEAKER START END <LABELS> TEXT"),
        (f"{STM}f A spk 1 x\n", "r.stm:4: END is 'x'; expected a decimal number of seconds"),
        (f"{STM}f A spk 1 nan\n", "r.stm:4: END is 'nan'; expected a decimal number of seconds"),
        ("f A spk 2 1 x\n", "r.stm:1: END 1 before START 2; expected END at or after START"),
        ("f A spk 0 1 <O hello\n", "r.stm:1: labels '<O'; expected <LABEL,LABEL,...> between spaces"),
        ("f A spk 0 1 <O>hello\n", "r.stm:1: labels '<O>hello'; expected <LABEL,LABEL,...> between spaces"),
        (';; LABEL "O" "Overall\n', 'r.stm:1: malformed LABEL; expected ;; LABEL "ID" "TITLE" "DESCRIPTION"'),
        (
            "f A spk 0 1 hello\r\n",
            "r.stm:1: control character '\\r'; expected text lines that end in a line feed alone",
        ),
        (b"f A spk 0 1 caf\xe9\n", "r.stm:1: byte 16 is not UTF-8; expected UTF-8 text"),
        (";; only this\n", "r.stm:1: no segment in the whole file; expected lines FILE CHANNEL SPEAKER START END"),
        ("f A spk 0 1 ( a ( b ) )\n", "r.stm:1: parentheses in '( a ( b ) )'; expected (WORD) around optional words"),
        ("f A spk 0 1 a )\n", "r.stm:1: parentheses in 'a )'; expected (WORD) around optional words"),
        ("f A spk 0 1 { a / b\n", "r.stm:1: { without } in '{ a / b'; expected { A / B }"),
        ("f A spk 0 1 a / b }\n", "r.stm:1: brace in '}'; expected spaces around { and }, as many { as }"),
        ("f A spk 0 1 { a / b }} c\n", "r.stm:1: brace in '}'; expected spaces around { and }, as many { as }"),
        ("f A spk 0 1 { a / b }{ c\n", "r.stm:1: { without } in '{ a / b }{ c'; expected { A / B }"),
        ("f A spk 0 1 <O> a\n", 'r.stm:1: label \'O\' is not declared; expected ;; LABEL "O" "TITLE"'),
        (f"{STM}f A spk 1 2 <O,b_aside> a\n", "r.stm:4: label 'b_aside' is not declared; expected ;; LABEL"),
        (f"{STM}f A spk 1 2 <SW> a\n", "r.stm:4: label 'SW' at place 1 of <SW>, before at place 2; expected each"),
        (f"{STM}f A spk 1 2 <O,o> a\n", "r.stm:4: label 'o' at place 2 of <O,o>, before at place 1; expected each"),
        ("f A s 1 2 a\nf A s 0 1 b", "r.stm:2: no line feed after 'f A s 0 1 b'; expected one at the end of the"),
        ("f A s 0 1 a\n;; end", "r.stm:2: no line feed after ';; end'; expected one at the end of the file"),
        ("f A spk 0 1 { / }\n", "r.stm:1: no alternative between { and }; expected { A / B }"),
        (
            f"f A spk 0 1 {'{ ' * 2000}a{' }' * 2000}\n",
            "r.stm:1: alternatives within more than 50 others; expected { A / B }",
        ),
    ],
)
def test_a_malformed_stm_is_named_by_line(content: str | bytes, message: str, tmp_path: Path) -> None:
    write(tmp_path, STM, CTM, GLM)
    put(tmp_path / "r.stm", content)
    with pytest.raises(AsrtoolError) as error:
        score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("f A 0 1\n", "h.ctm:1: 4 fields; expected FILE CHANNEL START DURATION WORD [CONFIDENCE]"),
        (f"{CTM}f A 0 1 a 0.5 lex\n", "h.ctm:2: 7 fields; expected FILE CHANNEL START DURATION WORD [CONFIDENCE]"),
        ("f A 0 1 a 1e-5\n", "h.ctm:1: CONFIDENCE is '1e-5'; expected a decimal number without exponent"),
        ("f A * * a\n", "h.ctm:1: START is '*'; expected a decimal number of seconds"),
        ("f A 0 -1 a\n", "h.ctm:1: DURATION is -1; expected 0 or more"),
        ("f A * * <ALT>\n", "h.ctm:1: <ALT> out of place in the order of time; expected <ALT_BEGIN>"),
        ("f A * * <ALT_BEGIN>\nf A 0 1 a\n", "h.ctm:2: alternatives without end; expected <ALT_END>"),
        (
            "f A 2 0 <ALT_BEGIN>\nf A 2 0 a\nf A 1 0 <ALT_END>\n",
            "h.ctm:3: <ALT_END> out of place in the order of time; expected <ALT_BEGIN>",
        ),
        (
            "f A 1 0 <ALT_BEGIN>\nf A 1 0 a\nf B 1 0 <ALT_END>\n",
            "h.ctm:2: alternatives without end; expected <ALT_END>",
        ),
        ("f A 1 1 a\nf A 0 1 b", "h.ctm:2: no line feed after 'f A 0 1 b'; expected one at the end of the file"),
        ("f A 0 1 (a\n", "h.ctm:1: parentheses in '(a'; expected (WORD) around optional words"),
        ("f A 0 1 /a 0.5\n", "h.ctm:1: '/a' has an empty alternative; expected @ for nothing"),
        ("g A 0 1 hello\n", "h.ctm:1: file g channel A is not in "),
    ],
)
def test_a_malformed_ctm_is_named_by_line(content: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, STM, content, GLM)
    with pytest.raises(AsrtoolError) as error:
        score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (";; rules\nA -> B\n", "g.glm:2: no rule in 'A -> B'; expected SOURCE => TARGET / LEFT __ RIGHT"),
        (";; rules\n* format = 'NIST2'\n", "g.glm:2: format 'NIST2'; expected NIST1"),
        (
            ";; rules\n* max_nrules = '1'\nA => B\nB => C\n",
            "g.glm:4: more than max_nrules = 1 rules; expected * max_nrules",
        ),
        (";; rules\n* copy_no_hit = 'F'\n", "g.glm:2: copy_no_hit is 'F'; expected 'T'"),
        (";; rules\n* name\n", "g.glm:2: option without value; expected * NAME = 'VALUE'"),
        (
            ';; rules\n;; INPUT_DEPENDENT_APPLICATION = "*"\n',
            "g.glm:2: INPUT_DEPENDENT_APPLICATION is '*'; expected stm, ctm, ref, hyp, or several with | between",
        ),
        ("", "g.glm:1: empty file; expected a line that begins with the comment sign, ;;"),
        (
            f";; {'x' * 128} B => C\n",
            "g.glm:1: 138 bytes, and SCTK reads what follows 131 as a line of its own; expected",
        ),
        (
            ";; rules\nA => " + "\u00e9" * 64 + "\n",
            "g.glm:2: 133 bytes, and SCTK reads what follows 131 as a line of its",
        ),
        ("* name 'x'\n* max_nrules = '500'\n" + 401 * "A => B\n", "g.glm:403: more than max_nrules = 400 rules"),
    ],
)
def test_a_malformed_glm_is_named_by_line(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError) as error:
        read_glm(put(tmp_path / "g.glm", content), REFERENCE)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["r.stm", "h.ctm", "g.glm"])
def test_a_byte_order_mark_is_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path, STM, CTM, GLM)
    put(tmp_path / name, b"\xef\xbb\xbf" + (tmp_path / name).read_bytes())
    with pytest.raises(AsrtoolError, match=rf"{name}:1: a byte-order mark before the first character; expected UTF-8"):
        score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm", tmp_path / "g.glm")


@pytest.mark.parametrize("text", ["uh hello", "(uh) hello", "uh"])
def test_a_rule_that_joins_the_first_word_to_the_time_before_it_is_refused(text: str, tmp_path: Path) -> None:
    write(tmp_path, f"f A spk 0 1 a\nf A spk 1 2 {text}\n", CTM, ";; rules\n[ UH ] => [A]\n[ ( UH ) ] => [A]\n")
    with pytest.raises(AsrtoolError, match=r"r\.stm:2: a rule makes 'a(hello)?' of the space before the first word"):
        score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm", tmp_path / "g.glm")


def test_rules_of_the_hypothesis_leave_the_reference_alone(tmp_path: Path) -> None:
    path = put(tmp_path / "g.glm", GLM)
    text = " CAN'T UH UH REFONLY WE'D NET BINYAMIN NET "
    assert (
        read_glm(path, REFERENCE).apply(text) == " CAN'T %HESITATION %HESITATION {REF ONLY / @} WE'D NET BENJAMIN NET "
    )
    assert "{CAN NOT / CANNOT} %HESITATION %HESITATION REFONLY {WE HAD / WE WOULD}" in read_glm(path, HYPOTHESIS).apply(
        text
    )


@pytest.mark.parametrize("inputs", ["ctm|stm", ".*", "^(STM|hyp)$", "tm"])
def test_a_section_of_a_glm_may_be_for_several_inputs(inputs: str, tmp_path: Path) -> None:
    path = put(tmp_path / "g.glm", f';; rules\n;; INPUT_DEPENDENT_APPLICATION = "{inputs}"\nA => B\n')
    assert [read_glm(path, kind).apply(" A ") for kind in (REFERENCE, HYPOTHESIS)] == [" B ", " B "]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"none\.ctm: cannot be read, no such file"):
        read_ctm(tmp_path / "none.ctm")


TOKENS = r"f A spk 0 1 -1 1e400 * <O> <ALT_BEGIN> <ALT> <ALT_END> { } / @ ( ) word wor- a;b \ ;; => [ ] __ _ 'T'"
LINES = [
    "\nf A spk 0 1 ",
    "\nf A 0 1 ",
    ';; LABEL "',
    ";; INPUT_DEPENDENT_APPLICATION = ",
    "* max_nrules",
    "* format",
    "\u00e9",
]
PIECES = st.lists(st.sampled_from([*TOKENS.split(), *LINES, *'   \t\n\n"\r']), max_size=30).map("".join)


@given(st.one_of(PIECES, st.text(max_size=30), st.binary(max_size=30)))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_file_raises_anything_but_the_error_of_the_project(tmp_path: Path, text: str | bytes) -> None:
    case = Case(1, num_files=1)
    for name in ("r.stm", "h.ctm", "g.glm"):
        write(tmp_path, case.stm, case.ctm, GLM)
        put(tmp_path / name, text)
        with contextlib.suppress(AsrtoolError):
            score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm", tmp_path / "g.glm")
