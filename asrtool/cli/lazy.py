"""A click group that imports a command only when it is called, so that --help stays quick.

``package.module:command`` is a command of a person's own.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping

import click


class LazyGroup(click.Group):
    """Commands given as name -> (``module:object``, one line of help)."""

    def __init__(self, *args: object, lazy: Mapping[str, tuple[str, str]], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return _own_command(cmd_name, ctx) if ":" in cmd_name else None
        module, _, name = self.lazy[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command), f"{module}:{name} is no click command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.lazy and ":" not in args[0]:
            close = difflib.get_close_matches(args[0], self.lazy, n=1)
            if close:
                raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.lazy.items()])


def _own_command(path: str, ctx: click.Context) -> click.Command:
    module, _, name = path.partition(":")
    try:
        command = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"{path} cannot be loaded: {error}. Is its folder on PYTHONPATH?", ctx) from error
    if not isinstance(command, click.Command):
        raise click.UsageError(f"{path} is a {type(command).__name__}, expected a click command", ctx)
    return command
