"""What a recipe is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One command line; `corpus` names the training corpus it serves ('' = always run)."""

    text: str
    corpus: str = ""


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
    settings: tuple[str, ...] = ()  # what it depends on: sections of the configuration, or section.key
    resumes: bool = False  # goes on from what it finds in `makes`, so that --force has to begin without it
