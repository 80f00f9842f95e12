"""Data in whichever layout they have, to manifests."""

from __future__ import annotations

from pathlib import Path

from asrtool.corpus.settings import Data
from asrtool.url import as_url
from local.layouts.address import place_of
from local.layouts.folder import prepare_folder
from local.layouts.kaldi import prepare_kaldi
from local.layouts.lhotse import is_lhotse_folder, prepare_lhotse
from local.layouts.shar import is_shar_folder, prepare_shar


def prepare_any(source: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out`: wav.scp marks a Kaldi data directory, *recordings*.jsonl.gz lhotse manifests.

    cuts.*.jsonl.gz with recording.*.tar marks Lhotse Shar. At an address it is that, or lhotse manifests. Its ref.stm
    has that label on each segment.
    """
    source = place_of(source)
    if not as_url(source) and (source / "wav.scp").is_file():
        prepare_kaldi(source, out, data, label)
    elif is_shar_folder(source):
        prepare_shar(source, out, data, label)
    elif as_url(source) or is_lhotse_folder(source):
        prepare_lhotse(source, out, data, label)
    else:
        prepare_folder(source, out, data, label)
