"""What a learner has been assigned and not yet trained, as others read it."""

import json
from pathlib import Path

from asrtool.distributed.members.members import Loss
from asrtool.train.ledger import Assigned, describe_assigned, examine_lost, read_assigned


def test_a_learner_that_ends_without_a_batch_has_left_none_untrained(tmp_path: Path) -> None:
    (tmp_path / "learners").mkdir()
    assigned = Assigned(tmp_path, 1)
    assigned.open()
    assigned.close()
    assert read_assigned(tmp_path, 1) == {"batches": [], "num_rounds": 0}
    assert describe_assigned(tmp_path, 1) == ""


def test_what_a_learner_had_when_it_died_is_described(tmp_path: Path) -> None:
    (tmp_path / "learners").mkdir()
    assigned = Assigned(tmp_path, 0)
    assigned.open()
    assigned.add(1, 10, 3)
    assigned.add(2, 0, 7)
    assigned.remove(1, 10)
    assigned.close()
    assert read_assigned(tmp_path, 0) == {"batches": [[2, 0, 7]], "num_rounds": 8}
    assert describe_assigned(tmp_path, 0) == " before it had trained batch 0 of epoch 2"


def test_of_what_was_assigned_a_lost_learner_left_what_no_whole_line_has(tmp_path: Path) -> None:
    """It may be killed between the line of a step and the note of its batch, or in the middle of a line."""
    (tmp_path / "learners").mkdir()
    assigned = Assigned(tmp_path, 0)
    assigned.open()
    for epoch, batch, number in ((1, 4, 4), (1, 6, 5), (2, 0, 9)):
        assigned.add(epoch, batch, number)
    assigned.close()
    trained, cut_off = (json.dumps({"epoch": 1, "batch": batch}) for batch in (4, 6))
    (tmp_path / "learners" / "0.jsonl").write_text(f"{trained}\n{cut_off}")
    left = [(5, 0, 6), (9, 1, 0)]
    assert examine_lost(tmp_path, 0, "was ended") == Loss(0, "was ended", len(trained) + 1, left, 10)


def test_a_learner_that_was_lost_before_it_wrote_anything_left_nothing(tmp_path: Path) -> None:
    assert examine_lost(tmp_path, 3, "was ended") == Loss(3, "was ended", 0, [])
