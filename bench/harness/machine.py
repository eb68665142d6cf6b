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


def numbers():
    """Vendor, family and model: two processors of one name, such as "Intel(R) Xeon(R) Processor", may differ in them."""
    known = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        known.setdefault(key.strip(), value.strip())
    vendor = known.get("vendor_id", os.uname().machine)
    short = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(vendor, vendor.lower())
    return short, known.get("cpu family", known.get("CPU architecture", "0")), known.get("model", known.get("CPU part", "0"))


def caches():
    """The data caches of the first CPU: [(level, size, how many of our CPUs share one)]. Size as Linux writes it: "480M"."""
    found = []
    for index in sorted(pathlib.Path(f"/sys/devices/system/cpu/cpu{cpus()[0]}/cache").glob("index*")):
        level, kind, size = ((index / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            sharers = expand((index / "shared_cpu_list").read_text(encoding="ascii").strip())
            found.append((int(level), shorter(size), len(sharers & set(cpus()))))
    return found


def expand(text):
    """ "0-2,5" as a set."""
    ends = [part.split("-") for part in text.split(",") if part]
    return {cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1)}


def shorter(size):
    """ "2048K" as "2 MiB"."""
    kibibytes = int(size.rstrip("K")) if size.endswith("K") else int(size.rstrip("M")) * 1024
    return f"{kibibytes // 1024} MiB" if kibibytes % 1024 == 0 else f"{kibibytes} KiB"


def kind():
    """A name for a file: machines with the same one have the same processor, caches and number of CPUs."""
    largest = caches()[-1] if caches() else (0, "unknown", 0)
    return "-".join([*numbers(), f"l{largest[0]}", largest[1].replace(" ", "").lower(), f"{len(cpus())}cpus"])


def describe_processor():
    vendor, family, number = numbers()
    levels = [f"L{level} {size}{f' for {sharers}' if sharers > 1 else ''}" for level, size, sharers in caches()]
    return ", ".join([f"{model()} ({vendor} family {family}, model {number})", f"{len(cpus())} CPUs", *levels])


def describe():
    return f"{describe_processor()}; {system()}, load {load():.1f}"


def system():
    return f"Linux {os.uname().release}"


def available_memory():
    """The bytes that new processes can take without swapping."""
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


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


def processor_seconds(pid):
    """The processor time of all threads of a process."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


def children(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text(encoding="ascii").split()]
