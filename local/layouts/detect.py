"""Data in whichever layout they have, to manifests."""

from __future__ import annotations

from pathlib import Path

from asrtool.corpus.settings import Data
from local.layouts.folder import prepare_folder
from local.layouts.kaldi import prepare_kaldi
from local.layouts.lhotse import is_lhotse_folder, prepare_lhotse


def prepare_any(source: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out`: wav.scp marks a Kaldi data directory, *recordings*.jsonl.gz lhotse manifests.

    Its ref.stm has that label on each segment.
    """
    if (source / "wav.scp").is_file():
        prepare_kaldi(source, out, data, label)
    elif is_lhotse_folder(source):
        prepare_lhotse(source, out, data, label)
    else:
        prepare_folder(source, out, data, label)
