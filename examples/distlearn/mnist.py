"""AllReduceSGD: each step sums the gradients of all ranks and divides the sum by the number of ranks that had one.

    polyverso run -n 4 -- python3 examples/distlearn/mnist.py [--epochs 30] [--batch 8] [--rate 0.3] [--save FOLDER]

The ranks have unequal shares of the images, so some finish an epoch before others. `--in-place-of 4` does the work of
four ranks in one process: each step joins the batches of those ranks that still have one. mnist.lua and mnist.pl are
equivalent; ranks of the three languages can train together:

    polyverso run -n 3 -- luajit mnist.lua --- python3 mnist.py --- perl mnist.pl
"""

import itertools
import time
from collections.abc import Iterator

import numpy as np

import digits
import polyverso
from polyverso import distlearn
from polyverso.group import Group

asked = digits.options("Train a classifier on digits using AllReduceSGD.", ("--in-place-of", int, 0, "how many ranks this process stands for"))
node = polyverso.init()
group = Group(node)
sgd = distlearn.AllReduceSGD(group)
train, test = digits.load()


def steps_of(epoch: int) -> Iterator[digits.Images]:
    """The batches of this rank, or those of several ranks joined."""
    if not asked.in_place_of:
        yield from digits.batches(digits.share(train, group.rank, group.size), asked.batch, group.rank, epoch)
        return
    ranks = range(asked.in_place_of)
    of_all = [digits.batches(digits.share(train, rank, len(ranks)), asked.batch, rank, epoch) for rank in ranks]
    for step in itertools.zip_longest(*of_all):
        inputs, labels = zip(*(batch for batch in step if batch))
        yield np.concatenate(inputs), np.concatenate(labels)


params = digits.parameters()
sgd.synchronize_parameters(params)  # start with the same values on all ranks
for epoch in range(1, asked.epochs + 1):
    confusion, begun = np.zeros((digits.CLASSES, digits.CLASSES), dtype=np.int64), time.monotonic()
    steps = 0
    for inputs, labels in steps_of(epoch):
        grads, prediction = digits.gradients(params, inputs, labels)
        sgd.sum_and_normalize_gradients(grads)
        digits.descend(params, grads, asked.rate)
        digits.count(confusion, prediction, labels)
        steps += 1
    sgd.synchronize_parameters(params)  # validate with the same bits on all ranks
    group.allreduce_custom(confusion, np.add)  # over all ranks; by a function, to match Lua ranks
    if group.rank == 0:
        print(
            f"epoch {epoch}: {steps} steps here, {1000 * (time.monotonic() - begun):.0f} ms, training {digits.right(confusion):.4f}, "
            f"accuracy {digits.accuracy(params, test):.4f}",
            flush=True,
        )

if group.rank == 0:
    print(digits.text(confusion))
    print(f"final accuracy {digits.accuracy(params, test):.4f}")
digits.save(asked.save, group.rank, params)
sgd.close()
group.close()
node.shutdown()
