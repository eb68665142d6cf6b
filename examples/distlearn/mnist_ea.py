"""AllReduceEA: each rank trains on its own; a shared centre keeps them close.

    polyverso run -n 4 -- python3 examples/distlearn/mnist_ea.py [--tau 10] [--alpha 0.2] [--epochs 30] [--batch 8] [--rate 0.3] [--save FOLDER]

The ranks have unequal shares of the images, so some finish an epoch before others. mnist-ea.lua and mnist-ea.pl are
equivalent; ranks of the three languages can train together:

    polyverso run -n 3 -- luajit mnist-ea.lua --- python3 mnist_ea.py --- perl mnist-ea.pl
"""

import time

import numpy as np

import digits
import polyverso
from polyverso import distlearn
from polyverso.group import Group

asked = digits.options(
    "Train a classifier on digits using AllReduceEA.",
    ("--tau", int, 10, "steps between averages"),
    ("--alpha", float, 0.2, "how strongly ranks and centre attract each other"),
)
node = polyverso.init()
group = Group(node)
ea = distlearn.AllReduceEA(group, asked.tau, asked.alpha)
train, test = digits.load()
mine = digits.share(train, group.rank, group.size)

params = digits.parameters()
centre = digits.parameters()  # memory for the centre
ea.synchronize_parameters(params)  # start with the same values on all ranks
for epoch in range(1, asked.epochs + 1):
    confusion, begun = np.zeros((digits.CLASSES, digits.CLASSES), dtype=np.int64), time.monotonic()
    steps = digits.batches(mine, asked.batch, group.rank, epoch)
    for inputs, labels in steps:
        grads, prediction = digits.gradients(params, inputs, labels)
        digits.descend(params, grads, asked.rate)
        ea.average_parameters(params)
        digits.count(confusion, prediction, labels)
    ea.synchronize_center(params)  # removes the drift of the ranks' centres by rounding
    group.allreduce_custom(confusion, np.add)  # over all ranks; by a function, to match the Lua ranks of mnist-ea.lua
    worst = np.array([digits.accuracy(params, test)])
    group.allreduce_custom(worst, np.minimum)
    ea.read_center(centre)  # the same on all ranks: the result of the training
    if group.rank == 0:
        print(
            f"epoch {epoch}: {len(steps)} steps here, {1000 * (time.monotonic() - begun):.0f} ms, training {digits.right(confusion):.4f}, "
            f"accuracy {digits.accuracy(centre, test):.4f}, of every rank's own parameters {worst[0]:.4f} or more",
            flush=True,
        )

if group.rank == 0:
    print(digits.text(confusion))
    print(f"final accuracy {digits.accuracy(centre, test):.4f}")
digits.save(asked.save, group.rank, centre)
ea.close()
group.close()
node.shutdown()
