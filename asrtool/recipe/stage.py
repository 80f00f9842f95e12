"""Stages and their command lines."""

from __future__ import annotations

import shlex
import string
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One command line."""

    text: str

    def argv(self, work: str, config: str) -> list[str]:
        """Return the arguments with placeholders filled in; other braces stay."""
        return [word.replace("{work}", work).replace("{config}", config) for word in shlex.split(self.text)]


@dataclass(frozen=True)
class Stage:
    """One step of a recipe.

    Paths are relative to the work directory. In command lines ``{work}`` stands for that directory, ``{config}`` for
    the TOML file that holds exactly the `settings`, so that a stage cannot read what it does not declare.
    """

    name: str
    why: str  # one sentence
    makes: tuple[str, ...]
    run: tuple[Line, ...]
    needs: tuple[str, ...] = ()
    audio_of: tuple[str, ...] = ()  # manifest folders whose audio it reads, in any place
    settings: tuple[str, ...] = ()  # its dependencies: sections of the configuration, or section.key
    resumes: bool = False  # continues from existing outputs, so --force removes them first
    optional: bool = False  # on only if a chosen component needs it
    aside: bool = False  # numbered by a letter after the previous stage's number, so that other numbers stay
    when: str = ""  # a setting, section.key: if false or empty, the stage and its outputs are off

    @property
    def is_lettered(self) -> bool:
        """True if its number has a letter."""
        return bool(self.when) or self.aside

    def reads_from(self, maker: Stage) -> bool:
        """Return whether it needs an output of `maker`."""
        return any(lies_in(need, made) for need in self.needs for made in maker.makes)


def number_stages(stages: Sequence[Stage]) -> list[str]:
    """Return the numbers of stages for `asrtool run --stage`.

    A stage that a setting turns off has the previous number and a ``b``, ``c``, ..., so that the others keep theirs.
    Before the first stage it is ``0a``, ``0b``, ...
    """
    numbers: list[str] = []
    number, letters = -1, iter(string.ascii_lowercase)
    for stage in stages:
        if stage.is_lettered:
            numbers.append(f"{max(0, number)}{next(letters)}")
        else:
            number, letters = number + 1, iter(string.ascii_lowercase[1:])
            numbers.append(str(number))
    return numbers


def lies_in(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or below it."""
    return path == folder or path.startswith(f"{folder}/")
