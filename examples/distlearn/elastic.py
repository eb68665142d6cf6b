"""AllReduceSGD with momentum that trains on when workers die and fresh ones come: the same result as without.

    polyverso run -n 4 --servers 1 --keep-going -- python3 examples/distlearn/elastic.py [--steps 400] [--save FOLDER]

A process that takes the place of a lost one is started with --join, and with the settings and the rank of the lost one.
Until it is there the others wait, so each step has the gradients of all ranks. elastic.lua and elastic.pl are equivalent;
ranks of the three languages can train together.
"""

import numpy as np

import digits
import polyverso
from polyverso import distlearn
from polyverso.errors import PeerError
from polyverso.group import Group

NAME, MOMENTUM, PATIENCE = "elastic", 0.9, 60
asked = digits.options(
    "Train a classifier on digits although workers die.",
    ("--steps", int, 400, "number of steps"),
    ("--join", int, 0, "1: this process has the place of a lost one"),
    ("--every", int, 20, "steps from one line of output to the next"),
)
node = polyverso.init()
ranks = node.num_workers
mine = digits.share(digits.load()[0], node.worker_id, ranks)

params = digits.parameters()
velocity = {layer: [np.zeros_like(array) for array in arrays] for layer, arrays in params.items()}
step = np.zeros(1)
state = [array for part in (params, velocity) for layer in sorted(part) for array in part[layer]] + [step]


def batch() -> digits.Images:
    """The batch of this step: the same for every process that has this rank."""
    number = int(step[0])
    per_epoch: int = len(mine[1]) // asked.batch
    of_epoch: list[digits.Images] = digits.batches(mine, asked.batch, node.worker_id, number // per_epoch)
    return of_epoch[number % per_epoch]


def started(group: Group) -> distlearn.AllReduceSGD:
    """A strategy on a new group, whose newcomers get the state of a rank that has been there before."""
    group.broadcast_many(state, root=group.info["elder"])
    return distlearn.AllReduceSGD(group)


group = Group.join(node, NAME, timeout=PATIENCE) if asked.join else Group(node)
sgd = None
while True:
    try:
        grown = None if sgd is None else group.grow(ranks, NAME, timeout=PATIENCE)  # None: nothing has changed
        if grown is not None:
            sgd.close()
            group.close()
            group, sgd = grown, None
            print(f"a group of {group.size}, generation {group.info['generation']}", flush=True)
        if sgd is not None and step[0] >= asked.steps:
            break  # all ranks are here
        sgd = sgd or started(group)
        if step[0] >= asked.steps:
            continue
        grads, prediction = digits.gradients(params, *batch())
        sgd.sum_and_normalize_gradients(grads)
    except PeerError as lost:
        print(f"step {step[0]:.0f}: {lost}", flush=True)
        sgd = sgd or distlearn.AllReduceSGD(group)  # grow() comes next
        continue
    for layer, arrays in params.items():
        for param, moving, grad in zip(arrays, velocity[layer], grads[layer]):
            moving *= MOMENTUM
            moving += grad
            param -= asked.rate * moving
    step += 1
    if step[0] % asked.every == 0:
        print(f"step {step[0]:.0f} is done", flush=True)

train, test = digits.load()
print(f"loss {digits.loss(params, train):.12f}, accuracy {digits.accuracy(params, test):.4f}", flush=True)
digits.save(asked.save, node.worker_id, params)
sgd.close()
group.close()
node.shutdown()
