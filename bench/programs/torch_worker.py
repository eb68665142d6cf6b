"""A rank of torch.distributed.

    polyverso run -n RANKS -- torch_worker.py

polyverso, gloo   a step of DistributedDataParallel by this backend, of a network with 10 million parameters
alone             the same step in all ranks at once, without communication
all_reduce        of a float32 tensor of BYTES bytes in place, by the backend "polyverso"

Rank 0 runs the batches that the driver requests, see batch.py, and tells the other ranks. At the beginning the ranks
train with both backends from the same weights, and compare the losses.
"""

import batch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import polyverso.torch  # noqa: F401  (registers the backend)

LAYERS = (1024, 2048, 2048, 1792, 10)
BATCH = 32  # images of a rank
STEPS = 5  # whose losses are compared
PREPARE, REPEAT, CHECK, END = range(4)
BACKENDS = ("polyverso", "gloo")
OPERATIONS = (*BACKENDS, "alone", "all_reduce")


class Training:
    def __init__(self, group):
        torch.manual_seed(1)
        layers = []
        for inputs, outputs in zip(LAYERS, LAYERS[1:]):
            layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        net = torch.nn.Sequential(*layers[:-1])
        self.model = net if group is None else DistributedDataParallel(net, process_group=group)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        draws = torch.Generator().manual_seed(dist.get_rank())
        self.inputs, self.labels = torch.randn(BATCH, LAYERS[0], generator=draws), torch.randint(LAYERS[-1], (BATCH,), generator=draws)

    def step(self):
        loss = torch.nn.functional.cross_entropy(self.model(self.inputs), self.labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Step:
    def __init__(self, training):
        self.once = training.step

    def prepare(self, _):
        pass

    def check(self):
        pass


class AllReduce:
    def prepare(self, size):
        self.value = torch.ones(size // 4)
        self.once()
        if not bool((self.value == dist.get_world_size()).all()):
            batch.fail("the sum is wrong")
        self.value.zero_()  # sums of ones would become infinite

    def once(self):
        dist.all_reduce(self.value)

    def check(self):
        if self.value.any():
            batch.fail("the sum of zeros is not zero")


def compare(trainings):
    """Fails unless the losses with both backends are equal: to the bit with two ranks, whose sums have one order."""
    ours, theirs = ([trainings[name].step() for _ in range(STEPS)] for name in BACKENDS)
    limit = 0 if dist.get_world_size() == 2 else 1e-5
    if max(abs(one - other) for one, other in zip(ours, theirs)) > limit:
        batch.fail(f"the losses are {ours}, with Gloo {theirs}")


class Ranks:
    def __init__(self):
        groups = {"polyverso": dist.group.WORLD, "gloo": dist.new_group(backend="gloo"), "alone": None}
        trainings = {name: Training(group) for name, group in groups.items()}
        compare(trainings)
        self.works = {name: Step(training) for name, training in trainings.items()} | {"all_reduce": AllReduce()}
        self.work = None

    def prepare(self, operation, size):
        self.tell(PREPARE, OPERATIONS.index(operation), size)
        return lambda times: self.tell(REPEAT, times), lambda: self.tell(CHECK)

    def tell(self, *what):
        message = torch.tensor([*what, 0, 0][:3])
        dist.broadcast(message, src=0)
        self.act(*message.tolist())

    def obey(self):
        """Of the other ranks: does what rank 0 tells, until the end."""
        message = torch.zeros(3, dtype=torch.int64)
        while message[0] != END:
            dist.broadcast(message, src=0)
            self.act(*message.tolist())

    def act(self, action, number, size):
        if action == PREPARE:
            self.work = self.works[OPERATIONS[number]]
            self.work.prepare(size)
        elif action == REPEAT:
            once = self.work.once
            for _ in range(number):
                once()
        elif action == CHECK:
            self.work.check()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("polyverso")
    ranks = Ranks()
    if dist.get_rank() == 0:
        batch.serve(ranks.prepare)
        ranks.tell(END)
    else:
        ranks.obey()
    dist.destroy_process_group()


main()
