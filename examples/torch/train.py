"""Trains a network on the handwritten digits of data/, on several ranks: DistributedDataParallel, or DiLoCo.

    polyverso run -n 2 -- python3 examples/torch/train.py
    torchrun --nproc-per-node 2 examples/torch/train.py --backend gloo
    polyverso run -n 2 -- python3 examples/torch/train.py --diloco 50

Every rank has its own part of the images. Prints one line of JSON for every 50th step, and one at the end.
"""

import argparse
import gzip
import json
import pathlib
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import polyverso.torch

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv.gz"


def images() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(inputs, labels) for training, then for testing: every fourth image."""
    numbers = torch.from_numpy(np.loadtxt(gzip.open(DATA, "rt"), delimiter=",", dtype=np.float32))
    test = torch.arange(len(numbers)) % 4 == 3
    return [(numbers[part, :64] / 16, numbers[part, 64].long()) for part in (~test, test)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="polyverso", help="polyverso or gloo (default: %(default)s)")
    parser.add_argument("--diloco", type=int, metavar="H", help="exchange parameters every H steps, not gradients in every step")
    parser.add_argument("--compress", metavar="CODEC", help="average the gradients compressed, by a codec such as int8")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--hidden", type=int, default=128, help="units of each of two layers (default: %(default)s)")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    (inputs, labels), test = images()
    mine = slice(rank, None, ranks)
    inputs, labels = inputs[mine], labels[mine]

    torch.manual_seed(1)
    hidden = arguments.hidden
    net = torch.nn.Sequential(
        torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    count = sum(parameter.numel() for parameter in net.parameters())
    strategy = compressed = None
    model = net
    if arguments.diloco:
        # Momentum 0.9, the default, is for more than these 20 exchanges.
        strategy = polyverso.torch.DiLoCo(net, arguments.diloco, outer_momentum=0.5)
    else:
        model = DistributedDataParallel(net)
        if arguments.compress:
            compressed = polyverso.torch.CompressedGradients(model, arguments.compress)

    order = torch.Generator().manual_seed(rank)
    dist.barrier()
    began = time.perf_counter()
    for step in range(1, arguments.steps + 1):
        batch = torch.randint(len(labels), (32,), generator=order)
        loss = torch.nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if strategy is not None:
            strategy.step()
        if step % 50 == 0 or step == arguments.steps:
            with torch.no_grad():
                outputs = net(test[0])
                report = {"step": step, "loss": round(torch.nn.functional.cross_entropy(outputs, test[1]).item(), 5)}
            report["error"] = round((outputs.argmax(1) != test[1]).float().mean().item(), 4)
            report["seconds"] = round(time.perf_counter() - began, 3)
            meter = strategy or compressed
            report["bytes"] = meter.meter.payload_bytes if meter else 4 * count * step
            if rank == 0:
                print(json.dumps(report), flush=True)
    if strategy is not None:
        strategy.synchronize()
        strategy.close()
    if compressed is not None:
        compressed.close()
    dist.destroy_process_group()


main()
