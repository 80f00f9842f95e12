"""Parts of stages that no command runs alone, for benchmarks/scale.py.

python benchmarks/scale_part.py changes WORK FOLDER          # read a folder for changes, as `asrtool run` does
python benchmarks/scale_part.py shorten FOLDER OUT           # decode what is compressed with shorten
python benchmarks/scale_part.py cut FEATURES MANIFESTS OUT   # features of pieces behind those of a training set
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path


def read_for_changes(work: str, folder: str) -> None:
    from asrtool.recipe.contents import contents_of

    contents_of(Path(work)).digest(folder)


def decode_shorten(folder: str, out: str) -> None:
    from asrtool.data.audio.sphere import read_header
    from asrtool.data.manifests.manifest import Drop
    from asrtool.local.releases import shortened
    from asrtool.local.utterances import Sound

    setattr(shortened, "num_cores", lambda: 1)  # noqa: B010, processes of a pool are not in what usage.py reports

    headers = {path: read_header(path) for path in sorted(Path(folder).glob("*.sph"))}
    sounds = {path.stem: Sound(path, header.num_samples, 8000) for path, header in headers.items()}
    drops: list[Drop] = []
    shortened.decode_shortened(sounds, Path(out), drops)
    assert not drops, drops[0]


def put_behind(features: str, manifests: str, out: str) -> None:
    from asrtool.data.features.further_sets import write_behind
    from asrtool.data.storage.index import read_feature_settings

    base = Path(features) / "train"
    settings = dataclasses.replace(read_feature_settings(Path(features)), num_jobs=1)  # as above
    write_behind(Path(out), base, Path(manifests), settings)


PARTS: dict[str, Callable[..., None]] = {"changes": read_for_changes, "shorten": decode_shorten, "cut": put_behind}

if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
