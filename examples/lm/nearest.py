#!/usr/bin/env python3
"""Shows what word vectors have learned: for some words, the words with the smallest angle between the vectors.

    python3 examples/lm/nearest.py [--folder build/lm] [god king ...]

The last line compares them with vectors that need no training: counts of the words that occur around each word.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

WORDS = "god king lord son david water sword wife bread jerusalem".split()
WINDOW = 5
CONTEXTS = 2000  # length of the counted vectors: the most frequent words
JUDGED = slice(100, 500)  # by frequency: frequent enough to have a meaning, and not function words


class Vectors:
    """One row per word, of length 1."""

    def __init__(self, words: Sequence[str], rows: np.ndarray) -> None:
        self.words = words
        self.number = {word: at for at, word in enumerate(words)}
        self._rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    def nearest(self, word: int, count: int) -> np.ndarray:
        """The numbers of the `count` words nearest to word number `word`, nearest first."""
        likeness = self._rows @ self._rows[word]
        likeness[word] = -2
        return np.argsort(-likeness)[:count]


def words_of(folder: pathlib.Path) -> list[str]:
    return [line.split()[0] for line in (folder / "words.txt").read_text(encoding="ascii").splitlines()]


def trained(folder: pathlib.Path) -> Vectors:
    """The vectors that train.py, train.pl or train.lua has written."""
    words = words_of(folder)
    return Vectors(words, np.fromfile(folder / "vectors.f32", np.float32).reshape(len(words), -1))


def counted(folder: pathlib.Path) -> Vectors:
    """Positive pointwise mutual information of each word and its context words, computed directly from the text.
    Skip-gram with negative sampling approximates it with fewer numbers (Levy and Goldberg, NIPS 2014)."""
    words = words_of(folder)
    tokens = np.fromfile(folder / "tokens.i32", "<i4").astype(np.int64)
    contexts = min(CONTEXTS, len(words))
    counts = np.zeros(len(words) * contexts)
    for distance in range(1, WINDOW + 1):
        for word, context in ((tokens[:-distance], tokens[distance:]), (tokens[distance:], tokens[:-distance])):
            known = context < contexts
            counts += np.bincount(word[known] * contexts + context[known], minlength=counts.size)
    table = counts.reshape(len(words), contexts)
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        return Vectors(words, np.nan_to_num(np.maximum(np.log(table / expected), 0), nan=0).astype(np.float32))


def agreement(one: Vectors, other: Vectors, count: int = 10) -> tuple[float, float]:
    """Returns the part of a word's nearest words that both share, on average, and its value by chance."""
    judged = range(len(one.words))[JUDGED]
    shared = [len(np.intersect1d(one.nearest(word, count), other.nearest(word, count))) for word in judged]
    return float(np.mean(shared)) / count, count / len(one.words)


def show(folder: pathlib.Path, words: Sequence[str] = WORDS) -> tuple[float, float]:
    """Prints the nearest words of `words`; returns agreement()."""
    learned = trained(folder)
    for word in words:
        if word in learned.number:
            near = ", ".join(learned.words[at] for at in learned.nearest(learned.number[word], 8))
            print(f"{word:>10}: {near}")
        else:
            print(f"{word:>10}: is not among the {len(learned.words)} words")
    shared, chance = agreement(learned, counted(folder))
    print(f"of ten nearest words {10 * shared:.1f} are also nearest by counting; by chance {10 * chance:.2f} would be")
    return shared, chance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = pathlib.Path(__file__).resolve().parents[2] / "build" / "lm"
    parser.add_argument("--folder", type=pathlib.Path, default=default)
    parser.add_argument("words", nargs="*", default=WORDS)
    options = parser.parse_args()
    if not (options.folder / "vectors.f32").exists():
        sys.exit(f"nearest.py: no vectors in {options.folder}: train first, see the README")
    show(options.folder, options.words)


if __name__ == "__main__":
    main()
