"""Servers in Python, in the style of `mx.kvstore_server`. The library runs the tables and optimizers; this program
executes the commands.

    node = polyverso.init(role="server")              # or from the environment
    kv = kvstore.create("dist")
    kvstore_server.KVStoreServer(kv, lambda head, body: print(head, body)).run()
    node.shutdown()

A process that a DMLC tracker started as server or scheduler (DMLC_ROLE) takes that role when it imports
polyverso.kvstore, also by `from polyverso import kv`: it serves until all workers have finished, and exits. Set its
controller before the import:

    from polyverso import kvstore_server
    kvstore_server.controller = lambda head, body: print(head, body)
    from polyverso import kv
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Callable, Optional

from .names import listing

if TYPE_CHECKING:
    from .kvstore import KVStore

__all__ = ["KVStoreServer", "controller"]
__dir__ = listing(__all__)

# controller(head, body)
Controller = Callable[[int, str], None]

# The controller of a process that becomes a server by importing polyverso.kvstore.
controller: Optional[Controller] = None


class KVStoreServer:
    """The server of a process that is only a server. run() executes the commands of KVStore.send_command().

    controller: its exception is reported to the sender, and printed here. Without a controller, commands are only
    printed, as in MXNet.
    """

    def __init__(self, kvstore: "KVStore", controller: Optional[Controller] = None) -> None:
        self.kvstore = kvstore
        self.controller = controller or globals()["controller"] or self._controller

    def _controller(self, head: int, body: str) -> None:
        print(f"server {self.kvstore.rank}, unknown command ({head}, {body})", flush=True)

    def _execute(self, head: int, body: str) -> None:
        try:
            self.controller(head, body)
        except Exception:
            traceback.print_exc()
            raise

    def run(self) -> None:
        """Serves until all workers have finished."""
        from .kvstore import serve

        serve(self.kvstore.node, self._execute)


def _init_kvstore_server_module() -> None:
    """Runs a process that a DMLC tracker started as server or scheduler, to its end."""
    if os.environ.get("DMLC_ROLE", "") not in ("server", "scheduler"):
        return
    from .kvstore import create
    from .node import init

    node = init()
    if node.server_id >= 0:
        KVStoreServer(create("dist")).run()
    node.shutdown()
    sys.exit(0)
