"""Which device of its machine a process uses."""

import json
import os

from . import capi
from .errors import Error

# Set by Open MPI, Intel MPI and MPICH (Hydra), MVAPICH, torchrun, Slurm.
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK",
                "SLURM_LOCALID")


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
