"""One node: a small convolutional network in PyTorch, averaged with other nodes' around each batch.

    python3 main.py --config nodes.yaml --name w1        as one of several; see run.sh
    python3 main.py --alone                              on all images, by itself
"""

import argparse
import sys
import time

import torch
import yaml
from torch import nn

from images import read_images


def make_network(channels, size):
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (size // 2) ** 2, 64), nn.ReLU(), nn.Linear(64, 10),
    )


def show_progress(epoch, epochs, loss, accuracy):
    done = 30 * epoch // epochs
    end = "\n" if epoch == epochs or not sys.stdout.isatty() else "\r"
    print(f"[{'#' * done}{'.' * (30 - done)}] epoch {epoch}/{epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}", end=end, flush=True)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="YAML with the nodes")
    parser.add_argument("--name", help="which of them this is")
    parser.add_argument("--alone", action="store_true", help="no peers, all images")
    parser.add_argument("--data", help="CIFAR-10's archive for Python")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--log", help="CSV to write: seconds, epoch, loss, accuracy, parameters' norm and a sketch of them")
    options = parser.parse_args()
    if options.alone == bool(options.config and options.name):
        parser.error("either --alone, or --config and --name")
    return options


def share_of(options):
    """(this node's place, how many there are)"""
    if options.alone:
        return 0, 1
    with open(options.config, encoding="utf-8") as file:
        settings = yaml.safe_load(file)
    names = [node["name"] for item in settings if "nodes" in item for node in item["nodes"]]
    return names.index(options.name), len(names)


def sketch(net):
    """A few numbers, of which those of two nodes differ as the models do: fixed random projections of all parameters."""
    vector = torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])
    directions = torch.randn(8, len(vector), generator=torch.Generator().manual_seed(1)) / len(vector) ** 0.5
    return (directions @ vector).tolist()


def batches(count, passes, size):
    """Indices of images, each of them `passes` times."""
    return (some for _ in range(passes) for some in torch.randperm(count).split(size))


def train(net, conn, options, images, labels, passes, report):
    """`passes` over the images an epoch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=options.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    loss = 2.3
    for epoch in range(1, options.epochs + 1):
        for some in batches(len(labels), passes, options.batch):
            if conn:
                conn.update_send(loss)
            optimizer.zero_grad()
            output = nn.functional.cross_entropy(net(images[some]), labels[some])
            output.backward()
            optimizer.step()
            loss = output.item()
            if conn:
                conn.update_wait(loss)
        schedule.step()
        report(epoch, loss)


def main():
    options = read_options()
    place, count = share_of(options)
    what, *data = read_images(options.data)
    images, labels, test_images, test_labels = map(torch.as_tensor, data)
    print(f"learning from {what}: {len(labels) // count} of {len(labels)} images", flush=True)
    torch.manual_seed(0)
    net = make_network(images.shape[1], images.shape[2])
    torch.manual_seed(place)
    conn = None
    if not options.alone:
        from dpwa.adapters.pytorch import DpwaPyTorchAdapter

        conn = DpwaPyTorchAdapter(net, options.name, options.config)
    begun, lines = time.monotonic(), []

    def accuracy():
        with torch.no_grad():
            return (net(test_images).argmax(1) == test_labels).float().mean().item()

    def report(epoch, loss):
        show_progress(epoch, options.epochs, loss, accuracy())
        lines.append([time.monotonic() - begun, epoch, loss, accuracy(), *sketch(net)])
        if options.log:
            with open(options.log, "w", encoding="utf-8") as file:
                file.writelines(",".join(f"{value:.6g}" for value in line) + "\n" for line in lines)

    # As many steps as one node alone would take on all images.
    train(net, conn, options, images[place::count], labels[place::count], count, report)
    print(f"final accuracy {accuracy():.4f}", flush=True)


if __name__ == "__main__":
    main()
