"""``asrtool compare``: whether two scores differ by more than chance."""

from __future__ import annotations

import json
from pathlib import Path

import click

from asrtool.cli.command import Command

SCORE = click.Path(exists=True, path_type=Path)


@click.command(cls=Command)
@click.argument("a", type=SCORE)
@click.argument("b", type=SCORE)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the samples of speakers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def compare(a: Path, b: Path, seed: int, as_json: bool) -> None:
    """Compare the scores of two hypotheses, A and B: folders that asrtool score wrote with one reference.

    Prints the difference of the word error rates with its interval by bootstrap over speakers (Bisani and Ney 2004),
    and the matched-pair sentence-segment word error test (Gillick and Cox 1989) as in SCTK's sc_stats.

    \b
    Example: asrtool compare exp/score/own/greedy exp/score/own/graph
    """
    from asrtool.score.significance import compare_scores, format_comparison

    comparison = compare_scores(a, b, seed)
    click.echo(json.dumps(comparison.to_dict()) + "\n" if as_json else format_comparison(comparison), nl=False)
