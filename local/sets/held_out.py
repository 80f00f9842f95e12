"""Choose conversations to hold out as a development set."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

Speaker = str | None


class Option(NamedTuple):
    """Consequences of holding out a conversation."""

    gain_s: float  # of speech
    loss: float  # utterances of its speakers in conversations that are not held out, for each second
    key: str  # by which equal ones are ordered
    new: set[Speaker]
    joining: set[str]  # conversations all of whose speakers are held out then

    def rank(self, missing_s: float) -> tuple[bool, float, float, str]:
        """Sort key, lowest best; above twice the missing time the target is missed more."""
        too_long = self.gain_s > 2 * missing_s
        return too_long, self.gain_s if too_long else 0.0, self.loss, self.key


class Calls:
    """Conversations and speakers; `num_utterances` is by conversation and speaker."""

    def __init__(self, speech_s: Mapping[str, float], num_utterances: Counter[tuple[str, Speaker]]) -> None:
        self.speech_s = speech_s
        self._num_utterances = num_utterances
        self._speakers: defaultdict[str, set[Speaker]] = defaultdict(set)
        self._recordings: defaultdict[Speaker, set[str]] = defaultdict(set)
        for recording, speaker in num_utterances:
            self._speakers[recording].add(speaker)
            self._recordings[speaker].add(recording)

    def option(self, id_: str, chosen: set[str], held_out: set[Speaker]) -> Option:
        """Return the option of `id_` given `chosen` conversations and `held_out` speakers."""
        new = self._speakers[id_] - held_out
        touched = self.of(new) - chosen | {id_}
        joining = {other for other in touched if self._speakers[other] <= held_out | new}
        gain_s = sum(self.speech_s[other] for other in sorted(joining))
        loss = sum(self._num_utterances[other, speaker] for other in touched - joining for speaker in new)
        return Option(gain_s, loss / gain_s, _key(id_), new, joining)

    def of(self, speakers: set[Speaker]) -> set[str]:
        """Return the conversations in which one of `speakers` speaks."""
        return {id_ for speaker in speakers for id_ in self._recordings[speaker]}

    def beside(self, speakers: set[Speaker]) -> set[str]:
        """Return the conversations with a partner of one of `speakers`."""
        return self.of({other for id_ in self.of(speakers) for other in self._speakers[id_]})


def choose_fold(
    speech_s: Mapping[str, float], num_utterances: Counter[tuple[str, Speaker]], target_s: float, fold: int
) -> set[str]:
    """Choose as `choose_conversations`, without conversations of earlier folds."""
    for _ in range(fold):
        chosen = choose_conversations(speech_s, num_utterances, target_s)
        speech_s = {id_: seconds for id_, seconds in speech_s.items() if id_ not in chosen}
        num_utterances = Counter({key: num for key, num in num_utterances.items() if key[0] not in chosen})
    return choose_conversations(speech_s, num_utterances, target_s)


def choose_conversations(
    speech_s: Mapping[str, float], num_utterances: Counter[tuple[str, Speaker]], target_s: float
) -> set[str]:
    """Choose recordings of about `target_s` whose speakers have few others.

    At least one; recordings with only held-out speakers are included. Recordings with the same speakers are held out
    together: if each utterance is a recording, a speaker may have a hundred thousand. Deterministic.
    """
    speakers: defaultdict[str, set[Speaker]] = defaultdict(set)
    for recording, speaker in num_utterances:
        speakers[recording].add(speaker)
    alike: defaultdict[frozenset[Speaker], list[str]] = defaultdict(list)
    for recording in sorted(speech_s):
        alike[frozenset(speakers[recording])].append(recording)
    members = {min(ids, key=_key): ids for ids in alike.values()}
    group_of = {id_: group for group, ids in members.items() for id_ in ids}
    of_groups: Counter[tuple[str, Speaker]] = Counter()
    for (id_, speaker), num in num_utterances.items():
        of_groups[group_of[id_], speaker] += num
    speech_of_groups_s = {group: sum(speech_s[id_] for id_ in ids) for group, ids in members.items()}
    return {id_ for group in _choose(speech_of_groups_s, of_groups, target_s) for id_ in members[group]}


def _key(id_: str) -> str:
    return hashlib.sha256(id_.encode()).hexdigest()


def _choose(speech_s: Mapping[str, float], num_utterances: Counter[tuple[str, Speaker]], target_s: float) -> set[str]:
    calls = Calls(speech_s, num_utterances)
    held_out: set[Speaker] = set()
    chosen: set[str] = set()
    options = {id_: calls.option(id_, chosen, held_out) for id_ in speech_s}
    while (missing_s := target_s - sum(speech_s[id_] for id_ in sorted(chosen))) > 0 and options:
        best = min(options.values(), key=lambda option: option.rank(missing_s))
        if chosen and best.gain_s > 2 * missing_s:
            break
        held_out |= best.new
        chosen |= best.joining
        for id_ in best.joining:
            del options[id_]
        for id_ in calls.beside(best.new) & options.keys():  # the others are as they were
            options[id_] = calls.option(id_, chosen, held_out)
    return chosen
