"""`asrtool align`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import MODEL_FILE, TOKENIZER, settings_options
from asrtool.errors import AsrtoolError
from asrtool.settings.config import Config

FORMS = ("ctm", "srt", "vtt", "textgrid", "json")


@click.command(cls=Command, groups={"A recording": ("form", "channel")})
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", metavar="AUDIO|FEATURES")
@click.argument("text", metavar="TEXT|TOKENIZER", type=click.Path(path_type=Path))
@click.argument("out", required=False, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMS), default="ctm", show_default=True, help="What to write.")
@click.option(
    "--channel", type=click.IntRange(1), default=1, show_default=True, help="Number of the channel of AUDIO, from 1 on."
)
@settings_options
def align(model: Path, data: str, text: Path, out: Path | None, form: str, channel: int, config: Config) -> None:
    """Write when each word of a text was said.

    Of a recording: MODEL is a bundle of `asrtool export` or the --work of a run, TEXT a file with all words of AUDIO.
    Writes the file OUT.  [default: standard output]

    Of a set: FEATURES is one set with its texts, TOKENIZER that of the model file, bundle or work folder MODEL. Writes
    OUT/words.ctm, OUT/tokens.ctm and OUT/dropped.tsv (utterances too short for their text). Settings:
    decode.batch_s, decode.num_jobs.

    \b
    Examples:
      asrtool align swbd.asrtool call.wav call.txt --format srt
      asrtool align exp/average/model.pt exp/features/dev exp/tokenizer exp/align
    """
    from asrtool.bundle.archive import is_archive

    if text.is_dir() or is_archive(text):
        _align_set(model, data, text, out, config)
        return
    from asrtool.api import load
    from asrtool.files import write_text, writing
    from asrtool.transcribe.transcript import FORMATS

    with load(model) as recogniser:
        shown = FORMATS[form][1](recogniser.align_transcript(data, read_words(text), channel))
    if out is None:
        click.echo(shown, nl=False)
        return
    with writing(out):
        write_text(out, shown)


def read_words(path: Path) -> str:
    """Read a file as one line; AsrtoolError if it has no words or cannot be read."""
    try:
        words = " ".join(path.read_text(encoding="utf-8-sig").split())
    except (OSError, UnicodeDecodeError) as error:
        raise AsrtoolError(f"{path}: cannot be read, {error}", "name a text file in UTF-8") from error
    if not words:
        raise AsrtoolError(f"{path}: has no words", "write all that is said in the recording")
    return words


def _align_set(model: Path, data: str, tokenizer: Path, out: Path | None, config: Config) -> None:
    from asrtool.data.remote.features import open_features
    from asrtool.decode.align.align import align_run

    if out is None:
        raise click.UsageError("Missing argument 'OUT', the folder to write.")
    context = click.get_current_context()
    model_file, folder = MODEL_FILE.convert(model, None, context), TOKENIZER.convert(tokenizer, None, context)
    align_run(model_file, open_features(Path(data), config.remote), folder, out, config.decode)
