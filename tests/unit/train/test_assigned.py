"""What a learner has been assigned and not yet trained, as others read it."""

from pathlib import Path

from asrtool.train.assigned import Assigned, describe_assigned, read_assigned


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
