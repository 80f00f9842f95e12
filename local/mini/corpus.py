"""Synthetic telephone conversations in the layout of the LDC releases.

Switchboard-1, Fisher English and Hub5'00, and RT-03 if wanted, spoken by espeak-ng through simulated telephone lines.
The stage corpus makes it if no path is set: ``asrtool corpus OUT --set mini.train_hours=1``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from asrtool.data.workers.processes import num_cores, process_map
from asrtool.files import write_folder
from asrtool.local.corpora.fisher import Corpus as Fisher
from asrtool.local.corpora.nist import Hub5, Rt03
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.mini import evaluations, training
from asrtool.local.mini.conversation import Conversation, make_conversation, with_whole_turns
from asrtool.local.mini.espeak import SAMPLING_RATE_HZ, Espeak
from asrtool.local.mini.plan import Call
from asrtool.log import progress
from asrtool.settings.data import Mini
from asrtool.utils.sphere import write_sphere

SWBD_FRACTION = 0.6  # fraction of training speech; the rest is Fisher
RELEASES = tuple(release.name for corpus in (Swbd, Fisher, Hub5, Rt03) for release in corpus.releases)
CALLS_PER_PROCESS = 6  # fewer are done sooner in this process than a new one starts


def make_corpus(out: Path, mini: Mini, names: Collection[str] = (), num_jobs: int = 0) -> None:
    """Write the corpus under `out`, replacing it, by `num_jobs` processes (0: all).

    RT-03 is made if it is in `names`. The same settings give the same bytes with any number of processes. Raises
    AsrtoolError if espeak-ng cannot be loaded or the disk is full.
    """
    train_s, test_s = mini.train_hours * 3600, mini.test_minutes * 60
    plans = {
        "swbd": training.plan_swbd(SWBD_FRACTION * train_s, mini.seed),
        "fisher": training.plan_fisher((1 - SWBD_FRACTION) * train_s, mini.seed),
        "hub5": evaluations.plan_calls(evaluations.HUB5, test_s, mini.seed),
        "rt03": evaluations.plan_calls(evaluations.RT03, test_s, mini.seed) if Rt03.name in names else [],
    }
    calls = [call for plan in plans.values() for call in plan]
    num_jobs = max(1, min(num_jobs or num_cores(), len(calls) // CALLS_PER_PROCESS))
    with write_folder(out, *RELEASES) as root, process_map(__name__, num_jobs) as map_:
        coming = map_(_make_call, [(root, call) for call in calls])
        conversations = iter(list(progress(coming, "mini corpus", len(calls), "call")))
        parts = {name: [next(conversations) for _ in plan] for name, plan in plans.items()}
        if mini.whole_turns:
            parts |= {name: list(map(with_whole_turns, parts[name])) for name in ("swbd", "fisher")}
        training.write_swbd(root, parts["swbd"], _pronounce(parts["swbd"]))
        training.write_fisher(root, parts["fisher"])
        evaluations.write_hub5(root, parts["hub5"])
        if parts["rt03"]:
            evaluations.write_rt03(root, parts["rt03"])


def _make_call(place: tuple[Path, Call]) -> Conversation:
    """Hold a call, and write its audio below a folder."""
    root, call = place
    conversation, audio = make_conversation(call)
    path = root / call.audio
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sphere(path, audio, SAMPLING_RATE_HZ)
    return conversation


def _pronounce(conversations: Iterable[Conversation]) -> dict[str, str]:
    """Return the phonemes of every word that was said."""
    segments = (segment for item in conversations for side in item.sides for segment in side)
    words = {token.word for segment in segments for token in segment.tokens} - {""}
    with Espeak(seed=0) as espeak:
        return {word: espeak.phonemes(word) for word in sorted(words)}
