"""`asrtool` console script: lazily loaded commands, and errors as one line."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from types import FrameType

import click

from asrtool.cli.command import Group
from asrtool.errors import AsrtoolError
from asrtool.log import setup_logging

VERBOSE, QUIET = ("--verbose", "--debug"), "--quiet"
# Read when torch is loaded: how often a thread polls the others before it sleeps. By libgomp's own
# number they use up their share of a core that another process needs, and then wait for it at each step of an LSTM.
SPIN = "3000"
COMMANDS = {
    "run": ("asrtool.cli.run:run", "Run the stages of a recipe that are not done."),
    "sweep": ("asrtool.cli.run:sweep", "Compare settings by cross-validation over folds of speakers."),
    "config": ("asrtool.cli.run:config", "Print the settings of a recipe, and what they mean."),
    "corpus": ("asrtool.cli.data:corpus", "Link the configured corpora, or make the mini corpus."),
    "prepare": (
        "asrtool.cli.prepare:prepare",
        "Corpora to manifests, and these to training, development and test sets.",
    ),
    "features": ("asrtool.cli.data:features", "Manifests to filterbank features."),
    "tokenizer": ("asrtool.cli.lang:tokenizer", "Make the tokens: BPE pieces or phones."),
    "lang": ("asrtool.cli.lang:lang", "Lexicon and symbol tables."),
    "lm": ("asrtool.cli.lang:lm", "Estimate an n-gram language model."),
    "graph": ("asrtool.cli.lang:graph", "Build the decoding graph HLG."),
    "train": ("asrtool.cli.training:train", "Train the acoustic model."),
    "finetune": ("asrtool.cli.training:finetune", "Train a trained model on other data or tokens."),
    "average": ("asrtool.cli.training:average", "Average checkpoints into one model."),
    "nnlm": ("asrtool.cli.training:nnlm", "Train a neural language model."),
    "tune": ("asrtool.cli.decoding:tune", "Choose the weights of the searches on dev."),
    "decode": ("asrtool.cli.decoding:decode", "Acoustic model and graph to ctm files."),
    "align": ("asrtool.cli.decoding:align", "Write when each word of the transcripts was said."),
    "cut": ("asrtool.cli.data:cut", "Cut long utterances at pauses, which a model finds."),
    "targets": (
        "asrtool.cli.training:targets",
        "Align the training set by a model: what frame-ce is trained on.",
    ),
    "export": ("asrtool.cli.decoding:export", "Pack a trained recogniser into one file."),
    "check": ("asrtool.cli.data:check", "Listen to data and report what looks wrong."),
    "info": ("asrtool.cli.decoding:info", "Print what a bundle or model file is."),
    "transcribe": ("asrtool.cli.decoding:transcribe", "Write what is said in audio files."),
    "score": ("asrtool.cli.results:score", "Score ctm files against stm references."),
    "compare": ("asrtool.cli.results:compare", "Test whether two scores differ by more than chance."),
    "theory": ("asrtool.cli.theory:theory", "Compute the theory of a strategy before anything is trained."),
    "simulate": ("asrtool.cli.simulate:simulate", "Predict how long a training takes on a cluster."),
    "plot": ("asrtool.cli.results:plot", "Draw what the learners of a training did."),
    "watch": ("asrtool.cli.results:watch", "Show how a training on any machine goes."),
    "report": (
        "asrtool.cli.results:report",
        "Write RESULTS.md and RESULTS.html, of one run or several side by side.",
    ),
}

# Commands for beginners, which `asrtool` alone shows.
FIRST = ("check", "run", "config", "report", "compare", "decode", "transcribe", "export", "info", "finetune")


class LazyGroup(Group):
    """Commands as name -> (``module:object``, one line of help), imported when called.

    ``package.module:command`` is a custom command.
    """

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
            import difflib

            close = difflib.get_close_matches(args[0], self.lazy, n=1)
            if close:
                raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.lazy.items()])


@click.command(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.option(*VERBOSE, is_flag=True, help="Show the traceback of an error; also after the command.")
@click.option(QUIET, is_flag=True, help="Show warnings, errors and results only; also after the command.")
@click.version_option(package_name="asrtool")
@click.pass_context
def cli(ctx: click.Context, verbose: bool, quiet: bool) -> None:
    """Staged speech-recognition recipes for conversational telephone speech.

    \b
    Examples:
      asrtool run --list
      asrtool run --help
      asrtool --version
    """
    setup_logging(logging.WARNING if quiet else logging.INFO)
    if ctx.invoked_subcommand is None:
        click.echo(_first_help(ctx))


def _first_help(ctx: click.Context) -> str:
    """Return the help that is shown without a command."""
    formatter = ctx.make_formatter()
    formatter.write_usage(ctx.command_path, "COMMAND ...")
    with formatter.section("The commands to begin with"):
        formatter.write_dl([(name, COMMANDS[name][1]) for name in FIRST])
    formatter.write_paragraph()
    formatter.write_text("All commands: asrtool --help. A command with an example: asrtool COMMAND --help.")
    return formatter.getvalue().rstrip()


def main(is_stage: bool = False) -> None:
    """Run the command line; exit code 1 for a user's error, 2 for usage.

    If signal n stopped it, the exit code is 128 + n. A command that `is_stage` of `asrtool run` leaves the advice on
    resuming to that.
    """
    signal.signal(signal.SIGTERM, _stop)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # batch systems announce a time limit by them
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGTERM))
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN)
    # No command has these two, so that they may stand anywhere.
    argv = [QUIET] * (QUIET in sys.argv[1:]) + [word for word in sys.argv[1:] if word not in (*VERBOSE, QUIET)]
    try:
        code = cli.main(args=argv, prog_name="asrtool", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (`asrtool ... | head`); without this the interpreter complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1  # click exits so too
    except (AsrtoolError, OSError) as error:
        if {*VERBOSE} & {*sys.argv[1:]}:
            raise
        click.echo(f"error: {_one_line(error)}", err=True)
        code = AsrtoolError.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt, _Terminated) as stop:
        resume = "" if is_stage else f"; to resume: {shlex.join(['asrtool', *argv])}"
        click.echo(f"stopped{resume}", err=True)
        code = 128 + (signal.SIGTERM if isinstance(stop, _Terminated) else signal.SIGINT)
    finally:
        gc.freeze()  # else the interpreter ends by looking for cycles among all of torch: half a second and more
    sys.exit(code)


def _one_line(error: Exception) -> str:
    """Return the text of a system error without its number, file first."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}; check the path and its permissions"
    return str(error)


class _Terminated(SystemExit):
    """SIGTERM, after which `main` prints how to resume, as after Ctrl-C."""


def _stop(number: int, _: FrameType | None) -> None:
    raise _Terminated(128 + number)


def _own_command(path: str, ctx: click.Context) -> click.Command:
    module, _, name = path.partition(":")
    try:
        command = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"{path} cannot be loaded: {error}. Is its folder on PYTHONPATH?", ctx) from error
    if not isinstance(command, click.Command):
        raise click.UsageError(f"{path} is a {type(command).__name__}, expected a click command", ctx)
    return command
