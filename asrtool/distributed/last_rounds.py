"""Who leaves the last rounds of a training to others, where learners take theirs from a counter. Needs no torch."""

from __future__ import annotations

AHEAD = 2  # batches that a learner has to train when it has drawn one: that, and the one before it
SLOW = 2  # times as long as the mean a step of a slow learner takes, at least


def rounds_left_to_others(before: int, last: int, num_groups: int) -> range | None:
    """The rounds that the others draw before a slow sync group has trained one that it would draw now.

    Where they reach the end of the training, it leaves them to the others, which would wait for it. `before` and `last`
    are the rounds that it has drawn last. Time is counted in rounds of all: a step here takes as many as lie between
    these, a step of the mean one for each group. None where this group is not slow.
    """
    per_step = last - before
    if per_step <= SLOW * num_groups:
        return None
    return range(last, last + per_step + AHEAD * (per_step - num_groups))
