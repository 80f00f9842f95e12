"""Commands whose help has options in groups, and ends with examples.

Lines after ``Example:`` or ``Examples:`` at the end of a docstring are command lines, one a line unless a line
ends with a backslash; a test runs each of them.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from asrtool.url import refuse_address

# Options of many commands (asrtool/cli/options.py): settings, and their short forms.
SETTINGS = ("recipe", "configs", "files", "overrides", "unset", "strategy", "num_learners", "executor", "launch")
OPTIONS = "Options"
FETCHED = ("model", "features", "data", "directory", "manifests")  # arguments that may be an address
EXAMPLES = re.compile(r"\n\x08?\s*Examples?:\s*(?P<lines>.+)\Z", re.DOTALL)  # with click's mark of what is not wrapped


class Command(click.Command):
    """Command with grouped options: section title -> parameter names."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = {**(groups or {}), "Settings": SETTINGS}
        self.examples: list[str] = []
        text = inspect.cleandoc(self.help or "")
        if found := EXAMPLES.search(text):
            self.examples = [line.strip() for line in re.split(r"(?<!\\)\n", found["lines"]) if line.strip()]
            self.help = text[: found.start()].rstrip()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; a setting given without ``--set`` gets a hint."""
        argv = list(args)
        with contextlib.suppress(click.UsageError):  # raised below
            for name, value in self.make_parser(ctx).parse_args(list(args))[0].items():
                for word in value if isinstance(value, list | tuple) else [value]:
                    if name not in FETCHED:
                        refuse_address(str(word))
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "overrides" in [parameter.name for parameter in self.params] and (hint := _set_hint(error, argv)):
                raise click.UsageError(f"{error.format_message().rstrip('.')}. {hint}", ctx) from error
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, then one for all other options."""
        for title, options in self._grouped(ctx):
            with formatter.section(title):
                formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples verbatim, to be copied."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
                indent = " " * formatter.current_indent
                for example in self.examples:
                    formatter.write(indent + re.sub(r"\n\s*", f"\n{indent}  ", example) + "\n")

    def _grouped(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Option]]]:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option) and not option.hidden]
        left = {str(option.name): option for option in options}
        for title, names in self.groups.items():
            if chosen := [left.pop(name) for name in names if name in left]:
                yield title, chosen
        yield OPTIONS, list(left.values())


class Group(click.Group, Command):
    """A group of such commands."""

    command_class = Command


def _set_hint(error: click.UsageError, argv: Sequence[str]) -> str:
    """Return advice for a setting that click refuses among `argv`, or ''."""
    refused = [word for word in argv if re.fullmatch(r"[a-z]\w*(\.[\w-]+){1,2}=.*", word) and word in error.message]
    if isinstance(error, click.NoSuchOption):
        option = error.option_name.lstrip("-")
        if "." not in option:
            from asrtool.settings.values import other_name

            hint = other_name(option)
            return f"{hint.capitalize()}; settings follow --set." if hint else ""
        refused = [f"{option}=VALUE"]
    return f"A setting follows --set: {' '.join(f'--set {shlex.quote(word)}' for word in refused)}" if refused else ""
