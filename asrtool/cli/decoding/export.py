"""`asrtool export`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command


@click.command(cls=Command)
@click.argument("work", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--method", "methods", multiple=True, metavar="NAME", help="A search method to keep.  [default: all]")
@click.option("--onnx", is_flag=True, help="Write a folder for sherpa-onnx instead: the network and its tokens.")
def export(work: Path, out: Path, methods: tuple[str, ...], onnx: bool) -> None:
    """Pack what a run has trained into one file, which recognises anywhere.

    WORK is the --work of an `asrtool run` that has decoded. OUT holds weights, settings, tokenizer, lexicon, language
    models, graph and tuned weights, and nothing of the training data. Without graph and language model it is much
    smaller: --method greedy.

    With --onnx, OUT is a folder that sherpa-onnx reads, and the command line for it is printed.

    \b
    Examples:
      asrtool export exp swbd.asrtool
      asrtool export exp small.asrtool --method greedy
      asrtool export exp swbd-onnx --onnx
    """
    if onnx:
        _export_onnx(work, out, methods)
        return
    if out.is_dir():
        raise click.BadParameter(f"{out} is a folder, expected the name of a file.", param_hint="'OUT'")
    from asrtool.bundle.export import export_bundle

    archive = export_bundle(work, out, methods)
    click.echo(f"{out}: {archive.num_bytes / 2**20:.1f} MiB, digest {archive.digest[:16]}")


def _export_onnx(work: Path, out: Path, methods: tuple[str, ...]) -> None:
    if methods:
        raise click.UsageError("--onnx takes no --method: sherpa-onnx has its own searches.")
    from asrtool.bundle.sherpa import export_for_sherpa

    written = export_for_sherpa(work, out)
    names = sorted(path.name for path in written.folder.glob("[!.]*"))
    click.echo(f"{written.folder}: {', '.join(names)}\n{written.command}")
