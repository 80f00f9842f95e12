"""Another test set, decoded and scored by what was trained; nothing of the training is computed again."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from asrtool.bundle.trained import Trained
from asrtool.config_file import load_section
from asrtool.corpus.index import EXTRACTOR
from asrtool.corpus.more_features import write_alone
from asrtool.corpus.settings import Data
from asrtool.decode.decode import decode_run
from asrtool.decode.forward import load_acoustic_model
from asrtool.files import write_folder
from asrtool.score.output import score_all
from asrtool.score.result import Result

SIGN = "decode/decode.json"  # by which a folder that is written again is known


def evaluate(
    trained: Trained, name: str, prepare: Callable[[Path, Data], None], out: Path
) -> Mapping[tuple[str, str], Result]:
    """Decode a set called `name` with each method it was tuned for, and write `out`; counts by set and method.

    `prepare` writes a manifest folder. `out` has manifests, features, decode and score as a work folder has them.
    Raises AsrtoolError for data that cannot be prepared or read, and as decode_run.
    """
    config = trained.config
    info = load_acoustic_model(trained.model).info
    features = load_section("features", info["features"], str(trained.model))
    features = dataclasses.replace(features, resample=True)
    with write_folder(out, SIGN) as folder:
        prepare(folder / "manifests" / name, config.data)
        (folder / "features").mkdir()
        if trained.extractor:
            shutil.copyfile(trained.extractor, folder / "features" / EXTRACTOR)
        drops = write_alone(folder / "features" / name, trained.sums, folder / "manifests" / name, features)
        if drops:
            logging.warning(
                "%d utterances have no usable audio, the first is %s: %s", len(drops), drops[0].id, drops[0].detail
            )
        decode_run(
            trained.model, folder / "features" / name, trained.tuning, folder / "decode", trained.folders, config
        )
        return score_all(folder / "decode", folder / "manifests", folder / "score", [name])
