"""Interface of corpora: releases, sets, and how these become manifests.

A corpus is one class. `local/corpora/NAME.py` has the one called NAME in data.train, data.dev and data.test; a custom
one is ``package.module:Class``. Settings read these classes for the keys of [paths], so a module imports lhotse and
torch inside its functions only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from asrtool.errors import AsrtoolError
from asrtool.settings.data import Data

ROLES = ("train", "dev", "test")
TEXT = "text"  # the role of a corpus of which the transcripts alone are read, for lm.extra_text
UNCERTAIN = "uncertain"  # custom field of an utterance whose transcriber doubts some words: data.uncertain


@dataclass(frozen=True)
class Release:
    """Data as published; paths.KEY says where, in folders or tar files."""

    name: str  # of its folder below the corpus folder
    title: str
    holds: tuple[str, ...] = ()  # patterns, each of which matches a file somewhere under it
    roles: tuple[str, ...] = ROLES  # of its corpus, for which it is read
    is_optional: bool = False
    is_one_folder: bool = False  # whose layout begins at its top: not several, no tar file, but perhaps an address

    @property
    def key(self) -> str:
        """Key in [paths]."""
        return self.name.lower()


class Corpus(ABC):
    """Recordings with transcripts, to train on, to tune on, or to test on."""

    in_mini: ClassVar[bool] = False  # whether local/mini/corpus.py makes one that can stand in for it
    train_hours: ClassVar[float] = 0.0  # of speech in its training set, about; 0 where that is not known before
    shortened_samples: ClassVar[int] = 0  # of all channels, about, that its releases compress with shorten
    labels: ClassVar[tuple[tuple[str, str], ...]] = ()  # of its reference, with headings: the columns of RESULTS.md

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
