"""The lexicon, its disambiguation symbols and the symbol tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.lang.lexicon import build_lang, disambiguate, read_lexicon
from asrtool.lang.text import read_symbols
from asrtool.lang.tokenizer import Tokenizer, train_tokenizer

TEXT = "a and an a i in [noise]\nand i know kn- uh-huh a\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lang")
    (folder / "sentences.txt").write_text(TEXT)
    train_tokenizer(folder / "sentences.txt", folder / "tokenizer", 36)
    build_lang(folder / "sentences.txt", folder / "tokenizer", folder / "lang", 0)
    return folder


def test_every_word_is_tokenized_as_by_the_tokenizer(folder: Path) -> None:
    words = read_symbols(folder / "lang" / "words.txt", "lang")
    tokens = read_symbols(folder / "lang" / "tokens.txt", "lang")
    lexicon = dict(read_lexicon(folder / "lang" / "lexicon.txt", words, tokens))
    assert set(lexicon) == set(TEXT.split())
    tokenizer = Tokenizer.load(folder / "tokenizer")
    for word, pieces in lexicon.items():
        assert tokenizer.decode([tokenizer.pieces.index(piece) for piece in pieces]) == word


def test_tables_have_all_words_and_tokens_and_the_symbols_that_a_graph_needs(folder: Path) -> None:
    tokens = read_symbols(folder / "lang" / "tokens.txt", "lang")
    assert tokens == ["<eps>", *Tokenizer.load(folder / "tokenizer").pieces, "#0", "#1"]
    words = read_symbols(folder / "lang" / "words.txt", "lang")
    assert words == ["<eps>", "<unk>", *sorted(set(TEXT.split())), "#0", "<s>", "</s>"]


def test_max_words_keeps_the_most_frequent(folder: Path, tmp_path: Path) -> None:
    build_lang(folder / "sentences.txt", folder / "tokenizer", tmp_path / "lang", 3)
    assert read_symbols(tmp_path / "lang" / "words.txt", "lang")[2:-3] == ["a", "and", "i"]


def test_words_without_tokens_are_left_out_and_logged(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "text").write_text("and caf\u00e9 know\n")
    with caplog.at_level("INFO"):
        build_lang(tmp_path / "text", folder / "tokenizer", tmp_path / "lang", 0)
    assert read_symbols(tmp_path / "lang" / "words.txt", "lang")[2:-3] == ["and", "know"]
    assert "1 words left out, no tokens for them: caf\u00e9" in caplog.text


def test_text_of_another_alphabet_is_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\u0434\u0430\n")
    with pytest.raises(AsrtoolError, match="tokenizes none of its words"):
        build_lang(tmp_path / "text", folder / "tokenizer", tmp_path / "lang", 0)


def test_a_reserved_symbol_in_the_text_is_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("and <s> know\n")
    with pytest.raises(AsrtoolError, match="holds <s>, which stands for no word"):
        build_lang(tmp_path / "text", folder / "tokenizer", tmp_path / "lang", 0)


def test_prefixes_and_homophones_get_disambiguation_symbols() -> None:
    lexicon = [("a", ("x",)), ("b", ("x", "y")), ("c", ("z",)), ("d", ("z",)), ("e", ("w", "x"))]
    expected = [("a", ("x", "#1")), ("b", ("x", "y")), ("c", ("z", "#1")), ("d", ("z", "#2")), ("e", ("w", "x"))]
    assert disambiguate(lexicon) == (expected, 2)


TOKENIZATION = st.lists(st.sampled_from("xyz"), min_size=1, max_size=4).map(tuple)


@given(st.lists(TOKENIZATION, max_size=12))
def test_no_disambiguated_tokenization_begins_another(tokenizations: list[tuple[str, ...]]) -> None:
    lexicon, _ = disambiguate([(f"w{i}", tokens) for i, tokens in enumerate(tokenizations)])
    for i, (_, first) in enumerate(lexicon):
        for j, (_, second) in enumerate(lexicon):
            assert i == j or second[: len(first)] != first


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a x\nb\n", "lexicon.txt:2: 'b', expected a word and its tokens"),
        ("a x\nq x\n", "lexicon.txt:2: q is not in words.txt"),
        ("a x u\n", "lexicon.txt:1: token u is not in tokens.txt"),
        ("a x\nb y\na x\n", "lexicon.txt:3: the same as line 1"),
        ("", "empty"),
        (None, "cannot be read"),
    ],
)
def test_a_malformed_lexicon_is_an_error_with_its_line(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "lexicon.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(AsrtoolError, match=message):
        read_lexicon(path, ["a", "b"], ["x", "y"])


def test_a_word_may_have_several_pronunciations(tmp_path: Path) -> None:
    (tmp_path / "lexicon.txt").write_text("a x\na x y\n")
    assert read_lexicon(tmp_path / "lexicon.txt", ["a"], ["x", "y"]) == [("a", ("x",)), ("a", ("x", "y"))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<eps> 0\na 2\n", "symbols:2: 'a 2', expected a symbol and 1"),
        ("<eps> 0\na\n", "symbols:2: 'a', expected a symbol and 1"),
        ("a 0\nb 1\na 2\n", "a occurs twice"),
        ("", "empty"),
    ],
)
def test_a_malformed_symbol_table_is_an_error_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "symbols").write_text(content)
    with pytest.raises(AsrtoolError, match=message):
        read_symbols(tmp_path / "symbols", "lang")


@pytest.mark.parametrize("vocab_size", [0, 19])
def test_no_token_is_a_disambiguation_symbol(vocab_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, words = tmp_path / "text.txt", ["c", "c#1", "#1", "d#12", "now"]
    text.write_text(f"{' '.join(words)}\n" * 40)

    def make() -> Tokenizer:
        train_tokenizer(text, tmp_path / "tokenizer", vocab_size)
        build_lang(text, tmp_path / "tokenizer", tmp_path / "lang", 0)
        return Tokenizer.load(tmp_path / "tokenizer")

    tokenizer = make()
    assert [tokenizer.decode(tokenizer.encode(word)) for word in words] == words
    assert "#1" in (tmp_path / "lang" / "tokens.txt").read_text()
    monkeypatch.setattr("asrtool.lang.tokenizer.HASH", "")  # as an earlier asrtool trained it
    with pytest.raises(AsrtoolError, match=r"has the token #1, .*run `asrtool tokenizer` again"):
        make()
