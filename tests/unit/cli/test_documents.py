"""The commands, settings and links of README, CONTRIBUTING and the guide exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from asrtool.cli.main import cli
from asrtool.settings import registry
from asrtool.settings.toml_files import known_keys, load_config
from asrtool.settings.values import read_toml

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    page
    for folder in (".", "docs", "docs/guide", "docs/reference", "docs/tutorials")
    for page in sorted((ROOT / folder).glob("*.md"))
    if page.name not in ("settings.md", "CHANGELOG.md")
]
PLACEHOLDER = re.compile(r"[A-Z]{2,}|\$")
KEYS = set(known_keys())


def read_commands(page: Path) -> Iterator[str]:
    """Yield what follows `asrtool` in each command in the code of `page`."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    prose, is_fenced = "", False
    for line in text.splitlines():
        if line.startswith("```"):
            prose, is_fenced = line[3:], not is_fenced
        elif (is_fenced and not prose) or line.startswith("    "):
            found = re.search(r"(?:^|[|/])\s*asrtool ([a-z].*)", line.partition(" #")[0])
            if found and "my_" not in line:
                yield " ".join(found.group(1).split())


COMMANDS = sorted({(page.name, line) for page in PAGES for line in read_commands(page)})


@pytest.fixture(autouse=True, scope="module")
def plugin() -> Iterator[None]:
    """The example of a plugin, as if it were installed."""
    groups = read_toml(ROOT / "examples" / "plugin" / "pyproject.toml")["project"]["entry-points"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "plugins", lambda kind: groups.get(f"asrtool.{kind}s", {}))
        patch.syspath_prepend(ROOT / "examples" / "plugin")
        yield


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_of_a_page_and_its_settings_exist(page: str, line: str) -> None:
    words = [word if "=" in word else word.strip("[]") for word in shlex.split(line.partition(" > ")[0])]
    command: click.Command = cli
    while isinstance(command, click.Group) and not PLACEHOLDER.fullmatch(words[0]):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found
        command = found
    options, _, _ = command.make_parser(click.Context(command)).parse_args([word for word in words if word != "..."])
    for setting in options.get("overrides", ()):
        key = setting.partition("=")[0]
        if command.name != "simulate" and not key.startswith("paths."):  # simulate has settings of its own
            assert key in KEYS
            load_config([], [setting])


def read_anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of `page`."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[\w+\]: (\S+)", text, re.MULTILINE)
    for link in links:
        name, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in read_anchors(target), link
