"""The model before pruning, kept to rescore with."""

from __future__ import annotations

from pathlib import Path

from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.estimate import build_lm
from asrtool.settings.lang import Lm


def test_the_large_model_is_what_is_written_without_pruning(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("the sea was fine\nso was the sea\ni see the sea\nso i see\n" * 2)
    build_lm([text], tmp_path / "plain" / "G.arpa", Lm(order=3))
    build_lm([text], tmp_path / "pruned" / "G.arpa", Lm(order=3, prune=0.05, large=True))
    whole = (tmp_path / "plain" / "G.arpa").read_text()
    assert (tmp_path / "pruned" / "large.arpa").read_text() == whole
    assert len(read_arpa(tmp_path / "pruned" / "G.arpa").word) < len(read_arpa(tmp_path / "plain" / "G.arpa").word)
    assert not (tmp_path / "plain" / "large.arpa").exists()
