"""Synthetic telephone conversations in the layout of the LDC releases.

Switchboard-1, Fisher English and Hub5'00, and RT-03 if wanted, spoken by espeak-ng through simulated telephone
lines::

    python -m asrtool.local.mini.corpus OUT --train-hours 1 --test-minutes 8 --seed 2000
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import click

from asrtool.files import write_folder
from asrtool.local.corpora.fisher import Corpus as Fisher
from asrtool.local.corpora.nist import Hub5, Rt03
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.mini import evaluations, fisher, swbd
from asrtool.local.mini.conversation import Call, Recorded, hold_conversation, with_whole_turns
from asrtool.local.mini.espeak import SAMPLING_RATE_HZ, Espeak
from asrtool.log import progress, setup_logging
from asrtool.settings.data import Mini
from asrtool.utils.sphere import write_sphere

SWBD_FRACTION = 0.6  # of training speech; the rest is Fisher
RELEASES = tuple(release.name for corpus in (Swbd, Fisher, Hub5, Rt03) for release in corpus.releases)
CALLS_PER_PROCESS = 6  # fewer are done sooner in this process than a new one starts


def make_corpus(out: Path, mini: Mini, names: Collection[str] = (), num_jobs: int = 0) -> None:
    """Write the corpus under `out`, replacing it, by `num_jobs` processes (0: all).

    RT-03 is made if it is in `names`. The same settings give the same bytes for each corpus, whatever the processes.
    Raises AsrtoolError if espeak-ng cannot be loaded or the disk is full.
    """
    train_s = mini.train_hours * 3600
    plans = {
        "swbd": swbd.plan_calls(SWBD_FRACTION * train_s, mini.seed),
        "fisher": fisher.plan_calls((1 - SWBD_FRACTION) * train_s, mini.seed),
        "hub5": evaluations.plan_calls(evaluations.HUB5, mini.test_minutes * 60, mini.seed),
    }
    if Rt03.name in names:
        plans["rt03"] = evaluations.plan_calls(evaluations.RT03, mini.test_minutes * 60, mini.seed)
    with write_folder(out, *RELEASES) as root:
        calls = [call for plan in plans.values() for call in plan]
        recorded = iter(list(progress(_record_all(root, calls, num_jobs), "mini corpus", len(calls), "call")))
        parts = {name: [next(recorded) for _ in plan] for name, plan in plans.items()}
        if mini.whole_turns:
            parts |= {name: list(map(_in_turns, parts[name])) for name in ("swbd", "fisher")}
        swbd.write_transcripts(root, parts["swbd"], _pronounce(parts["swbd"]))
        fisher.write_transcripts(root, parts["fisher"])
        evaluations.write_hub5(root, parts["hub5"])
        if "rt03" in parts:
            evaluations.write_rt03(root, parts["rt03"])


def _record_all(root: Path, calls: list[Call], num_jobs: int) -> Iterator[Recorded]:
    """Hold all calls, in order."""
    num_jobs = min(num_jobs or os.cpu_count() or 1, len(calls) // CALLS_PER_PROCESS)
    roots = [root] * len(calls)
    if num_jobs < 2:
        yield from map(_record, roots, calls)
        return
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(num_jobs, mp_context=spawn) as pool:
        yield from pool.map(_record, roots, calls)


def _record(root: Path, call: Call) -> Recorded:
    conversation, audio = hold_conversation(call.plan)
    path = root / call.audio
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sphere(path, audio, SAMPLING_RATE_HZ)
    return Recorded(call, conversation)


def _in_turns(item: Recorded) -> Recorded:
    return dataclasses.replace(item, conversation=with_whole_turns(item.conversation))


def _pronounce(recorded: Iterable[Recorded]) -> dict[str, str]:
    """Return the phonemes of every word that was said."""
    segments = (segment for item in recorded for side in item.conversation.sides for segment in side)
    words = {timed.token.word for segment in segments for timed in segment.tokens} - {""}
    with Espeak(seed=0) as espeak:
        return {word: espeak.phonemes(word) for word in sorted(words)}


DEFAULTS = {item.name: item.default for item in dataclasses.fields(Mini)}


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--train-hours", default=DEFAULTS["train_hours"], show_default=True, help="Hours of training speech.")
@click.option("--test-minutes", default=DEFAULTS["test_minutes"], show_default=True, help="Minutes of test speech.")
@click.option("--seed", default=DEFAULTS["seed"], show_default=True, help="Another seed, another corpus.")
@click.option("--rt03", is_flag=True, help="Make RT-03, too: as many minutes of test speech.")
@click.option("--num-jobs", default=0, show_default=True, help="Processes; 0 is one a core.")
def main(out: Path, train_hours: float, test_minutes: float, seed: int, rt03: bool, num_jobs: int) -> None:
    """Make synthetic telephone conversations under OUT, in the LDC's layout."""
    setup_logging()
    make_corpus(out, Mini(train_hours, test_minutes, seed), [Rt03.name] if rt03 else [], num_jobs)


if __name__ == "__main__":
    main()
