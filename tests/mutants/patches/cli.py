"""Slips in asrtool/cli."""

from . import Patch

TEST_FINETUNE = "tests/unit/train/test_finetune.py"

PATCHES = (
    # Decoding
    Patch(
        "model-file-loses-to-configuration-files",
        "asrtool/cli/options.py",
        "[*between(kwargs), *overrides, *given]",
        "[*overrides, *given]",
        (f"{TEST_FINETUNE}::test_the_command_takes_the_model_settings_of_the_file_and_what_is_set_wins",),
    ),
)
