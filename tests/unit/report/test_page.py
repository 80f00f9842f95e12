"""RESULTS.html: what it holds, and how it looks and behaves in a browser."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from chromium import Chromium, chromium
from commands import error_of, run_command, usage_error
from report_work import Said, score, usual, without_figures, write_json, write_set, write_work

from asrtool.report.page import page as page_module
from asrtool.report.write import write_report
from asrtool.score.tables import SIZES

ATTACK = "<script>window.attacked=1</script>"
IMAGE = "<img/src=x/onerror=window.attacked=1>"
PLOTS = {
    "set1-rates",
    "set1-speakers",
    "set2-rates",
    "set2-speakers",
    "set2-weights1",
    "run1-loss",
    "run1-learners",
    "run1-timeline",
    "run1-consensus",
    "data1-speakers",  # not those of which all utterances have the same
}
SCREENS = [(width, dark) for width in (1280, 400) for dark in (False, True)]


def attacking() -> list[Said]:
    """Return the usual utterances with mark-up in texts, names and hypotheses."""
    first, second, *rest = usual()
    words = {"greedy": f"w0 {ATTACK} what", "graph": f"w0 so what '\"&amp;{IMAGE}"}
    hostile = first._replace(text=f"w0 so what {IMAGE}", recognised=words)
    return [hostile, second._replace(recording="a\"'&b", speaker="a\"'&b"), *rest]


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make two experiments: one of two learners, with hostile data and names, and a better one of one learner."""
    folder = tmp_path_factory.mktemp("works")
    first = write_work(folder / IMAGE.replace("/", " "), num_learners=2, said=attacking())
    write_json(first / "config/run.json", {"command": f"asrtool run {ATTACK}", "recipe": ATTACK, "work": "exp"})
    better = [said._replace(recognised={**said.recognised, "greedy": said.recognised["graph"]}) for said in attacking()]
    second = write_work(folder / "second", said=better)
    file = second / "config/report.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("num_layers = 3", "num_layers = 4"), encoding="utf-8")
    return [first, second]


@pytest.fixture(scope="module")
def page(works: list[Path]) -> Path:
    """Make the page of one experiment."""
    return write_report(works[:1], 3)[1]


@pytest.fixture(scope="module")
def both(works: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report of both."""
    out = tmp_path_factory.mktemp("both")
    write_report(works, 1, out=out)
    return out


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_figures(monkeypatch)


def names(browser: Chromium, selector: str) -> list[str]:
    """The texts of the elements that are seen."""
    found = browser.evaluate(
        f"[...document.querySelectorAll({selector!r})].filter(e => e.offsetParent).map(e => e.textContent.trim())"
    )
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_a_browser_shows_all_of_it_on_any_screen(page: Path, browser: Chromium, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    beyond = """[...document.querySelectorAll("main *")].filter(e => !e.closest(".scroll, pre, svg, .words")
        && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
        .map(e => e.outerHTML.slice(0, 80))"""
    assert browser.evaluate(beyond) == []
    tall = """[...document.querySelectorAll("tbody tr")].filter(e => e.offsetHeight > 80).map(e => e.textContent)"""
    assert browser.evaluate(tall) == []
    sizes = browser.evaluate(
        """Object.fromEntries([...document.querySelectorAll("figure")].map(figure => {
            const box = figure.querySelector("svg").getBoundingClientRect();
            return [figure.id.replace("plot-", ""), [box.width, box.height, figure.querySelectorAll("text").length]];
        }))"""
    )
    assert set(sizes) == PLOTS
    assert all(300 <= wide <= 480 and high > 60 and texts > 4 for wide, high, texts in sizes.values()), sizes


def luminance(colour: str) -> float:
    """Relative, of ``rgb(...)``, as in the Web Content Accessibility Guidelines."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_stand_out_from_the_page_in_the_light_and_in_the_dark(
    page: Path, browser: Chromium, dark: bool
) -> None:
    browser.open(page, dark=dark)
    style = "getComputedStyle(document.querySelector({!r})).{}"
    ground = browser.evaluate(style.format("body", "backgroundColor"))
    assert (luminance(ground) < 0.1) == dark
    for selector in ("body", "figcaption", "nav a", "figure text", ".card h4", ".card small", "th button"):
        colour = browser.evaluate(style.format(selector, "fill" if "text" in selector else "color"))
        assert contrast(colour, ground) >= 4.5, (selector, colour)
    strokes = (
        """[...new Set([...document.querySelectorAll("figure path")].map(path => getComputedStyle(path).stroke))]"""
    )
    seen = [stroke for stroke in browser.evaluate(strokes) if stroke.startswith("rgb")]
    assert len(seen) > 3
    assert [stroke for stroke in seen if contrast(stroke, ground) < 2.5] == []


def test_a_screen_reader_is_told_what_everything_is(page: Path, browser: Chromium) -> None:
    browser.open(page)
    found = browser.accessible()
    roles = {node["role"] for node in found}
    assert {
        "banner",
        "navigation",
        "main",
        "contentinfo",
        "heading",
        "table",
        "columnheader",
        "status",
        "image",
    } <= roles
    controls = {"image", "button", "checkbox", "combobox", "searchbox", "link", "region", "graphics-document"}
    assert [node for node in found if node["role"] in controls and not node["name"]] == []
    images = [node["name"] for node in found if node["role"] == "image"]
    assert "Reference: w12 so what now. Recognised: w12 so what. Errors: now deleted." in images
    assert any(re.match(r"Spectrogram of \S+, 2.0 s, 0 to 4 kHz$", name) for name in images)
    assert any(
        name.startswith("Word error rate on dev over the weight of the language model. graph: 5.00 %")
        for name in images
    )
    assert len([name for name in images if "learner 1 " in name and "% compute" in name]) == 1
    levels = [node["level"] for node in found if node["role"] == "heading"]
    assert levels[0] == 1
    assert all(after <= before + 2 for before, after in itertools.pairwise(levels))
    assert browser.evaluate("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size") == browser.evaluate(
        "document.querySelectorAll('[id]').length"
    )


def focused(browser: Chromium) -> Any:
    return browser.evaluate(
        "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).trim()"
    )


def tab_to(browser: Chromium, selector: str) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(300):
        browser.press("Tab", 9)
        if browser.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    pytest.fail(f"Tab never comes to {selector}")


def test_all_of_it_can_be_used_by_the_keyboard(page: Path, browser: Chromium) -> None:
    browser.open(page)
    browser.press("Tab", 9)
    assert focused(browser) == "Skip to the error rates"
    tab_to(browser, "th:nth-child(3) button")
    browser.press("Enter", 13)
    assert browser.evaluate("document.activeElement.parentElement.getAttribute('aria-sort')") == "descending"
    tab_to(browser, "[name=only]")
    browser.press(" ", 32)
    assert browser.evaluate("document.querySelector('[role=status]').textContent") == "8 of 20 utterances shown"
    tab_to(browser, ".play")
    browser.press("Enter", 13)
    browser.wait_for("document.querySelector('audio').currentTime > 0.05")
    assert focused(browser).startswith("Pause ")
    browser.press(" ", 32)
    browser.wait_for("document.activeElement.getAttribute('aria-label').startsWith('Play ')")
    assert browser.evaluate("document.querySelector('audio').paused")
    assert browser.complaints() == []


def test_tables_are_sorted_by_number_and_by_word(page: Path, browser: Chromium) -> None:
    browser.open(page)
    table = "[aria-label='By speaker, hub5']"

    def click(column: int) -> list[str]:
        browser.evaluate(f'document.querySelector("{table} th:nth-child({column}) button").click()')
        return names(browser, f"{table} td:nth-child({column})")

    falling, rising = click(4), click(4)
    values = [float(text.split()[0]) for text in falling]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 2
    assert [float(text.split()[0]) for text in rising] == sorted(values)
    assert click(1) == ["a\"'&b", "en_1-a", "en_1-b", "sw_1-a", "sw_1-b"]
    assert click(1) == ["sw_1-b", "sw_1-a", "en_1-b", "en_1-a", "a\"'&b"]
    assert browser.evaluate(f'document.querySelectorAll("{table} [aria-sort]").length') == 1
    assert names(browser, "[aria-label='By label, hub5'] td:first-child") == ["CallHome", "Switchboard"]


def test_utterances_are_found_chosen_and_ordered(page: Path, browser: Chromium) -> None:
    browser.open(page)

    def choose(name: str, value: str) -> list[str]:
        """The ids shown of hub5, in order, after a choice."""
        browser.evaluate(
            f"""{{ const chooser = document.querySelector("[name={name}]"); chooser.value = {value!r};
            chooser.dispatchEvent(new Event(chooser.type === "search" ? "input" : "change")); }}"""
        )
        heads = browser.evaluate(
            """[...document.querySelector(".cards").children].filter(card => !card.hidden)
            .map(card => card.querySelector("h4").firstChild.textContent.trim())"""
        )
        assert isinstance(heads, list)
        return heads

    assert len(choose("order", "place")) == 20
    assert choose("order", "place") == sorted(choose("order", "place"), key=lambda key: key)
    errors = choose("order", "errors")
    assert errors[0] == "sw_1-a-000"  # which is attacked
    assert errors[1:5] == ["en_1-a-002", "en_1-a-003", "en_1-a-004", "en_1-b-000"]  # wrong in both
    assert choose("search", "W12 SO") == ["en_1-a-002"]  # any case, words of one side in a row
    assert choose("search", "nothing like it") == []
    assert len(choose("search", "en_1")) == 10
    choose("search", "")
    choose("system", "1")
    browser.evaluate("document.querySelector('[name=only]').click()")
    wrong_in_graph = choose("order", "errors")
    assert len(wrong_in_graph) == 5
    assert "en_1-a-000" not in wrong_in_graph  # greedy alone is wrong there
    assert {text.partition(":")[0] for text in names(browser, ".cards .system small")[:5]} <= {"graph", "greedy; graph"}


def test_what_is_said_or_named_is_no_mark_up(page: Path, both: Path) -> None:
    for path in (page, both / "RESULTS.html"):
        text = path.read_text(encoding="utf-8")
        assert text.count("<script") == 1
        assert re.findall("<img(?! src=.data:)", text) == []
        assert "&lt;script&gt;" in text
        assert "&lt;img" in text


def test_what_is_said_or_named_does_nothing_to_the_page(page: Path, both: Path, browser: Chromium) -> None:
    for path in (page, both / "RESULTS.html"):
        browser.open(path)
        assert browser.complaints() == []
        assert browser.evaluate("window.attacked") is None
        assert ATTACK in browser.evaluate("document.body.textContent")
        assert IMAGE in browser.evaluate("document.body.textContent")
        assert browser.evaluate("document.querySelectorAll('main img[alt]').length") == browser.evaluate(
            "document.images.length"
        )


def test_a_page_runs_no_script_but_its_own(page: Path, tmp_path: Path, browser: Chromium) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(page.read_text(encoding="utf-8").replace("<main", f"{ATTACK}<img src=x onerror=f()><main"))
    browser.open(changed)
    assert browser.evaluate("window.attacked") is None
    assert len(browser.complaints()) >= 2


def test_audio_is_that_of_the_utterance_and_its_channel(page: Path, browser: Chromium) -> None:
    browser.open(page)
    pitches = browser.evaluate(
        """(async () => {
            const found = {};
            for (const clip of document.querySelectorAll(".clip")) {
                const data = atob(clip.querySelector("audio").src.split(",")[1]);
                const bytes = Uint8Array.from(data, c => c.charCodeAt(0));
                const audio = await new OfflineAudioContext(1, 1, 8000).decodeAudioData(bytes.buffer);
                const samples = audio.getChannelData(0);
                let crossings = 0;
                for (let i = 1; i < samples.length; i++) crossings += samples[i - 1] < 0 && samples[i] >= 0;
                const name = clip.closest(".card").querySelector("small").textContent.split(",")[0];
                found[name] = [Math.round(audio.duration), Math.round(crossings / audio.duration / 10) * 10];
            }
            return found;
        })()"""
    )
    assert len(pitches) >= 2
    for name, found in pitches.items():
        assert found == [2, 500 if name.endswith(" A") else 1000], name


@pytest.mark.usefixtures("no_figures")
def test_no_more_utterances_have_audio_than_asked_for(works: list[Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(works[1], tmp_path / "copy"))
    for num, clips in ((0, 0), (2, 4)):
        done = run_command("report", copy, "--clips", num)
        assert done.output.split() == [str(copy / "RESULTS.md"), str(copy / "RESULTS.html")]
        assert (copy / "RESULTS.html").read_text(encoding="utf-8").count("<audio") == clips  # of hub5 and of dev


@pytest.mark.usefixtures("no_figures")
def test_where_audio_is_gone_or_would_be_too_much_the_page_has_none(
    works: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = write_work(tmp_path / "silent", audio=False)
    assert "<audio" not in write_report([silent], 10)[1].read_text(encoding="utf-8")
    copy = Path(shutil.copytree(works[1], tmp_path / "copy"))
    size = len(write_report([copy], 10)[1].read_bytes())
    monkeypatch.setattr(page_module, "MAX_CLIP_BYTES", 50_000)
    text = write_report([copy], 10)[1].read_text(encoding="utf-8")
    assert 1 <= text.count("<audio") < 8
    assert len(text) < size


def test_a_set_of_any_size_makes_a_page_of_a_few_megabytes(tmp_path: Path) -> None:
    said = [
        Said(f"r{n:04d}", "A", f"s{n:04d}", "SW", "a b c d e f g h i j", {"greedy": "x b c", "graph": f"a y{n} c d e"})
        for n in range(500)
    ]
    work = write_work(tmp_path / "large", said=said, audio=False)
    path = write_report([work], 10)[1]
    assert path.stat().st_size < 1_000_000
    text = path.read_text(encoding="utf-8")
    assert text.count('<li class="card"') == 2 * 100
    assert "100 of 500 speakers, those with most errors" in text
    assert "100 of 500, those with most errors" in text


def test_the_same_folder_gives_the_same_bytes(works: list[Path], page: Path) -> None:
    before = page.read_bytes()
    write_report(works[:1], 3)
    assert page.read_bytes() == before


def test_experiments_side_by_side_have_paired_tests_and_the_settings_that_differ(both: Path) -> None:
    text = (both / "RESULTS.md").read_text(encoding="utf-8")
    rows = [
        line for line in text.splitlines() if line.startswith(f"| {IMAGE.replace('/', ' ')}, greedy | second, greedy |")
    ]
    assert len(rows) == 2  # of hub5 and of dev
    assert re.search(r"\| second, greedy \| - \|.* \| 1 \| 3 \| 1 \| 80 \| 20 \|", text)
    assert re.search(r"\| - \| \d stretches of errors, too few for the test \|$", rows[0])
    best = f"| {IMAGE.replace('/', ' ')}, graph | second, greedy |"  # the first of two that are equal on dev
    assert text.count(best) == 2
    assert len(re.findall(r"greedy \|[^|]*graph \||graph \|[^|]*greedy \|", text)) == 2
    assert "| model.lstm.num_layers | 3 | 4 |" in text
    assert "features.fbank" not in text  # the same in both
    assert "second: `asrtool run --config mini`" in text


def test_the_page_of_several_experiments_has_the_plots_of_all(both: Path, browser: Chromium) -> None:
    browser.open(both / "RESULTS.html", 400)
    found = {
        name.removeprefix("plot-")
        for name in browser.evaluate("[...document.querySelectorAll('figure')].map(e => e.id)")
    }
    assert found == PLOTS | {"run2-loss", "dev-losses", "set2-weights2"}
    assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert "Settings that differ" in browser.evaluate("document.body.textContent")


@pytest.mark.usefixtures("no_figures")
def test_other_references_are_not_compared(works: list[Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(works[1], tmp_path / "other"))
    write_set(other, "hub5", usual()[:10])
    score(other)
    text = write_report([works[1], other], 0, out=tmp_path / "out")[0].read_text(encoding="utf-8")
    assert "| second, graph | other, graph | - | - | - | - | - | different references, 20 and 10 segments |" in text
    assert "| greedy" not in text


def test_several_experiments_go_to_a_folder_of_their_own(works: list[Path], tmp_path: Path) -> None:
    words = [str(work) for work in works]
    for arguments, said in (
        (words, "several experiments need --out FOLDER"),
        ([words[0], "--out", str(tmp_path)], "--out is for several experiments"),
    ):
        assert said in usage_error("report", *arguments)
    for arguments, said in (
        ([*words, "--out", words[0]], "is one of the experiments"),
        ([words[0], f"{words[0]}/.", "--out", str(tmp_path)], "the same work directory twice"),
    ):
        assert said in str(error_of("report", *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_figures")
def test_experiments_of_one_name_are_called_by_more_of_their_path(tmp_path: Path) -> None:
    works = [write_work(tmp_path / name / "exp", audio=False) for name in ("a", "b")]
    text = write_report(works, 0, out=tmp_path / "out")[0].read_text(encoding="utf-8")
    assert text.startswith("# a/exp, b/exp\n")


def test_pictures_of_one_thing_are_left_out(tmp_path: Path) -> None:
    said = [Said("r", "A", "me", "SW", "yes no", {"greedy": "yes"})] * 3
    text = write_report([write_work(tmp_path / "exp", said=said)], 1)[1].read_text(encoding="utf-8")
    assert re.findall(r'<figure id="plot-([^"]*)"', text) == ["run1-loss"]
    assert '<select name="system"' not in text
    assert "Systems compared" not in text
    assert text.count("<audio") == 2


def card_and_published(html: str) -> list[str]:
    """The texts of the card of results, and of what stands between it and the contents."""
    found = re.search(r"<section class=.card headline.*?>(.*?)</section>(.*?)<nav", html, re.DOTALL)
    assert found
    return [unescape(" ".join(re.sub(r"<[^>]*>", " ", part).split())) for part in found.groups()]


@pytest.mark.usefixtures("no_figures")
def test_a_page_begins_with_the_best_system_and_its_contents(tmp_path: Path) -> None:
    work = write_work(tmp_path / "exp", audio=False)
    html = run_report(work).read_text(encoding="utf-8")
    card, published = card_and_published(html)
    assert card == (
        "5.0 % word error rate on hub5 (not Hub5'00) by graph, the best on dev; 95 % interval 0.0 to 11.2;"
        " Switchboard 0.0 %; CallHome 10.0 % parameters 1,234,567 speech trained on 0.01 h, before speed perturbation"
        " training 40 batches, 80 utterances, 10 s date 2001-09-09"
    )
    assert published == ""
    titles = ["Contents", "hub5 (not Hub5'00)", "dev, where weights were chosen", "Training"]
    titles += ["Worst utterances of hub5", "Worst utterances of dev", "Data", "Settings"]
    assert [unescape(title) for title in re.findall("<h2[^>]*>(.*?)</h2>", html)] == titles
    links = re.findall('href="(#.*?)"', html[html.index("<nav") : html.index("</nav")])
    assert links == ["#set-1", "#set-2", "#training", "#utterances-1", "#utterances-2", "#data", "#settings"]


@pytest.mark.usefixtures("no_figures")
def test_a_whole_published_test_set_has_published_rates_beside_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = write_work(tmp_path / "exp", audio=False)
    monkeypatch.setitem(SIZES, "Hub5'00", {"": (20, 80)})
    card, published = card_and_published(run_report(work).read_text(encoding="utf-8"))
    assert "word error rate on Hub5'00 by graph" in card
    assert published.startswith("Published rates on Hub5'00 hours of training system WER % source 300 Kaldi")
    assert "2,000 IBM, LSTM with attention Switchboard 4.7, CallHome 7.8 arXiv 2001.07263" in published


@pytest.mark.usefixtures("no_figures")
def test_of_many_stretches_of_errors_a_pair_has_a_p_value_and_a_verdict(tmp_path: Path) -> None:
    said = [
        Said("r", "A", "s", "SW", "a b c d", {"greedy": "x x c d" if n % 3 else "x b c d", "graph": "a b c d"})
        for n in range(60)
    ]
    page = run_report(write_work(tmp_path / "exp", said=said, audio=False)).read_text(encoding="utf-8")
    assert page.count('<td>&lt; 0.001</td><td class="text">B is better</td>') == 2  # of hub5 and of dev


def run_report(work: Path) -> Path:
    return Path(run_command("report", work).output.split()[1])
