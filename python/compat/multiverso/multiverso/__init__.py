"""Multiverso's Python API, on polyverso.

    import multiverso as mv

    mv.init(sync=True)
    table = mv.ArrayTableHandler(100, initial_values)
    table.add(gradient)
    values = table.get()
    mv.shutdown()
"""

from polyverso.names import listing as _listing

from .api import barrier, init, is_master_worker, server_id, shutdown, worker_id, workers_num
from .tables import ArrayTableHandler, MatrixTableHandler, TableHandler

__all__ = [
    "ArrayTableHandler",
    "MatrixTableHandler",
    "TableHandler",
    "barrier",
    "init",
    "is_master_worker",
    "server_id",
    "shutdown",
    "worker_id",
    "workers_num",
]
__dir__ = _listing(__all__, "__path__")
