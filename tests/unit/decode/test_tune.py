"""Choosing weights on dev."""

from __future__ import annotations

from asrtool.decode.trial import Trial

from asrtool.config import Decode
from asrtool.decode.tune import (
    Result,
    choose_trials,
    count_errors,
    first_trials,
    format_tuning,
    other_beams,
    other_penalties,
)
from asrtool.score.result import Counts

GREEDY = Trial("greedy")
LOW, MIDDLE, HIGH = (Trial("beam", weight, 0.0, 16.0) for weight in (0.3, 0.5, 0.8))


def test_tags_count_neither_in_the_transcript_nor_in_what_was_found() -> None:
    counts = count_errors("[noise] uh that is th- fine [laughter]", ["uh", "that", "[noise]", "was", "fine"])
    assert (counts.num_words, counts.sub, counts.del_, counts.ins) == (5, 1, 1, 0)
    assert count_errors("[noise]", []).num_words == 0


def test_the_fewest_errors_win_and_the_lowest_weight_among_equals() -> None:
    results = [
        Result(GREEDY, Counts(corr=1, sub=9)),
        Result(HIGH, Counts(corr=8, sub=2)),
        Result(MIDDLE, Counts(corr=8, del_=2)),
        Result(LOW, Counts(corr=7, ins=3)),
    ]
    assert choose_trials(results) == {"greedy": GREEDY, "beam": MIDDLE}


def test_among_equals_the_narrowest_beam_wins_then_no_neural_model_then_the_smallest_penalty() -> None:
    same = Counts(corr=8, sub=2)
    wide, plain = Trial("rescore", 0.3, 0.0, 14.0), Trial("rescore", 0.8, 0.5, 10.0)
    neural, penal = Trial("rescore", 0.3, 0.0, 10.0, 0.2), Trial("rescore", 0.3, -1.0, 10.0)
    assert choose_trials([Result(trial, same) for trial in (wide, neural, penal, plain)]) == {"rescore": plain}


def test_weights_are_tried_at_the_widest_beam_and_the_smallest_penalty_then_penalties_then_beams() -> None:
    settings = Decode(
        lm_weights=(0.3, 0.5, 0.3), word_penalties=(1.0, -0.5), beam_sizes=(4, 16, 8), graph_beams=(10.0, 14.0)
    )
    assert first_trials(settings, ("greedy", "beam", "graph")) == [
        GREEDY,
        Trial("beam", 0.3, -0.5, 16.0),
        Trial("beam", 0.5, -0.5, 16.0),
        Trial("graph", 0.3, -0.5, 14.0),
        Trial("graph", 0.5, -0.5, 14.0),
    ]
    best = Trial("beam", 0.5, -0.5, 16.0)
    assert other_penalties(settings, best) == [Trial("beam", 0.5, 1.0, 16.0)]
    assert other_beams(settings, best) == [Trial("beam", 0.5, -0.5, 4.0), Trial("beam", 0.5, -0.5, 8.0)]
    assert other_beams(settings, Trial("graph", 0.5, 0.0, 14.0)) == [Trial("graph", 0.5, 0.0, 10.0)]
    assert other_penalties(settings, GREEDY) == other_beams(settings, GREEDY) == []


def test_the_table_names_every_trial_and_marks_the_chosen() -> None:
    results = [
        Result(GREEDY, Counts()),
        Result(LOW, Counts(corr=7, sub=1, del_=2, ins=3)),
        Result(MIDDLE, Counts(corr=10)),
    ]
    assert format_tuning(results, choose_trials(results)).splitlines() == [
        "method\tlm_weight\tword_penalty\tbeam\tnnlm_weight\twords\tsub\tdel\tins\twer_percent\tchosen",
        "greedy\t-\t-\t-\t-\t0\t0\t0\t0\t-\tyes",
        "beam\t0.3\t0\t16\t-\t10\t1\t2\t3\t60.00\tno",
        "beam\t0.5\t0\t16\t-\t10\t0\t0\t0\t0.00\tyes",
    ]
