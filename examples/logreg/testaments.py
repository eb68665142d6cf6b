#!/usr/bin/env python3
"""Makes libsvm files for a classifier: is a verse of the King James Bible from the Old (0) or the New Testament (1)?

    python3 examples/logreg/testaments.py [--folder build/logreg] [--files 4] [--verses N]

The features of a verse are its words and its pairs of adjacent words, hashed to 32 bits, each with the value 1. Every
fifth verse goes into test.svm; the others alternate between train-0.svm, train-1.svm and so on.
"""

import argparse
import contextlib
import pathlib
import sys
import zlib
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "kjv"))
import verses  # noqa: E402

FOLDER = HERE.parents[1] / "build" / "logreg"
HELD_OUT = 5  # every fifth verse is for testing


def features(text: str) -> list[int]:
    words = verses.words_of(text)
    pairs = (f"{one} {other}" for one, other in zip(words, words[1:]))
    return sorted({zlib.crc32(feature.encode()) for feature in (*words, *pairs)})


def labelled() -> Iterator[tuple[int, list[int]]]:
    """Yields (label, features) for each verse."""
    label = 0
    for book, text in verses.verses():
        label = label or int(book == verses.FIRST_OF_THE_NEW_TESTAMENT)
        yield label, features(text)


def make(folder: pathlib.Path, files: int, count: int | None = None) -> list[int]:
    """Writes `files` files for training and one for testing. `count` limits the number of verses, approximately; they
    are then spread over the whole text. Returns the number of verses for training and for testing."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svm"):
        old.unlink()
    everything = list(labelled())
    chosen = everything[:: max(1, len(everything) // count)] if count else everything
    written = [0, 0]
    with contextlib.ExitStack() as stack:
        test = stack.enter_context((folder / "test.svm").open("w", encoding="ascii"))
        train = [stack.enter_context((folder / f"train-{k}.svm").open("w", encoding="ascii")) for k in range(files)]
        for at, (label, numbers) in enumerate(chosen):
            held_out = at % HELD_OUT == HELD_OUT - 1
            file = test if held_out else train[written[0] % files]
            file.write(" ".join([str(label), *(f"{number}:1" for number in numbers)]) + "\n")
            written[held_out] += 1
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER, help="output folder (build/logreg)")
    parser.add_argument("--files", type=int, default=4, help="number of training files")
    parser.add_argument("--verses", type=int, help="use only about N verses")
    options = parser.parse_args()
    try:
        train, test = make(options.folder, options.files, options.verses)
    except verses.Missing as missing:
        sys.exit(f"testaments.py: {missing}")
    print(f"{options.folder}: {train:,} verses for training in {options.files} files, {test:,} for testing")


if __name__ == "__main__":
    main()
