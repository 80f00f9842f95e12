"""The table of everything that is chosen by name."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.schema import kinds_of
from asrtool.settings.toml_files import CLASSES

ENTRIES = [(kind, name) for kind in registry.TABLE for name in registry.names(kind)]
HEAVY = ("torch", "lhotse", "numpy", "k2", "kaldifst")


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_entry_loads_and_keeps_its_protocol(kind: str, name: str) -> None:
    found = registry.load(kind, name)
    assert callable(found)
    if kind in registry.PROTOCOLS:
        protocol = pkgutil.resolve_name(registry.PROTOCOLS[kind])
        assert inspect.isclass(found)
        assert issubclass(found, protocol)
        assert not found.__abstractmethods__
    assert registry.load(kind, registry.path_of(kind, name)) is found  # and as if it were a person's own


def test_tables_of_a_section_have_different_names() -> None:
    for section, section_class in CLASSES.items():
        kinds = dict.fromkeys(kinds_of(section_class).values())
        names = [name for kind in kinds for name in registry.names(kind)]
        names += [field.name for field in dataclasses.fields(section_class)]
        assert len(names) == len(set(names)), section


def test_settings_of_everything_load_nothing_heavy() -> None:
    script = (
        "import sys; from asrtool.settings import registry; from asrtool.settings.toml_files import load_config\n"
        "from asrtool.settings.config import check_conflicts\n"
        "for kind in registry.TABLE:\n"
        "    for name in registry.names(kind): registry.settings_class(kind, name)\n"
        "check_conflicts(load_config(overrides=['paths.an4=/x']))\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "from asrtool.models.acoustic import Objective\n"
        "class Half(Objective):\n"
        "    def fits(self, num_rows, targets): return ''\n"
        "class Whole(Half):\n"
        "    def loss(self, hidden_NTC, lens_N, targets_NU, target_lens_N): ...\n"
        "class Unrelated:\n"
        "    def fits(self, num_rows, targets): return ''\n"
        "    def loss(self, hidden_NTC, lens_N, targets_NU, target_lens_N): ...\n"
        "NUMBER = 3\n"
    )
    (tmp_path / f"{name}_broken.py").write_text("x = 1 / 0\n")
    (tmp_path / f"{name}_loud.py").write_text("raise RuntimeError('first\\nsecond')\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def message(kind: str, name: str) -> str:
    with pytest.raises(AsrtoolError) as caught:
        registry.load(kind, name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("objective", "{own}:Half", "{own}:Half: no objective, it lacks loss; see docs/guide/extending.md"),
        (
            "objective",
            "{own}:Unrelated",
            "it does not derive from asrtool.models.acoustic:Objective; name it",
        ),
        ("encoder", "{own}:Half", "{own}:Half: no encoder, it lacks forward"),
        ("encoder", "{own}:NUMBER", "{own}:NUMBER: no encoder, it lacks forward"),
        ("optimizer", "{own}:NUMBER", "{own}:NUMBER: no optimizer, it lacks __call__"),
        ("optimizer", "{own}:absent", "{own}:absent cannot be loaded: AttributeError: "),
        ("optimizer", "{own}_broken:sgd", "{own}_broken:sgd cannot be loaded: ZeroDivisionError: division by zero"),
        ("optimizer", "{own}_loud:sgd", "{own}_loud:sgd cannot be loaded: RuntimeError: first; correct the name"),
        ("optimizer", "{own}_absent:sgd", "{own}_absent:sgd cannot be loaded: ModuleNotFoundError: "),
        ("optimizer", ":sgd", ":sgd cannot be loaded: ValueError: "),
        ("optimizer", "sdg", "unknown optimizer 'sdg', expected one of adamw, sgd; did you mean sgd?"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(kind: str, name: str, expected: str, own: str) -> None:
    assert expected.format(own=own) in message(kind, name.format(own=own))
