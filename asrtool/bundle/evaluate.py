"""Prepare, decode and score another test set with a trained recogniser."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from asrtool.bundle.trained import TrainedRecogniser
from asrtool.data.features.further_sets import write_separate_set
from asrtool.data.manifests.manifest import check_rejected_place, move_paths, rejected
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.decode.acoustic_model import load_acoustic_model
from asrtool.decode.decode import decode_run
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.log import logged_as
from asrtool.score.output import score_all
from asrtool.score.result import Result
from asrtool.settings.data import Data
from asrtool.settings.toml_files import load_section

DECODED = "decode/decode.json"  # a folder with this file may be overwritten


def evaluate(
    trained: TrainedRecogniser, name: str, prepare: Callable[[Path, Data], None], out: Path
) -> Mapping[tuple[str, str], Result]:
    """Decode a set `name` with each tuned method and write `out`.

    `prepare` writes a manifest folder. `out` has manifests, features, decode and score as a work folder has them.
    Returns results by set and method. Raises AsrtoolError for data that cannot be prepared or read, and as
    decode_run.
    """
    config = trained.config
    info = load_acoustic_model(trained.model).info
    features = load_section("features", info["features"], str(trained.model))
    features = dataclasses.replace(features, resample=True)
    check_rejected_place(out)
    with write_folder(out, DECODED) as folder, logged_as(folder, str(out)):
        manifests = folder / "manifests" / name
        try:
            prepare(manifests, config.data)
        except AsrtoolError as error:
            if rejected(manifests).is_file():  # else it is removed with the folder
                shutil.move(rejected(manifests), rejected(out))
                error.hint = error.hint.replace(str(rejected(manifests)), str(rejected(out)))
            raise
        (folder / "features").mkdir()
        drops = write_separate_set(folder / "features" / name, trained.cmvn_folder, manifests, features)
        if drops:
            logging.warning(
                "%d utterances have no usable audio, the first is %s: %s", len(drops), drops[0].id, drops[0].detail
            )
        decode_run(
            trained.model, folder / "features" / name, trained.tuning, folder / "decode", trained.folders, config
        )
        write_sets(folder / "manifests", Sets((EvaluationSet(name),)))  # for `asrtool score all`
        results = score_all(folder / "decode", folder / "manifests", folder / "score", [name])
        move_paths(manifests, folder, out)
    rejected(out).unlink(missing_ok=True)
    return results
