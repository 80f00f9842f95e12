"""Commands that use a model: tune, decode, align, export, info, transcribe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from asrtool.cli.command import Command
from asrtool.cli.options import (
    FOLDER,
    MODEL_FILE,
    PATH,
    TOKENIZER,
    TRAINED,
    allow_pipes_option,
    search_folders,
    settings_options,
    worker_options,
)
from asrtool.errors import AsrtoolError
from asrtool.settings.config import Config
from asrtool.settings.schema import SEARCHED

COLUMN_WIDTH = 13  # characters
ALIGNED_FORMS = ("ctm", "srt", "vtt", "textgrid", "json", "lhotse")
FORMS = ("text", *ALIGNED_FORMS, "nemo")


@click.command(cls=Command, groups={"Inputs of the searches": SEARCHED})
@click.argument("model", type=MODEL_FILE)
@click.argument("features", type=PATH)
@click.argument("out", type=PATH)
@search_folders
@settings_options
@worker_options
def tune(model: Path, features: Path, out: Path, folders: Mapping[str, Path | None], config: Config) -> None:
    """Choose the decoding parameters of each method by its word errors on dev.

    FEATURES is the dev set.

    A folder is needed only if a method of decode.methods reads it. Writes OUT/tuning.json (what was chosen, for
    `asrtool decode`) and OUT/tuning.tsv (all that was tried), and prints the latter. Settings: [decode], lm.large,
    nnlm.enabled, nnlm.precision.

    \b
    Example: asrtool tune exp/average/model.pt exp/features/dev exp/tune --tokenizer exp/tokenizer \\
      --lang exp/lang --lm exp/lm --graph exp/graph --config exp/config/decode.toml
    """
    from asrtool.data.remote.features import open_features
    from asrtool.decode.tune import tune_run

    features = open_features(features, config.remote)
    click.echo(tune_run(model, features, out, folders, config).expandtabs(COLUMN_WIDTH), nl=False)


@click.command(cls=Command, groups={"For a model file": ("tuning", *SEARCHED)})
@click.argument("model", type=TRAINED)
@click.argument("data", type=PATH)
@click.argument("out", type=PATH)
@click.option(
    "--tuning",
    type=PATH,
    metavar="FILE",
    help="The tuning.json to decode with.  [default: the one of the bundle or run]",
)
@search_folders
@allow_pipes_option
@settings_options
@worker_options
def decode(
    model: Path, data: Path, out: Path, tuning: Path | None, folders: Mapping[str, Path | None], config: Config
) -> None:
    """Recognise a test set with a trained model.

    MODEL is a bundle or the --work of a run; DATA has audio and transcripts, as a Kaldi data directory, a manifest or
    a folder of x.wav with x.txt. Writes OUT/decode/SET/METHOD.ctm and OUT/score, and prints the error
    rates. Nothing of the training is computed again.

    Or MODEL is a model file: then DATA are features, of a set or a folder of sets, all but train are decoded, and
    --tuning and the folders are needed that methods of decode.methods read. Writes OUT/SET/METHOD.ctm and
    OUT/decode.json (the decoding parameters, and real-time factors). Settings: [decode], lm.large, nnlm.enabled,
    nnlm.precision.

    \b
    Examples:
      asrtool decode swbd.asrtool data/eval exp/eval
      asrtool decode exp/average/model.pt exp/features exp/decode --tuning exp/tune/tuning.json \\
        --tokenizer exp/tokenizer --lang exp/lang --lm exp/lm --graph exp/graph --config exp/config/decode.toml
    """
    from asrtool.bundle.archive import is_archive
    from asrtool.bundle.trained import EXPECTED

    if not model.exists():
        raise AsrtoolError(f"{model}: no such file or folder", f"{EXPECTED}, or a model file and --tuning")
    if model.is_dir() or is_archive(model):
        _refuse_options(model)
        _decode_data(model, data, out, config.data.allow_pipes)
        return
    if tuning is None:
        raise click.UsageError("Missing option '--tuning', which a model file needs; a bundle does not.")
    from asrtool.data.remote.features import open_features
    from asrtool.decode.decode import decode_run

    decode_run(model, open_features(data, config.remote), tuning, out, folders, config)


def _refuse_options(model: Path) -> None:
    """Raise click.UsageError for an option that a bundle or a run does not take."""
    context = click.get_current_context()
    given = [
        next(option for option in parameter.opts if option.startswith("--"))
        for parameter in context.command.params
        if parameter.name not in ("model", "data", "out", "allow_pipes")
        and context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{given[0]} is for a model file: {model} is decoded with what it holds, as it was tuned. Fewer methods:"
            f" asrtool export {model} NEW --method NAME."
        )


def _decode_data(model: Path, data: Path, out: Path, allow_pipes: bool) -> None:
    from asrtool.bundle.evaluate import evaluate
    from asrtool.bundle.trained import open_trained
    from asrtool.data.manifests.manifest import check_apart
    from asrtool.local.layouts.detect import prepare_any
    from asrtool.local.layouts.lhotse import is_cuts
    from asrtool.local.layouts.manifest import is_manifest
    from asrtool.local.layouts.parquet import in_columns
    from asrtool.local.text.references import set_name
    from asrtool.score.tables import format_table

    if not (data.is_dir() or is_manifest(data) or in_columns(data) or is_cuts(data)):
        raise AsrtoolError(
            f"{data}: no folder or manifest of a test set", "audio without transcripts: asrtool transcribe"
        )
    check_apart(data, out)
    name = set_name(data.stem if data.is_file() else data.resolve().name)

    def prepare(folder: Path, settings: Any) -> None:
        # Settings in the model file do not allow these commands to run.
        prepare_any(data, folder, replace(settings, allow_pipes=allow_pipes), name, "test")

    with open_trained(model) as trained:
        for (test_set, method), result in evaluate(trained, name, prepare, out).items():
            click.echo(format_table(result, f"{test_set}, {method}"))


@click.command(cls=Command, groups={"A recording": ("form", "channel")})
@click.argument("model", type=PATH)
@click.argument("data", metavar="AUDIO|FEATURES")
@click.argument("text", metavar="TEXT|TOKENIZER", type=PATH)
@click.argument("out", required=False, type=PATH)
@click.option(
    "--format", "form", type=click.Choice(ALIGNED_FORMS), default="ctm", show_default=True, help="Form of the output."
)
@click.option(
    "--channel", type=click.IntRange(1), default=1, show_default=True, help="Number of the channel of AUDIO, from 1 on."
)
@settings_options
def align(model: Path, data: str, text: Path, out: Path | None, form: str, channel: int, config: Config) -> None:
    """Write the times of the words of a text.

    For a recording, MODEL is a bundle of `asrtool export` or the --work of a run, TEXT a file with all words of AUDIO.
    Writes the file OUT.  [default: standard output]

    For a set, FEATURES is one set with its texts, TOKENIZER belongs to the model file, bundle or work folder MODEL.
    Writes OUT/words.ctm, OUT/tokens.ctm, OUT/supervisions.jsonl (lhotse's, with alignments) and OUT/dropped.tsv
    (utterances too short for their text). Settings: decode.batch_s, decode.num_jobs.

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


@click.command(cls=Command)
@click.argument("work", type=PATH)
@click.argument("out", type=PATH)
@click.option("--method", "methods", multiple=True, metavar="NAME", help="A search method to keep.  [default: all]")
@click.option("--onnx", is_flag=True, help="Write a folder with the network as ONNX instead.")
def export(work: Path, out: Path, methods: tuple[str, ...], onnx: bool) -> None:
    """Pack the trained recogniser of a run into one file.

    WORK is the --work of an `asrtool run` that has decoded. OUT holds weights, settings, tokenizer, lexicon, language
    models, graph and tuned weights, and nothing of the training data. Without graph and language model it is much
    smaller: --method greedy.

    With --onnx, OUT is a folder with the network as ONNX: `asrtool transcribe` starts with it in a quarter of the time,
    and sherpa-onnx reads it, by the command line that is printed.

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
    from asrtool.bundle.sherpa import export_onnx

    command = export_onnx(work, out, methods)
    names = sorted(path.name for path in out.glob("[!.]*"))
    click.echo(f"{out}: {', '.join(names)}\n{command}")


@click.command(cls=Command)
@click.argument("model", metavar="FILE", type=TRAINED)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def info(model: Path, as_json: bool) -> None:
    """Describe a bundle or model file, after checking that it is whole.

    \b
    Example: asrtool info swbd.asrtool
    """
    from asrtool.bundle.info import describe_file

    click.echo(describe_file(model, as_json))


@click.command(
    cls=Command, groups={"Output": ("forms", "out", "stream"), "Recognition": ("channels", "method", "jobs")}
)
@click.argument("model", type=PATH)
@click.argument("audio", nargs=-1, required=True)
@click.option(
    "--format",
    "forms",
    type=click.Choice(FORMS),
    multiple=True,
    default=("text",),
    show_default=True,
    help="Form of the output; several with --out.",
)
@click.option(
    "--out",
    type=FOLDER,
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

    MODEL is a bundle or folder of `asrtool export`, its name in $ASRTOOL_MODELS, or the --work of a run. Audio of any
    length, rate and format that libsndfile reads, SPHERE with shorten too, and where ffmpeg is installed whatever that
    reads.

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
    if not out and len(set(forms)) > 1:
        raise click.UsageError("--format is given several times, but standard output takes one: add --out.")
    found = find_audio(audio)
    if out:
        check_out(out, found, forms)
    with open_trained(model) as trained:
        at_once = files_at_once(trained, found, jobs)
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
