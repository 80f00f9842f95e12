"""Trained recogniser: a work folder of `asrtool run`, or a bundle of one."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from asrtool.bundle.archive import MODELS, find_trained, is_archive, open_archive
from asrtool.data.features.cmvn import CMVN
from asrtool.decode.parameters import TuningFile
from asrtool.errors import AsrtoolError
from asrtool.models.files.safetensors_file import SUFFIX, model_in
from asrtool.settings.config import Config
from asrtool.settings.schema import SEARCHED
from asrtool.settings.toml_files import load_config

NETWORK = "model.onnx"  # of `asrtool export --onnx`
AVERAGE = "average"
MODEL = f"{AVERAGE}/model.pt"
SAFE_MODEL = f"average/model{SUFFIX}"
TUNING = "tune/tuning.json"
TUNED = "tune/tuning.tsv"
SETTINGS = "config/report.toml"
RUN = "config/run.json"
CMVN_FILE = f"features/train/{CMVN}"
EXPECTED = f"name the --work of an `asrtool run` that has decoded, a bundle of `asrtool export`, or set {MODELS}"


@dataclass(frozen=True)
class TrainedRecogniser:
    """Recogniser in `folder`, opened from `origin`."""

    origin: Path
    folder: Path
    config: Config

    @property
    def model(self) -> Path:
        """The acoustic model."""
        network = self.folder / NETWORK
        return network if network.exists() else model_in((self.folder / MODEL).parent)

    @property
    def uses_gpu(self) -> bool:
        """True if the acoustic model runs on a GPU here."""
        if self.model.name == NETWORK:
            return False
        from asrtool.models.acoustic import choose_device

        return choose_device().type != "cpu"

    @property
    def tuning(self) -> Path:
        """Weights of the searches."""
        return self.folder / TUNING

    @property
    def cmvn_folder(self) -> Path:
        """Folder with the normalisation of the training set."""
        return (self.folder / CMVN_FILE).parent

    @property
    def folders(self) -> Mapping[str, Path | None]:
        """Paths that search methods read, by the names of settings.SEARCHED."""
        return {name: self.folder / name if (self.folder / name).is_dir() else None for name in SEARCHED}

    def best_method(self) -> str:
        """Return the search method with the fewest errors on dev; in ties the last."""
        errors = dev_errors(self.folder)
        known = [method.name for method in self.config.decode.methods]
        tuned = [name for name in reversed(known) if name in errors]
        return min(tuned, key=lambda name: errors[name], default=known[0])


@contextlib.contextmanager
def open_trained(path: Path) -> Iterator[TrainedRecogniser]:
    """Open a work folder or bundle; a bundle is unpacked while it is open.

    Raises AsrtoolError if it is neither, damaged, not finished, or the disk is full.
    """
    path = find_trained(path)
    if path.is_dir():
        yield _in_folder(path, path)
        return
    if not path.exists():
        raise AsrtoolError(f"{path}: no such file or folder", EXPECTED)
    if not is_archive(path):
        raise AsrtoolError(f"{path}: neither a work folder nor a bundle", EXPECTED)
    archive = open_archive(path)
    with tempfile.TemporaryDirectory(prefix="asrtool-") as folder:
        try:
            archive.unpack(Path(folder), archive.files)
        except OSError as error:
            where = tempfile.gettempdir()
            what = f"{path}: cannot be unpacked to {where}, {(error.strerror or 'no room').lower()}"
            raise AsrtoolError(what, f"free {archive.num_bytes / 2**20:.0f} MiB there, or set TMPDIR") from error
        yield _in_folder(path, Path(folder))


def part_of(path: Path, part: str, unpacked: Callable[[], AbstractContextManager[Path]], place: Path) -> Path:
    """Return `part` (average or tokenizer) of a work folder or bundle, else `path`.

    For average this is the model file. A bundle is unpacked to the folder that `unpacked` opens, `place` after
    closing. Raises AsrtoolError if the bundle is damaged, or it or a run lacks that part.
    """
    if is_archive(path):
        archive = open_archive(path)
        names = [name for name in archive.files if name.startswith(f"{part}/")]
        if not names:
            raise AsrtoolError(f"{path}: has no {part}", "export it again")
        with unpacked() as folder:
            archive.unpack(folder, names)
        path = place
    if not (path / part).is_dir():
        _refuse_unfinished(path, part)
        return path
    return model_in(path / part) if part == AVERAGE else path / part


def _in_folder(origin: Path, folder: Path) -> TrainedRecogniser:
    names = [(NETWORK, SAFE_MODEL, MODEL), (TUNING,), (SETTINGS,), (CMVN_FILE,)]
    missing = [several[-1] for several in names if not any((folder / name).exists() for name in several)]
    if missing and any(folder.glob("*.onnx")):
        what = f"{origin}: has no {missing[0]}, so it is for sherpa-onnx alone"
        raise AsrtoolError(what, "export it again, if it is CTC, or name the bundle or work folder that it is from")
    if missing:
        _refuse_unfinished(origin, missing[0])
        raise AsrtoolError(f"{origin}: has no {missing[0]}, so it is no trained recogniser", EXPECTED)
    if (folder / NETWORK).exists():
        open_archive(folder).check()
    config = load_config([folder / SETTINGS], warn=False)
    TuningFile(folder / TUNING)
    return TrainedRecogniser(origin, folder, config)


def _refuse_unfinished(path: Path, missing: str) -> None:
    """Raise AsrtoolError if `path` is the work folder of a run, which lacks `missing`."""
    if (path / RUN).is_file():
        what = f"{path}: has no {missing} yet, since its run has not finished"
        raise AsrtoolError(what, f"resume it: asrtool run --work {shlex.quote(str(path))}")


def dev_errors(folder: Path) -> dict[str, float]:
    """Read the word error rate in percent on dev of each tuned method."""
    path = folder / TUNED
    if not path.exists():
        return {}
    header, *rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    found = [dict(zip(header, row, strict=True)) for row in rows]
    chosen = [row for row in found if row["chosen"] == "yes" and row["wer_percent"] != "-"]
    return {row["method"]: float(row["wer_percent"]) for row in chosen}
