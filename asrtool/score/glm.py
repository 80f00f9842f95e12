"""Global mapping rules (GLM, format NIST1): which spellings are the same words.

A rule is ``SOURCE => TARGET / LEFT __ RIGHT``; brackets keep spaces: ``[OK] => [O. K.] / [ ] __ [ ]``. Rules work on
characters: without contexts a rule also changes parts of words. At each position the first rule of the file that fits
is applied, and the search continues after its source; contexts are read from the unchanged text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from asrtool.score.lines import Location, read_lines, upper

REFERENCE = ("stm", "ref")  # names of the two inputs in sections of a GLM
HYPOTHESIS = ("ctm", "hyp")
_SECTION = re.compile(r';;\s+INPUT_DEPENDENT_APPLICATION\s*=\s*"([^"]*)"')
NUM_LETTERS = 3
MAX_BYTES = 131  # bytes of a line; NIST's filter reads the rest as another line, even of a comment
_GAP = re.compile(r"[ \t]+")
_QUOTED = re.compile(r"""["']([^"']*)["']""")


class Rule(NamedTuple):
    """Mapping rule: `source` between `left` and `right` becomes `target`."""

    source: str
    target: str
    left: str
    right: str


class _Options(NamedTuple):
    case_sensitive: bool = True
    max_rules: int = 400

    def changed_by(self, location: Location, line: str) -> _Options:
        """Read a line ``* NAME = 'VALUE'``."""
        quoted = _QUOTED.search(line)
        if not quoted:
            location.fail("option without value", "* NAME = 'VALUE'")
        value, name = quoted[1], upper(line)
        if "FORMAT" in name and value != "NIST1":
            location.fail(f"format {value!r}", "NIST1")
        if "COPY_NO_HIT" in name and not _is_true(value):
            location.fail(f"copy_no_hit is {value!r}", "'T': without it every word that no rule names is lost")
        if "MAX_NRULES" in name and not value.isdecimal():
            location.fail(f"max_nrules is {value!r}", "a number")
        return _Options(
            _is_true(value) if "CASE_SENSITIVE" in name else self.case_sensitive,
            int(value) if "MAX_NRULES" in name else self.max_rules,
        )


class RuleSet:
    """Rules for one input; `apply` is the filter.

    `rules` are in upper case if case does not count.
    """

    def __init__(self, rules: Sequence[Rule], case_sensitive: bool) -> None:
        fold = self._fold = str if case_sensitive else upper
        self.rules = [Rule(fold(rule.source), rule.target, fold(rule.left), fold(rule.right)) for rule in rules]
        self._literals = [rule.left + rule.source + rule.right for rule in self.rules]
        # A rule is looked for in texts with one word of its literal alone: a whole one, or else NUM_LETTERS letters of
        # a part of one, or else any.
        self._by_word: dict[str, list[int]] = {}
        self._by_letters: dict[str, list[int]] = {}
        self._anywhere: list[int] = []
        for number, literal in enumerate(self._literals):
            words = literal.split(" ")
            whole, part = max(words[1:-1], key=len, default=""), max(words[0], words[-1], key=len)
            if whole:
                self._by_word.setdefault(whole, []).append(number)
            elif len(part) >= NUM_LETTERS:
                self._by_letters.setdefault(part[:NUM_LETTERS], []).append(number)
            else:
                self._anywhere.append(number)
        self._known: dict[str, list[int]] = {}

    def apply(self, text: str) -> str:
        """Rewrite `text`, which begins and ends with a space."""
        folded = self._fold(text)
        numbers = self._find(folded)
        return self._rewrite(text, folded, sorted(numbers)) if numbers else text

    def _rewrite(self, text: str, folded: str, numbers: list[int]) -> str:
        fitting: dict[int, Rule] = {}  # by the start of the source
        for number in numbers:
            rule, literal = self.rules[number], self._literals[number]
            position = folded.find(literal)
            while position >= 0:
                fitting.setdefault(position + len(rule.left), rule)
                position = folded.find(literal, position + 1)
        done, pieces = 0, []
        for start, rule in sorted(fitting.items()):
            if start >= done:
                pieces += [text[done:start], rule.target]
                done = start + len(rule.source)
        return "".join([*pieces, text[done:]])

    def _find(self, text: str) -> set[int]:
        """Return the numbers of rules that may fit, by a word or letters of their literal."""
        candidates = {number for number in self._anywhere if self._literals[number] in text}
        for word in text.split(" "):
            numbers = self._known.get(word)
            if numbers is None:
                numbers = self._known[word] = self._rules_of_word(word)
            if numbers:
                candidates.update(numbers)
        return candidates

    def _rules_of_word(self, word: str) -> list[int]:
        numbers = [*self._by_word.get(word, ())]
        for start in range(len(word) - NUM_LETTERS + 1):
            numbers += self._by_letters.get(word[start : start + NUM_LETTERS], ())
        return numbers


def read_glm(path: Path | str, inputs: tuple[str, ...]) -> RuleSet:
    """Read the rules for an input, REFERENCE or HYPOTHESIS.

    Raises AsrtoolError for a malformed file.
    """
    options, rules = _Options(), []
    flag = None  # start of a comment: the first word of the first line
    location = Location(Path(path), 1)
    for location, line in _applying(path, inputs):
        if flag is None:
            flag = line.split(" ")[0]
        elif not line or (flag and line.startswith(flag)):
            continue
        elif line.startswith("*"):
            options = options.changed_by(location, line)
        else:
            rules.append(_parse_rule(location, line.split(flag)[0] if flag else line))
            if len(rules) > options.max_rules:
                location.fail(f"more than max_nrules = {options.max_rules} rules", "* max_nrules = 'N' with a larger N")
    if flag is None:
        location.fail("empty file", "a line that begins with the comment sign, ;;")
    return RuleSet([rule for rule in rules if rule.source], options.case_sensitive)


def _applying(path: Path | str, inputs: tuple[str, ...]) -> Iterator[tuple[Location, str]]:
    applies = True
    for location, line in read_lines(path):
        if section := _SECTION.match(line):
            applies = any(_kind(location, section[1]).search(name) for name in inputs)
        if applies:
            line = line.rstrip(" \t")
            if (num_bytes := len(line.encode())) > MAX_BYTES:
                what = f"{num_bytes} bytes, and SCTK reads what follows {MAX_BYTES} as a line of its own"
                location.fail(what, f"at most {MAX_BYTES} bytes a line")
            yield location, line


def _kind(location: Location, text: str) -> re.Pattern[str]:
    """Return the pattern of inputs that a section is for, as NIST's filter reads it."""
    try:
        if re.fullmatch(r"[A-Za-z|.*+?^$()]+", text):  # these mean the same to Python
            return re.compile(text.lower())
    except re.error:
        pass
    return location.fail(f"INPUT_DEPENDENT_APPLICATION is {text!r}", "stm, ctm, ref, hyp, or several with | between")


def _is_true(value: str) -> bool:
    return upper(value) in ("T", "YES", "TRUE")


def _parse_rule(location: Location, text: str) -> Rule:
    """Parse a rule as NIST's rfilter1 does.

    The last slash begins the contexts unless it is in brackets.
    """
    text = text.rstrip(" \t")
    arrow = text.find("=>")
    if arrow < 0:
        location.fail(f"no rule in {text.strip()!r}", "SOURCE => TARGET / LEFT __ RIGHT")
    source = _unbracket(text[:arrow].strip(" \t"))
    slash = text.rfind("/")
    if slash >= 0 and _in_brackets(text[slash:]):
        slash = -1
    if slash < 0:
        return Rule(source, _after_word(text[arrow:]), "", "")
    target = _after_word(text[arrow:slash])
    slot = text.find("_", slash)
    if slot < 0:
        return Rule(source, target, "", "")
    return Rule(source, target, _after_word(text[slash:slot]), _after_word(text[slot:]))


def _in_brackets(rest: str) -> bool:
    opening, closing = rest.find("["), rest.find("]")
    return opening >= 0 and closing < opening


def _after_word(text: str) -> str:
    """Return the text after the first word (arrow, slash or slot), without brackets."""
    parts = _GAP.split(text.rstrip(" \t"), maxsplit=1)
    return _unbracket(parts[1]) if len(parts) == 2 else ""


def _unbracket(text: str) -> str:
    if len(text) > 1 and text[0] + text[-1] in ("[]", '""'):
        return text[1:-1]
    return text
