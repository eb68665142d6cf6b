"""PyTorch over the library: a backend of torch.distributed, and training with parameter servers or rare exchanges.

    import polyverso.torch
    import torch.distributed as dist

    dist.init_process_group("polyverso")        # under torchrun, polyverso run, mpirun or srun
    model = torch.nn.parallel.DistributedDataParallel(model)

For PyTorch 1.13 and later, tensors on the CPU. docs/pytorch.md is the guide.
"""

import inspect as _inspect

from .._extras import advice as _advice

try:
    import torch.distributed as _dist
except ModuleNotFoundError as _missing:
    raise _advice(_missing, "torch") from None

from . import rendezvous as _rendezvous
from .process_group import ProcessGroup, create as _create
from .training import CompressedGradients, DiLoCo, ElasticAveraging, LocalSGD, ParameterServer, ServerOptimizer

__all__ = ["CompressedGradients", "DiLoCo", "ElasticAveraging", "LocalSGD", "ParameterServer", "ProcessGroup", "ServerOptimizer"]

# Earlier versions know no devices.
_for_devices = {"devices": ["cpu", "cuda"]} if "devices" in _inspect.signature(_dist.Backend.register_backend).parameters else {}
_dist.Backend.register_backend("polyverso", _create, **_for_devices)
_rendezvous.set_variables()
_rendezvous.accept_clusters()
