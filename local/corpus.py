"""What a corpus is: the releases it is read from, the sets it gives, and how these become manifests.

A corpus is one class. That of `local/corpora/NAME.py` is called NAME in data.train, data.dev and data.test; a person's
own is called ``package.module:Class`` there. Settings look at these classes for the keys of [paths], so a module that
holds one imports lhotse and torch inside its functions only.
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
    """Data as their publisher lays them out; paths.KEY says where they lie, in folders or tar files."""

    name: str  # of its folder below the corpus folder
    title: str
    holds: tuple[str, ...] = ()  # patterns, each of which matches a file somewhere under it
    roles: tuple[str, ...] = ROLES  # of its corpus, for which it is read
    is_optional: bool = False
    is_one_folder: bool = False  # whose layout begins at its top: not several, no tar file, but perhaps an address

    @property
    def key(self) -> str:
        """What it is called in [paths]."""
        return self.name.lower()


class Corpus(ABC):
    """Recordings with transcripts, in up to three roles: to train on, to choose weights on, to test on."""

    in_mini: ClassVar[bool] = False  # whether local/mini/corpus.py makes one that can stand in for it
    train_hours: ClassVar[float] = 0.0  # of speech in its training set, about; 0 where that is not known before
    shortened_samples: ClassVar[int] = 0  # of all channels, about, that its releases compress with shorten
    labels: ClassVar[tuple[tuple[str, str], ...]] = ()  # of its reference, with headings: the columns of RESULTS.md

    @property
    @abstractmethod
    def name(self) -> str:
        """Of its folders, and in references."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Of its tables."""

    @property
    @abstractmethod
    def releases(self) -> tuple[Release, ...]:
        """What it is read from."""

    @property
    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """For which it has a set; one that has an optional release may be missing."""

    @abstractmethod
    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write a manifest folder `out`/ROLE for each of its sets from the releases, which are folders of `corpus`.

        asrtool.data.manifests.manifest.write_manifests writes such a folder. A test set has ``ref.stm`` and
        ``ref.glm`` too.
        Raises AsrtoolError when a file is missing or too much cannot be used (data.bad_fraction).
        """

    def texts(self, corpus: Path) -> tuple[Iterable[str], Callable[[str], str]]:
        """Its transcripts as they are, an utterance a line, and the rule that normalises one, without its audio.

        For corpora that lm.extra_text can name; Release.roles says with TEXT which releases that takes.
        Raises AsrtoolError where that is not known.
        """
        known = "name a file of its sentences instead"
        raise AsrtoolError(f"lm.extra_text names {self.name}, whose transcripts are not read alone", known)
