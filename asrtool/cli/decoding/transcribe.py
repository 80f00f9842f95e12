"""`asrtool transcribe`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command

FORMS = ("text", "ctm", "srt", "vtt", "textgrid", "json")


@click.command(
    cls=Command, groups={"What is written": ("forms", "out", "stream"), "How": ("channels", "method", "jobs")}
)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("audio", nargs=-1, required=True)
@click.option(
    "--format",
    "forms",
    type=click.Choice(FORMS),
    multiple=True,
    default=("text",),
    show_default=True,
    help="What to write; with --out several.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write OUT/NAME.txt and so on.  [default: standard output]",
)
@click.option(
    "--channels",
    default="each",
    show_default=True,
    metavar="each|mix|N,M",
    help="Each channel, their mean, or some, from 1 on.",
)
@click.option("--method", metavar="NAME", help="Search method.  [default: the one with the fewest errors on dev]")
@click.option("--stream", is_flag=True, help="Write words while audio comes in; one file, text or json.")
@click.option("--jobs", type=click.IntRange(0), default=0, help="Processes that search.  [default: one a core]")
def transcribe(
    model: Path,
    audio: tuple[str, ...],
    forms: tuple[str, ...],
    out: Path | None,
    channels: str,
    method: str | None,
    stream: bool,
    jobs: int,
) -> None:
    """Write what is said in AUDIO: files, folders of them, or - for standard input.

    MODEL is a bundle of `asrtool export`, or the --work of a run. Audio of any length, rate and format that libsndfile
    reads, SPHERE with shorten too, and where ffmpeg is installed whatever that reads.

    \b
    Examples:
      asrtool transcribe swbd.asrtool call.wav
      asrtool transcribe swbd.asrtool calls/ --out texts --format text --format json
      sox call.wav -t wav - | asrtool transcribe swbd.asrtool -
      arecord -f S16_LE -r 8000 | asrtool transcribe --stream live.asrtool -
    """
    from asrtool.bundle.trained import open_trained
    from asrtool.transcribe.recogniser import open_recogniser
    from asrtool.transcribe.transcribe import check_out, files_at_once, find_audio, transcribe_all

    if stream:
        if out or jobs:
            raise click.UsageError("--stream writes to standard output, in one process: leave out --out and --jobs.")
        _stream(model, audio, forms, channels, method)
        return
    found = find_audio(audio)
    if out:
        check_out(out, found, forms)
    at_once = files_at_once(found, jobs)
    with open_trained(model) as trained:
        recogniser = open_recogniser(trained, method, jobs if at_once == 1 else 1)
        for text in transcribe_all(recogniser, found, channels, forms, out, at_once):
            click.echo(text, nl=False)


def _stream(model: Path, audio: tuple[str, ...], forms: tuple[str, ...], channel: str, method: str | None) -> None:
    from asrtool.bundle.trained import open_trained
    from asrtool.transcribe.recogniser import open_recogniser
    from asrtool.transcribe.stream import stream

    if len(audio) != 1 or len(forms) != 1 or forms[0] not in ("text", "json"):
        raise click.UsageError("--stream takes one AUDIO, and --format text or json.")
    with open_trained(model) as trained:
        stream(open_recogniser(trained, method, 1), audio[0], channel, forms[0] == "json")
