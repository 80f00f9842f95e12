"""The rounds of the work queue in virtual time: who trains which, and from which checkpoint a training begins anew."""

from __future__ import annotations

from collections.abc import Sequence

from asrtool.distributed.work.work_queue import rounds_left_to_others

NONE = -1  # in place of a round


class Rounds:
    """A counter, and what lost units have left of what was drawn."""

    def __init__(self, of_epoch: int, num_epochs: int) -> None:
        self.of_epoch = of_epoch
        self.num = of_epoch * num_epochs
        self.num_epochs = num_epochs
        self.next = 0
        self.left: list[int] = []  # rounds that lost units had drawn
        self.num_done = 0  # units that left the last rounds to others
        self.cuts = [0]  # the rounds before which checkpoints lie
        self.cut_s = [0.0]

    def draw(self, drawn: tuple[int, ...], num_live: int) -> tuple[int, tuple[int, ...]]:
        """The next round for one of `num_live` units, or NONE, and its last two rounds, which were `drawn`.

        It is one that a lost unit has left, else that of the counter.
        """
        if self.left:
            return self.left.pop(0), drawn
        if self.next >= self.num or self._would_be_last(drawn, num_live):
            return NONE, drawn
        number, self.next = self.next, self.next + 1
        return number, (*drawn[-1:], number)

    def _would_be_last(self, drawn: tuple[int, ...], num_live: int) -> bool:
        """As asrtool.distributed.work.work_queue decides it."""
        if len(drawn) < 2:
            return False
        before, last = drawn
        rounds = rounds_left_to_others(before, last, num_live)
        in_last_epoch = self.epoch_of(last) == self.num_epochs - 1
        if rounds is None or rounds.stop < self.num or not in_last_epoch:
            return False
        self.num_done += 1
        return self.num_done < num_live

    def epoch_of(self, number: int) -> int:
        """That of a round."""
        return number // self.of_epoch

    def cut(self, seconds: float, epoch: int | None) -> None:
        """A checkpoint is made, at the beginning of `epoch` or, for None, between two steps."""
        self.cuts.append(self.next if epoch is None else epoch * self.of_epoch)
        self.cut_s.append(seconds)

    def restart(self, in_hand: Sequence[int], seconds: float) -> tuple[int, float]:
        """Go back to the last checkpoint that has all rounds before it, from where training is resumed at `seconds`.

        Units have the rounds `in_hand`. Returns how many rounds are trained again, and when that checkpoint was made.
        """
        trained = min(in_hand, default=self.next)
        place = max(index for index, cut in enumerate(self.cuts) if cut <= trained)
        cut, cut_s = self.cuts[place], self.cut_s[place]
        num_repeated = self.next - cut - sum(number >= cut for number in in_hand)
        self.next, self.num_done = cut, 0
        self.cuts, self.cut_s = [cut], [seconds]
        return num_repeated, cut_s
