"""Properties of the machine that affect the figures."""

import os
import pathlib


def cpus():
    """The CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0))


def model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return os.uname().machine


def load():
    """The load average of the last minute; about 0 on an otherwise idle machine."""
    return os.getloadavg()[0]


def describe():
    return f"{model()}, {len(cpus())} CPUs, Linux {os.uname().release}, load {load():.1f}"


def memory(pid, name):
    """A field of /proc/PID/status in bytes: VmRSS, or VmHWM, its peak."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/status has no {name}")


def proportional_memory(pid):
    """Proportional set size in bytes: a page that n processes share counts 1/n."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/smaps_rollup has no Pss")


def forget_peak(pid):
    """Resets VmHWM, the peak, to the resident size."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")


def children(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text(encoding="ascii").split()]
