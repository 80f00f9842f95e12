"""`asrtool simulate`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asrtool.cli.command import Command
from asrtool.errors import AsrtoolError

if TYPE_CHECKING:
    from asrtool.predict.virtual.training import Result


@click.command(
    cls=Command,
    groups={
        "Simulation": ("scenarios", "works", "strategies", "num_learners", "overrides"),
        "Training": ("train", "replayed"),
        "Output": ("as_json", "plot", "out", "settings"),
    },
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="NAME|FILE",
    help="Settings: a scenario that comes with the toolkit, or a TOML file; later ones win.  [default: none]",
)
@click.option(
    "--from",
    "works",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Take times of steps, data and checkpoints from a training: OUT of asrtool train, or a work directory."
    "  [default: none]",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="distributed.strategy: one to compare; several times for several.  [default: that setting, which has all]",
)
@click.option(
    "--num-learners",
    metavar="N,...",
    help="distributed.num_learners: how many, each number by itself.  [default: that setting]",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="One setting, as section.key=value; --settings lists them.  [default: none]",
)
@click.option(
    "--train",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="WORK",
    help="Train the model of a work directory in virtual time, by real gradients, and write it to --out."
    "  [default: none]",
)
@click.option(
    "--replay",
    "replayed",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="With --train, do step by step what the OUT of asrtool train --events did.  [default: none]",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of text.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT.svg",
    help="Draw times and where they go; also as .png or .pdf.  [default: none]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write DIR/STRATEGY-N, records as of asrtool train, for asrtool plot.  [default: none]",
)
@click.option("--settings", is_flag=True, help="Print all settings as a TOML file to begin with, and simulate nothing.")
def simulate(
    scenarios: tuple[str, ...],
    works: tuple[Path, ...],
    strategies: tuple[str, ...],
    num_learners: str | None,
    overrides: tuple[str, ...],
    train: Path | None,
    replayed: Path | None,
    as_json: bool,
    plot: Path | None,
    out: Path | None,
    settings: bool,
) -> None:
    """Predict the time of a training on a cluster by strategy, and the cost of delays.

    Learners compute, exchange and wait in virtual time. Nothing is trained, unless --train names a work directory:
    then virtual learners do, in this process, and --set changes settings of that training as well. A scenario is a file
    of settings; docs/guide/simulate.md lists the built-in ones.

    \b
    Examples:
      asrtool simulate --scenario swb2000-v100 --num-learners 16,64 --strategy allreduce --strategy adpsgd-random
      asrtool simulate --set compute.ms=250 --set network.gbit_per_s=10 --set slow.learners=3:5 --plot hours.svg
      asrtool simulate --from exp/train --num-learners 4 --json
      asrtool simulate --settings
      asrtool simulate --num-learners 4 --strategy adpsgd-random --set job.num_samples=40000 --out simulated
      asrtool simulate --train exp --num-learners 16 --strategy adpsgd-random --set slow.learners=0:10 --out virtual
    """
    import json
    import logging

    from asrtool.predict.simulate.calibrate import settings_of
    from asrtool.predict.simulate.records import write_records
    from asrtool.predict.simulate.scenario import find, format_scenario, is_of_scenario, load_ends
    from asrtool.predict.simulate.simulate import compare, describe, refusals, title
    from asrtool.predict.virtual.training import train_cases
    from asrtool.report.figures.figure import check_suffix
    from asrtool.report.figures.simulated import draw_rows

    if plot:
        check_suffix(plot, "hours.svg")
    given = [f"distributed.strategy={','.join(strategies)}"] if strategies else []
    given += [f"distributed.num_learners={num_learners}"] if num_learners else []
    measured = settings_of(works)
    training_settings = [text for text in overrides if train and not is_of_scenario(text)]
    given = [*measured, *(text for text in overrides if text not in training_settings), *given]
    scenario, *ends = load_ends([find(name) for name in scenarios], given)
    if settings:
        click.echo(format_scenario(scenario), nl=False)
        return
    for why in refusals(scenario).values() if strategies else ():
        logging.warning(why)
    if train:
        if not out:
            raise AsrtoolError(f"--train {train} without --out", "name a folder for what is trained: --out DIR")
        if plot:
            raise AsrtoolError(f"--plot {plot} with --train", "leave it out, and draw what is trained: asrtool plot")
        _echo_trained(train_cases(train, training_settings, scenario, bool(strategies), replayed, out), as_json)
        return
    if replayed:
        raise AsrtoolError(
            f"--replay {replayed} without --train", "name the work directory it was trained from: --train"
        )
    rows = compare(scenario, ends)
    if as_json:
        click.echo(json.dumps([row.to_dict() for row in rows]))
    else:
        click.echo(describe(rows, scenario.uncertain))
    if plot:
        draw_rows([row.to_dict() for row in rows], title(scenario), plot)
    for path in write_records(scenario, out) if out else ():
        click.echo(path, err=True)


def _echo_trained(results: Iterable[Result], as_json: bool) -> None:
    """Print each result when it is ready, or all as JSON."""
    import json

    found = []
    for result in results:
        found.append(result.to_dict())
        if not as_json:
            click.echo(result)
    if as_json:
        click.echo(json.dumps(found))
