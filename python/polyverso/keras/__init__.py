"""Data-parallel training of Keras 3 models: callbacks for fit(), on the backends JAX and PyTorch (CPU).

    import polyverso
    import polyverso.keras

    with polyverso.init() as node:                                  # under polyverso run, mpirun, torchrun or srun
        mine = slice(node.worker_id, None, node.num_workers)        # each process trains on its part
        model.fit(x[mine], y[mine], callbacks=[polyverso.keras.AllReduceCallback()])

docs/keras.md is the guide.
"""

from ..gossip.keras import GossipCallback
from .callbacks import AllReduceCallback, DiLoCoCallback, LocalSGDCallback, ServerCallback
from .gradients import DistributedOptimizer

__all__ = ["AllReduceCallback", "DiLoCoCallback", "DistributedOptimizer", "GossipCallback", "LocalSGDCallback", "ServerCallback"]
