"""The texts of all errors: each has advice, and what it names is there."""

from __future__ import annotations

import itertools
import re

import click
import error_texts
import pytest

from asrtool.cli.main import COMMANDS, cli
from asrtool.data.features.shard_plan import wrong_rate
from asrtool.errors import AsrtoolError
from asrtool.recipe.stages import COMMON, CORPUS, PREPARE
from asrtool.settings import registry
from asrtool.settings.config import SECTIONS, check_conflicts
from asrtool.settings.data import Data, Features
from asrtool.settings.toml_files import known_keys, known_paths, load_config

FILES = (".json", ".tsv", ".pt", ".arpa", ".fst", ".toml", ".safetensors")
OF_OTHERS = ("--nworkers", "--nthreads", "--rdzv-endpoint", "--local-addr", "--ignore-length")  # of other programs


def test_every_error_has_advice() -> None:
    assert list(error_texts.errors_without_advice()) == []


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Each text of the sources -> where it stands."""
    return {" ".join(text.split()): place for place, text in error_texts.texts()}


def options_of(command: click.Command) -> set[str]:
    """The options of a command and of those below it."""
    found = {option for parameter in command.params for option in parameter.opts}
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        found |= options_of(below)
    return found


def test_every_command_and_option_that_an_error_names_is_there(texts: dict[str, str]) -> None:
    context = click.Context(cli)
    known = {name: options_of(cli.get_command(context, name)) | {"--debug", "--help"} for name in COMMANDS}
    wrong = []
    for text, where in texts.items():
        for name, rest in re.findall(r"asrtool (\{?[a-z]+\b\}?)([^`,;()]*)", text):
            if name not in known and name not in (
                "has",
                "did",
                "only",
                "set",
                "wrote",
                "package",
                "{name}",
                "{made_by}",
            ):
                wrong.append(f"{where}: no command {name}")
            for option in re.findall(r" (--[a-z-]+)", rest):
                if name in known and option not in known[name]:
                    wrong.append(f"{where}: {name} has no {option}")
        for option in re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", text):
            if option not in {*OF_OTHERS, *itertools.chain.from_iterable(known.values())}:
                wrong.append(f"{where}: no command has {option}")
    assert not wrong


def test_every_setting_that_an_error_names_is_there_and_takes_the_value(texts: dict[str, str]) -> None:
    keys = {*known_keys(), *(f"paths.{key}" for key in known_paths(Data()))}
    keys |= {key.rpartition(".")[0] for key in keys}
    setting = re.compile(
        rf"(?<![\w./])((?:{'|'.join(SECTIONS)})\.[a-z0-9_.-]*[a-z0-9_])(?![\w{{])(?: ?= ?([^\s,;:)`]+))?"
    )
    wrong, values = [], 0
    for text, where in texts.items():
        for key, value in setting.findall(text):
            table, _, last = key.rpartition(".")
            of_a_base = table in keys and any(other.endswith(f".{last}") for other in keys)  # several have this text
            if key not in keys and not of_a_base and not key.endswith(FILES):
                wrong.append(f"{where}: {key}")
            elif value and not re.search(r"[{}A-Z]", value):
                load_config([], [f"{key}={value}"])
                values += 1
    assert not wrong
    assert values > 10


def test_every_stage_and_page_that_an_error_names_is_there(texts: dict[str, str]) -> None:
    stages = {stage.name for stage in (CORPUS, PREPARE, *COMMON)}
    for text, where in texts.items():
        for name in re.findall(r"\brun (?:the )?(?:stages? ([a-z]+)|([a-z]+) stage\b)", text):
            assert "".join(name) in (*stages, "that", "from", "up"), f"{where}: {text}"
        for page in re.findall(r"docs/[\w./-]+\.md", text):
            assert (error_texts.ROOT / page).is_file(), f"{where}: {page}"


@pytest.mark.parametrize("method", registry.names("search"))
@pytest.mark.parametrize("unit", ["bpe", "phone"])
@pytest.mark.parametrize("objective", registry.names("objective"))
def test_advice_about_search_methods_can_be_followed(objective: str, unit: str, method: str) -> None:
    settings = [f"model.objective={objective}", f"tokenizer.unit={unit}", f"decode.methods={method}"]
    for _ in range(3):
        try:
            check_conflicts(load_config([], settings))
            return
        except AsrtoolError as error:
            said = str(error)
        advised = re.search(r"use --set (\S+);|add (\w+);", said)
        assert advised, said
        settings.append(advised[1] or f"decode.methods={settings[-1].partition('=')[2]},{advised[2]}")
    raise AssertionError(settings)


@pytest.mark.parametrize(("encoder", "frames"), [("lstm", 1), ("lstm", 100_000), ("conformer", 21), ("deepspeech2", 3)])
def test_advice_about_pieces_of_frames_can_be_followed(encoder: str, frames: int) -> None:
    settings = ["model.objective=frame-ce", f"model.encoder={encoder}"]
    with pytest.raises(AsrtoolError, match="expected a multiple") as raised:
        check_conflicts(load_config([], [*settings, f"model.frame-ce.piece_frames={frames}"]))
    advised = raised.value.what.rpartition(" ")[2]
    check_conflicts(load_config([], [*settings, f"model.frame-ce.piece_frames={advised}"]))


@pytest.mark.parametrize("rate_hz", [2000, 8000, 44100, 384000])
def test_advice_about_sampling_rates_can_be_followed(rate_hz: int) -> None:
    found = re.findall(r"features\.\w+=\w+", wrong_rate("a.wav", rate_hz, Features(sampling_rate_hz=16000)).hint)
    assert found[0] == "features.resample=true"
    for setting in found:
        load_config([], [setting])
