"""What the stages that recipes share depend on."""

from __future__ import annotations

from asrtool.recipe.stages import COMMON, CORPUS, PREPARE
from asrtool.settings.config import select
from asrtool.settings.toml_files import load_config


def stages_that_depend_on(override: str) -> set[str]:
    changed, default = load_config(overrides=[override]), load_config()
    stages = (CORPUS, PREPARE, *COMMON)
    return {stage.name for stage in stages if select(changed, stage.settings) != select(default, stage.settings)}


def test_another_mix_of_corpora_trains_again_and_prepares_nothing_again() -> None:
    assert stages_that_depend_on("data.mix=hours") == {"cutter", "aligner", "hybrid", "start", "train", "report"}


def test_any_other_setting_of_data_prepares_again() -> None:
    for override in ("data.train=an4", "data.max_duplicates=7", "data.uncertain=drop", "data.same_audio=drop"):
        assert "prepare" in stages_that_depend_on(override)
        assert "train" not in stages_that_depend_on(override)


def test_the_format_of_the_neural_language_model_reaches_the_searches_that_apply_it() -> None:
    assert stages_that_depend_on("nnlm.precision=fp32") == {"nnlm", "decode", "report"}


def test_more_text_makes_language_models_anew_and_nothing_acoustic() -> None:
    assert stages_that_depend_on("lm.extra_text=more.txt") == {"corpus", "text", "lang", "lm", "nnlm", "report"}
    assert {stage.name for stage in COMMON if "text" in stage.needs} == {"lang", "lm", "nnlm"}
