"""The commands, settings and links of the manual exist; what a command needs beside asrtool is said above it."""

from __future__ import annotations

import functools
import re
import runpy
import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import metadata, requires
from pathlib import Path

import click
import pytest
from pages import FOREIGN, ROOT, read_blocks

from asrtool.cli.main import QUIET, VERBOSE, cli
from asrtool.cli.options import SHORT, short_settings
from asrtool.predict.simulate.scenario import find, is_of_scenario, load_ends
from asrtool.recipe.plan import choose_stages
from asrtool.recipe.recipe import Recipe, find_recipe, load_recipe, read_settings
from asrtool.settings import registry
from asrtool.settings.toml_files import known_keys, load_config
from asrtool.settings.values import read_toml

PAGES = [
    page
    for pages in ("*.md", "docs/*.md", "docs/*/*.md", "benchmarks/*.md", "recipes/*/*.md")
    for page in sorted(ROOT.glob(pages))
    if page.name not in ("settings.md", "CHANGELOG.md")
]
PLACEHOLDER = re.compile(r"(^|[/=:,])[A-Z][A-Z_0-9]*\b|\$|my_")
BEFORE_ASRTOOL = ("do", "srun", "torchrun")
KEYS = set(known_keys())
LARGE = {"swb300", "swb2000"}  # configurations, whose training needs corpora of the LDC and days
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def of_asrtool(words: Sequence[str]) -> list[str] | None:
    """Return what follows `asrtool` in a command, None if it is another one."""
    for number, word in enumerate(words):
        if Path(word).name == "asrtool" and (number == 0 or words[0] in BEFORE_ASRTOOL):
            return list(words[number + 1 :])
    return None


ALL = [
    (page, words, "needs" in block.marks)
    for page in PAGES
    for block in read_blocks(page)
    if block.is_shell
    for words in block.commands()
]
COMMANDS = sorted({(page.name, shlex.join(words)) for page, each, _ in ALL if (words := of_asrtool(each)) is not None})


@pytest.fixture(autouse=True, scope="module")
def plugin() -> Iterator[None]:
    """The example of a plugin, as if it were installed."""
    groups = read_toml(ROOT / "examples" / "plugin" / "pyproject.toml")["project"]["entry-points"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "plugins", lambda kind: groups.get(f"asrtool.{kind}s", {}))
        patch.syspath_prepend(ROOT / "examples" / "plugin")
        yield


@functools.cache
def recipe_of(name: str | None) -> Recipe:
    return load_recipe(find_recipe(name))


def test_the_manual_has_commands() -> None:
    assert len(COMMANDS) > 150


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_of_a_page_its_values_and_its_settings_exist(page: str, line: str) -> None:
    words = [word if "=" in word else word.strip("[]") for word in shlex.split(line)]
    words = [word for word in words if word not in (*VERBOSE, QUIET)]
    command, context = cli, click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if PLACEHOLDER.search(words[0]):
            return
        found = command.get_command(context, words.pop(0))
        assert found
        command, context = found, click.Context(found)
    given = [word for word in words if word != "..."]
    values, left, _ = command.make_parser(context).parse_args(given)
    assert left == []
    for parameter in command.params:
        value = values.get(parameter.name)
        if not isinstance(value, (str, tuple, list)):  # not given, or a flag
            assert not parameter.required or given != words or "--help" in words, f"no {parameter.human_readable_name}"
            continue
        for each in [value] if isinstance(value, str) else value:
            if not isinstance(parameter.type, click.Path) and not PLACEHOLDER.search(each):
                parameter.type.convert(each, parameter, context)
    settings = [text for text in values.get("overrides", ()) if not text.startswith("paths.")]
    if command.name == "simulate":
        own = [text for text in settings if is_of_scenario(text)]
        own += [f"distributed.strategy={name}" for name in values.get("strategies", ())]
        load_ends([find(name) for name in values.get("scenarios", ()) if not name.endswith(".toml")], own)
        settings = [text for text in settings if not is_of_scenario(text)]
    else:
        settings += short_settings({name: values[name] for name in values if name in SHORT})
    for setting in settings if "my_" not in line else ():
        if not PLACEHOLDER.search(setting):
            assert setting.partition("=")[0] in KEYS
            load_config([], [setting])
    if "configs" in values and (recipe := values.get("recipe")) in (None, "an4", "own"):
        read_settings(recipe_of(recipe), [name for name in values["configs"] if not name.endswith(".toml")], [])
    if "stage" in values or "stop_stage" in values:
        choose_stages(recipe_of(None).stages, values.get("stage"), values.get("stop_stage"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_other_commands_of_a_page_exist(page: Path) -> None:
    cases = runpy.run_path(str(ROOT / "benchmarks" / "bench.py"))["CASES"]
    extras = metadata("asrtool").get_all("Provides-Extra")
    assert extras
    for words in (words for of, words, _ in ALL if of == page):
        program, *given = words
        if program == "make":
            for word in (word for word in given if "=" not in word):
                assert word in TARGETS or word.removeprefix("bench-") in cases, words
        elif program == "pip":
            named = re.findall(r"(?:asrtool|\.)\[(.*?)\]", " ".join(given))
            assert {extra for names in named for extra in names.split(",")} <= {*extras}, words
        elif program == "lhotse":
            from lhotse.bin.modes.kaldi import kaldi

            assert given[0] == "kaldi"
            found = kaldi.commands[given[1]]
            _, left, order = found.make_parser(click.Context(found)).parse_args(given[2:])
            assert (left, [each.name for each in order]) == ([], [each.name for each in found.params if each.required])
        elif Path(program).name == "python":
            assert (ROOT / given[0]).is_file() or f"Write `{given[0]}`" in page.read_text(encoding="utf-8"), words


def test_what_a_command_needs_is_said_above_it() -> None:
    for page, words, is_marked in ALL:
        is_large = "run" in words and LARGE & {*words} and not {"--estimate", "--check", "--list"} & {*words}
        assert is_marked or not (is_large or words[0] in FOREIGN), f"{page}: {words}"


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


def test_the_version_is_the_same_in_all_files() -> None:
    text = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("setup.py", "CITATION.cff", "CHANGELOG.md")}
    versions = re.findall(r'^    version="(.*)"', text["setup.py"], re.MULTILINE)
    assert re.findall(r"^version: (.*)", text["CITATION.cff"], re.MULTILINE) == versions
    assert re.findall(r"^## \[(\d[^]]*)\]", text["CHANGELOG.md"], re.MULTILINE)[:1] == versions


def test_the_notice_names_every_package_that_asrtool_or_an_extra_installs() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    lines = requires("asrtool") or ()
    names = {re.split(r"[^\w-]", line)[0] for line in lines if not re.search(r"extra == .(dev|bench)", line)}
    assert {"torch", "boto3"} <= names
    assert not [name for name in names if not re.search(rf"^  {name} ", notice, re.MULTILINE)]
