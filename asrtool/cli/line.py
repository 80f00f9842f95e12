"""Parse a command line without running it: its function and its validity."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence

import click

from asrtool.errors import AsrtoolError
from asrtool.recipe.source import Entry


def find_entry(words: Sequence[str]) -> Entry:
    """Return the function of the command line `words`; files need not exist.

    Raises AsrtoolError for an unknown command or option, or wrong arguments.
    """
    from asrtool.cli.main import cli

    line = " ".join(words)
    if words[0] != "asrtool":
        raise AsrtoolError(
            f"{line}: a stage calls asrtool only", "call your own command as: asrtool package.module:command"
        )
    try:
        command, arguments = _find_command(cli, list(words[1:]))
        _without_data(command).make_context(str(command.name), arguments)
    except click.ClickException as error:
        raise AsrtoolError(f"{line}: {error.format_message()}", "see asrtool --help") from error
    except (ImportError, AttributeError) as error:
        raise AsrtoolError(f"{line}: the command cannot be loaded: {error}", "fix its module") from error
    function = inspect.unwrap(command.callback) if command.callback else None
    assert function is not None, f"{line}: a command without a function"
    return Entry(function.__module__, function.__name__)


def _find_command(command: click.Command, arguments: list[str]) -> tuple[click.Command, list[str]]:
    while isinstance(command, click.Group):
        if not arguments:
            raise click.UsageError("Missing command.")
        context = click.Context(command, info_name=command.name)
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, arguments
        command = found
    return command, arguments


def _without_data(command: click.Command) -> click.Command:
    """`command` with paths that may be missing."""
    relaxed = copy.copy(command)
    relaxed.params = [copy.copy(parameter) for parameter in command.params]
    for parameter in relaxed.params:
        if isinstance(parameter.type, click.Path):
            parameter.type = path = copy.copy(parameter.type)
            path.exists = False
    return relaxed
