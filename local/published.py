"""Sets of published corpora, as lhotse's preparers read them, to manifests."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.data.manifests.manifest import Drop
from asrtool.data.manifests.validator import Entry
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import Release
from asrtool.local.layouts.finish import by_recording, write_spoken
from asrtool.local.utterances import staging
from asrtool.settings.data import Data

if TYPE_CHECKING:
    from lhotse import Recording, SupervisionSegment


@dataclass(frozen=True)
class Part:
    """Published part of a corpus, such as test-other, and its role."""

    name: str
    role: str
    recordings: Sequence[Entry]
    supervisions: Sequence[SupervisionSegment]


def part(name: str, role: str, manifests: dict[str, Any], stage: Path | None = None) -> Part:
    """Make a part of lhotse's manifests; the dictionary is emptied.

    Files behind links of the temporary `stage` get their targets' paths. Other links stay: the features know audio by
    its place in the work folder.
    """
    recordings = [_entry(recording, stage) for recording in manifests.pop("recordings")]
    return Part(name, role, recordings, list(manifests.pop("supervisions")))


def _entry(recording: Recording, stage: Path | None) -> Entry:
    entry: Entry = recording.to_dict()
    for source in entry["sources"]:
        path = Path(source["source"])
        link = next((link for link in path.parents if stage in link.parents and link.is_symlink()), None)
        path = Path(os.readlink(link), path.relative_to(link)) if link else path
        source["source"] = os.path.abspath(path)
    return entry


@contextlib.contextmanager
def reading(release: Release, folder: Path) -> Iterator[Path]:
    """Yield a temporary folder while lhotse reads `release`; errors become one line."""
    from lhotse.audio.utils import AudioLoadingError

    try:
        # lhotse draws its progress bars on standard error, be that a terminal or a log.
        with staging() as stage, contextlib.redirect_stderr(io.StringIO()):
            yield stage
    except (AudioLoadingError, AssertionError, ValueError, KeyError, TypeError, FileNotFoundError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise AsrtoolError(
            f"{folder}: lhotse cannot read {release.title}: {type(error).__name__}: {reason}",
            f"compare the folder with the layout in docs/guide/corpora.md, and check paths.{release.key}",
        ) from error


def write_parts(out: Path, parts: Sequence[Part], data: Data, roles: Sequence[str]) -> None:
    """Write `out`/ROLE for each role; reference segments are labelled by part.

    Raises AsrtoolError if too much of a part cannot be used.
    """
    for role in roles:
        chosen = [item for item in parts if item.role == role]
        if not chosen:
            continue
        drops: list[Drop] = []
        segments = (segment for item in chosen for segment in item.supervisions)
        label_of = {entry["id"]: item.name for item in chosen for entry in item.recordings}
        recordings = (entry for item in chosen for entry in item.recordings)
        write_spoken(out / role, recordings, by_recording(segments), drops, data, label_of.__getitem__)
