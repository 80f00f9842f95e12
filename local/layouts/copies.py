"""Copies at other speeds, as Kaldi's perturb_data_dir_speed makes them: sp0.9-ID beside ID.

The features stage makes such copies itself (features.speeds), under the same names. Data that have them are taken as
they were before: two utterances of one name would be mixed up, and a speaker of dev would be in training as sp0.9-NAME.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from asrtool.corpus.transcripts import COPY

AS_IT_WAS = "sp1.0-"


def copies_among(ids: Collection[str]) -> set[str]:
    """Those of `ids` that are copies at another speed, and of which the original is among them."""
    found = ((id_, match) for id_ in ids if (match := COPY.match(id_)) and match[0] != AS_IT_WAS)
    known = set(ids)
    return {id_ for id_, match in found if known & {id_[match.end() :], AS_IT_WAS + id_[match.end() :]}}


def say_left_out(where: object, copies: Collection[str], num_all: int) -> None:
    """Log that `copies` of `num_all` utterances are left out."""
    if copies:
        logging.warning(
            "%s: %d of %d utterances are copies at other speeds, the first is %s: LEFT OUT, as features.speeds makes"
            " them", where, len(copies), num_all, min(copies),
        )  # fmt: skip
