"""The corpora that data.train, data.dev and data.test name, and what they need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from asrtool.errors import AsrtoolError
from asrtool.local.corpus import ROLES, TEXT, Corpus, Release
from asrtool.settings import registry
from asrtool.settings.data import Data

RESERVED = ("train", "dev", "long", "corpora")  # folders of manifests that are of no corpus


@dataclass(frozen=True)
class Named:
    """A corpus and the roles it is named for."""

    corpus: Corpus
    roles: tuple[str, ...]

    @property
    def releases(self) -> list[Release]:
        """Return the releases for these roles."""
        return [release for release in self.corpus.releases if set(release.roles) & set(self.roles)]


def named_corpora(data: Data, extra_text: Sequence[str] = ()) -> list[Named]:
    """Return the corpora of `data` in order, and transcripts of `extra_text`.

    Raises AsrtoolError if nothing is named to train or test on, for a role that a corpus lacks, and for names that
    folders cannot have.
    """
    for role in ("train", "test"):
        if not getattr(data, role):
            known = ", ".join(registry.names("corpus"))
            raise AsrtoolError(
                f"data.{role} is empty, expected at least one corpus",
                f"name it with --set data.{role}=NAME: {known}, or package.module:Class",
            )
    roles: dict[str, list[str]] = {}
    for role in ROLES:
        for choice in getattr(data, role):
            roles.setdefault(choice.name, []).append(role)
    for corpus in extra_corpora(extra_text):
        roles.setdefault(corpus.name, []).append(TEXT)
    named = [Named(open_corpus(name), tuple(of_name)) for name, of_name in roles.items()]
    names = [item.corpus.name for item in named]
    for item in named:
        _check_roles(item)
        if names.count(item.corpus.name) > 1:
            raise AsrtoolError(f"two corpora of data are called {item.corpus.name}", "rename one of the classes' names")
    return named


def extra_corpora(extra_text: Sequence[str]) -> list[Corpus]:
    """Return the corpora among `extra_text`; its other entries are files."""
    known = registry.names("corpus")
    return [open_corpus(name) for name in dict.fromkeys(extra_text) if name in known]


def with_role(data: Data, role: str) -> list[Corpus]:
    """Return the corpora of data.ROLE, each once, in order."""
    return [open_corpus(name) for name in dict.fromkeys(choice.name for choice in getattr(data, role))]


def open_corpus(name: str) -> Corpus:
    """Open a corpus by name or ``package.module:Class``; AsrtoolError if invalid."""
    found = registry.load("corpus", name)
    if not isinstance(found, type) or not issubclass(found, Corpus):
        raise AsrtoolError(f"{name}: no subclass of asrtool.local.corpus.Corpus", "see docs/guide/extending.md")
    corpus = found()
    if not re.fullmatch(r"\w[\w.-]*", corpus.name) or corpus.name in RESERVED:
        raise AsrtoolError(
            f"{name}: its name is {corpus.name!r}, expected letters, digits, _ or -, and none of {', '.join(RESERVED)}",
            "its folders are called so: change the attribute name of the class",
        )
    return corpus


def known_releases(data: Data) -> dict[str, Release]:
    """Return the releases of built-in and named corpora by their keys in [paths]."""
    chosen = [choice.name for role in ROLES for choice in getattr(data, role)]
    corpora = map(open_corpus, dict.fromkeys([*registry.names("corpus"), *chosen]))
    return {release.key: release for corpus in corpora for release in corpus.releases}


def _check_roles(item: Named) -> None:
    for role in item.roles:
        if role not in (*item.corpus.roles, TEXT):
            raise AsrtoolError(
                f"data.{role} names {item.corpus.name}, which has no {role} set but {', '.join(item.corpus.roles)}",
                f"name another corpus in data.{role}",
            )
