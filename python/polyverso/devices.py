"""Devices for tensors, and which device of its machine a process uses."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Union

from . import capi
from .errors import Error

# Set by Open MPI, Intel MPI and MPICH (Hydra), MVAPICH, torchrun, Slurm.
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK",
                "SLURM_LOCALID")


class Device:
    """A device, by its name, "cuda:0", its number, or "cpu", this machine's memory. Nothing is opened until it is used;
    where the plug-in, the driver or the device is missing, its first use says what to do: docs/cuda.md."""

    __slots__ = ("number",)

    def __init__(self, device: Union[Device, str, int, None] = "cuda:0") -> None:
        if device is None:
            device = "cpu"
        #: The device's number, or -1 (capi.MV_HOST)
        self.number: int = (
            device.number if isinstance(device, Device) else device if isinstance(device, int) else capi.mv_device_find(str(device))
        )

    @staticmethod
    def count() -> int:
        """The number of devices: 0 without a plug-in or driver; Device(0).info() then says what is missing."""
        return capi.mv_device_count()

    def info(self) -> Dict[str, Any]:
        """The fields of mv_device_info."""
        return capi.mv_device_describe(self.number)

    def wait(self) -> None:
        """Waits until all work on it is done, and raises its errors."""
        capi.mv_device_wait(self.number)

    @property
    def stream(self) -> int:
        """The stream on which work is queued, a cudaStream_t as a number."""
        return capi.mv_device_current_stream(self.number)

    def set_stream(self, stream: int) -> None:
        """Queues all further work on this stream of the caller's, such as torch.cuda.current_stream().cuda_stream; 0: on
        the library's own."""
        capi.mv_device_set_stream(self.number, stream)

    def order(self, stream: int) -> None:
        """Lets later work of another stream begin after this library's work so far."""
        capi.mv_device_order(self.number, stream)

    def follow(self, stream: int) -> None:
        """Lets this library's further work begin after the work of another stream so far."""
        capi.mv_device_follow(self.number, stream)

    def __str__(self) -> str:
        return "cpu" if self.number < 0 else f"cuda:{self.number}"

    def __repr__(self) -> str:
        return f"Device('{self}')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)


def local_device() -> int:
    """The number of this process among the processes of its job on this machine, from 0: it uses the device of this
    number. May be called before any framework is imported, and before or after init().

    The launcher's own variable decides (mpirun, torchrun, srun). Otherwise, after init(), this worker's place among the
    workers on its machine does; without init(), POLYVERSO_RANK, and 0 if that is not set either.
    """
    for name in _LOCAL_RANKS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    try:
        return _place_among_workers_here()
    except Error:
        rank = os.environ.get("POLYVERSO_RANK", "")
        return int(rank) if rank.isdigit() else 0


def _place_among_workers_here() -> int:
    own = capi.mv_worker_id(0)
    members = json.loads(capi.mv_status_text(0, capi.MV_JSON))["members"]
    host = {member["worker"]: member["host"] for member in members if member["worker"] is not None}
    return sum(1 for worker in host if 0 <= worker < own and host[worker] == host[own])
