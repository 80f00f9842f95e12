"""Interface of corpora, corpora that settings name, and their preparation.

A corpus is one class: releases, sets, and how these become manifests. `local/corpora/__init__.py` has the names for
data.train, data.dev and data.test; a custom one is ``package.module:Class``. Settings read these classes for the keys
of [paths], so a module imports lhotse and torch inside its functions only.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from asrtool.data.manifests.manifest import REPORT, check_place, read_report
from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.data import Data

ROLES = ("train", "dev", "test")
TEXT = "text"  # role of a corpus that only gives transcripts, for lm.extra_text
UNCERTAIN = "uncertain"  # custom field of an utterance whose transcriber doubts some words: data.uncertain


@dataclass(frozen=True)
class Release:
    """Published data, in the folders or tar files of paths.KEY."""

    name: str  # name of its folder below the corpus folder
    title: str
    holds: tuple[str, ...] = ()  # patterns, each matching a file below the release
    roles: tuple[str, ...] = ROLES  # roles of its corpus for which it is read
    is_optional: bool = False
    is_one_folder: bool = False  # whose layout begins at its top: not several, no tar file, but perhaps an address

    @property
    def key(self) -> str:
        """Key in [paths]."""
        return self.name.lower()


class Corpus(ABC):
    """Recordings with transcripts, to train on, to tune on, or to test on."""

    in_mini: ClassVar[bool] = False  # the mini corpus has a substitute for it
    train_hours: ClassVar[float] = 0.0  # approximate hours of speech in its training set; 0 if unknown
    licence: ClassVar[str] = ""  # licence of its data, for model cards
    shortened_samples: ClassVar[int] = 0  # approximate samples of all channels compressed with shorten
    labels: ClassVar[tuple[tuple[str, str], ...]] = ()  # labels of its reference, with headings of RESULTS.md

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of its folders, and in references."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Title in tables."""

    @property
    @abstractmethod
    def releases(self) -> tuple[Release, ...]:
        """Releases that it is read from."""

    @property
    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """Roles that it has a set for; an optional release may be missing."""

    @abstractmethod
    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write a manifest folder `out`/ROLE for each of its sets.

        The releases are folders of `corpus`. asrtool.data.manifests.manifest.write_manifests writes such a folder. A
        test set has ``ref.stm`` and ``ref.glm`` too. Raises AsrtoolError if a file is missing or too much cannot be
        used (data.bad_fraction).
        """

    def texts(self, corpus: Path) -> tuple[Iterable[str], Callable[[str], str]]:
        """Return transcripts, an utterance a line, and the rule that normalises one.

        For corpora that lm.extra_text can name; Release.roles marks the needed releases with TEXT. Raises
        AsrtoolError if unsupported.
        """
        known = "name a file of its sentences instead"
        raise AsrtoolError(f"lm.extra_text names {self.name}, whose transcripts are not read alone", known)


RESERVED = ("train", "dev", "long", "corpora")  # folders of manifests that are of no corpus


@dataclass(frozen=True)
class CorpusInRoles:
    """A corpus and the roles it is named for."""

    corpus: Corpus
    roles: tuple[str, ...]

    @property
    def releases(self) -> list[Release]:
        """Return the releases for these roles."""
        return [release for release in self.corpus.releases if set(release.roles) & set(self.roles)]


def named_corpora(data: Data, extra_text: Sequence[str] = ()) -> list[CorpusInRoles]:
    """Return the corpora of `data` in order, and transcripts of `extra_text`.

    Raises AsrtoolError if nothing is named to train on, for a role that a corpus lacks, and for names that folders
    cannot have.
    """
    if not data.train:
        known = ", ".join(registry.names("corpus"))
        raise AsrtoolError(
            "data.train is empty, expected at least one corpus",
            f"name it with --set data.train=NAME: {known}, or package.module:Class",
        )
    roles: dict[str, list[str]] = {}
    for role in ROLES:
        for choice in getattr(data, role):
            roles.setdefault(choice.name, []).append(role)
    for corpus in extra_corpora(extra_text):
        roles.setdefault(corpus.name, []).append(TEXT)
    named = {}
    for choice_name, named_roles in roles.items():
        corpus = open_corpus(choice_name)
        for role in named_roles:
            if role not in (*corpus.roles, TEXT):
                what = f"data.{role} names {corpus.name}, which has no {role} set but {', '.join(corpus.roles)}"
                raise AsrtoolError(what, f"name another corpus in data.{role}")
        if corpus.name in named:
            raise AsrtoolError(f"two corpora of data are called {corpus.name}", "rename one of the classes' names")
        named[corpus.name] = CorpusInRoles(corpus, tuple(named_roles))
    return list(named.values())


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
        raise AsrtoolError(f"{name}: no subclass of asrtool.local.corpus.Corpus", "see docs/how-to/new-corpus.md")
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


CORPORA = "corpora"


def prepare_all(corpus: Path, manifests: Path, data: Data) -> None:
    """Prepare each corpus of `data` from its releases in `corpus`.

    Raises AsrtoolError if a corpus cannot be prepared or lacks a set it is named for.
    """
    for item in named_corpora(data):
        out = manifests / CORPORA / item.corpus.name
        prepare_corpus(item.corpus, corpus, out, data)
        needed = {role for release in item.corpus.releases if not release.is_optional for role in release.roles}
        for role in (role for role in item.roles if role in needed):
            read_report(out / role)


def prepare_corpus(corpus: Corpus, releases: Path, out: Path, data: Data) -> None:
    """Write `out`/ROLE for each set of `corpus` from its `releases`.

    Sets of an earlier run count as half-written until made again; decoded audio stays.
    """
    for role in ROLES:
        check_place(out / role)
        (out / role / REPORT).unlink(missing_ok=True)
    corpus.prepare(releases, out, data)
