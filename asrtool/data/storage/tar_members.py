"""Positions of data in a part of a tar file of Lhotse Shar."""

from __future__ import annotations

import itertools
import tarfile

from asrtool.data.storage.byte_range import Extent


def data_members(extent: Extent) -> dict[str, tuple[int, int]]:
    """Return the offset in `extent` and size of each utterance's data, by name.

    An utterance has two members: its data, and a manifest. Raises ValueError if one is missing, and as tarfile.
    """
    end = extent.begin + extent.size
    with extent.open() as file, tarfile.open(fileobj=file, mode="r:") as tar:
        members = list(itertools.takewhile(lambda member: member.offset < end, tar))
    if len(members) % 2:
        raise ValueError(f"a tar file has {len(members)} members, expected two an utterance")
    return {member.name.rpartition(".")[0]: (member.offset_data - extent.begin, member.size) for member in members[::2]}
