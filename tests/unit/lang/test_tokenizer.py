"""The tokenizer against what text must keep, and the messages of its errors."""

from __future__ import annotations

import io
import random
import shutil
import string
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import BpeTokenizer, Tokenizer, make_tokenizer, train_tokenizer
from asrtool.settings.toml_files import load_config

SENTENCES = [
    "yeah i know it's a nice day [laughter]",
    "uh-huh [noise] and i don't kn- know",
    "[vocalized-noise] the quick brown fox jumps over the lazy dog",
]


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "sentences.txt"
    path.write_text("\n".join(SENTENCES * 3) + "\n")
    return path


@pytest.fixture(scope="module")
def directory(sentences: Path) -> Path:
    out = sentences.parent / "tokenizer"
    train_tokenizer(sentences, out, 50)
    return out


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.load(directory)


def test_blank_is_token_0_unknown_token_1_and_tags_are_single_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.num_tokens == 50
    assert tokenizer.pieces[:2] == ["<blk>", "<unk>"]
    assert {"[noise]", "[laughter]", "[vocalized-noise]"} < set(tokenizer.pieces)
    assert [tokenizer.pieces[i] for i in tokenizer.encode("[noise]")] == ["\u2581", "[noise]"]


def test_tokens_txt_lists_pieces_and_ids(directory: Path, tokenizer: Tokenizer) -> None:
    rows = [line.split() for line in (directory / "tokens.txt").read_text().splitlines()]
    assert rows == [[piece, str(i)] for i, piece in enumerate(tokenizer.pieces)]


WORDS = st.text(st.sampled_from(string.ascii_lowercase + "'-"), min_size=1, max_size=9)
TAGS = st.sampled_from(["[noise]", "[laughter]", "[vocalized-noise]"])


@given(st.lists(WORDS | TAGS, min_size=1, max_size=8))
def test_decode_gives_back_what_was_encoded(tokenizer: Tokenizer, words: list[str]) -> None:
    ids = tokenizer.encode(" ".join(words))
    assert tokenizer.decode(ids) == " ".join(words)
    assert min(ids) > 1


@given(st.lists(st.sampled_from(["", "i", "it's", "kn-", "[noise]", "uh-huh", "abc[laughter]d"]), max_size=6))
def test_tokens_of_a_text_are_those_of_its_words(tokenizer: Tokenizer, words: list[str]) -> None:
    """Training puts them together of these."""
    assert tokenizer.encode(" ".join(words)) == [token for word in words for token in tokenizer.encode(word)]


def test_also_of_a_foreign_model_that_has_pieces_of_several_words() -> None:
    model = io.BytesIO()
    lines = iter(["of the day of the night of the day"] * 20)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, model_type="bpe", vocab_size=40, hard_vocab_limit=False,
        split_by_whitespace=False, unk_id=1, pad_id=0, bos_id=-1, eos_id=-1, minloglevel=2,
    )  # fmt: skip
    tokenizer = BpeTokenizer(model.getvalue())
    assert any("\u2581" in piece[1:] for piece in tokenizer.pieces)
    words = [tokenizer.encode(word) for word in ("of", "the", "day")]
    assert tokenizer.encode("of the day") == [token for word in words for token in word]


def test_the_same_text_gives_the_same_files(sentences: Path, directory: Path, tmp_path: Path) -> None:
    train_tokenizer(sentences, tmp_path / "again", 50)
    for name in ("tokenizer.model", "tokens.txt"):
        assert (tmp_path / "again" / name).read_bytes() == (directory / name).read_bytes()


def too_many(text: Path, out: Path) -> tuple[int, int]:
    """The most pieces that the words of `text` make, and the number that the error advises."""
    with pytest.raises(AsrtoolError, match=r"vocab_size is 900, but its words make \d+ at most") as raised:
        train_tokenizer(text, out, 900)
    assert not out.exists()
    return int(raised.value.what.partition("make ")[2].split()[0]), int(raised.value.hint.rpartition("=")[2])


def test_a_contraction_may_be_one_piece(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("don't i'm\n" * 20)
    train_tokenizer(text, tmp_path / "out", too_many(text, tmp_path / "out")[0])
    assert "\u2581don't" in Tokenizer.load(tmp_path / "out").pieces


def test_a_size_too_large_for_the_text_is_an_error_that_names_the_largest_and_advises_a_small_one(
    sentences: Path, tmp_path: Path
) -> None:
    largest, advised = too_many(sentences, tmp_path / "out")
    assert advised == 34 < largest
    for size in (largest, advised):
        train_tokenizer(sentences, tmp_path / "out", size)
        assert Tokenizer.load(tmp_path / "out").num_tokens == size
    with pytest.raises(AsrtoolError):
        train_tokenizer(sentences, tmp_path / "out", largest + 1)


@pytest.mark.parametrize("byte_fallback", ["false", "true"])
@pytest.mark.parametrize("size", [1, 30, 900])
@pytest.mark.parametrize(
    "text", ["\u0434\u0430 \u043d\u0435\u0442", "a", "1 #", "\u4f60 \u597d", "one two three " * 200]
)
def test_the_size_that_an_error_advises_is_one_that_settings_and_text_take(
    text: str, size: int, byte_fallback: str, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text(f"{text}\n", encoding="utf-8")

    def make(advised: str) -> None:
        settings = [f"tokenizer.byte_fallback={byte_fallback}", advised]
        make_tokenizer(tmp_path / "text", tmp_path / "out", load_config([], settings).tokenizer)

    with pytest.raises(AsrtoolError, match=rf"vocab_size is {size}, but ") as raised:
        make(f"tokenizer.vocab_size={size}")
    make(raised.value.hint.rpartition("--set ")[2])


@pytest.mark.parametrize(
    ("num_different", "num_lines", "num_tokens"),
    [(2, 30, 34), (40, 30, 34 + 10), (400, 1, 34 + 4), (400, 30, 34 + 100), (4000, 30, 500)],
)
def test_a_chosen_size_grows_with_the_words_and_the_different_ones(
    num_different: int, num_lines: int, num_tokens: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    letters = string.ascii_lowercase
    words = ["".join(letters[i // 26**k % 26] for k in range(3)) for i in range(num_different)]
    (tmp_path / "text").write_text((" ".join(words) + " [noise]\n") * num_lines)
    with caplog.at_level("INFO"):
        train_tokenizer(tmp_path / "text", tmp_path / "out", 0)
    assert Tokenizer.load(tmp_path / "out").num_tokens == num_tokens
    reason = f"{num_different * num_lines} words, {num_different} different, are enough for {num_tokens - 34} more"
    assert f"vocab_size is 0: {num_tokens} tokens, as characters and tags need 34 and {reason}" in caplog.text


def test_a_text_of_other_characters_has_a_chosen_size_that_holds_them(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(chr(code) for code in range(0x4E00, 0x4E00 + 600)) + "\n")
    train_tokenizer(tmp_path / "text", tmp_path / "out", 0)
    assert Tokenizer.load(tmp_path / "out").num_tokens == 606  # and no letters of English


def test_a_character_that_is_a_word_is_one_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    characters = [chr(code) for code in range(0x4E00, 0x4E00 + 700)]
    (tmp_path / "text").write_text("\n".join([" ".join(characters), "[noise] \u4e00 \u4e01"]))
    with caplog.at_level("INFO"):
        train_tokenizer(tmp_path / "text", tmp_path / "out", 0)
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert [len(tokenizer.encode(character)) for character in characters] == [1] * 700
    assert "1406 tokens, as characters and tags need 706 and each of 700 characters is a word" in caplog.text


def test_rare_and_unseen_characters_are_bytes(tmp_path: Path) -> None:
    rare, unseen = "\u0451", "\u732b\u00e9"
    (tmp_path / "text").write_text("да нет ещё [noise]\n".replace("ё", "е") * 400 + rare + "\n", encoding="utf-8")
    train_tokenizer(tmp_path / "text", tmp_path / "out", 0, byte_fallback=True)
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert set("данетещ") < set(tokenizer.pieces)
    assert rare not in tokenizer.pieces
    for word in (rare, unseen, f"да{unseen}"):
        (tokens,) = tokenizer.tokenizations(word)
        assert [piece for piece in tokens if piece.startswith("<0x")] == [
            f"<0x{byte:02X}>" for byte in word.replace("да", "").encode()
        ]
    assert tokenizer.decode(tokenizer.encode(f"нет {unseen} [noise]")) == f"нет {unseen} [noise]"


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4))
def test_with_bytes_any_text_has_tokens_and_is_given_back(in_bytes: Tokenizer, words: list[str]) -> None:
    text = " ".join(" ".join(words).replace("\u2581", "").split())
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert in_bytes.decode(in_bytes.encode(text)) == text


@pytest.fixture(scope="module")
def in_bytes(sentences: Path) -> Tokenizer:
    train_tokenizer(sentences, sentences.parent / "in_bytes", 0, byte_fallback=True)
    return Tokenizer.load(sentences.parent / "in_bytes")


@pytest.mark.parametrize("seed", range(3))
def test_the_characters_that_are_no_bytes_are_counted_as_sentencepiece_counts_them(seed: int, tmp_path: Path) -> None:
    """The size that an error advises is enough, and one less is not."""
    draw = random.Random(seed)
    often = [chr(0x4E00 + int(draw.paretovariate(0.3)) % 900) for _ in range(30_000)]
    (tmp_path / "text").write_text("\n".join(" ".join(often[i : i + 30]) for i in range(0, 30_000, 30)))
    with pytest.raises(AsrtoolError, match=r"bytes, alphabet and characters need \d+") as raised:
        train_tokenizer(tmp_path / "text", tmp_path / "out", 262, byte_fallback=True)
    size = int(raised.value.hint.rpartition("=")[2])
    train_tokenizer(tmp_path / "text", tmp_path / "out", size, byte_fallback=True)
    pieces = Tokenizer.load(tmp_path / "out").pieces
    assert len(pieces) == size < 256 + len(set(often))
    assert not [piece for piece in pieces if len(piece) > 1 and piece[0] == "\u2581"]  # no room for any


def test_a_size_too_small_for_the_characters_is_an_error_that_names_the_smallest(
    sentences: Path, tmp_path: Path
) -> None:
    with pytest.raises(AsrtoolError, match=r"vocab_size is 12, but alphabet and characters need 34"):
        train_tokenizer(sentences, tmp_path / "out", 12)
    train_tokenizer(sentences, tmp_path / "out", 34)
    assert Tokenizer.load(tmp_path / "out").num_tokens == 34


def test_a_line_of_any_length_is_trained_on(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("ab " * 4000 + "xyz\n" + "xyz\n" * 3)
    train_tokenizer(text, tmp_path / "out", 38)
    assert "\u2581ab" in Tokenizer.load(tmp_path / "out").pieces


def test_the_whole_alphabet_has_tokens_whatever_the_text(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("ab " * 40 + "\n")
    train_tokenizer(text, tmp_path / "out", 35)
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert tokenizer.decode(tokenizer.encode("john's uh-huh")) == "john's uh-huh"


@pytest.mark.parametrize(("text", "named"), [("caf\u00e9 1", ["'1'", "'\u00e9'"]), ("a [sigh]", ["'['", "']'"])])
def test_characters_outside_the_tokenizer_are_named(tokenizer: Tokenizer, text: str, named: list[str]) -> None:
    with pytest.raises(AsrtoolError, match="outside the tokenizer") as raised:
        tokenizer.encode(text)
    assert all(name in raised.value.what for name in named)


def test_a_missing_and_a_broken_model_are_errors_that_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"tokenizer\.model: cannot be read"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"\x00 no model")
    with pytest.raises(AsrtoolError, match=r"tokenizer\.model: not a SentencePiece model"):
        Tokenizer.load(tmp_path)


def test_a_model_without_pieces_or_with_others_than_tokens_txt_is_refused(directory: Path, tmp_path: Path) -> None:
    model = (directory / "tokenizer.model").read_bytes()
    for number, length in enumerate((0, len(model) // 2, len(model) * 9 // 10)):
        copy = shutil.copytree(directory, tmp_path / str(number))
        (copy / "tokenizer.model").write_bytes(model[:length])
        with pytest.raises(
            AsrtoolError, match=r"tokenizer\.model: (not a SentencePiece model|its pieces are not those)"
        ):
            Tokenizer.load(copy)
    lines = (directory / "tokens.txt").read_text().splitlines(keepends=True)
    copy = shutil.copytree(directory, tmp_path / "shorter")
    (copy / "tokens.txt").write_text("".join(lines[:-1]))
    with pytest.raises(
        AsrtoolError, match=r"model: its pieces are not those of .*tokens\.txt; run `asrtool tokenizer`"
    ):
        Tokenizer.load(copy)


@pytest.mark.parametrize("block_bytes", [1, 2**20])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"\n \n", "holds no words"),
        (b"\xef\xbb\xbf", "holds no words"),
        (b"fine\n\xff\xfe\n", "text:2: not UTF-8"),
        (b"\xef\xbb\xbfa\n\n\xff", "text:3: not UTF-8"),
    ],
)
def test_text_that_cannot_be_trained_on_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str, block_bytes: int
) -> None:
    monkeypatch.setattr("asrtool.lang.text.BLOCK_BYTES", block_bytes)
    if content is not None:
        (tmp_path / "text").write_bytes(content)
    with pytest.raises(AsrtoolError, match=message):
        train_tokenizer(tmp_path / "text", tmp_path / "out", 50)
