"""How much a run has to do, before anything is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from asrtool.config import Config
from asrtool.estimate.needs import Amount
from asrtool.estimate.text_stages import WORDS_AN_HOUR
from asrtool.lang.text import extra_files
from asrtool.local.hours import epoch_hours, is_mini, report_of, shortened_samples, training_hours
from asrtool.local.named import extra_corpora
from asrtool.local.shortened import cost_of_decoding

BYTES_A_WORD = 5  # of text, with the blank


def amount_of(config: Config, work: Path) -> Amount:
    """Of a run in `work`, from its manifests where they are there, else from what is published.

    Raises AsrtoolError for a corpus of unknown size whose manifest is not there.
    """
    hours, source = training_hours(config, work)
    amount = Amount(
        hours,
        source,
        of_corpora=epoch_hours(config, work, hours),
        extra_words=extra_words(config, work),
        decoding=cost_of_decoding(shortened_samples(config, work)),
    )
    report = report_of(config, work)
    if not {"num_words", "num_utterances"} <= report.keys():
        return amount
    return replace(
        amount, utterance_s=3600 * hours / report["num_utterances"], words_an_hour=report["num_words"] / hours
    )


def extra_words(config: Config, work: Path) -> float:
    """Of lm.extra_text: of what `asrtool prepare text` wrote, or of files and of corpora as they are published."""
    corpora = {corpus.name: corpus for corpus in extra_corpora(config.lm.extra_text)}
    words = 0.0
    for name, written in zip(config.lm.extra_text, extra_files(work / "text", config.lm.extra_text), strict=True):
        path = written if written.exists() else Path(name)
        if name in corpora and not written.exists():
            hours = config.mini.train_hours if is_mini(config) else corpora[name].train_hours
            words += hours * WORDS_AN_HOUR
        elif path.exists():
            words += path.stat().st_size / BYTES_A_WORD
    return words
