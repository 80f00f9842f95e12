"""References that are written here, judged by NIST's own tools where they are installed."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from lhotse import SupervisionSegment

from asrtool.local.references import NO_RULES_GLM, Reference, format_reference

SCTK = Path("/usr/lib/sctk/bin")


def test_a_reference_that_is_made_a_recording_at_a_time_is_that_of_all() -> None:
    draw = random.Random(1)
    corpus_of = {f"r{number:03d}": draw.choice(["swbd", "fisher"]) for number in range(200)}
    reference, entries = Reference(corpus_of.__getitem__, is_english=True), []
    for name in corpus_of:
        said = [" ".join(draw.choices(["uh", "yes", "th-", "[noise]"], k=9)) for _ in range(20)]
        some = [
            SupervisionSegment(f"{name}-{i}", name, draw.random(), 1.0, i % 2, text, speaker=name).to_dict()
            for i, text in enumerate(said)
        ]
        reference.add(some)
        entries += some
    draw.shuffle(entries)
    assert b"".join(reference.read()).decode() == format_reference(entries, corpus_of)


@pytest.mark.skipif(not (SCTK / "hubscr.pl").exists(), reason="Debian's package sctk is not installed")
def test_nist_scores_a_perfect_hypothesis_without_error_by_an_empty_set_of_rules(tmp_path: Path) -> None:
    segments = [
        SupervisionSegment("c1-1", "c1", 0.0, 4.0, 0, "uh i watch t v th- [noise] okay", speaker="s1"),
        SupervisionSegment("c1-2", "c1", 0.5, 2.0, 1, "uh-huh", speaker="s2"),
    ]
    (tmp_path / "ref.stm").write_text(format_reference((s.to_dict() for s in segments), {"c1": "swbd"}))
    (tmp_path / "ref.glm").write_text(NO_RULES_GLM)
    words = [("A", i * 0.5, word) for i, word in enumerate(["i", "watch", "t", "v", "okay"], start=1)] + [
        ("B", 1.0, "uh-huh")
    ]
    (tmp_path / "hyp.ctm").write_text("".join(f"c1 {side} {start:.2f} 0.40 {word}\n" for side, start, word in words))
    perl = shutil.which("perl")
    assert perl, "hubscr.pl needs perl"
    subprocess.run(
        [perl, SCTK / "hubscr.pl", *["-V", "-l", "english", "-h", "hub5", "-g", "ref.glm", "-r", "ref.stm", "hyp.ctm"]],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{SCTK}:{os.environ['PATH']}", "LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    (total,) = [line for line in (tmp_path / "hyp.ctm.filt.sys").read_text().splitlines() if "Sum/Avg" in line]
    numbers = [float(number) for number in total.replace("|", " ").split()[1:]]
    assert numbers[0] == 2  # segments
    assert numbers[3:7] == [0.0, 0.0, 0.0, 0.0]  # substitutions, deletions, insertions, errors
