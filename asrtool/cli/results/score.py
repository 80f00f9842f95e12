"""``asrtool score``: count errors as NIST's scorer does."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Group

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
SCTK = click.option(
    "--check-sctk", "sctk", is_flag=True, help="Count with an installed SCTK too and fail at the first difference."
)


@click.group(cls=Group)
def score() -> None:
    """Score ctm files against stm references."""


@score.command(name="all")
@click.argument("decode_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("manifests", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@SCTK
def all_(decode_dir: Path, manifests: Path, out: Path, sctk: bool) -> None:
    """Score every DECODE_DIR/SET/METHOD.ctm into OUT/SET/METHOD, for each set but that for training.

    A set that came with an stm is scored by time, by the rules of NIST; others are scored utterance by utterance.

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
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object instead of a table.")
@SCTK
def hub5(ref: Path, hyp: Path, glm: Path | None, out: Path, as_json: bool, sctk: bool) -> None:
    """Score by the rules of Hub5, with the counts of NIST's hubscr.pl.

    \b
    Example: asrtool score hub5 --ref ref.stm --hyp hyp.ctm --glm en.glm --out scored
    """
    from asrtool.score.hub5 import score_hub5
    from asrtool.score.output import format_json, warn_of_no_words, write_score
    from asrtool.score.tables import format_table
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
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write.  [default: none, the table is printed]")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object instead of a table.")
def wer(ref: Path, hyp: Path, out: Path | None, as_json: bool) -> None:
    """Word error rate of HYP against REF: lhotse manifests, trn, Kaldi's text, or lines; words as they stand.

    \b
    Example: asrtool score wer ref.trn hyp.trn
    """
    from asrtool.score.output import format_json, warn_of_no_words, write_score
    from asrtool.score.tables import format_table
    from asrtool.score.wer import score_wer

    result = score_wer(ref, hyp)
    warn_of_no_words(result, hyp)
    if out:
        write_score(result, out, hyp)
    click.echo(format_json(result) if as_json else format_table(result, hyp.name), nl=False)
