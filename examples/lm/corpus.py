#!/usr/bin/env python3
"""Makes the corpus that train.py, train.pl and train.lua read: the words of the King James Bible as numbers.

    python3 examples/lm/corpus.py [--folder build/lm] [--tokens N]

words.txt has a line "word count" for every word that occurs at least five times, the most frequent first. tokens.i32 is
the text: for each word, its line number in words.txt, from 0, as 32 bits little-endian. Rarer words are left out.
"""

import argparse
import array
import collections
import itertools
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "kjv"))
import verses  # noqa: E402

FOLDER = HERE.parents[1] / "build" / "lm"
RARE = 5


def make(folder: pathlib.Path, tokens: int | None = None) -> tuple[int, int]:
    """Writes both files. `tokens` limits the length of the text. Returns the number of words and of tokens."""
    words = (word for _, verse in verses.verses() for word in verses.words_of(verse))
    text = list(itertools.islice(words, tokens))
    counts = sorted(collections.Counter(text).items(), key=lambda item: (-item[1], item[0]))
    counts = [(word, count) for word, count in counts if count >= RARE]
    number = {word: at for at, (word, _) in enumerate(counts)}
    numbers = array.array("i", (number[word] for word in text if word in number))
    if sys.byteorder == "big":
        numbers.byteswap()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "words.txt").write_text("".join(f"{word} {count}\n" for word, count in counts), encoding="ascii")
    (folder / "tokens.i32").write_bytes(numbers.tobytes())
    return len(counts), len(numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER, help="output folder (build/lm)")
    parser.add_argument("--tokens", type=int, help="only the first N words of the text")
    options = parser.parse_args()
    try:
        words, tokens = make(options.folder, options.tokens)
    except verses.Missing as missing:
        sys.exit(f"corpus.py: {missing}")
    print(f"{options.folder}: {tokens:,} tokens of {words:,} words")


if __name__ == "__main__":
    main()
