"""Settings: what is read back is what was written, tables of alternatives, and mistakes with the nearest key."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.models.objectives.ctc import Ctc
from asrtool.settings import registry
from asrtool.settings.config import (
    SECTIONS,
    Config,
    check_conflicts,
    chosen_components,
    format_toml,
    select,
    to_table,
)
from asrtool.settings.data import Data
from asrtool.settings.removed import REMOVED
from asrtool.settings.schema import Choice, field_types, kinds_of, paths_of
from asrtool.settings.toml_files import CLASSES, known_keys, known_paths, load_config, load_section
from asrtool.settings.values import OTHER_NAMES, flatten, format_value

GREEDY = "decode.methods=greedy"
SERVERS = "distributed.ps-sync.num_servers=3"
ON_SLURM = ("launch.place=slurm", "launch.slurm.nodes=2", "launch.slurm.learners_per_node=2")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))  # no lone surrogates: TOML is UTF-8
OWN = """
import dataclasses
import re
from asrtool.models.acoustic import Encoder

@dataclasses.dataclass(frozen=True)
class Settings:
    size: int = 8  # channels
    rates: tuple[float, ...] = (0.5,)
    name: str = "x"

class Net(Encoder):
    Settings = Settings
    def forward(self, feats_NTF, feat_lens_N): ...

class Empty(Net):
    forward = None

class Bare(Net):
    @dataclasses.dataclass(frozen=True)
    class Settings:
        size: int

class Odd(Net):
    @dataclasses.dataclass(frozen=True)
    class Settings:
        size: complex = 0j

class Strict(Net):
    @dataclasses.dataclass(frozen=True)
    class Settings:
        def __post_init__(self): raise ValueError("too small")

def adagrad(parameters, settings): ...
"""


def message(*overrides: str, file: Path | None = None) -> str:
    with pytest.raises(AsrtoolError) as caught:
        load_config([file] if file else [], overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(folder: Path, text: str, name: str = "conf.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


class OwnAligner(Ctc):
    """Objective whose model can align."""

    @dataclasses.dataclass(frozen=True)
    class Settings:
        topology = "asrtool.models.objectives.topology:CtcTopology"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of a person's own components."""
    name = f"own_{tmp_path.name}"
    written(tmp_path, OWN, f"{name}.py")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def values_of(config: Config) -> dict[str, Any]:
    return flatten(select(config, SECTIONS))


def components() -> Iterator[tuple[str, str, bool, str]]:
    """Section, key, whether it is a list, and name, of everything that can be chosen."""
    for section, section_class in CLASSES.items():
        for key, kind in kinds_of(section_class).items():
            is_list = typing.get_origin(field_types(section_class)[key]) is tuple
            yield from ((section, key, is_list, name) for name in registry.names(kind))


def chosen(section: str, key: str, is_list: bool, name: str) -> Config:
    """The defaults, but for one key that chooses `name`."""
    return load_config(overrides=[f"{section}.{key}={f'[{name}]' if is_list else name}"])


COMPONENTS = list(components())
CONFIGS = [Config(), *(chosen(*component) for component in COMPONENTS)]
# value of every key -> another one that the checks accept; numbers are moved a little unless they are named here
OTHERS: dict[str, Any] = {
    "average.by": "best", "features.cmvn": "none", "features.storage": "shar",
    "features.speeds": [1.0, 1.5], "tokenizer.unit": "phone", "graph.backend": "k2",
    "lm.min_counts": [1, 3], "decode.graph.backend": "k2", "distributed.h-adpsgd.outer": "adpsgd-d1",
    "distributed.adpsgd.ring": "fixed", "decode.methods": ["greedy"], "data.dev": ["own"], "data.train": ["an4"],
    "data.test": ["own"], "nnlm.precision": "bf16", "distributed.interface": "eth0", "train.init_model": "/model.pt",
    "train.frozen": ["encoder.*"], "augment.noise_dir": "/noise",
    "augment.reverb_dir": "/rooms", "model.frame-ce.aligner": "test_config:OwnAligner",
    "model.attention.kernel_size": 17,
    "data.uncertain": "drop", "model.lf-mmi.aligner": "test_config:OwnAligner",
    "data.same_audio": "drop", "data.text_rules": "none", "data.word_marks": "'-", "data.mix": "temperature:2",
    "remote.cache_dir": "/cache", "lm.extra_text": ["swbd", "/more.txt"], "features.executor": "dask:tcp://node:8786",
    "decode.executor": "dask:tcp://node:8786", "launch.slurm.partition": "gpu", "launch.slurm.account": "speech",
    "launch.slurm.time": "24:00:00", "launch.slurm.memory_per_cpu": "4G", "launch.slurm.options": ["--exclusive"],
    "launch.slurm.setup": ["module load cuda"], "launch.kubernetes.image": "registry/asrtool:cpu",
    "launch.kubernetes.claim": "asr-work", "launch.kubernetes.mount": "/data", "launch.kubernetes.namespace": "speech",
    "launch.kubernetes.runtime": "torch", "launch.kubernetes.memory_per_node": "16Gi",
    "launch.kubernetes.s3_secret": "s3", "distributed.on_stop": "leave",
}  # fmt: skip


def other(key: str, value: Any) -> Any:
    """Another value of `key` than `value`."""
    if key in OTHERS:
        return OTHERS[key]
    if key.endswith(("message_type", ".precision")):
        return "bf16"
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [number * 0.5 if isinstance(number, float) else number + 1 for number in value]
    return value * 0.5 + 0.001 if isinstance(value, float) else value + 1


def changed_keys() -> Iterator[tuple[str, Any, str]]:
    """Every key, another value, and the override that chooses the component whose key it is."""
    for config, choice in zip(CONFIGS, ["", *COMPONENTS], strict=True):
        chooses = "" if not choice else f"{choice[0]}.{choice[1]}={f'[{choice[3]}]' if choice[2] else choice[3]}"
        for key, value in values_of(config).items():
            section, *inner = key.split(".")
            if len(inner) == 2 if choice else inner[0] not in kinds_of(CLASSES[section]):
                yield key, other(key, value), chooses


CHANGES = sorted({key: (key, value, chooses) for key, value, chooses in changed_keys()}.values())


def test_every_key_is_changed_once() -> None:
    names = {f"{section}.{key}" for section, section_class in CLASSES.items() for key in kinds_of(section_class)}
    assert {key for key, _, _ in CHANGES} == set(known_keys()) - names


@pytest.mark.parametrize(("key", "value", "chooses"), CHANGES)
def test_every_key_is_read_back_from_a_file_and_from_set(key: str, value: Any, chooses: str, tmp_path: Path) -> None:
    text = format_value(tuple(value) if isinstance(value, list) else value)
    section, *tables, name = key.split(".")
    file = written(tmp_path, f"[{'.'.join([section, *tables])}]\n{name} = {text}\n")
    from_set = load_config([], [*([chooses] if chooses else []), f"{key}={text}"])
    assert load_config([file], [chooses] if chooses else []) == from_set
    assert values_of(from_set)[key] == value
    assert load_config([written(tmp_path, format_toml(from_set), "again.toml")]) == from_set


@pytest.mark.parametrize(
    ("key", "chooses"), [(key, chooses) for key, value, chooses in CHANGES if type(value) in (int, float)]
)
def test_a_number_that_an_error_expects_is_accepted(key: str, chooses: str) -> None:
    choice = [chooses] if chooses else []
    for value in (-(10**12), 10**12):
        waiting = [(*choice, f"{key}={value}")]
        while waiting:
            overrides = waiting.pop()
            assert len(overrides) < 4, overrides
            try:
                load_config([], overrides)
                continue
            except AsrtoolError as error:
                said = str(error)
            found = re.search(
                r"(?:^|: )(\S+) is .*expected (?:more than 0|(\S+)(?: to (\S+?)| or more| or less)?);", said
            )
            assert found, said
            numbers = [number for number in found.groups()[1:] if number] or ["1"]
            waiting += [(*overrides, f"{found[1]}={number}") for number in numbers]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_choice_is_read_back_as_it_was(config: Config, tmp_path: Path) -> None:
    assert load_config([written(tmp_path, format_toml(config))]) == config


@given(
    places=st.lists(TEXTS, min_size=12, max_size=12),
    max_hours=st.floats(0.005, 100),
    seed=st.integers(-(2**63), 2**63 - 1),
    beams=st.lists(st.floats(1e-300, 1e300), min_size=1),
)
@settings(max_examples=50)
def test_any_text_and_number_is_read_back_as_it_was(
    places: list[str], max_hours: float, seed: int, beams: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = Config()
    config = dataclasses.replace(
        before,
        paths={key: os.path.abspath(f"/{text}") for key, text in zip(known_paths(before.data), places, strict=False)},
        mini=dataclasses.replace(before.mini, train_hours=max_hours, seed=seed),
        decode=dataclasses.replace(before.decode, methods=(Choice.of("search", "graph", beams=tuple(beams)),)),
    )
    assert load_config([written(tmp_path_factory.mktemp("conf"), format_toml(config))]) == config


def test_only_the_named_sections_and_keys_are_written_with_the_tables_of_what_they_choose() -> None:
    text = format_toml(Config(), ("average", "data.train", "data.dev_minutes", "train.optimizer"))
    assert text == (
        '[average]\nby = "last"\nnum = 3\n\n[data]\ntrain = []\ndev_minutes = 5.0\n\n'
        '[train]\noptimizer = "adamw"\n\n[train.adamw]\nweight_decay = 0.01\n'
    )


def test_later_files_and_then_set_win(tmp_path: Path) -> None:
    first = written(tmp_path, "[lm]\norder = 2\nmin_counts = [7]\n", "a.toml")
    second = written(tmp_path, "[lm]\norder = 4\n", "b.toml")
    assert load_config([first, second]).lm.order == 4
    assert load_config([first, second], ["lm.order=5", "lm.order=6"]).lm.order == 6
    assert load_config([first, second]).lm.min_counts == (7,)


def test_a_table_counts_only_where_its_component_is_chosen(tmp_path: Path) -> None:
    base = written(tmp_path, "[train.sgd]\nmomentum = 0.5\n[train.adamw]\nweight_decay = 0.2\n", "base.toml")
    sgd = written(tmp_path, '[train]\noptimizer = "sgd"\n', "sgd.toml")
    assert load_config([base]).train.optimizer == Choice.of("optimizer", "adamw", weight_decay=0.2)
    assert load_config([base, sgd]).train.optimizer == Choice.of("optimizer", "sgd", momentum=0.5)
    assert load_config([sgd, base], ["train.sgd.momentum=0"]).train.optimizer.settings.momentum == 0
    assert "sgd" not in to_table(load_config([base]).train)


def test_an_own_component_brings_its_settings(own: str, tmp_path: Path) -> None:
    text = f'[model]\nencoder = "{own}:Net"\n[model.Net]\nsize = 3\nrates = [1.0, 2.0]\n[model.lstm]\nnum_layers = 1\n'
    file = written(tmp_path, text)
    loaded = load_config([file])
    assert loaded.model.encoder.name == f"{own}:Net"
    assert to_table(loaded.model.encoder.settings) == {"size": 3, "rates": (1.0, 2.0), "name": "x"}
    assert load_config([written(tmp_path, format_toml(loaded), "again.toml")]) == loaded
    assert load_config([file], ["model.Net.size=5"]).model.encoder.settings.size == 5
    assert load_config([file], ["model.encoder=lstm"]).model.encoder == Choice.of("encoder", "lstm", num_layers=1)
    # settings of its own or not, an optimizer is anything that can be called
    assert load_config(overrides=[f"train.optimizer={own}:adagrad"]).train.optimizer.settings == registry.NoSettings()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["model.encoder={own}:Nte"], "model.encoder: {own}:Nte cannot be loaded: AttributeError"),
        (["model.encoder={own}:Empty"], "model.encoder: {own}:Empty: no encoder, it lacks forward"),
        (["model.encoder={own}:Net", "model.Net.sise=3"], "unknown key model.Net.sise; did you mean model.Net.size?"),
        (["model.encoder={own}:Net", "model.Net.size=x"], "model.Net.size is 'x', expected a whole number"),
        (["model.Net.size=3"], "unknown key model.Net.size"),
        (["model.encoder={own}:Bare"], "Settings.__init__() missing 1 required positional argument: 'size'"),
        (["model.encoder={own}:Odd"], "model.Odd.size is a <class 'complex'>, expected one of int, float, str, bool"),
        (["model.encoder={own}:Strict"], "model.Strict: too small"),
    ],
)
def test_a_mistake_about_an_own_component_names_key_and_place(overrides: list[str], expected: str, own: str) -> None:
    assert expected.format(own=own) in message(*(override.format(own=own) for override in overrides))


def test_two_components_that_would_share_a_table_are_refused(own: str, tmp_path: Path) -> None:
    """One table cannot hold the settings of both, and the file of a stage could not be read back."""
    written(tmp_path, OWN + "adagrad.Settings = Settings\n", f"{own}_2.py")
    said = message(f"train.optimizer={own}:adagrad", f"train.schedule={own}_2:adagrad")
    assert f"{own}:adagrad and {own}_2:adagrad would share the table [train.adagrad]" in said


@pytest.mark.parametrize(
    ("override", "value"),
    [("an4=/with space/an4", "/with space/an4"), ("an4='/quoted'", "/quoted"), ("an4=/a=b", "/a=b")],
)
def test_a_path_is_taken_as_it_is(override: str, value: str) -> None:
    assert load_config([], [f"paths.{override}"]).paths == {"an4": value}


def test_a_relative_path_is_one_of_its_file_or_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{section}.{key}" for section, settings in CLASSES.items() for key in paths_of(settings)]
    assert keys == ["remote.cache_dir", "lm.extra_text", "augment.reverb_dir", "augment.noise_dir", "train.init_model"]
    monkeypatch.setenv("HOME", "/home/someone")
    (tmp_path / "conf").mkdir()
    monkeypatch.chdir(tmp_path)
    names = dict.fromkeys(keys, "x") | {"lm.extra_text": ["fisher", "x", "~/y", "s3://a/b"], "paths.an4": "x"}
    text = "".join(
        f"{key} = {format_value(value if key[0] != 'l' else tuple(value))}\n" for key, value in names.items()
    )
    files = [Path("conf", "a.toml"), Path("conf", "empty.toml")]
    files[0].write_text(text)
    files[1].write_text("".join(f'{key} = ""\n' for key in names if key != "lm.extra_text"))
    of_set = [f"{key}={value if isinstance(value, str) else ','.join(value)}" for key, value in names.items()]
    for files_and_set, folder in (([files[:1]], tmp_path / "conf"), ([[], of_set], tmp_path)):
        values = values_of(load_config(*files_and_set))
        assert values.pop("lm.extra_text") == ["fisher", str(folder / "x"), "/home/someone/y", "s3://a/b"]
        assert {values[key] for key in names if key in values} == {str(folder / "x")}
    values = values_of(load_config(files))
    assert {values[key] for key in names if key != "lm.extra_text"} == {""}


@pytest.mark.parametrize("text", ["swbd, an4", '["swbd", "an4"]', "[swbd,an4]"])
def test_components_are_named_in_a_list(text: str) -> None:
    assert load_config([], ["features.speeds=1, 1.1"]).features.speeds == (1.0, 1.1)
    assert [corpus.name for corpus in load_config([], [f"data.train={text}"]).data.train] == ["swbd", "an4"]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.num_epoch=3", "--set train.num_epoch=3: unknown key train.num_epoch; did you mean train.num_epochs?"),
        ("lm.num_epochs=3", "--set lm.num_epochs=3: unknown key lm.num_epochs; did you mean nnlm.num_epochs?"),
        ("trian.num_epochs=3", "--set trian.num_epochs=3: unknown section 'trian'; did you mean train.num_epochs?"),
        ("num_epochs=3", "--set num_epochs=3: expected section.key=value; did you mean train.num_epochs?"),
        ("train.learning_rate=1", "unknown key train.learning_rate; did you mean train.peak_lr? asrtool config train."),
        ("nnlm.lr=1", "unknown key nnlm.lr; did you mean nnlm.peak_lr? asrtool config nnlm.peak_lr explains it"),
        ("train.learning_rte=1", "unknown key train.learning_rte; did you mean train.peak_lr?"),
        ("trainer.max-epochs=1", "unknown section 'trainer'; did you mean train.num_epochs?"),
        ("exp_dir=x", "expected section.key=value; did you mean --work?"),
        ("train.zzz=3", "unknown key train.zzz; asrtool config lists all settings"),
        ("zzz.qqq=3", "unknown section 'zzz'; asrtool config lists all settings"),
        ("train.num_epochs", "--set train.num_epochs: expected section.key=value; for example"),
        ("a.b.c.d=1", "--set a.b.c.d=1: expected section.key=value"),
        ("train.num_epochs=3.5", "train.num_epochs is '3.5', expected a whole number"),
        ("train.peak_lr=fast", "train.peak_lr is 'fast', expected a number"),
        ("train.peak_lr=nan", "train.peak_lr is nan, expected a finite number"),
        ("nnlm.enabled=yes", "nnlm.enabled is 'yes', expected true or false"),
        ("decode.beam.lm_weights=0.5,x", "decode.beam.lm_weights is 'x', expected a number"),
        ("decode.beam.lm_weights=0.5,1e-300", "decode.beam.lm_weights is 1e-300, expected 0.001 to 1000"),
        ("decode.graph.max_active=2147483648", "max_active is 2147483648, expected 2147483647 or less"),
        ("decode.batch_s=-1", "decode.batch_s is -1.0, expected more than 0"),
        ("train.num_epochs=-1", "train.num_epochs is -1, expected 0 or more"),
        ("model.lstm.dropout=1", "model.lstm.dropout is 1.0, expected 0 to 0.9"),
        ("train.adamw.weight_decay=-1", "train.adamw.weight_decay is -1.0, expected 0 or more"),
        ("decode.methods=", "decode.methods is empty"),
        # components by name
        (
            "train.optimizer=adam",
            "--set train.optimizer=adam: train.optimizer: unknown optimizer 'adam', expected one of adamw, sgd;"
            " did you mean adamw? One of your own is package.module:Name",
        ),
        ("data.train=swbd,timit", "data.train: unknown corpus 'timit', expected one of "),
        (
            "model.lstm=3",
            "--set model.lstm=3: model.lstm is a table, expected one of its keys; for example model.lstm.num_layers",
        ),
        ("distributed.single=3", "distributed.single is a table, expected one of its keys; it has none"),
        ("train.adam.weight_decay=1", "unknown key train.adam.weight_decay; did you mean train.adamw.weight_decay?"),
        ("lm.lstm.num_layers=1", "unknown key lm.lstm.num_layers; did you mean model.lstm.num_layers?"),
        # tables that are not chosen are checked as well
        ("train.sgd.momentum=x", "train.sgd.momentum is 'x', expected a number"),
        ("train.sgd.momentun=0", "unknown key train.sgd.momentun; did you mean train.sgd.momentum?"),
        (
            "distributed.interface=10.1.0.0/99",
            "distributed.interface is '10.1.0.0/99', expected the name of an interface",
        ),
        # settings that several components have
        ("distributed.bmuf.message_type=x distributed.strategy=bmuf", "distributed.bmuf: message_type is 'x'"),
        ("distributed.adpsgd.ring=star distributed.strategy=adpsgd", "distributed.adpsgd.ring: unknown ring 'star'"),
    ],
)
def test_a_mistake_in_set_is_reported_with_the_key(override: str, expected: str) -> None:
    assert expected in message(*override.split())


def test_names_of_other_toolkits_lead_to_keys_that_are_there() -> None:
    paths = [f"paths.{key}" for key in known_paths(Data())]
    assert set(OTHER_NAMES) <= {*known_keys(), *paths, "--work"}
    keys = {key.rpartition(".")[2] for key in known_keys()}
    for ours, theirs in OTHER_NAMES.items():
        for name in theirs.split():
            assert ours in message(f"{name}=1")
            if name not in keys:
                assert ours in message(f"train.{name}=1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[train]\nnum_epoch = 3\n", "unknown key train.num_epoch; did you mean train.num_epochs?"),
        ("[train]\nnum_epochs = 3.0\n", "train.num_epochs is 3.0, expected a whole number"),
        ('[train]\nnum_epochs = "3"\n', "train.num_epochs is '3', expected a whole number"),
        ("[train]\noptimizer = 3\n", "train.optimizer is 3, expected a text"),
        ("[train.optimizer]\nsgd = 3\n", "unknown key train.optimizer.sgd"),
        ("[data]\ntrain = 'swbd'\n", "data.train is 'swbd', expected a list, each item a text"),
        ("[model.lstm.deep]\nx = 1\n", "unknown key model.lstm.deep"),
        ("[model.lstm.num_layers]\nx = 1\n", "model.lstm.num_layers is {'x': 1}, expected a whole number"),
        ("train = 3\n", "train is a value, expected a table"),
        ("[trian]\nnum_epochs = 3\n", "unknown section 'trian'; did you mean [train]?"),
        ("[optimizer]\nlr = 3\n", "unknown section 'optimizer'; did you mean train.peak_lr?"),
        ("[train]\noptimizer = sgd\n", "column 13); fix the line named; text needs quotes"),
        ("batch_size = 3\n", "unknown section 'batch_size'; did you mean train.batch_s?"),
        ("[train]\nnum_epochs = 3\npeak_lr = \n", "line 3"),
        pytest.param(f"[train]\npeak_lr = {'9' * 400}\n", "expected a finite number", id="400"),
        pytest.param(f"[train]\npeak_lr = {'9' * 5000}\n", "", id="5000"),  # more than Python converts
    ],
)
def test_a_mistake_in_a_file_is_reported_with_the_file(text: str, expected: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    output = message(file=path)
    assert output.startswith(f"{path}: ")
    assert expected in output


@pytest.mark.parametrize("name", ["missing.toml", "folder", "latin.toml"])
def test_a_file_that_cannot_be_read_is_reported(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.toml").write_bytes(b'[paths]\nan4 = "\xe9"\n')
    assert message(file=tmp_path / name).startswith(f"{tmp_path / name}: no readable configuration file")


@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        (["average.num=6", "train.keep_last=5"], ("average.num is 6", "train.keep_last is 5")),
        (["average.by=best", "average.num=3", "train.keep_best=2"], ("average.num is 3", "train.keep_best is 2")),
        (
            ["features.fbank.num_mel_bins=8", "specaugment.max_freq_bins=9"],
            ("max_freq_bins is 9", "frame has 8 values"),
        ),
        (["decode.methods=rescore"], ("decode.methods has rescore without graph",)),
        (["lm.large=true", GREEDY], ("lm.large is true", "decode.methods has no rescore", "add rescore")),
        (["nnlm.enabled=true", "model.objective=transducer"], ("nnlm.enabled is true", "set it to false")),
        (["tokenizer.unit=phone", GREEDY], ("names greedy", "tokenizer.unit = phone", "decode.methods=graph")),
        (["tokenizer.unit=phone", "model.objective=attention"], ("use --set tokenizer.unit=bpe",)),
        (["model.objective=transducer", GREEDY], ("use --set decode.methods=transducer-greedy,transducer-beam",)),
        (["distributed.num_learners=2"], ("strategy is single with 2 learners",)),
        (["distributed.strategy=ps-sync", "distributed.num_learners=2", SERVERS], ("num_servers is larger",)),
        ([*ON_SLURM, "distributed.strategy=hogwild"], ("hogwild with 4 learners of 2 nodes",)),
        ([*ON_SLURM, "distributed.strategy=h-adpsgd", "distributed.h-adpsgd.node_size=3"], ("4 learners", "is 3")),
        ([*ON_SLURM, "distributed.num_learners=2"], ("num_learners is 2", "2 nodes of launch.slurm have 4")),
        (["augment.band_prob=1", "features.keep_audio=false"], ("features.keep_audio is false",)),
    ],
)
def test_a_conflict_names_both_keys(overrides: list[str], keys: tuple[str, ...]) -> None:
    with pytest.raises(AsrtoolError) as caught:
        check_conflicts(load_config([], overrides))
    assert all(key in str(caught.value) for key in keys)


@pytest.mark.parametrize(
    ("overrides", "chosen"),
    [
        (["model.objective=transducer"], {"decode.methods": ["transducer-greedy", "transducer-beam"]}),
        (["model.objective=attention"], {"decode.methods": ["attention-greedy", "attention-beam"]}),
        (["model.objective=frame-ce"], {"decode.methods": ["graph"]}),
        (["model.objective=lf-mmi"], {"decode.methods": ["graph"]}),
        (["model.objective=ctc"], {"decode.methods": ["greedy", "beam", "graph"]}),
        (["tokenizer.unit=phone"], {"decode.methods": ["graph"]}),
        (["nnlm.enabled=true"], {"decode.methods": ["greedy", "beam", "graph", "rescore"]}),
        (["model.objective=frame-ce", "lm.large=true"], {"decode.methods": ["graph", "rescore"]}),
        (["average.num=9"], {"average.num": 9, "train.keep_last": 9}),
        (["average.by=best"], {"average.num": 3, "train.keep_best": 3}),
        (["train.keep_last=2"], {"average.num": 2, "train.keep_last": 2}),
        (["augment.band_prob=1"], {"features.keep_audio": True}),
    ],
)
def test_what_nothing_sets_suits_what_is_set(overrides: list[str], chosen: dict[str, Any]) -> None:
    config = load_config([], overrides)
    check_conflicts(config)
    assert {key: values_of(config)[key] for key in chosen} == chosen


def test_a_stored_section_also_of_an_earlier_version_is_read_and_a_missing_key_is_its_default() -> None:
    model = load_config(overrides=["model.lstm.num_layers=7"]).model
    assert load_section("model", to_table(model), "model.pt") == model
    assert load_section("model", {"encoder": "lstm"}, "model.pt") == Config().model
    with pytest.raises(AsrtoolError, match=r"^model\.pt: unknown key model\.lstm\.width"):
        load_section("model", {"lstm": {"width": 7}}, "model.pt")
    stored = {"objective": "lf-mmi", "lf-mmi": {"ngram_order": 4, "leak": 0.02, "tolerance_rows": 2}}
    assert load_section("model", stored, "model.pt").objective == Choice.of("objective", "lf-mmi", leak=0.02)


# Settings of earlier versions


@pytest.mark.parametrize(
    "override", [f"{key}={format_value(left)}" for key, (left, _) in REMOVED.items() if left is not None]
)
def test_a_removed_setting_with_the_value_that_is_left_is_read_with_a_line(
    override: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert load_config(overrides=[override]) == Config()
    assert f"--set {override}: {override.partition('=')[0]} was removed and has no effect: " in caplog.text


def test_a_removed_setting_with_another_value_is_an_error(tmp_path: Path) -> None:
    said = "nnlm.weight_noise was removed: no recipe set it and no gain was measured; leave it out; it is 0.0 now"
    assert message("nnlm.weight_noise=0.1") == f"--set nnlm.weight_noise=0.1: {said}"
    assert message(file=written(tmp_path, "[lm]\nweights = [0.3, 0.7]\n")).endswith("leave it out; it is [] now")
    assert "lamb was removed: large batches train with" in message("train.optimizer=lamb")


def test_the_ctc_of_k2_is_read_as_ctc(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    text = '[model]\nobjective = "k2-ctc"\nk2-ctc.consistency = 0.2\nlf-mmi.aligner = "k2-ctc"\n'
    assert load_config([written(tmp_path, text)]) == load_config(overrides=["model.ctc.consistency=0.2"])
    assert "conf.toml: model.objective: k2-ctc was removed, use ctc, which is the same" in caplog.text
    assert load_config(overrides=["model.objective=k2-ctc"]) == Config()
    assert load_section("model", {"objective": "k2-ctc", "k2-ctc": {"consistency": 0.0}}, "model.pt") == Config().model


def test_components_that_settings_name_are_among_those_chosen() -> None:
    config = load_config(overrides=["distributed.strategy=adpsgd", "distributed.adpsgd.ring=fixed"])
    found = [(part.kind, part.name) for part in chosen_components(config, ["distributed"])]
    assert found == [("strategy", "adpsgd"), ("ring", "fixed")]


def test_a_rate_that_the_data_say_goes_with_what_does_not_need_it_before() -> None:
    changed = ["augment.band_prob=0.5", "features.keep_audio=true"]
    check_conflicts(load_config(overrides=["features.sampling_rate_hz=0", *changed]))
    with pytest.raises(AsrtoolError, match=r"sampling_rate_hz is 0 but features.type spectrogram needs a rate"):
        check_conflicts(load_config(overrides=["features.sampling_rate_hz=0", "features.type=spectrogram"]))
