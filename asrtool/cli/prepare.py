"""`asrtool prepare CORPUS`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from asrtool.cli.command import Command, Group
from asrtool.cli.options import EXISTING_FOLDER, FOLDER, allow_pipes_option, settings_options, worker_options
from asrtool.settings.config import Config
from asrtool.url import as_url


class FolderOrAddress(click.Path):
    """An existing folder, or an address."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return Path(value) if as_url(value) else super().convert(value, param, ctx)


FOLDER_OR_ADDRESS = FolderOrAddress(path_type=Path, file_okay=False, exists=True)


class Corpora(Group):
    """Group of its own commands and one command a corpus.

    A corpus is called by its name, the name of a plugin, or as ``package.module:Class``.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        from asrtool.settings import registry

        return [*super().list_commands(ctx), *registry.names("corpus")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from asrtool.settings import registry

        name = registry.full_name("corpus", cmd_name)
        known = ":" in name or name in registry.names("corpus")
        return super().get_command(ctx, cmd_name) or (_corpus_command(name) if known else None)


def _corpus_command(name: str) -> click.Command:
    from asrtool.local.corpus import open_corpus

    corpus = open_corpus(name)
    outs = [f"OUT/{role}" for role in corpus.roles]
    example = f"Example: asrtool prepare {name} corpus manifests/{name}"

    @click.command(
        name,
        cls=Command,
        help=f"{corpus.title}: from its releases in FOLDER to {' and '.join(outs)}.\n\n\b\n{example}",
    )
    @click.argument("folder", type=EXISTING_FOLDER)
    @click.argument("out", type=FOLDER)
    @settings_options
    def command(folder: Path, out: Path, config: Config) -> None:
        from asrtool.data.manifests.manifest import check_apart
        from asrtool.local.corpus import prepare_corpus

        check_apart(folder, out)
        prepare_corpus(corpus, folder, out, config.data)

    return command


@click.group(cls=Corpora)
def prepare() -> None:
    """Convert a corpus to manifests with one text convention."""


@prepare.command("all")
@click.argument("corpus", type=EXISTING_FOLDER)
@click.argument("manifests", type=FOLDER)
@settings_options
def all_(corpus: Path, manifests: Path, config: Config) -> None:
    """Make manifests of each corpus that [data] names, in MANIFESTS/corpora/NAME.

    CORPUS has their releases.

    \b
    Example: asrtool prepare all exp/corpus exp/manifests --config exp/config/prepare.toml
    """
    from asrtool.local.corpus import prepare_all

    prepare_all(corpus, manifests, config.data)


@prepare.command()
@click.argument("manifests", type=EXISTING_FOLDER)
@settings_options
def split(manifests: Path, config: Config) -> None:
    """Make MANIFESTS/train, dev and a folder for each corpus of data.test.

    They are made of MANIFESTS/corpora.

    \b
    Example: asrtool prepare split exp/manifests --config exp/config/prepare.toml
    """
    from asrtool.local.sets.split import split_manifests

    split_manifests(manifests, config.data)


@prepare.command("same-audio")
@click.argument("manifests", type=EXISTING_FOLDER)
@settings_options
@worker_options
def same_audio(manifests: Path, config: Config) -> None:
    """Find utterances of the sets of MANIFESTS that are one sound or one text.

    Writes MANIFESTS/same_audio.tsv and same_text.tsv; with data.same_audio = drop also MANIFESTS/train, and
    MANIFESTS/long where there is some, without what is in a set to be scored.

    \b
    Example: asrtool prepare same-audio exp/manifests --config exp/config/prepare.toml --set data.same_audio=report
    """
    from asrtool.local.sets.duplicates import check_same_audio

    check_same_audio(manifests, config.data, config.features)


@prepare.command()
@click.argument("corpus", type=EXISTING_FOLDER)
@click.argument("out", type=FOLDER)
@settings_options
def text(corpus: Path, out: Path, config: Config) -> None:
    """Normalise the texts of lm.extra_text, and write them to OUT.

    They are transcripts of corpora, whose releases CORPUS has, and files.

    \b
    Example: asrtool prepare text exp/corpus exp/text --set lm.extra_text=more.txt
    """
    from asrtool.local.text.own_text import text_rule, write_extra_texts

    write_extra_texts(corpus, out, config.lm.extra_text, text_rule(config.data))


@prepare.command()
@click.argument("directory", type=EXISTING_FOLDER)
@click.argument("out", type=FOLDER)
@allow_pipes_option
@settings_options
def kaldi(directory: Path, out: Path, config: Config) -> None:
    """Make manifests of a Kaldi data DIRECTORY.

    It has wav.scp, whose commands are run, text, and optionally utt2spk and segments.

    \b
    Example: asrtool prepare kaldi data/eval exp/manifests/eval
    """
    from asrtool.local.layouts.detect import check_out
    from asrtool.local.layouts.kaldi import prepare_kaldi

    check_out(directory, out)
    prepare_kaldi(directory, out, config.data, out.name)


@prepare.command()
@click.argument("directory", type=EXISTING_FOLDER)
@click.argument("out", type=FOLDER)
@settings_options
def folder(directory: Path, out: Path, config: Config) -> None:
    """Make manifests of a DIRECTORY of x.wav (or .flac, .mp3 ...) and x.txt.

    The files may lie at any depth.

    \b
    Example: asrtool prepare folder data/train exp/manifests/train
    """
    from asrtool.local.layouts.detect import check_out
    from asrtool.local.layouts.folder import prepare_folder

    check_out(directory, out)
    prepare_folder(directory, out, config.data, out.name)


@prepare.command()
@click.argument("manifest", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=FOLDER)
@click.option(
    "--role",
    type=click.Choice(["train", "dev", "test"]),
    default="train",
    show_default=True,
    help="Role of the manifest to read, in a folder with several.",
)
@settings_options
def manifest(manifest: Path, out: Path, role: str, config: Config) -> None:
    """Make manifests of a MANIFEST of audio files and texts, or a folder with such.

    It is a table (csv, tsv) or JSON lines. Columns or keys: audio_filepath, file_name, path ...; text, sentence,
    transcription ...; speaker, client_id ...; offset and duration in seconds. Also a tree as LibriSpeech's, and Parquet
    or Arrow files with audio in a column.

    \b
    Example: asrtool prepare manifest data/train.jsonl exp/manifests/train
    """
    from asrtool.local.layouts.detect import check_out, prepare_any

    check_out(manifest, out)
    prepare_any(manifest, out, config.data, out.name, role)


@prepare.command()
@click.argument("directory", type=FOLDER_OR_ADDRESS)
@click.argument("out", type=FOLDER)
@settings_options
def lhotse(directory: Path, out: Path, config: Config) -> None:
    """Make manifests of a DIRECTORY of lhotse manifests, or the address of one.

    It has *recordings*.jsonl.gz and *supervisions*.jsonl.gz.

    \b
    Example: asrtool prepare lhotse data/lhotse exp/manifests/train
    """
    from asrtool.local.layouts.detect import check_out
    from asrtool.local.layouts.lhotse import prepare_lhotse

    check_out(directory, out)
    prepare_lhotse(directory, out, config.data, out.name)


@prepare.command()
@click.argument("directory", type=FOLDER_OR_ADDRESS)
@click.argument("out", type=FOLDER)
@settings_options
def shar(directory: Path, out: Path, config: Config) -> None:
    """Make manifests of a DIRECTORY of Lhotse Shar, or the address of one.

    It has cuts.NNNNNN.jsonl.gz and recording.NNNNNN.tar.

    \b
    Example: asrtool prepare shar data/shar exp/manifests/train
    """
    from asrtool.local.layouts.detect import check_out
    from asrtool.local.layouts.shar import prepare_shar

    check_out(directory, out)
    prepare_shar(directory, out, config.data, out.name)
