"""Generate texts for searches of n-grams and scorers; asrtool runs it.

    texts.py ngram NUM_WORDS        # text.txt, and other.txt with 1 % as many words
    texts.py pair                   # r.stm and h.ctm of the size of Hub5'00, and both as trn, text and seglst

A script of its own: memory of a process counts for the commands that it starts.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

NUM_SEGMENTS, NUM_WORDS, NUM_TYPES, WORD_S = 4459, 42989, 5000, 0.3
HEADER = ['LABEL "O" "Overall" ""', 'LABEL "EN" "Callhome" ""', 'LABEL "SW" "Switchboard" ""']
CONTRACTIONS = {
    "it is": "it's",
    "that is": "that's",
    "do not": "don't",
    "they are": "they're",
    "he has": "he's",
    "can not": "can't",
    "we would": "we'd",
    "i will": "i'll",
}
HESITATIONS = ["uh", "um", "uh-huh", "mhm", "huh"]


def write_text(num_words: int) -> None:
    """Write sentences of phrases, which repeat by Zipf's law."""
    rng = random.Random(5)
    types = [f"{number:x}".translate({48 + i: 112 + i for i in range(10)}) for number in range(30_000)]
    by_rank = [1 / (rank + 3) for rank in range(len(types))]
    words = iter(rng.choices(types, by_rank, k=1_000_000))
    phrases = [" ".join(next(words) for _ in range(rng.randint(1, 6))) for _ in range(200_000)]
    weights = list(accumulate(1 / (rank + 20) for rank in range(len(phrases))))
    for name, num in (("text.txt", num_words), ("other.txt", num_words // 100)):
        with open(name, "w", encoding="utf-8") as file:
            while num > 0:
                sentence = " ".join(rng.choices(phrases, cum_weights=weights, k=rng.randint(1, 5)))
                file.write(sentence + "\n")
                num -= sentence.count(" ") + 1


def write_pair() -> None:
    """Write a reference with expanded contractions, a hypothesis with contractions."""
    rng = random.Random(2000)
    words = draw_words(rng)
    plain: dict[str, list[tuple[str, list[str]]]] = {"r": [], "h": []}
    ends = [*sorted(rng.sample(range(1, NUM_WORDS), NUM_SEGMENTS - 1)), NUM_WORDS]
    sides = [(f"{name}_{4000 + call}", side, name) for name in ("en", "sw") for call in range(20) for side in "AB"]
    stm, ctm, start = [f";; {line}" for line in HEADER], [], 0
    for number, end in enumerate(ends):
        file, side, corpus = sides[number * len(sides) // NUM_SEGMENTS]
        text, start_s, end_s = words[start:end], start * WORD_S, end * WORD_S
        shown = [f"({word})" if rng.random() < 0.05 else word for word in text]
        stm.append(f"{file} {side} {file}_{side} {start_s:.2f} {end_s:.2f} <O,{corpus}> {' '.join(shown)}")
        found = [*misrecognise(contract(text), rng, words)]
        for side_of, of_segment in (("r", text), ("h", found)):
            plain[side_of].append((f"{file.replace('_', '')}{side}-{number:05}", of_segment))
        step_s = (end_s - start_s) / max(len(found), 1)
        for index, word in enumerate(found):
            time_s = start_s + index * step_s
            ctm.append(f"{file} {side} {time_s:.2f} {0.9 * step_s:.2f} {word} {rng.random():.2f}")
        start = end
    for name, segments in plain.items():
        texts = [(key, " ".join(text)) for key, text in segments]
        Path(f"{name}.trn").write_text("".join(f"{text} ({key})\n" for key, text in texts), encoding="utf-8")
        Path(f"{name}.txt").write_text("".join(f"{text}\n" for _, text in texts), encoding="utf-8")
        seglst = [{"session_id": key, "speaker": key, "words": text} for key, text in texts]
        Path(f"{name}.seglst.json").write_text(json.dumps(seglst), encoding="utf-8")
    for name, lines in (("r.stm", stm), ("h.ctm", ctm)):
        Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_words(rng: random.Random) -> list[str]:
    """Draw NUM_WORDS words by Zipf's law, with hesitations and words of contractions."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    types = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(NUM_TYPES)]
    words = rng.choices(types, [1 / (rank + 3) for rank in range(NUM_TYPES)], k=NUM_WORDS)
    for index in rng.sample(range(NUM_WORDS), NUM_WORDS // 20):
        words[index] = rng.choice(HESITATIONS)
    for index in rng.sample(range(0, NUM_WORDS - 1, 2), NUM_WORDS // 20):
        words[index : index + 2] = rng.choice([*CONTRACTIONS]).split()
    return words


def contract(words: list[str]) -> list[str]:
    text = " ".join(words)
    for two, one in CONTRACTIONS.items():
        text = re.sub(rf"\b{two}\b", one, text)
    return text.split()


def misrecognise(text: list[str], rng: random.Random, words: list[str]) -> Iterator[str]:
    """Substitute about 8 % of the words, delete 3 %, insert 2 %."""
    for word in text:
        chance = rng.random()
        if chance > 0.03:
            yield rng.choice(words) if chance < 0.11 else word
        if chance > 0.98:
            yield rng.choice(words)


if __name__ == "__main__":
    if sys.argv[1] == "ngram":
        write_text(int(sys.argv[2]))
    else:
        write_pair()
