"""Commands that read corpora: corpus, features, check, cut."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import (
    FOLDER,
    MODEL_FILE,
    PATH,
    TOKENIZER,
    allow_pipes_option,
    settings_options,
    worker_options,
)
from asrtool.cli.prepare import FolderOrAddress
from asrtool.errors import AsrtoolError
from asrtool.files import check_own
from asrtool.log import logged_as
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("out", type=PATH)
@settings_options
def corpus(out: Path, config: Config) -> None:
    """Link the configured corpora under OUT, or make the mini corpus there.

    The corpora are in data.train, data.dev and data.test, and in lm.extra_text for their transcripts; [paths] has the
    folders of their releases.

    \b
    Example: asrtool corpus mini/corpus --set data.train=swbd --set data.test=hub5 --set mini.train_hours=0.01 \\
      --set mini.test_minutes=0.2
    """
    from asrtool.local.releases.releases import collect_corpora

    def make_mini(folder: Path, names: list[str]) -> None:
        from asrtool.local.mini.corpus import make_corpus

        hours = config.mini.train_hours
        logging.info("no path is configured: making the mini corpus, %g h of SYNTHETIC speech, under %s", hours, folder)
        make_corpus(folder, config.mini, names)

    collect_corpora(out, config.data, config.paths, make_mini, config.lm.extra_text)


@click.command(cls=Command)
@click.argument("manifests", type=PATH)
@click.argument("out", type=PATH)
@settings_options
@worker_options
def features(manifests: Path, out: Path, config: Config) -> None:
    """Compute the features of MANIFESTS/SET into OUT/SET.

    MANIFESTS/sets.json lists the sets. Settings: [features]. The training set gets a copy at each of features.speeds.
    Features that have all utterances of MANIFESTS stay as they are: texts are joined when they are read. Audio is known
    by its contents where OUT is in the work folder of `asrtool run`, elsewhere by sizes and times of its files.

    \b
    Example: asrtool features exp/manifests exp/features --config exp/config/features.toml
    """
    from asrtool.data.features.cache_key import sizes_and_times
    from asrtool.data.features.compute_sets import compute_features
    from asrtool.recipe.contents import CACHE, contents_of
    from asrtool.recipe.source import code_of

    code = code_of(f"{__name__}:features", config, ("features",))
    known = contents_of(out.parent).of_files if (out.parent / CACHE).exists() else sizes_and_times
    compute_features(manifests, out, config.features, code, known)


@click.command(cls=Command)
@click.argument("data", type=FolderOrAddress(path_type=Path, exists=True))
@click.argument("out", type=FOLDER, required=False)
@allow_pipes_option
@settings_options
def check(data: Path, out: Path | None, config: Config) -> None:
    """Read all audio and texts of DATA and report faults, before hours are spent.

    DATA is what paths.own_train may be, a folder of audio with texts, a Kaldi data directory, a manifest, lhotse's
    manifests or Shar, or a folder of manifests that the stage prepare wrote. Reported are truncated files, silence,
    clipping, noise and several sampling rates. So are text that is too long or too short for its audio, and audio that
    was recorded at a lower rate than it has. Everything that the stage prepare would set aside is listed. With OUT,
    pictures, a table of all utterances and all that is set aside (dropped.tsv) are written there. Settings: [data],
    features.num_jobs, features.resample, features.sampling_rate_hz.

    \b
    Example: asrtool check exp/manifests/train exp/check
    """
    from asrtool.data.manifests.manifest import REPORT, check_apart
    from asrtool.report.data_check import PAGE, check_manifests

    if out:
        check_apart(data, out)
        check_own(out, [PAGE])  # before hours of audio are listened to
    if (data / REPORT).is_file():
        text, num_utterances = check_manifests(data, out, config.features)
    else:
        with tempfile.TemporaryDirectory(prefix="asrtool-check-") as folder:
            text, num_utterances = _check_data(data, Path(folder) / "manifests", out, config)
    click.echo(text, nl=False)
    if not num_utterances:
        raise AsrtoolError(f"{data}: not one usable utterance", "correct what is set aside or cannot be read")


def _check_data(data: Path, manifests: Path, out: Path | None, config: Config) -> tuple[str, int]:
    """Check `data` by temporary `manifests`, however much cannot be used."""
    from asrtool.data.manifests.manifest import rejected
    from asrtool.local.layouts.detect import prepare_any
    from asrtool.report.data_check import check_manifests, check_rejected

    with logged_as(manifests, str(data)):
        try:
            prepare_any(data, manifests, replace(config.data, bad_fraction=1.0), "check")
        except AsrtoolError:
            if not rejected(manifests).is_file():  # the data cannot be read at all
                raise
            return check_rejected(manifests, out)
        return check_manifests(manifests, out, config.features)


@click.command(cls=Command)
@click.argument("model", type=MODEL_FILE)
@click.argument("manifests", type=PATH)
@click.argument("features", type=PATH)
@click.argument("tokenizer", type=TOKENIZER)
@click.argument("out", type=PATH)
@settings_options
def cut(model: Path, manifests: Path, features: Path, tokenizer: Path, out: Path, config: Config) -> None:
    """Cut the utterances of MANIFESTS/long at pauses that MODEL finds.

    The pauses are found by forced alignment. Writes OUT/features, which are FEATURES with the pieces after the
    training set, OUT/pieces.tsv and OUT/dropped.tsv (utterances that could not be cut). Settings: data.max_duration_s,
    decode.batch_s, decode.num_jobs.

    \b
    Example: asrtool cut exp/cutter/model.pt exp/manifests exp/features exp/tokenizer exp/cut
    """
    from asrtool.decode.align.cut import cut_run

    cut_run(model, manifests, features, tokenizer, out, config.decode, config.data)
