"""The toy task as files, and training on it."""

from __future__ import annotations

import contextlib
import gc
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from command import ASRTOOL, NUM_EPOCHS, Start, command_words
from learners import MANY_BATCHES, Learners
from toy_task import TOY_CONFIG, last_weights, write_toy
from trainings import components_of, run_training

from asrtool.decode.align.frame_targets import targets_run
from asrtool.models.acoustic import save_model
from asrtool.models.objectives.topology import uses_tree
from asrtool.settings.decode import Decode
from asrtool.settings.models import Tree
from asrtool.settings.toml_files import load_config
from asrtool.train.batches import shard_source


@pytest.fixture(autouse=True)
def garbage_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training freezes what is there, garbage too: of many in one process it would keep the files of all open."""
    monkeypatch.setattr("gc.freeze", gc.isenabled)  # which does nothing, and can be sent to other processes


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `features` and `tokenizer`; to be read only."""
    return write_toy(tmp_path_factory.mktemp("toy"), 24, 6)


@pytest.fixture(scope="session")
def aligner(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model file of a CTC model that has learned nothing."""
    config = tmp_path_factory.mktemp("aligner") / "toy.toml"
    config.write_text(TOY_CONFIG, encoding="utf-8")
    torch.manual_seed(4)
    components = components_of(toy, config)
    save_model(config.with_name("model.pt"), components.model, components.info)
    return config.with_name("model.pt")


@pytest.fixture(scope="session")
def targets(toy: Path, aligner: Path) -> Path:
    """Frame targets of the toy task by that; to be read only."""
    out = aligner.with_name("targets")
    targets_run(aligner, toy / "features", toy / "tokenizer", out, Decode(num_jobs=1), Tree(100, 5))
    return out


@pytest.fixture
def toy_config(tmp_path: Path) -> Path:
    """Settings of a training of three epochs that takes a second."""
    path = tmp_path / "toy.toml"
    path.write_text(TOY_CONFIG, encoding="utf-8")
    return path


@pytest.fixture
def small_batches_config(tmp_path: Path) -> Path:
    """Return the configuration with batches of two utterances, so that each of four learners has some."""
    path = tmp_path / "small.toml"
    path.write_text(MANY_BATCHES, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def learners(request: pytest.FixtureRequest) -> Iterator[Learners]:
    """Processes of learners for all tests of a file: NUM_PROCESSES of it, else four."""
    started = Learners(getattr(request.module, "NUM_PROCESSES", 4))
    yield started
    started.close()


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A training chooses the number of threads for its process, and its kernels; a test gives them back."""
    num_threads, has_onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    yield
    torch.set_num_threads(num_threads)
    torch.backends.mkldnn.enabled = has_onednn


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make several batches of the dev set, so that each learner has a part; toy sets are small."""
    monkeypatch.setattr(shard_source, "EVAL_FRAMES", 0)


@pytest.fixture
def train_toy(toy: Path, toy_config: Path, request: pytest.FixtureRequest) -> Callable[..., dict[str, torch.Tensor]]:
    """Train the toy task in a directory, with settings as ``train.seed=2``; returns the last weights."""

    def train_there(out: Path, *overrides: str) -> dict[str, torch.Tensor]:
        objective = load_config([toy_config], overrides).model.objective
        targets = request.getfixturevalue("targets") if uses_tree(objective) else None
        run_training(toy, toy_config, out, overrides, targets)
        return last_weights(out)

    return train_there


@pytest.fixture(scope="session")
def finished() -> dict[tuple[str, tuple[str, ...]], Path]:
    """Return the folders of finished toy trainings by their settings."""
    return {}


@pytest.fixture
def undisturbed(
    train_toy: Callable[..., dict[str, torch.Tensor]],
    toy_config: Path,
    finished: dict[tuple[str, tuple[str, ...]], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Path]:
    """The folder of a toy training with such settings that nothing disturbed, which takes place once; read only."""

    def folder_of(*overrides: str) -> Path:
        key = toy_config.read_text(encoding="utf-8"), overrides
        if key not in finished:
            out = tmp_path_factory.mktemp("undisturbed")
            train_toy(out, *overrides)
            finished[key] = out
        return finished[key]

    return folder_of


@pytest.fixture
def many_epochs(tmp_path: Path) -> Path:
    """Settings of a training of small batches that takes seconds."""
    path = tmp_path / "toy.toml"
    path.write_text(MANY_BATCHES.replace("num_epochs = 3", f"num_epochs = {NUM_EPOCHS}"))
    return path


@pytest.fixture
def start(toy: Path, many_epochs: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a training of `many_epochs` in `tmp_path`/train by the words of the command; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start_training(*options: str) -> subprocess.Popen[str]:
            words = [ASRTOOL, *command_words(toy, many_epochs, tmp_path, *options)]
            process = stack.enter_context(subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            return process

        yield start_training
