"""How far the letter-to-sound rules are from the CMU Pronouncing Dictionary, on words drawn from it.

    .venv/bin/python benchmarks/letter_to_sound.py [NUM_WORDS]

Of several pronunciations the nearest counts. The rules read each word by its letters alone, as if it were unknown.
"""

from __future__ import annotations

import random
import sys
import time

from asrtool.lang.letter_to_sound import sound_letters
from asrtool.lang.pronounce import read_cmudict
from asrtool.score.align import align_words
from asrtool.score.result import Counts, total


def main(num_words: int) -> None:
    """Print the phone error rate, the fraction of words with an error, and the seconds a word."""
    dictionary = read_cmudict()
    words = sorted(word for word in dictionary if word.isalpha() and word.isascii())
    chosen = random.Random(3).sample(words, num_words)
    start_s = time.process_time()
    guesses = {word: list(sound_letters(word)) for word in chosen}
    cpu_s = time.process_time() - start_s
    counts = [_nearest(dictionary[word], guess) for word, guess in guesses.items()]
    phones = total(counts)
    print(f"{num_words} words, {phones.num_words} phones: {100 * phones.err / phones.num_words:.1f} % of phones wrong")
    print(f"{100 * sum(count.err > 0 for count in counts) / num_words:.1f} % of words with an error")
    print(f"{1e6 * cpu_s / num_words:.0f} microseconds a word")


def _nearest(pronunciations: list[tuple[str, ...]], guess: list[str]) -> Counts:
    return min((align_words(list(phones), guess).counts for phones in pronunciations), key=lambda counts: counts.err)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
