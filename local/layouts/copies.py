"""Copies at other speeds, as Kaldi's perturb_data_dir_speed makes them: sp0.9-ID beside ID.

The features stage makes such copies itself (features.speeds), under the same names. Data that have them are taken as
they were before: two utterances of one name would be mixed up, and a speaker of dev would be in training as sp0.9-NAME.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from asrtool.corpus.copies import COPY
from asrtool.corpus.manifest import Drop

AS_IT_WAS = "sp1.0-"


def originals_of(id_: str) -> tuple[str, ...]:
    """What that is called which `id_` would be a copy of at another speed; nothing where it is not named as one."""
    match = COPY.match(id_)
    if not match or match[0] == AS_IT_WAS:
        return ()
    return id_[match.end() :], AS_IT_WAS + id_[match.end() :]


def copies_among(ids: Collection[str]) -> set[str]:
    """Those of `ids` that are copies at another speed, and of which the original is among them."""
    named = {id_: names for id_ in ids if (names := originals_of(id_))}
    known = set(ids) if named else set()
    return {id_ for id_, names in named.items() if not known.isdisjoint(names)}


def say_left_out(where: object, copies: Collection[str], num_all: int, drops: list[Drop]) -> None:
    """Log that `copies` of `num_all` utterances are left out, and add them to `drops`."""
    drops += [Drop(id_, "copy at another speed") for id_ in sorted(copies)]
    if copies:
        logging.warning(
            "%s: %d of %d utterances are copies at other speeds, the first is %s: LEFT OUT, as features.speeds makes"
            " them", where, len(copies), num_all, min(copies),
        )  # fmt: skip
