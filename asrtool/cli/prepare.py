"""`asrtool prepare CORPUS`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config

FOLDER = click.Path(path_type=Path, file_okay=False)
EXISTING = click.Path(path_type=Path, file_okay=False, exists=True)


@click.group()
def prepare() -> None:
    """Corpus to manifests with one text convention."""


@prepare.command()
@click.argument("audio", type=EXISTING)
@click.argument("transcripts", type=EXISTING)
@click.argument("out", type=FOLDER)
@settings_options
def swbd(audio: Path, transcripts: Path, out: Path, config: Config) -> None:
    """Switchboard-1: AUDIO is LDC97S62, TRANSCRIPTS are those of MS-State."""
    from local.prepare_swbd import prepare_swbd

    prepare_swbd(audio, transcripts, out, config.data)


@prepare.command()
@click.argument("corpus", type=EXISTING)
@click.argument("out", type=FOLDER)
@settings_options
def fisher(corpus: Path, out: Path, config: Config) -> None:
    """Fisher English: CORPUS holds LDC2004S13, LDC2004T19, LDC2005S13 and LDC2005T19."""
    from local.prepare_fisher import prepare_fisher

    prepare_fisher(corpus, out, config.data)


@prepare.command()
@click.argument("corpus", type=EXISTING)
@click.argument("out", type=FOLDER)
@settings_options
def hub5(corpus: Path, out: Path, config: Config) -> None:
    """Hub5'00, the test set: CORPUS holds LDC2002S09 and LDC2002T43."""
    from local.prepare_hub5 import prepare_hub5

    prepare_hub5(corpus, out, config.data)


@prepare.command()
@click.argument("corpus", type=EXISTING)
@click.argument("manifests", type=FOLDER)
@settings_options
def an4(corpus: Path, manifests: Path, config: Config) -> None:
    """CMU AN4: the lists of CORPUS to MANIFESTS/an4 and MANIFESTS/an4_test."""
    from local.prepare_an4 import prepare_an4

    prepare_an4(corpus, manifests, config.data)


@prepare.command()
@click.argument("directory", type=EXISTING)
@click.argument("out", type=FOLDER)
@settings_options
def kaldi(directory: Path, out: Path, config: Config) -> None:
    """A Kaldi data DIRECTORY: wav.scp, text, utt2spk, and segments where it has them."""
    from local.prepare_kaldi import prepare_kaldi

    prepare_kaldi(directory, out, config.data)


@prepare.command()
@click.argument("directory", type=EXISTING)
@click.argument("out", type=FOLDER)
@settings_options
def folder(directory: Path, out: Path, config: Config) -> None:
    """A DIRECTORY of x.wav (or .flac, .sph) and x.txt, at any depth."""
    from local.prepare_folder import prepare_folder

    prepare_folder(directory, out, config.data)


@prepare.command()
@click.argument("directory", type=EXISTING)
@click.argument("out", type=FOLDER)
@settings_options
def lhotse(directory: Path, out: Path, config: Config) -> None:
    """A DIRECTORY of lhotse manifests: *recordings*.jsonl.gz and *supervisions*.jsonl.gz."""
    from local.prepare_lhotse import prepare_lhotse

    prepare_lhotse(directory, out, config.data)


@prepare.command()
@click.argument("corpus", type=EXISTING)
@click.argument("manifests", type=FOLDER)
@settings_options
def own(corpus: Path, manifests: Path, config: Config) -> None:
    """own_train, own_dev, own_test of CORPUS, each in any of these layouts, to MANIFESTS."""
    from local.prepare_own import prepare_own

    prepare_own(corpus, manifests, config.data)


@prepare.command()
@click.argument("manifests", type=EXISTING)
@click.option("--test", required=True, metavar="NAME", help="The test set, a folder of MANIFESTS.")
@settings_options
def split(manifests: Path, test: str, config: Config) -> None:
    """MANIFESTS of the corpora of data.train to MANIFESTS/train and dev; MANIFESTS/NAME to test."""
    from local.split import split_manifests

    split_manifests(manifests, test, config.data)
