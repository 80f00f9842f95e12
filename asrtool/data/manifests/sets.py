"""Sets of a run: `sets.json` beside their folders, in manifests and features.

One is for training, one for tuning, any number for testing. The file is written last: it marks the folders as
complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.settings.data import Data

FILE = "sets.json"
TRAIN, DEV = "train", "dev"
LONG = "long"  # folder beside the sets: utterances that are too long to train on until they are cut


@dataclass(frozen=True)
class EvaluationSet:
    """Test set; `name` is the name of its folders."""

    name: str
    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # label of the reference -> heading, for labels shown apart


@dataclass(frozen=True)
class Sets:
    """Names of the sets and of their folders."""

    test: tuple[EvaluationSet, ...]
    train: str = TRAIN
    dev: str = DEV

    @property
    def names(self) -> list[str]:
        """All of them, the training set first."""
        return [self.train, *self.scored]

    @property
    def scored(self) -> list[str]:
        """Names of the sets that are decoded and scored."""
        return [self.dev, *(item.name for item in self.test)]


def training_features(features: Path, cut: Path | None, data: Data) -> Path:
    """Return the features to train on: the output of `asrtool cut` with data.cut_long."""
    return cut / "features" if cut and data.cut_long else features


def write_sets(folder: Path, sets: Sets) -> None:
    """Write `folder`/sets.json."""
    write_text(folder / FILE, json.dumps(asdict(sets), indent=1) + "\n")


def read_sets(folder: Path) -> Sets:
    """Read `folder`/sets.json; AsrtoolError if it is missing or malformed."""
    path = folder / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise AsrtoolError(f"{path}: missing, so the sets are not complete", "run the stage that makes it") from error
    except ValueError as error:
        raise _no_list(path, error) from error
    return parse_sets(text, path)


def parse_sets(text: str, where: Path | str) -> Sets:
    """Parse the content of the file `where`; AsrtoolError if it is malformed."""
    try:
        content = json.loads(text)
        test = tuple(EvaluationSet(**item) for item in content["test"])
        return Sets(test, content["train"], content["dev"])
    except (ValueError, TypeError, KeyError) as error:
        raise _no_list(where, error) from error


def _no_list(where: Path | str, error: Exception) -> AsrtoolError:
    return AsrtoolError(f"{where}: no list of sets: {error}", "run the stage that makes it again")
