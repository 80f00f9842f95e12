"""Slips in asrtool/cli."""

from . import Patch

TEST_FINETUNE = "tests/unit/train/test_finetune.py"

TEST_HELP = "tests/unit/cli/test_help.py"

PATCHES = (
    # Help
    Patch(
        "help-without-groups",
        "asrtool/cli/command.py",
        '{**(groups or {}), "Settings": SETTINGS}',
        '{"Settings": SETTINGS}',
        (f"{TEST_HELP}::test_options_are_grouped_and_each_is_in_the_help_once",),
    ),
    Patch(
        "example-that-does-not-run",
        "asrtool/cli/training.py",
        "average exp/train exp/average/model.pt --set",
        "average exp/train --set",
        (f"{TEST_HELP}::test_an_example_runs_as_it_stands",),
    ),
    # Decoding
    Patch(
        "model-file-loses-to-configuration-files",
        "asrtool/cli/options.py",
        "[*between(kwargs), *overrides, *given]",
        "[*overrides, *given]",
        (f"{TEST_FINETUNE}::test_the_command_takes_the_model_settings_of_the_file_and_what_is_set_wins",),
    ),
    Patch(
        "check-refuses-what-prepare-refuses",
        "asrtool/cli/data.py",
        "replace(config.data, bad_fraction=1.0)",
        "config.data",
        ("tests/unit/report/test_data_check.py",),
    ),
    Patch(
        "options-that-streaming-ignores",
        "asrtool/cli/decoding.py",
        "        if out or jobs:\n",
        "        if out and jobs:\n",
        ("tests/unit/transcribe/test_stream.py::test_the_command_writes_lines_and_json",),
    ),
)
