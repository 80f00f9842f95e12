"""How much speech there is to train on, before it is read."""

from __future__ import annotations

import json
from pathlib import Path

from asrtool.config import Config
from asrtool.errors import AsrtoolError
from local.named import with_role


def training_hours(config: Config, work: Path) -> tuple[float, str]:
    """Hours of speech that a run in `work` trains on, and how that is known.

    A release that the settings do not place counts as it was published, one whose place they say is nowhere as what the
    mini corpus has in its stead. Raises AsrtoolError for a corpus of unknown size whose manifest is not there.
    """
    report = work / "manifests" / "train" / "report.json"
    if report.exists():
        return float(json.loads(report.read_text(encoding="utf-8"))["speech_hours"]), f"by {report}"
    corpora = with_role(config.data, "train")
    keys = [release.key for corpus in corpora for release in corpus.releases]
    if all(corpus.in_mini for corpus in corpora) and all(config.paths.get(key) in ("", ()) for key in keys):
        return config.mini.train_hours, "of the mini corpus"
    unknown = [corpus.name for corpus in corpora if not corpus.train_hours]
    if unknown:
        what = f"how much speech {', '.join(unknown)} has is not known before its manifest is made"
        raise AsrtoolError(what, "run the first two stages, --stop-stage prepare, and estimate then")
    return sum(corpus.train_hours for corpus in corpora), "as published for " + ", ".join(c.name for c in corpora)
