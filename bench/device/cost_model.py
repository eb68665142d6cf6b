#!/usr/bin/env python3
"""What devices give on hosts of several GPUs, by a model: bytes and seconds of one step of training.

    python3 bench/device/cost_model.py                    the tables of docs/cuda-costs.md
    python3 bench/device/cost_model.py --nvlink 0         GPUs without NVLink: they copy over PCIe
    python3 bench/device/cost_model.py --network 12.5 --hosts 1 4 --megabytes 500
    python3 bench/device/cost_model.py --check DOCUMENT   whether the document has these tables
    python3 bench/device/cost_model.py --write DOCUMENT   puts them there

A step exchanges all gradients, f32, and fetches the new values. Each row is one way to do it. Its time is the sum of its stages: the time
without any overlap. "Longest stage" is the limit that a perfect overlap would reach. The model has no latencies: it is for megabytes and more.
"""

import argparse
import dataclasses
import sys

BEGIN, END = "<!-- by bench/device/cost_model.py -->", "<!-- end -->"


@dataclasses.dataclass
class Machine:
    """Rates in GB/s."""

    nvlink: float  # of one GPU, in one direction; 0: none
    pcie: float  # of one GPU, in one direction
    network: float  # of one host, in one direction
    device: float  # memory of a GPU, bytes read and written
    memory: float  # memory of a host, bytes read and written
    gpus: int

    @property
    def between(self):
        """From GPU to GPU of a host."""
        return self.nvlink or self.pcie


@dataclasses.dataclass
class Stage:
    link: str  # NVLink, PCIe, network, GPU or host
    gigabytes: float  # over the busiest link of this kind
    rate: float

    @property
    def seconds(self):
        return self.gigabytes / self.rate


# Momentum SGD reads gradient, value and state, and writes the last two.
UPDATE = 5


def sum_on_gpu(m, size, share=1.0):
    """Gradients of all GPUs are copied to the key's GPU and added there in one pass. share: of the keys, on the busiest GPU."""
    others = m.gpus - 1
    return [Stage("NVLink" if m.nvlink else "PCIe", others * size * share, m.between),
            Stage("GPU", (others + m.gpus + 1) * size * share, m.device)]


def copy_to_gpus(m, size, share=1.0):
    return [Stage("NVLink" if m.nvlink else "PCIe", (m.gpus - 1) * size * share, m.between)]


def store_on_one_gpu(m, size, hosts):
    if hosts > 1:
        return None
    return [*sum_on_gpu(m, size), Stage("GPU", UPDATE * size, m.device), *copy_to_gpus(m, size)]


def store_on_all_gpus(m, size, hosts):
    if hosts > 1:
        return None
    share = 1 / m.gpus
    return [*sum_on_gpu(m, size, share), Stage("GPU", UPDATE * size * share, m.device), *copy_to_gpus(m, size, share)]


def store_of_hosts(encoded):
    """A dist_sync store: a worker and a server on each host. The servers hold the values in the hosts' memory, in equal parts."""

    def stages(m, size, hosts):
        pushed, remote = size * encoded, (hosts - 1) / hosts
        # Of each worker's push the server reads the bytes, and reads and writes the sum.
        return [*sum_on_gpu(m, size), Stage("PCIe", pushed, m.pcie), Stage("network", pushed * remote, m.network),
                Stage("host", (encoded + 2) * size + UPDATE * size / hosts, m.memory),
                Stage("network", size * remote, m.network), Stage("PCIe", size, m.pcie), *copy_to_gpus(m, size)]

    return stages


def group_of_gpus(m, size, hosts):
    """A process for each GPU, in one group. Arrays are copied to the host's memory, as no NCCL is used."""
    k = m.gpus
    if hosts == 1:  # each rank sums its part of all arrays, and copies the results of the others
        passes = k + 1 + 2 * k
    else:  # split: a ring on the host, between hosts each rank's part, a ring again
        passes = 5 * (k - 1)
    between = 2 * size * (hosts - 1) / hosts
    return [Stage("PCIe", size, m.pcie), Stage("host", passes * size, m.memory), Stage("network", between, m.network),
            Stage("PCIe", size, m.pcie), Stage("GPU", UPDATE * size, m.device)]


def gossip(m, size, hosts):
    """A process for each GPU averages with one other, mostly on another host: all GPUs of a host share its link."""
    if hosts == 1:
        return None
    return [Stage("PCIe", size, m.pcie), Stage("network", size * m.gpus, m.network), Stage("host", 3 * m.gpus * size, m.memory),
            Stage("PCIe", size, m.pcie)]


WAYS = {
    "`device` store, all keys on one GPU": store_on_one_gpu,
    "`device` store, keys spread over the GPUs": store_on_all_gpus,
    "`dist_sync` store": store_of_hosts(1),
    "`dist_sync` store, 2bit": store_of_hosts(1 / 16),
    "group, all-reduce": group_of_gpus,
    "gossip": gossip,
}


def text_of(seconds):
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def rows(m, megabytes, hosts):
    for name, way in WAYS.items():
        stages = way(m, megabytes / 1000, hosts)
        if stages is None:
            continue
        total = {link: sum(stage.gigabytes for stage in stages if stage.link == link) * 1000 for link in ("NVLink", "PCIe", "network")}
        longest = max(stages, key=lambda stage: stage.seconds)
        yield [name, *(f"{total[link]:,.0f}" if total[link] else "" for link in total), text_of(sum(stage.seconds for stage in stages)),
               f"{text_of(longest.seconds)}, {longest.link}"]


def tables(m, sizes, hosts):
    links = f"NVLink {m.nvlink:g}" if m.nvlink else "no NVLink"
    print_to = [f"{m.gpus} GPUs a host; GB/s: {links}, PCIe {m.pcie:g}, network {m.network:g}, a GPU's memory {m.device:g}, a host's memory {m.memory:g}.", ""]
    for megabytes in sizes:
        for count in hosts:
            print_to += [f"**{megabytes:,g} MB, {count} host{'s' * (count > 1)}**", "",
                         "| way | NVLink MB | PCIe MB | network MB | time | longest stage |", "|---|---|---|---|---|---|"]
            print_to += ["| " + " | ".join(row) + " |" for row in rows(m, megabytes, count)] + [""]
    return "\n".join(print_to)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gpus", type=int, default=8, help="of each host (8)")
    options.add_argument("--nvlink", type=float, default=450, help="GB/s of a GPU in one direction (450: NVLink 4); 0: none")
    options.add_argument("--pcie", type=float, default=55, help="GB/s of a GPU in one direction (55: PCIe 5 with 16 lanes, measured)")
    options.add_argument("--network", type=float, default=50, help="GB/s of a host in one direction (50: 400 Gbit/s)")
    options.add_argument("--device", type=float, default=4189, help="GB/s of a GPU's memory (4189: H200, measured)")
    options.add_argument("--memory", type=float, default=400, help="GB/s of a host's memory (400)")
    options.add_argument("--hosts", type=int, nargs="+", default=[1, 8, 64])
    options.add_argument("--megabytes", type=float, nargs="+", default=[102, 1360], help="of all parameters (102: ResNet-50; 1360: BERT large)")
    options.add_argument("--check", metavar="DOCUMENT")
    options.add_argument("--write", metavar="DOCUMENT")
    given = options.parse_args()
    rates = (given.pcie, given.network, given.device, given.memory)
    if min(rates) <= 0 or given.nvlink < 0 or given.gpus < 1 or min(given.hosts) < 1 or min(given.megabytes) <= 0:
        options.error("rates, GPUs, hosts and megabytes must be positive; --nvlink may be 0")
    made = tables(Machine(given.nvlink, given.pcie, given.network, given.device, given.memory, given.gpus), given.megabytes, given.hosts)
    document = given.check or given.write
    if document is None:
        print(made)
        return 0
    text = open(document, encoding="utf-8").read()
    before, rest = text.split(BEGIN + "\n")
    old, after = rest.split(END)
    if given.write:
        open(document, "w", encoding="utf-8").write(f"{before}{BEGIN}\n{made}{END}{after}")
        return 0
    if old != made:
        print(f"{document} has other tables: run {sys.argv[0]} --write {document}", file=sys.stderr)
    return int(old != made)


if __name__ == "__main__":
    sys.exit(main())
