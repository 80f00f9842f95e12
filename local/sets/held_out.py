"""Choose conversations to hold out as a development set."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

Speaker = str | None


class Candidate(NamedTuple):
    """Conversation that may be held out, with the consequences."""

    gain_s: float  # speech of the conversation
    loss: float  # utterances of its speakers in conversations that are not held out, for each second
    key: str  # breaks ties
    new: set[Speaker]
    joining: set[str]  # conversations all of whose speakers are held out then

    def rank(self, missing_s: float) -> tuple[bool, float, float, str]:
        """Return a sort key, lowest best, for `missing_s` to hold out.

        A gain above twice `missing_s` would miss the target by more.
        """
        too_long = self.gain_s > 2 * missing_s
        return too_long, self.gain_s if too_long else 0.0, self.loss, self.key


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
    speakers, _ = _sides(num_utterances)
    alike: defaultdict[frozenset[Speaker], list[str]] = defaultdict(list)
    for recording in sorted(speech_s):
        alike[frozenset(speakers[recording])].append(recording)
    members = {min(ids, key=_key): ids for ids in alike.values()}
    group_of = {id_: group for group, ids in members.items() for id_ in ids}
    group_counts: Counter[tuple[str, Speaker]] = Counter()
    for (id_, speaker), num in num_utterances.items():
        group_counts[group_of[id_], speaker] += num
    speech_of_groups_s = {group: sum(speech_s[id_] for id_ in ids) for group, ids in members.items()}
    return {id_ for group in _choose(speech_of_groups_s, group_counts, target_s) for id_ in members[group]}


def _key(id_: str) -> str:
    return hashlib.sha256(id_.encode()).hexdigest()


def _choose(speech_s: Mapping[str, float], num_utterances: Counter[tuple[str, Speaker]], target_s: float) -> set[str]:
    speakers, recordings = _sides(num_utterances)
    held_out: set[Speaker] = set()
    chosen: set[str] = set()

    def of(some: set[Speaker]) -> set[str]:
        """Return the conversations in which one of `some` speaks."""
        return {id_ for speaker in some for id_ in recordings[speaker]}

    def option(id_: str) -> Candidate:
        """Return the consequences of holding out `id_` as well."""
        new = speakers[id_] - held_out
        touched = of(new) - chosen | {id_}
        joining = {other for other in touched if speakers[other] <= held_out | new}
        gain_s = sum(speech_s[other] for other in sorted(joining))
        loss = sum(num_utterances[other, speaker] for other in touched - joining for speaker in new)
        return Candidate(gain_s, loss / gain_s, _key(id_), new, joining)

    options = {id_: option(id_) for id_ in speech_s}
    while (missing_s := target_s - sum(speech_s[id_] for id_ in sorted(chosen))) > 0 and options:
        best = min(options.values(), key=lambda option: option.rank(missing_s))
        if chosen and best.gain_s > 2 * missing_s:
            break
        held_out |= best.new
        chosen |= best.joining
        for id_ in best.joining:
            del options[id_]
        partners = {other for id_ in of(best.new) for other in speakers[id_]}
        for id_ in of(partners) & options.keys():  # the others are as they were
            options[id_] = option(id_)
    return chosen


def _sides(
    num_utterances: Counter[tuple[str, Speaker]],
) -> tuple[defaultdict[str, set[Speaker]], defaultdict[Speaker, set[str]]]:
    """Return recording -> speakers, and speaker -> recordings."""
    speakers: defaultdict[str, set[Speaker]] = defaultdict(set)
    recordings: defaultdict[Speaker, set[str]] = defaultdict(set)
    for recording, speaker in num_utterances:
        speakers[recording].add(speaker)
        recordings[speaker].add(recording)
    return speakers, recordings
