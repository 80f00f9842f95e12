"""What a model is trained for: hidden rows and targets to a loss, and to scores that a search reads.

Letters in names: N utterances, T rows, C channels of a row, U targets of an utterance, V tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn


@dataclass(frozen=True)
class Loss:
    """Of a batch. Sums are divided once, over all batches of a step or of an evaluation."""

    total: Tensor  # nats, summed over the utterances; a scalar
    normaliser: int  # what the total is divided by: targets, or rows
    figures: Mapping[str, float] = field(default_factory=dict)  # further sums to report, divided by the same


class Objective(nn.Module, ABC):
    """Built with its settings, the channels of a row and the number of tokens; it may have parameters.

    Its settings name the searches that its scores are for (`searches`) and the stages whose outputs it needs (`needs`).
    """

    targets: ClassVar[str] = "tokens"  # or states: one for each frame

    @abstractmethod
    def fits(self, num_rows: int, targets: Sequence[int]) -> str:
        """Why an utterance of `num_rows` rows cannot be trained on with these `targets`; nothing where it can."""

    @abstractmethod
    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """The loss of a batch, in float32 whatever the precision of the rows."""

    def normaliser(self, num_rows: int, targets: Sequence[int]) -> int:
        """The part of an utterance in the normaliser of `loss`, known before anything is computed."""
        return len(targets)

    def scores(self, hidden_NTC: Tensor) -> Tensor:
        """What a search reads, a row for each hidden row, float32; here these themselves."""
        return hidden_NTC.float()
