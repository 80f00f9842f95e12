"""Topology: how rows of scores map to tokens, for search and forced alignment.

Needs no torch. Letters in names: T rows, V columns of the scores. A path is a list of one column a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.models.objectives.decision_tree import Tree
from asrtool.settings import registry
from asrtool.settings.schema import Choice

# Token, the rows in which a path emits it, begin and end (exclusive), and its highest score there. A plain tuple: an
# utterance has dozens, and named ones take longer to make than all else that words take after the search.
Span = tuple[int, int, int, float]


class Topology(ABC):
    """Interface of topologies; settings name one as `topology`.

    It is built without arguments, or with a decision tree and the scale of priors if the objective `uses_tree`.
    Scores are natural logarithms, higher is better.
    """

    margin_s: ClassVar[float] = 0.1  # how far tokens reach beyond their spans; CTC emits one for a moment inside it

    def best_path(self, scores_TV: np.ndarray) -> list[int]:
        """The best column of each row."""
        return list(scores_TV.argmax(axis=1).tolist())

    @abstractmethod
    def align(self, scores_TV: np.ndarray, tokens: Sequence[int]) -> list[int]:
        """The best path of `tokens`, which must fit the rows."""

    @abstractmethod
    def spans(self, path: Sequence[int], scores_TV: np.ndarray) -> list[Span]:
        """The tokens of a path, in order."""

    @abstractmethod
    def rows_needed(self, tokens: Sequence[int]) -> int:
        """Rows of the shortest path of `tokens`."""

    @abstractmethod
    def transducer(self, tokens: Sequence[int]) -> str:
        """Return H of a decoding graph as OpenFst text: columns of rows to `tokens`.

        Input label i + 1 reads column i, output label i + 1 is token i, and 0 is epsilon; state 0 is the start.
        """


def uses_tree(objective: Choice) -> bool:
    """Return whether rows of scores are pdfs of a decision tree, not tokens."""
    return bool(getattr(objective.settings, "uses_tree", False))


def load_topology(objective: Choice, tree: Tree | None = None) -> Topology:
    """The topology of `objective`, with the `tree` where it uses one.

    Raises AsrtoolError where it has none, and for one that cannot be loaded.
    """
    path = getattr(objective.settings, "topology", "")
    if not path:
        raise AsrtoolError(
            f"model.objective = {objective.name} names no topology, which says how rows of its scores stand for tokens",
            "choose another objective, or give its settings a `topology`, see docs/guide/extending.md",
        )
    kind = registry.load("topology", path)
    topology: Topology = kind(tree, objective.settings.prior_scale) if uses_tree(objective) else kind()
    return topology
