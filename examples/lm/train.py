#!/usr/bin/env python3
"""Word vectors by skip-gram with negative sampling: one worker, in Python with NumPy. train.pl and train.lua are
equivalent.

    polyverso run -n 3 -- python3 examples/lm/train.py [--folder build/lm] [--epochs 10] [--seed 1] [--report 1]
                                                       [--save-every ROUNDS] [--resume 1]

The corpus is cut into blocks; each of n workers trains on every n-th block. Two sparse tables hold a vector for each
word: as the centre of a window (`input`) and as part of it (`output`). A worker sends gradients; the servers apply them
with AdaGrad. Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality, NIPS 2013.
"""

import argparse
import pathlib
import sys
import time

import numpy as np
import polyverso

DIMENSIONS = 64
WINDOW = 5  # words on each side, at most; each centre word draws 1 .. WINDOW
NEGATIVES = 5  # for each pair of words
POOL = 64  # drawn per block and shared by all its pairs, with a weight: their vectors are sent once
SAMPLE = 2e-4  # words more frequent than this are subsampled
BLOCK = 1000  # words of the text
STALENESS = 2  # how many blocks the fastest worker may be ahead of the slowest
UPDATER = "adagrad rate=0.1"


class Corpus:
    """The text as numbers, and the distributions to draw from. The draws of a block depend only on seed and number, so
    a resumed training repeats those of the killed one."""

    def __init__(self, folder: pathlib.Path, seed: int) -> None:
        if not (folder / "tokens.i32").exists():
            sys.exit(f"train.py: there is no corpus in {folder}: run corpus.py first")
        lines = (folder / "words.txt").read_text(encoding="ascii").split("\n")[:-1]
        counts = np.array([int(line.split()[1]) for line in lines], np.float64)
        self.tokens = np.fromfile(folder / "tokens.i32", "<i4").astype(np.int64)
        self.words = len(counts)
        self.blocks = -(-len(self.tokens) // BLOCK)
        share = SAMPLE * len(self.tokens) / counts
        self._kept = np.sqrt(share) + share
        self._noise = np.cumsum(counts**0.75)
        self._noise /= self._noise[-1]
        self._seed = seed

    def block(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the kept words of block `number`, the window of each, and the pool of negatives."""
        random = np.random.default_rng((self._seed, number))
        words = self.tokens[number % self.blocks * BLOCK :][:BLOCK]
        words = words[random.random(len(words)) < self._kept[words]]
        reach = random.integers(1, WINDOW + 1, len(words))
        return words, reach, np.minimum(np.searchsorted(self._noise, random.random(POOL)), self.words - 1)


def sigmoid(scores: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-scores)))


def gradients(middles: np.ndarray, outer: np.ndarray, pool: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Returns the gradients of the loss by each row of the three matrices, the loss, and its number of pairs.

    Row i of `middles` and of `outer` is the input and the output vector of word i of the block. A pair of words (i, j)
    costs -log sigmoid(middles[i] . outer[j]), and NEGATIVES times the mean of -log sigmoid(-middles[i] . pool)."""
    by_middles, by_outer = np.zeros_like(middles), np.zeros_like(outer)
    pairs, loss = np.zeros(len(middles), np.float32), 0.0
    for distance in range(1, min(WINDOW, len(middles) - 1) + 1):
        left, right = slice(None, -distance), slice(distance, None)
        for i, j in ((left, right), (right, left)):
            wanted = (reach[i] >= distance).astype(np.float32)
            likely = sigmoid(np.einsum("ij,ij->i", middles[i], outer[j]))
            slope = (wanted * (likely - 1))[:, None]
            by_middles[i] += slope * outer[j]
            by_outer[j] += slope * middles[i]
            pairs[i] += wanted
            loss -= wanted @ np.log(likely)
    likely = sigmoid(middles @ pool.T)
    weight = (NEGATIVES / POOL * pairs)[:, None]
    slope = weight * likely
    loss -= (weight * np.log1p(-np.minimum(likely, 0.9999999))).sum()
    return by_middles + slope @ pool, by_outer, slope.T @ middles, loss, pairs.sum()


class Report:
    """Prints the progress of all workers, on worker 0, every `seconds` seconds."""

    def __init__(self, progress: polyverso.Table, total: int, seconds: float) -> None:
        self.progress, self.total, self.seconds = progress, total, seconds
        self.begun = self.last = time.monotonic()
        self.first = self.done()
        self.loss = self.pairs = 0.0
        self.mean = float("nan")

    def done(self) -> int:
        return int(self.progress.get().sum())

    def note(self, loss: float, pairs: float, at_once: bool = False) -> None:
        self.loss += loss
        self.pairs += pairs
        now = time.monotonic()
        if now < self.last + self.seconds and not at_once:
            return
        if self.pairs > 0:
            self.mean = self.loss / self.pairs
        done, seconds = min(self.done(), self.total), now - self.begun
        speed = (done - self.first) * BLOCK / seconds
        print(
            f"{100 * done / self.total:5.1f} %  block {done} of {self.total}  loss {self.mean:.4f}"
            f"  {speed:.0f} words/s  {seconds:.1f} s",
            flush=True,
        )
        self.last, self.loss, self.pairs = now, 0.0, 0.0


def train(node: polyverso.Node, options: argparse.Namespace) -> None:
    corpus = Corpus(options.folder, options.seed)
    saved = str(options.folder / "checkpoints")
    if options.resume:
        node.load(saved)  # creating the tables below then finds them with their values
    inputs = node.sparse(
        corpus.words, DIMENSIONS, name="input", updater=UPDATER, staleness=STALENESS, initial_range=0.5 / DIMENSIONS, seed=options.seed
    )
    outputs = node.sparse(corpus.words, DIMENSIONS, name="output", updater=UPDATER, staleness=STALENESS)
    me, workers = node.worker_id, node.num_workers
    # The rounds that each worker has done. Saved together with the vectors.
    progress = node.array(workers, dtype="int64", name="progress")

    total = options.epochs * corpus.blocks
    rounds = -(-total // workers)
    report = Report(progress, total, options.report)
    for round_number in range(int(progress.get()[me]), rounds):
        number = round_number * workers + me
        words, reach, pool = corpus.block(number)
        loss = pairs = 0.0
        if number < total and len(words) > 1:
            middles, around = inputs.get(rows=words), outputs.get(rows=np.concatenate((words, pool)))
            outer, others = around[: len(words)], around[len(words) :]
            by_middles, by_outer, by_pool, loss, pairs = gradients(middles, outer, others, reach)
            inputs.add(by_middles, rows=words, wait=False)  # a word can occur twice: the library sums its gradients
            outputs.add(np.concatenate((by_outer, by_pool)), rows=np.concatenate((words, pool)), wait=False)
        inputs.clock()
        outputs.clock()
        progress.add([1], rows=[me], wait=False)
        if me == 0:
            report.note(loss, pairs)
        if options.save_every and (round_number + 1) % options.save_every == 0:
            node.save(saved, keep=2)
            if me == 0:
                print(f"saved after round {round_number + 1} of {rounds}", flush=True)
    node.barrier()
    if me == 0:
        report.note(0.0, 0.0, at_once=True)
        inputs.peek(rows=np.arange(corpus.words)).tofile(options.folder / "vectors.f32")
        print(f"trained: see nearest.py for what is in {options.folder / 'vectors.f32'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = pathlib.Path(__file__).resolve().parents[2] / "build" / "lm"
    parser.add_argument("--folder", type=pathlib.Path, default=default, help="output folder of corpus.py; results go there too")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=float, default=1, help="seconds between progress lines of worker 0")
    parser.add_argument("--save-every", type=int, default=0, help="rounds between checkpoints; 0 = no checkpoints")
    parser.add_argument("--resume", type=int, default=0, help="1 = resume from the newest checkpoint")
    options = parser.parse_args()
    with polyverso.init() as node:
        train(node, options)


if __name__ == "__main__":
    main()
