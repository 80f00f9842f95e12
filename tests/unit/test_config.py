"""Settings: what is read back is what was written, and mistakes are told with the nearest key."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.config import Config, Paths, check_conflicts
from asrtool.config_file import SECTIONS, format_toml, load_config
from asrtool.errors import AsrtoolError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))  # no lone surrogates: TOML is UTF-8
KEYS = [
    (section, key, kind)
    for section, section_kind in typing.get_type_hints(Config).items()
    for key, kind in typing.get_type_hints(section_kind).items()
]


def message(*overrides: str, file: Path | None = None) -> str:
    with pytest.raises(AsrtoolError) as caught:
        load_config([file] if file else [], overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(folder: Path, text: str) -> Path:
    path = folder / "conf.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_defaults_are_read_back_and_do_not_conflict(tmp_path: Path) -> None:
    assert load_config([written(tmp_path, format_toml(Config()))]) == Config()
    check_conflicts(Config())


@given(values=st.lists(TEXTS, min_size=12, max_size=12))
@settings(max_examples=50)
def test_any_text_is_read_back_as_it_was(values: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    names = [field.name for field in dataclasses.fields(Paths)]
    config = Config(paths=Paths(**dict(zip(names, values, strict=True))))
    assert load_config([written(tmp_path_factory.mktemp("conf"), format_toml(config))]) == config


@given(
    max_hours=st.floats(0.005, 100),
    seed=st.integers(-(2**63), 2**63 - 1),
    beams=st.lists(st.floats(1e-300, 1e300), min_size=1),
)
@settings(max_examples=50)
def test_any_number_is_read_back_as_it_was(
    max_hours: float, seed: int, beams: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = Config()
    config = dataclasses.replace(
        before,
        mini=dataclasses.replace(before.mini, train_hours=max_hours, seed=seed),
        decode=dataclasses.replace(before.decode, graph_beams=tuple(beams)),
    )
    assert load_config([written(tmp_path_factory.mktemp("conf"), format_toml(config))]) == config


def test_only_the_named_sections_and_keys_are_written() -> None:
    text = format_toml(Config(), ("average", "data.train", "data.dev_minutes"))
    assert text == '[average]\nby = "last"\nnum = 3\n\n[data]\ntrain = ["swbd", "fisher"]\ndev_minutes = 5.0\n'


def test_later_files_and_then_set_win(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("[lm]\norder = 2\nmin_counts = [7]\n")
    second.write_text("[lm]\norder = 4\n")
    assert load_config([first, second]).lm.order == 4
    assert load_config([first, second], ["lm.order=5", "lm.order=6"]).lm.order == 6
    assert load_config([first, second]).lm.min_counts == (7,)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("train.num_epochs=3", 3),
        ("train.peak_lr=1e-3", 0.001),
        ("train.peak_lr=2", 2.0),
        ("paths.an4=/with space/an4", "/with space/an4"),
        ("paths.an4='quoted'", "quoted"),
        ("paths.an4=a=b", "a=b"),
        ("data.train=swbd", ("swbd",)),
        ("data.train=swbd, fisher", ("swbd", "fisher")),
        ('data.train=["swbd", "fisher"]', ("swbd", "fisher")),
        ("features.speeds=[1.0]", (1.0,)),
    ],
)
def test_a_text_becomes_the_type_of_its_key(override: str, value: Any) -> None:
    section, _, key = override.partition("=")[0].partition(".")
    assert getattr(getattr(load_config([], [override]), section), key) == value


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.num_epoch=3", "--set train.num_epoch=3: unknown key train.num_epoch; did you mean train.num_epochs?"),
        ("lm.num_epochs=3", "--set lm.num_epochs=3: unknown key lm.num_epochs; did you mean train.num_epochs?"),
        ("trian.num_epochs=3", "--set trian.num_epochs=3: unknown section 'trian'; did you mean train?"),
        ("num_epochs=3", "--set num_epochs=3: expected section.key=value; for example --set train.num_epochs=3"),
        ("train.num_epochs", "--set train.num_epochs: expected section.key=value; for example"),
        ("train.num_epochs=3.5", "train.num_epochs is '3.5', expected a whole number"),
        ("train.num_epochs=", "train.num_epochs is '', expected a whole number"),
        ("train.peak_lr=fast", "train.peak_lr is 'fast', expected a number"),
        ("train.peak_lr=nan", "train.peak_lr is nan, expected a finite number"),
        ("decode.lm_weights=0.5,x", "decode.lm_weights is 'x', expected a number"),
        ("decode.lm_weights=0.5,1e-300", "decode.lm_weights is 1e-300, expected 0.001 to 1000"),
        ("decode.lm_weights=1e300", "decode.lm_weights is 1e+300, expected 0.001 to 1000"),
        ("decode.max_active=2147483648", "decode.max_active is 2147483648, expected 2147483647 or less"),
        ("decode.batch_s=-1", "decode.batch_s is -1.0, expected more than 0"),
        ("train.num_epochs=0", "train.num_epochs is 0, expected 1 or more"),
        ("train.optimizer=adam", "train.optimizer is 'adam', expected one of adamw, sgd"),
        ("model.dropout=1", "model.dropout is 1.0, expected 0 to 0.9"),
        ("data.train=", "data.train is empty"),
        ("data.train=swbd,timit", "data.train is 'timit', expected one of swbd, fisher, an4, own"),
    ],
)
def test_a_mistake_in_set_is_told_with_the_key(override: str, expected: str) -> None:
    assert expected in message(override)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[train]\nnum_epoch = 3\n", "unknown key train.num_epoch; did you mean train.num_epochs?"),
        ("[train]\nnum_epochs = 3.0\n", "train.num_epochs is 3.0, expected a whole number"),
        ("[train]\nnum_epochs = true\n", "train.num_epochs is True, expected a whole number"),
        ('[train]\nnum_epochs = "3"\n', "train.num_epochs is '3', expected a whole number"),
        ("[train]\npeak_lr = inf\n", "train.peak_lr is inf, expected a finite number"),
        ("[data]\ntrain = 'swbd'\n", "data.train is 'swbd', expected a list, each item a text"),
        ("[features]\nspeeds = ['fast']\n", "features.speeds is 'fast', expected a number"),
        ("train = 3\n", "train is a value, expected a table"),
        ("[train\n", "not TOML: "),
    ],
)
def test_a_mistake_in_a_file_is_told_with_the_file(text: str, expected: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    told = message(file=path)
    assert told.startswith(f"{path}: ")
    assert expected in told


def test_broken_toml_is_told_with_its_line(tmp_path: Path) -> None:
    assert "line 3" in message(file=written(tmp_path, "[train]\nnum_epochs = 3\npeak_lr = \n"))


@pytest.mark.parametrize("name", ["missing.toml", "folder"])
def test_a_file_that_cannot_be_read_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert message(file=tmp_path / name).startswith(f"{tmp_path / name}: no readable configuration file")


def test_a_file_that_is_no_utf8_is_told(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'[paths]\nan4 = "\xe9"\n')
    assert "no readable configuration file" in message(file=tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        (["average.num=6"], ("average.num is 6", "train.keep_last is 5")),
        (["average.by=best", "average.num=3"], ("average.num is 3", "train.keep_best is 2")),
        (["features.num_mel_bins=8", "specaugment.max_freq_bins=9"], ("max_freq_bins is 9", "num_mel_bins is 8")),
    ],
)
def test_a_conflict_names_both_keys(overrides: list[str], keys: tuple[str, str]) -> None:
    with pytest.raises(AsrtoolError) as caught:
        check_conflicts(load_config([], overrides))
    assert all(key in str(caught.value) for key in keys)


def test_every_key_is_a_number_a_text_a_switch_or_a_list_of_these() -> None:
    for section, key, kind in KEYS:
        item = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
        assert item in (int, float, str, bool), f"{section}.{key}"
    assert {section for section, _, _ in KEYS} == set(SECTIONS)
