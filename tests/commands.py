"""Commands of asrtool, run in the process of the tests."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from asrtool.cli.main import cli
from asrtool.errors import AsrtoolError


def run_command(*words: object) -> Result:
    """Run a command that succeeds, or raise its error."""
    done = CliRunner().invoke(cli, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def error_of(*words: object) -> AsrtoolError:
    """Return the error of a command that fails."""
    with pytest.raises(AsrtoolError) as caught:
        run_command(*words)
    return caught.value


def usage_error(*words: object) -> str:
    """Return what is printed of a command that is not called as it should be."""
    done = CliRunner().invoke(cli, list(map(str, words)))
    assert done.exit_code == 2, done.output
    return done.output
