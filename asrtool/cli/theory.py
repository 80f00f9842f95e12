"""`asrtool theory`."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asrtool.cli.command import Command
from asrtool.cli.options import LEARNERS, learners_options, settings_options, slow_option
from asrtool.errors import AsrtoolError
from asrtool.settings.config import Config

if TYPE_CHECKING:
    from asrtool.predict.theory.bounds import Constants


@click.command(
    cls=Command,
    groups={
        "System": (*LEARNERS, "rate", "slow", "times", "num_steps", "momentum"),
        "Constants of model and data": ("measure", "num_batches", "given"),
        "Output": ("as_json", "plot"),
    },
)
@learners_options
@click.option("--rate", type=float, metavar="X", help="Learning rate.  [default: train.peak_lr x distributed.lr_scale]")
@slow_option("A learner that takes FACTOR times as long for a step.")
@click.option(
    "--times",
    type=click.Choice(("constant", "exponential")),
    default="constant",
    show_default=True,
    help="Duration of a learner's steps: always the same, or drawn.",
)
@click.option(
    "--steps",
    "num_steps",
    type=click.IntRange(1, 10**15),
    default=1000,
    show_default=True,
    metavar="N",
    help="Steps of a learner of full speed.",
)
@click.option(
    "--momentum",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    metavar="X",
    help="Fraction of the last change that SGD keeps, for the largest stable rate.",
)
@click.option(
    "--measure",
    type=click.Path(path_type=Path),
    metavar="WORK",
    help="Measure the constants on the model and data of `asrtool run --work WORK`.  [default: none]",
)
@click.option(
    "--batches",
    "num_batches",
    type=click.IntRange(4),
    default=16,
    show_default=True,
    metavar="N",
    help="Batches of utterances that --measure takes.",
)
@click.option(
    "--constant",
    "given",
    multiple=True,
    metavar="NAME=X",
    help="smoothness, noise, between or start; wins over a measured one.  [default: 1, but between=0]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw prediction and measurement on a quadratic, and the bound where there is one, as SVG, PNG or PDF."
    "  [default: none]",
)
@settings_options
def theory(
    rate: float | None,
    slow: tuple[tuple[int, float], ...],
    times: str,
    num_steps: int,
    momentum: float,
    measure: Path | None,
    num_batches: int,
    given: tuple[str, ...],
    as_json: bool,
    plot: Path | None,
    config: Config,
) -> None:
    """Compute the theory of a strategy before anything is trained.

    Prints how fast learners agree, how stale gradients are, bounds of convergence, and how many learners pay;
    docs/theory.md has the statements. Settings: [distributed], train.peak_lr; --measure takes those that
    WORK was trained with, over which --config and --set win.

    \b
    Examples:
      asrtool theory --strategy adpsgd-random --num-learners 16 --rate 0.1 --slow 0:10
      asrtool theory --strategy bmuf --num-learners 8 --set distributed.bmuf.block_momentum=0 --json
      asrtool theory --strategy adpsgd-fixed --num-learners 8 --rate 0.05 --plot theory.svg
      asrtool theory --strategy allreduce --num-learners 4 --measure exp --set train.batch_s=5
    """
    from asrtool.predict.theory.bounds import Constants
    from asrtool.predict.theory.describe import TheoryResult, to_dict, to_text
    from asrtool.predict.theory.system import System
    from asrtool.train.derived_settings import last_settings
    from asrtool.train.run import count_learners

    distributed = config.distributed
    if measure:
        from asrtool.predict.theory import measure as measuring

        params = click.get_current_context().params
        trained = measuring.read_config(measure, params["files"], params["overrides"])
    else:
        trained = last_settings(config)
    rate = trained.train.peak_lr * distributed.lr_scale if rate is None else rate
    if not (math.isfinite(rate) and rate > 0):
        raise AsrtoolError(f"--rate {rate:g}: at this learning rate nothing is learned", "choose one above 0")
    system = System(distributed.strategy, count_learners(distributed), dict(slow), config.train.seed)
    measured = (
        measuring.measure(measure, trained, num_batches, system.num_learners, system.asynchronous) if measure else None
    )
    constants = _replace(measured.constants() if measured else Constants(), given)
    found = TheoryResult(system, rate, constants, num_steps, times, momentum, measured)
    if plot:
        from asrtool.report.figures.theory import plot_theory

        plot_theory(found, plot)
    click.echo(json.dumps(to_dict(found)) + "\n" if as_json else to_text(found), nl=False)


def _replace(constants: Constants, given: Sequence[str]) -> Constants:
    """Return constants with the values given as NAME=X."""
    names = [field.name for field in dataclasses.fields(constants)]
    for text in given:
        name, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        is_allowed = value > 0 or (value == 0 and name in ("noise", "between"))
        if not (name in names and math.isfinite(value) and is_allowed):
            what = f"--constant {text}: expected NAME=X, NAME one of {', '.join(names)}, X above 0"
            raise AsrtoolError(what, "noise and between may be 0; for example --constant smoothness=20")
        constants = dataclasses.replace(constants, **{name: value})
    return constants
