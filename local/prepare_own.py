"""A person's own data in any of the layouts that can be read, to manifests."""

from __future__ import annotations

import shutil
from pathlib import Path

from asrtool.corpus.settings import Data
from local.prepare_folder import prepare_folder
from local.prepare_kaldi import prepare_kaldi
from local.prepare_lhotse import is_lhotse_folder, prepare_lhotse

SETS = ("own_train", "own_dev", "own_test")


def prepare_own(corpus: Path, manifests: Path, data: Data) -> None:
    """Write `manifests`/own_train, own_dev and own_test from the folders of these names in `corpus`.

    A set that `corpus` does not have is removed, so that none of an earlier run is taken for this one's.
    """
    for name in SETS:
        source, out = corpus / name, manifests / name
        if source.is_dir():
            prepare_any(source, out, data)
        elif out.is_dir():
            shutil.rmtree(out)


def prepare_any(source: Path, out: Path, data: Data) -> None:
    """Write the manifest folder `out`: wav.scp tells a Kaldi data directory, *recordings*.jsonl.gz lhotse manifests."""
    if (source / "wav.scp").is_file():
        prepare_kaldi(source, out, data)
    elif is_lhotse_folder(source):
        prepare_lhotse(source, out, data)
    else:
        prepare_folder(source, out, data)
