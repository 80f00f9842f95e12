"""The HTML page: well-formed, escaped, whole, without outside resources."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from chromium import chromium

from asrtool.score.html import format_html
from asrtool.score.result import Alignment, Result, Segment

VOID = ("meta", "br", "input")
ALIGNED = "CSDI", ("one", "<b>", "three", ""), ("one", "a&b", "", '"four"')


class Page(HTMLParser):
    """Parser that checks that tags nest, and collects links, ids and the text of each class."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.words: list[tuple[str, list[str]]] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.outside += [value for name, value in values.items() if name in ("src", "href") and value[0] != "#"]
        self.links += [values["href"]] if "href" in values else []
        self.ids += [values["id"]] if tag == "h2" else []
        if tag in ("link", "img"):
            self.outside.append(tag)
        if tag not in VOID:
            self.open.append((tag, values.get("class", "")))
        if tag == "span":
            self.words.append((values.get("class", ""), []))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if [tag for tag, _ in self.open[-2:]] == ["span", "i"]:
            self.words[-1][1].append(data)


def parse() -> tuple[str, Page]:
    speakers = ("a<b", "b & c", "a<b")
    segments = [
        Segment(f"{s}-{n}", s, ("SW",), "", Alignment(*ALIGNED), "f", "A", 1.0, 2.5) for n, s in enumerate(speakers)
    ]
    text = format_html(Result(tuple(segments), {}), "my <set>")
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return text, page


def test_words_stand_over_one_another_with_colour_and_letter() -> None:
    _, page = parse()
    words = [word for word in page.words if word[1]]
    expected = [("", ["one", "one"]), ("S", ["<b>", "a&b", "S"]), ("D", ["three", "D"]), ("I", ['"four"', "I"])]
    assert words == expected * 3


def test_every_speaker_has_a_link_to_his_segments() -> None:
    text, page = parse()
    assert page.links == [f"#{name}" for name in page.ids] == ["#speaker-0", "#speaker-1"]
    assert text.index("a&lt;b-2") < text.index('id="speaker-1"')


def test_the_page_needs_nothing_from_outside() -> None:
    text, page = parse()
    assert page.outside == []
    assert "://" not in text
    assert "@import" not in text
    assert "url(" not in text


def test_names_and_facts_are_shown() -> None:
    text, _ = parse()
    assert "<title>my &lt;set&gt;</title>" in text
    assert "<small>f A, 1.00 to 2.50 s; SW; 1 C, 1 S, 1 D, 1 I</small>" in text


def test_every_segment_says_how_wrong_it_is_for_the_order_and_errors_only() -> None:
    text, _ = parse()
    assert text.count('<section data-errors="3" data-wer="1.0000">') == 3
    right = Segment("a", "s", (), "", Alignment("CC", "xx", "xx"))
    assert '<section data-errors="0" data-wer="0.0000">' in format_html(Result((right,), {}), "t")


def test_a_browser_shows_the_worst_first_and_those_with_errors_only(tmp_path: Path) -> None:
    segments = [
        Segment(f"x-{number}", "x", (), "", Alignment(*words), "<i>", "A", 0.0, 1.0)
        for number, words in enumerate([("CC", "aa", "aa"), ("SSCC", "aaaa", "bbaa"), ("S", "a", "b"), ("C", "a", "a")])
    ]
    path = tmp_path / "alignment.html"
    path.write_text(format_html(Result(tuple(segments), {}), "t"), encoding="utf-8")
    with chromium(tmp_path / "profile") as browser:
        for width in (1280, 400):
            browser.open(path, width)
            assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")

        def shown(order: str) -> list[str]:
            seen = browser.evaluate(
                f"""(() => {{ const chooser = document.getElementById("order"); chooser.value = {order!r};
                chooser.dispatchEvent(new Event("change"));
                return [...document.querySelectorAll("h2, h3")].filter(e => e.offsetParent)
                    .map(e => e.firstChild.textContent.trim()) }})()"""
            )
            assert isinstance(seen, list)
            return seen

        assert shown("errors") == ["x-1", "x-2", "x-0", "x-3"]
        assert shown("wer") == ["x-2", "x-1", "x-0", "x-3"]
        assert shown("") == ["x", "x-0", "x-1", "x-2", "x-3"]
        browser.evaluate("document.getElementById('errors-only').click()")
        assert shown("") == ["x", "x-1", "x-2"]
        assert browser.complaints() == []
        assert all(node["name"] for node in browser.accessible() if node["role"] in ("checkbox", "combobox"))
