"""The code version of a command by the imports of its sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from asrtool.errors import AsrtoolError
from asrtool.recipe import source
from asrtool.recipe.source import code_digests

COMMANDS = '''
from asrtool.settings.config import Config
from asrtool.settings.toml_files import load_config
from asrtool.shared import TABLE

SIZE = 3

def helper():
    from asrtool.local import near
    return near

@load_config
def one():
    """Help."""
    return helper() + SIZE

def two():
    import asrtool.utils.far
    return asrtool.utils.far
'''
FILES = {
    "asrtool/__init__.py": "",
    "asrtool/settings/__init__.py": "",
    "asrtool/settings/config.py": "x = 1",
    "asrtool/settings/toml_files.py": "x = 1",
    "asrtool/shared.py": "TABLE = 1",
    "asrtool/cli/__init__.py": "",
    "asrtool/cli/both.py": COMMANDS,
    "asrtool/local/__init__.py": "",
    "asrtool/local/near.py": "import numpy\nfrom asrtool import deep",
    "asrtool/deep.py": "from asrtool.local import near",
    "asrtool/utils/__init__.py": "",
    "asrtool/utils/far.py": "",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(source, "ROOT", tmp_path)
    write(tmp_path, FILES)
    return tmp_path


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def digests(function: str) -> dict[str, str]:
    return code_digests([f"asrtool.cli.both:{function}"])


def test_imports_are_followed_from_the_function_of_the_command(root: Path) -> None:
    shared = {"asrtool/__init__.py", "asrtool/settings/__init__.py", "asrtool/cli/both.py", "asrtool/shared.py"}
    assert digests("one").keys() == shared | {"asrtool/local/__init__.py", "asrtool/local/near.py", "asrtool/deep.py"}
    assert digests("two").keys() == shared | {"asrtool/utils/__init__.py", "asrtool/utils/far.py"}


def test_a_neighbouring_command_does_not_count(root: Path) -> None:
    before = digests("one"), digests("two")
    write(root, {"asrtool/cli/both.py": COMMANDS.replace("return asrtool.utils.far", "return None")})
    assert digests("one") == before[0]
    assert digests("two") != before[1]


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("helper() + SIZE", "helper() - SIZE", True),
        ("return near", "return None", True),  # in a function it calls
        ("SIZE = 3", "SIZE = 4", True),
        ('"""Help."""', '"""Other help."""', False),
        ("SIZE = 3", "SIZE = 3  # three", False),
        ("\n\ndef helper", "\n\n\n\ndef helper", False),
        ("SIZE = 3", "SIZE = 3\nif TYPE_CHECKING:\n    from asrtool.utils import far", False),
    ],
)
def test_what_the_function_needs_counts_and_comments_and_docstrings_do_not(
    root: Path, old: str, new: str, counts: bool
) -> None:
    before = digests("one")
    write(root, {"asrtool/cli/both.py": COMMANDS.replace(old, new)})
    assert (digests("one") != before) == counts


@pytest.mark.parametrize(
    ("entry", "own", "later"), [("data:features", "data", "models"), ("training:train", "train", "decode")]
)
def test_a_stage_depends_on_no_code_of_later_ones(entry: str, own: str, later: str) -> None:
    """The package offers all of it in Python (asrtool/__init__.py), and every command imports the package."""
    rooms = {Path(name).parts[1] for name in code_digests([f"asrtool.cli.{entry}"])}
    assert own in rooms
    assert not rooms & {later, "transcribe", "report", "predict"}


def test_the_modules_around_every_command_do_not_count(root: Path) -> None:
    write(root, {"asrtool/cli/both.py": COMMANDS.replace("SIZE\n\ndef two", "SIZE, Config\n\ndef two")})
    assert not digests("one").keys() & {"asrtool/settings/config.py", "asrtool/settings/toml_files.py"}


@pytest.mark.parametrize(
    ("text", "message"),
    [("import asrtool.gone", r"module asrtool\.gone does not exist"), ("x = 1\ny = (\n", r"near\.py: line 2: ")],
)
def test_a_source_with_a_mistake_is_reported(text: str, message: str, root: Path) -> None:
    write(root, {"asrtool/local/near.py": text})
    with pytest.raises(AsrtoolError, match=message):
        digests("one")


def test_the_frame_names_modules_that_exist() -> None:
    assert [module for module in source.NOT_IN_DIGESTS if source.find_source(module) is None] == []
