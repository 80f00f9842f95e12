"""`asrtool config`, and the page of the guide that is made as it is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from commands import run_command

from asrtool.errors import AsrtoolError
from asrtool.recipe.recipe import load_recipe, load_settings
from asrtool.settings import registry
from asrtool.settings.config import SECTIONS
from asrtool.settings.documentation import meanings
from asrtool.settings.removed import REMOVED
from asrtool.settings.settings_page import format_page
from asrtool.settings.toml_files import CLASSES, known_keys, load_config

ROOT = Path(__file__).resolve().parents[3]
FILES = (".onnx", ".py", ".pt", ".json", ".model", ".npz", ".old-1")
OWN = '''
from dataclasses import dataclass
from asrtool.models.acoustic import Encoder

@dataclass(frozen=True)
class Settings:
    width: int = 4  # channels of a row

class Net(Encoder):
    """A net.

    Of one layer.
    """

    Settings = Settings
    def forward(self, feats_NTF, feat_lens_N): ...
'''


def config(*words: str) -> str:
    return run_command("config", *words).output


def rows(*words: str) -> dict[str, str]:
    """Key -> all that is said of it."""
    found, table = {}, ""
    for line in config(*words).splitlines():
        if line.startswith("["):
            table = line[1 : line.index("]")]
        elif line:
            found[f"{table}.{line.partition(' = ')[0]}"] = line.partition(" = ")[2]
    return found


def test_what_is_printed_is_a_configuration_file_of_the_same_settings(tmp_path: Path) -> None:
    printed = tmp_path / "all.toml"
    words = ["--set", "train.optimizer=sgd", "--set", "train.sgd.momentum=0.5"]
    printed.write_text(config("--config", "ci", *words))
    recipe = load_recipe(ROOT / "recipes" / "swbd")
    expected = load_settings(recipe, ["ci"], words[1::2])
    loaded = load_config([printed])
    assert {key: path for key, path in loaded.paths.items() if path} == {}
    assert dataclasses.replace(loaded, paths=expected.paths) == expected


def test_value_origin_and_meaning_are_shown(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("[train]\nseed = 7\n")
    found = rows("--config", "mini", "--config", str(mine), "--set", "train.batch_s=30")
    assert found["train.batch_s"].split("  ")[0].strip() == "30.0"
    meaning = "seconds of speech in a batch, padding included; 0: as many as suit the speech"
    assert re.split(r"  +", found["train.batch_s"])[1:] == ["# --set", meaning]
    assert re.search(rf"# (\S*/)?{mine.name} ", found["train.seed"])  # the path, or a shorter one from here
    assert "recipes/swbd/conf/mini.toml" in found["train.peak_lr"]
    assert "# default" in found["train.clip_norm"]
    assert "recipes/swbd/conf/mini.toml" in found["model.lstm.hidden_size"]
    assert found["paths.ldc97s62"].endswith("Switchboard-1 Release 2 audio")


def test_all_sections_and_the_tables_of_chosen_components_are_shown() -> None:
    found = rows()
    assert {key.partition(".")[0] for key in found} == set(SECTIONS)
    assert "train.adamw.weight_decay" in found
    assert not [key for key in found if key.startswith("train.sgd")]


def test_a_choice_is_shown_with_all_it_can_choose_and_their_settings() -> None:
    output = config("train.optimizer", "--set", "train.optimizer=sgd", "--set", "train.adamw.weight_decay=0.3")
    headings = [line for line in output.splitlines() if line.startswith("[")]
    names = [heading.partition("]")[0].partition(".")[2] for heading in headings[1:]]
    assert names == registry.names("optimizer")
    assert headings[1] == "[train.adamw]  # Adam with decoupled weight decay."
    assert 'optimizer = "sgd"  # --set' in output
    assert "weight_decay = 0.3  # --set" in output  # not chosen, and given all the same
    assert "[distributed.single]  # One learner" in config("distributed.strategy")


def test_a_key_or_a_table_alone_is_shown() -> None:
    assert list(rows("train.peak_lr")) == ["train.peak_lr"]
    assert list(rows("train.sgd")) == ["train.sgd.momentum", "train.sgd.nesterov", "train.sgd.weight_decay"]
    assert list(rows("train.sgd.momentum")) == ["train.sgd.momentum"]
    assert list(rows("paths.an4")) == ["paths.an4"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("trian", "train"),
        ("train.optimiser", "train.optimizer"),
        ("train.sgd.momentun", "train.sgd.momentum"),
        ("train.adam", "train.adamw"),
        ("paths.an5", "paths.an4"),
        ("model.sgd", "model"),
        ("train.lr", "train.peak_lr"),
        ("batch_size", "train.batch_s"),
        ("train.num_epochs=5", "train.num_epochs"),
    ],
)
def test_an_unknown_key_gets_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(AsrtoolError, match=rf"^{name}: no such section or setting; did you mean {nearest}"):
        config(name)


def test_an_unknown_table_may_be_of_a_custom_component() -> None:
    with pytest.raises(AsrtoolError, match=r"needs --set or --config that chooses it$"):
        config("distributed.local_sgd")


def test_a_person_own_component_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"shown_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    output = config("model.encoder", "--set", f"model.encoder={module}:Net", "--set", "model.Net.width=9")
    assert "[model.Net]  # A net.\nwidth = 9  # --set  channels of a row\n" in output
    assert "[model.lstm]" in output


def test_every_setting_has_a_comment_with_its_meaning() -> None:
    classes = list(CLASSES.values())
    classes += [registry.settings_class(kind, name) for kind in registry.TABLE for name in registry.names(kind)]
    missing = [f"{item}.{key}" for item in classes for key, text in meanings(item).items() if len(text) < 4]
    assert not missing


def test_the_page_of_the_guide_is_up_to_date_and_has_every_key() -> None:
    page = (ROOT / "docs" / "guide" / "settings.md").read_text(encoding="utf-8")
    assert page == format_page(), "run: python -m asrtool.settings.settings_page > docs/guide/settings.md"
    for key in known_keys():
        section, *table, name = key.split(".")
        heading = rf"^##.* `\[{'.'.join([section, *table])}\]`"
        after = re.split(heading, page, maxsplit=1, flags=re.MULTILINE)[1]
        assert f"\n| `{name}` | " in after[: after.find("\n##", 3)], key


def test_every_setting_that_a_page_names_is_there() -> None:
    known = {*known_keys(), *(key.rpartition(".")[0] for key in known_keys()), *REMOVED}
    named = re.compile(rf"`((?:{'|'.join(CLASSES)})\.[a-z0-9_-]+(?:\.[a-z0-9_]+)?)(?: ?=[^`]*)?`")
    wrong = []
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        keys = named.findall(path.read_text(encoding="utf-8"))
        keys = [key for key in keys if not key.endswith(FILES)]
        wrong += [f"{path.name}: {key}" for key in keys if key not in known]
    assert not wrong
