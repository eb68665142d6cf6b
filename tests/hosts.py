"""Hosts on one machine, for tests and benchmarks: network namespaces around a router, joined by lines of a given rate.

Each host has a network, process ids and a name of its own, and one line to the router. So processes of different hosts
share no memory: their unix sockets, and their folders in /proc, are not reachable from each other. Lines can be cut and
healed, and the router can drop packets of one direction.

Everything lives in namespaces that a sleeping process holds, the first of its process ids. It ends with this process,
however this one ends, and the kernel then kills the processes of the host and removes its devices.
"""

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import threading

CLONE_NEWNET = 0x40000000
BURST = 128 << 10         # bytes; more than the largest packet
DROPS_NOTHING = 64 << 20  # bytes of a queue; back-pressure makes senders wait
SLOW = 50e6               # bytes per second


class Unavailable(Exception):
    """This machine or this user can't have namespaces. The text is the reason."""


def shaping(device, rate, queue=DROPS_NOTHING):
    """The tc command that limits what a device sends to `rate` bytes per second."""
    burst = max(BURST, int(rate) // 1000)
    return f"tc qdisc replace dev {device} root tbf rate {8 * int(rate)} burst {burst} limit {queue}"


def _do(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def _network_of(path):
    """This thread's network is the one at `path`, for sockets and for processes that the thread starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    before, inside = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(path, os.O_RDONLY)
    try:
        if libc.setns(inside, CLONE_NEWNET) != 0:
            raise Unavailable(f"setns: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            status = libc.setns(before, CLONE_NEWNET)
            assert status == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(inside)
        os.close(before)


class Namespace:
    """Namespaces of a network, a host name, and process ids. Exist until end(), or until the process that made them ends."""

    def __init__(self, name):
        for tool in ("ip", "tc", "unshare", "nsenter", "setpriv"):
            if shutil.which(tool) is None:
                raise Unavailable(f"{tool} is missing: apt install iproute2 util-linux")
        self.name = name
        settle = "for c in all default; do echo 0 > /proc/sys/net/ipv6/conf/$c/accept_dad; done"  # addresses work at once
        hold = f"hostname {name} && {settle} && ip link set lo up && echo ready && exec sleep infinity"
        kinds = ["--net", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child=KILL"]
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", *kinds, "sh", "-c", hold]
        self._holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self._holder.stdout.readline() != "ready\n":
            self._holder.kill()
            why = self._holder.stderr.read().strip()
            self.end()
            raise Unavailable(f"network namespaces want root, or a kernel that lets users make them: {why}")
        kept = {"net": "net", "uts": "uts", "mount": "mnt", "pid": "pid_for_children"}
        enter = {kind: f"--{kind}=/proc/{self._holder.pid}/ns/{file}" for kind, file in kept.items()}
        self._in_network = ["nsenter", enter["net"], enter["uts"], "--"]
        #: The beginning of a command that runs in it. The command's own process ends with the one that was started.
        self.inside = ["nsenter", *enter.values(), "--", "setpriv", "--pdeathsig", "KILL"]

    @property
    def pid(self):
        return self._holder.pid

    def do(self, *commands):
        """Runs commands one after the other, in its network. Returns their output."""
        return _do([*self._in_network, "sh", "-e", "-c", "\n".join(commands)])

    def enter(self):
        """A context in which this thread, and what it starts, is in this network (with the outer host name)."""
        return _network_of(f"/proc/{self._holder.pid}/ns/net")

    def end(self):
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()
        self._holder.stderr.close()


class Host(Namespace):
    """One host: its namespace, its number, and its addresses."""

    def __init__(self, number, rate, families):
        super().__init__(f"host{number}")
        self.number = number
        self.rate = rate
        self.families = families
        self.v4, self.v6 = self.address_of(4), self.address_of(6)

    def address_of(self, family, last=2):
        return f"10.77.{self.number}.{last}" if family == 4 else f"fd77:0:0:{self.number}::{last}"

    @property
    def address(self):
        """The address that other hosts reach it by; in a network that has both families, the IPv4 one."""
        return self.v4 if 4 in self.families else self.v6

    def listener(self):
        """A TCP socket that listens at this host's address, at any port."""
        made = []

        def listen():
            with self.enter():
                made.append(socket.create_server((self.address, 0), family=socket.AF_INET if 4 in self.families else socket.AF_INET6))

        thread = threading.Thread(target=listen)  # so that a failure on the way back cannot leave this thread there
        thread.start()
        thread.join()
        return made[0]

    def routes(self):
        """The commands that make the router this host's way to the others."""
        ways = {4: f"ip route replace default via 10.77.{self.number}.1", 6: f"ip -6 route replace default via fd77:0:0:{self.number}::1"}
        return [ways[family] for family in self.families]


class Hosts:
    """`count` hosts and the router between them.

    rate      bytes per second of each line, in each direction; None: as fast as the machine is
    families  (4,), (6,) or both: the families of the addresses beyond loopback
    """

    def __init__(self, count, rate=None, families=(4,)):
        self._all = []
        try:
            self.router = self._add(Namespace("router"))
            settings = ("ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/all/keep_addr_on_down")
            self.router.do(*(f"echo 1 > /proc/sys/net/{name}" for name in settings))
            self.hosts = [self._add(Host(number, rate, families)) for number in range(count)]
            for host in self.hosts:
                self._connect(host)
        except BaseException:
            self.end()
            raise

    def _add(self, namespace):
        self._all.append(namespace)
        return namespace

    def _connect(self, host):
        number, port = host.number, f"h{host.number}"
        self.router.do(f"ip link add {port} type veth peer name eth0 netns {host.pid}")
        ends = {4: (f"10.77.{number}.1/24", f"{host.v4}/24"), 6: (f"fd77:0:0:{number}::1/64", f"{host.v6}/64")}
        more = {4: "", 6: " nodad"}
        self.router.do(*(f"ip address add {ends[family][0]} dev {port}{more[family]}" for family in host.families), f"ip link set {port} up")
        host.do(*(f"ip address add {ends[family][1]} dev eth0{more[family]}" for family in host.families), "ip link set eth0 up", *host.routes())
        if host.rate is not None:
            self.set_rate(number, host.rate)

    def __getitem__(self, number):
        return self.hosts[number]

    def __len__(self):
        return len(self.hosts)

    def set_rate(self, number, rate):
        """Changes the rate of a host's line, in bytes per second, in both directions. Its queues hold what it sends in a
        tenth of a second or so, and drop what comes on top. On a slow line, packets are no larger than on a real one."""
        queue = BURST + int(rate) // 10
        for end, device in ((self.router, f"h{number}"), (self.hosts[number], "eth0")):
            end.do(shaping(device, rate, queue), f"ip link set {device} gso_max_segs {1 if rate < SLOW else 65535}")

    def cut(self, number):
        """Packets to and from the host vanish silently, as on a line that broke somewhere in the network."""
        self.router.do(*self._cuts("add", number))

    def heal(self, number):
        self.router.do(*self._cuts("del", number))

    def unplug(self, number):
        """The host's device loses its carrier, and the router answers others that there is no way to it."""
        self.router.do(f"ip link set h{number} down")

    def plug(self, number):
        self.router.do(f"ip link set h{number} up")

    def _cuts(self, verb, number):
        nets = {4: f"10.77.{number}.0/24", 6: f"fd77:0:0:{number}::/64"}
        return [f"ip -{family} rule {verb} {end} blackhole" for family in self.hosts[number].families
                for end in (f"iif h{number}", f"to {nets[family]}")]

    def block(self, source, target, port=None):
        """The router drops packets from one host to another: all, or those to a TCP port."""
        self.router.do(*self._rules("add", source, target, port))

    def unblock(self, source, target, port=None):
        self.router.do(*self._rules("del", source, target, port))

    def _rules(self, verb, source, target, port):
        only = f" ipproto tcp dport {port}" if port else ""
        nets = {4: f"ip -4 rule {verb} iif h{source} to 10.77.{target}.0/24", 6: f"ip -6 rule {verb} iif h{source} to fd77:0:0:{target}::/64"}
        return [f"{nets[family]}{only} blackhole" for family in self.hosts[source].families]

    def change_address(self, number, last):
        """The host's old address vanishes, and it gets another one of its net. Returns the new one."""
        host = self.hosts[number]
        family = host.families[0]
        length = 24 if family == 4 else 64
        new = host.address_of(family, last)
        host.do(f"ip address del {host.address}/{length} dev eth0", f"ip address add {new}/{length} dev eth0", *host.routes())
        host.v4, host.v6 = (new, host.v6) if family == 4 else (host.v4, new)
        return new

    def crossed(self, number):
        """(bytes that a host has sent over its line, bytes that came over it), with all headers."""
        shown = json.loads(self.router.do(f"ip -s -j link show dev h{number}"))[0]["stats64"]
        return shown["rx"]["bytes"], shown["tx"]["bytes"]

    def end(self):
        for namespace in self._all:
            namespace.end()
        self._all = []


class NarrowLine:
    """A network whose loopback device passes `rate` bytes per second. Until end(), all processes that this thread starts
    are in it."""

    def __init__(self, rate, *commands):
        self._stack = contextlib.ExitStack()
        try:
            self._namespace = Namespace("narrow")
            self._stack.callback(self._namespace.end)
            self._namespace.do(shaping("lo", rate), *commands)
            self._stack.enter_context(self._namespace.enter())
        except BaseException:
            self._stack.close()
            raise

    def end(self):
        self._stack.close()
