"""One node: a small convolutional network in PyTorch, averaged with the networks of other nodes around each batch.

    python3 main.py --config nodes.yaml --name w1        as one of several nodes; see run.sh
    python3 main.py --alone                              alone, on all images
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from images import read_images

SKETCHED = 16  # the length of a model's sketch
BARS = 20      # the number of nodes that show a progress bar


def make_network(channels: int, size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (size // 2) ** 2, 64), nn.ReLU(), nn.Linear(64, 10),
    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="YAML file with the nodes")
    parser.add_argument("--name", help="name of this node")
    parser.add_argument("--alone", action="store_true", help="train without peers, on all images")
    parser.add_argument("--data", help="CIFAR-10 archive (Python or binary); default: the repository's digits")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ...")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--log", help="CSV to write: seconds, epoch, loss, accuracy, and a sketch of the model")
    parser.add_argument("--bars", type=int, default=2, metavar="FD", help="file descriptor for progress bars, if it is a terminal")
    options = parser.parse_args()
    if options.alone == bool(options.config and options.name):
        parser.error("either --alone, or --config and --name")
    return options


def share_of(options: argparse.Namespace) -> tuple[int, int]:
    """Returns (this node's index, the number of nodes)."""
    if options.alone:
        return 0, 1
    from dpwa.dpwa import DpwaConfiguration

    names = [str(node["name"]) for node in DpwaConfiguration(options.config).get_nodes()]
    if options.name not in names:
        raise SystemExit(f"{options.config} has no node {options.name}, only {', '.join(names)}")
    return names.index(options.name), len(names)


def sketch(net: nn.Module) -> list[float]:
    """Random projections, the same on all nodes: the distance of two sketches approximates that of the models."""
    vector = torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()]).cpu()
    random = torch.Generator().manual_seed(1)
    return [(torch.randn(len(vector), generator=random) @ vector).item() / SKETCHED ** 0.5 for _ in range(SKETCHED)]


def batches(count: int, passes: int, size: int) -> list[torch.Tensor]:
    """Batches of image indices; each image occurs `passes` times."""
    return [some for _ in range(passes) for some in torch.randperm(count).split(size)]


def moved(images: torch.Tensor) -> torch.Tensor:
    """Data augmentation: shifts the batch by up to an eighth of its size in each direction."""
    most = images.shape[-1] // 8
    return torch.roll(images, torch.randint(-most, most + 1, (2,)).tolist(), (-2, -1))


def train(net: nn.Module, conn: Any, options: argparse.Namespace, images: torch.Tensor, labels: torch.Tensor, passes: int, bar: tqdm,
          report: Callable[[int, float], None]) -> None:
    """Trains for all epochs, each of `passes` passes over the images."""
    optimizer = torch.optim.SGD(net.parameters(), lr=options.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    loss = 2.3  # the loss of random guesses among ten classes
    for epoch in range(1, options.epochs + 1):
        losses = []
        for some in batches(len(labels), passes, options.batch):
            if conn:
                conn.update_send(loss)
            optimizer.zero_grad()
            output = nn.functional.cross_entropy(net(moved(images[some])), labels[some])
            output.backward()
            optimizer.step()
            loss = output.item()
            if conn:
                conn.update_wait(loss)
            losses.append(loss)
            bar.update()
        schedule.step()
        report(epoch, sum(losses) / len(losses))


def main() -> None:
    options = read_options()
    place, count = share_of(options)
    what, *data = read_images(options.data)
    images, labels, test_images, test_labels = (torch.as_tensor(part).to(options.device) for part in data)
    own = len(labels[place::count])
    print(f"learning from {what}: {own} of {len(labels)} images", flush=True)
    torch.manual_seed(0)
    net = make_network(images.shape[1], images.shape[2]).to(options.device)
    torch.manual_seed(place)
    conn = None
    if not options.alone:
        from dpwa.adapters.pytorch import DpwaPyTorchAdapter

        conn = DpwaPyTorchAdapter(net, options.name, options.config)
    begun, lines = time.monotonic(), []
    shown = os.isatty(options.bars) and place < BARS
    # As many steps as a single node would take on all images.
    bar = tqdm(total=options.epochs * count * -(-own // options.batch), desc=options.name or "alone", unit=" batches", position=place,
               disable=not shown, file=os.fdopen(options.bars, "w", closefd=False) if shown else sys.stderr)

    def accuracy() -> float:
        with torch.no_grad():
            return float((net(test_images).argmax(1) == test_labels).float().mean())

    def report(epoch: int, loss: float) -> None:
        reached = accuracy()
        bar.set_postfix(loss=f"{loss:.4f}", accuracy=f"{reached:.4f}")
        if not (shown and sys.stdout.isatty()):
            print(f"epoch {epoch}/{options.epochs}  loss {loss:.4f}  accuracy {reached:.4f}", flush=True)
        lines.append([time.monotonic() - begun, epoch, loss, reached, *sketch(net)])
        if options.log:
            with open(options.log, "w", encoding="utf-8") as file:
                file.writelines(",".join(f"{value:.6g}" for value in line) + "\n" for line in lines)

    train(net, conn, options, images[place::count], labels[place::count], count, bar, report)
    bar.close()
    print(f"final accuracy {accuracy():.4f}", flush=True)


if __name__ == "__main__":
    main()
