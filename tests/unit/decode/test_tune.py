"""Choosing language-model weights on dev."""

from __future__ import annotations

from asrtool.decode.search import Trial
from asrtool.decode.tune import Result, choose_trials, count_errors, format_tuning
from asrtool.decode.words import Word
from asrtool.score.result import Counts

GREEDY, LOW, MIDDLE, HIGH = Trial("greedy", 0.0), Trial("beam", 0.3), Trial("beam", 0.5), Trial("beam", 0.8)


def said(text: str) -> tuple[Word, ...]:
    return tuple(Word(word, 0.0, 1.0, 0.5) for word in text.split())


def test_errors_are_summed_over_utterances_and_tags_in_the_transcript_do_not_count() -> None:
    texts = ["[noise] uh that is th- fine [laughter]", "yes", "[noise]"]
    counts = count_errors(texts, [said("uh that was fine"), said("oh yes"), ()])
    assert (counts.num_words, counts.sub, counts.del_, counts.ins) == (6, 1, 1, 1)


def test_the_fewest_errors_win_and_the_lowest_weight_among_equals() -> None:
    results = [
        Result(GREEDY, Counts(corr=1, sub=9)),
        Result(HIGH, Counts(corr=8, sub=2)),
        Result(MIDDLE, Counts(corr=8, del_=2)),
        Result(LOW, Counts(corr=7, ins=3)),
    ]
    assert choose_trials(results) == {"greedy": GREEDY, "beam": MIDDLE}


def test_the_table_names_every_trial_and_marks_the_chosen() -> None:
    results = [Result(LOW, Counts(corr=7, sub=1, del_=2, ins=3)), Result(MIDDLE, Counts(corr=10))]
    assert format_tuning(results, choose_trials(results)).splitlines() == [
        "method\tlm_weight\twords\tsub\tdel\tins\twer_percent\tchosen",
        "beam\t0.3\t10\t1\t2\t3\t60.00\tno",
        "beam\t0.5\t10\t0\t0\t0\t0.00\tyes",
    ]


def test_a_set_without_words_has_no_rate() -> None:
    results = [Result(LOW, Counts())]
    assert format_tuning(results, choose_trials(results)).splitlines()[1] == "beam\t0.3\t0\t0\t0\t0\t-\tyes"
