"""Commands on results: score, compare, report, plot."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path

import click

from asrtool.cli.command import Command, Group
from asrtool.cli.options import EXISTING_FOLDER, PATH

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
SCTK = click.option(
    "--check-sctk", "sctk", is_flag=True, help="Count with an installed SCTK too and fail at the first difference."
)
WATCH_S = 2.0
SCORE = click.Path(exists=True, path_type=Path)


@click.group(cls=Group)
def score() -> None:
    """Score ctm files against stm references."""
    gc.disable()  # scores have no cycles; looking for some takes a tenth of the time
    click.get_current_context().call_on_close(gc.enable)


@score.command(name="all")
@click.argument("decode_dir", type=EXISTING_FOLDER)
@click.argument("manifests", type=EXISTING_FOLDER)
@click.argument("out", type=PATH)
@SCTK
def all_(decode_dir: Path, manifests: Path, out: Path, sctk: bool) -> None:
    """Score every DECODE_DIR/SET/METHOD.ctm into OUT/SET/METHOD.

    The training set is left out. A set that came with an stm is scored by time, by the rules of NIST; others are scored
    utterance by utterance.

    \b
    Example: asrtool score all exp/decode exp/manifests exp/score
    """
    from asrtool.data.manifests.sets import read_sets
    from asrtool.score.output import score_all
    from asrtool.score.tables import format_table

    names = read_sets(manifests).scored
    for (name, method), result in score_all(decode_dir, manifests, out, names, sctk).items():
        click.echo(format_table(result, f"{name}, {method}"))


@score.command()
@click.option("--ref", required=True, type=EXISTING, help="Reference, stm.")
@click.option("--hyp", required=True, type=EXISTING, help="Hypothesis, ctm.")
@click.option("--glm", type=EXISTING, help="Mapping rules.  [default: none, words are compared as they stand]")
@click.option("--out", required=True, type=PATH, help="Folder to write.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object instead of a table.")
@SCTK
def hub5(ref: Path, hyp: Path, glm: Path | None, out: Path, as_json: bool, sctk: bool) -> None:
    """Score by the rules of Hub5, with the counts of NIST's hubscr.pl.

    \b
    Example: asrtool score hub5 --ref ref.stm --hyp hyp.ctm --glm en.glm --out scored
    """
    from asrtool.score.hub5 import score_hub5
    from asrtool.score.output import write_score
    from asrtool.score.tables import format_json, format_table, warn_of_no_words
    from asrtool.score.utterances import with_names

    result = score_hub5(ref, hyp, glm)
    warn_of_no_words(result, hyp)
    named = with_names(result, ref)
    write_score(named, out, hyp)
    click.echo(format_json(named) if as_json else format_table(named, hyp.name), nl=False)
    if sctk:
        from asrtool.score.sctk import check_sctk

        check_sctk(result, ref, hyp, glm)


@score.command()
@click.argument("ref", type=EXISTING)
@click.argument("hyp", type=EXISTING)
@click.option("--out", type=PATH, help="Folder to write.  [default: none, the table is printed]")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object instead of a table.")
def wer(ref: Path, hyp: Path, out: Path | None, as_json: bool) -> None:
    """Print the word error rate of HYP against REF; words count as they stand.

    Both are lhotse manifests, trn, Kaldi's text, or lines.

    \b
    Example: asrtool score wer ref.trn hyp.trn
    """
    from asrtool.score.tables import format_json, format_table, warn_of_no_words
    from asrtool.score.wer import score_wer

    result = score_wer(ref, hyp)
    warn_of_no_words(result, hyp)
    if out:
        from asrtool.score.output import write_score

        write_score(result, out, hyp)
    click.echo(format_json(result) if as_json else format_table(result, hyp.name), nl=False)


@click.command(cls=Command)
@click.argument("a", type=SCORE)
@click.argument("b", type=SCORE)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the samples of speakers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def compare(a: Path, b: Path, seed: int, as_json: bool) -> None:
    """Test whether the scores A and B differ by more than chance.

    Both are folders that asrtool score wrote with one reference.

    Prints the difference of the word error rates with its interval by bootstrap over speakers (Bisani and Ney 2004),
    and the matched-pair sentence-segment word error test (Gillick and Cox 1989) as in SCTK's sc_stats.

    \b
    Example: asrtool compare exp/score/own/greedy exp/score/own/graph
    """
    from asrtool.score.significance import compare_scores, format_comparison

    comparison = compare_scores(a, b, seed)
    click.echo(json.dumps(comparison.to_dict()) + "\n" if as_json else format_comparison(comparison), nl=False)


@click.command(cls=Command)
@click.argument("works", metavar="WORK...", type=PATH, nargs=-1, required=True)
@click.option(
    "--out",
    metavar="FOLDER",
    type=PATH,
    help="Folder of the report of several experiments.  [default: none; the report of one is beside it]",
)
@click.option(
    "--config",
    "configs",
    metavar="FILE",
    type=PATH,
    multiple=True,
    help="Settings of one run.  [default: those in its work folder]",
)
@click.option(
    "--clips",
    "num_clips",
    metavar="N",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Utterances, the worst of each set, whose audio is put into the page.",
)
def report(works: tuple[Path, ...], out: Path | None, configs: tuple[Path, ...], num_clips: int) -> None:
    """Write RESULTS.md and RESULTS.html of one experiment, or of several.

    They have error rates with intervals, errors, training, data, settings and command. Reads score/, decode/, tune/,
    train/, manifests/ and config/ of the work directory WORK, and writes there, with figures in WORK/report. Several
    are put side by side, with paired tests, in FOLDER.

    \b
    Examples:
      asrtool report exp
      asrtool report exp/small exp/large --out exp/compared
    """
    from asrtool.report.write import write_report

    if len(works) > 1 and (out is None or configs):
        raise click.UsageError("several experiments need --out FOLDER, and each has settings of its own, not --config")
    if len(works) == 1 and out is not None:
        raise click.UsageError("--out is for several experiments; the report of one is written beside it")
    for path in write_report(works, num_clips, configs, out):
        click.echo(path)


@click.command(cls=Command)
@click.argument("train", type=PATH)
@click.argument("out", type=PATH)
def plot(train: Path, out: Path) -> None:
    """Draw the work of the learners of a training.

    Writes OUT/training.md, and its figures as SVG.

    TRAIN is a work folder or the OUT of `asrtool train`, finished or not. An earlier OUT is replaced.

    \b
    Example: asrtool plot exp/train exp/plot
    """
    from asrtool.report.figures.training_figures import plot_training
    from asrtool.report.watch import find_training

    click.echo(plot_training(find_training(train), out))


@click.command(cls=Command)
@click.argument("work", type=EXISTING_FOLDER)
@click.option("--once", is_flag=True, help="Print it once, and do not wait for the end.")
def watch(work: Path, once: bool) -> None:
    """Show how a training on any machine goes, with a row a host, until it ends.

    WORK is a work folder or the OUT of `asrtool train`, on a disk that this machine has mounted.

    \b
    Example: asrtool watch exp
    """
    from asrtool.report.watch import find_training, format_progress, is_finished

    train = find_training(work)
    while True:
        ends = once or is_finished(train)
        click.clear()  # on a terminal only
        click.echo(format_progress(train))
        if ends:
            return
        time.sleep(WATCH_S)
