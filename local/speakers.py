"""Who speaks: what is said when a corpus does not know it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable


def warn_of_unknown(sides: Iterable[str], known: Collection[str], corpus: str, advice: str) -> None:
    """Log one warning if not all `sides` (of calls, or utterances) of `corpus` have a speaker in `known`.

    Each of them counts as a speaker of its own then.
    """
    sides = list(sides)
    unknown = sum(side not in known for side in sides)
    if unknown:
        logging.warning(
            "%s: THE SPEAKERS OF %d OF %d SIDES ARE NOT KNOWN, and each counts as a speaker of its own. NOT GUARANTEED"
            " THEN: that speakers of the held-out dev set are not in training, so dev may look better than test;"
            " features.cmvn = speaker normalises each side alone. %s",
            corpus,
            unknown,
            len(sides),
            advice[0].upper() + advice[1:],
        )
