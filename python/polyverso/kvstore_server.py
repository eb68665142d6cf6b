"""Servers in Python, in the manner of `mx.kvstore_server`: tables and optimizers are the library's, commands come to this program.

    node = polyverso.init(role="server")              # or by the environment
    kv = kvstore.create("dist")
    kvstore_server.KVStoreServer(kv, lambda head, body: print(head, body)).run()
    node.shutdown()

A process that a DMLC tracker has made a server or the scheduler (DMLC_ROLE) becomes just that when it imports polyverso.kvstore, also as
`from polyverso import kv`: it serves until all workers have finished, and exits. A controller for it is set before that:

    from polyverso import kvstore_server
    kvstore_server.controller = lambda head, body: print(head, body)
    from polyverso import kv
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Callable, Optional

if TYPE_CHECKING:
    from .kvstore import KVStore

# controller(head, body)
Controller = Callable[[int, str], None]

# Of processes that importing polyverso.kvstore makes servers.
controller: Optional[Controller] = None


class KVStoreServer:
    """A process that is only a server, and executes the commands of KVStore.send_command() in the thread that calls run().

    controller: what one that raises is the sender's error, and printed here. Without any, commands are named, as MXNet does.
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
        """Until all workers have finished."""
        from .kvstore import serve

        serve(self.kvstore.node, self._execute)


def _init_kvstore_server_module() -> None:
    """Of a process that a DMLC tracker has started as server or scheduler, all there is to do."""
    if os.environ.get("DMLC_ROLE", "") not in ("server", "scheduler"):
        return
    from .kvstore import create
    from .node import init

    node = init()
    if node.server_id >= 0:
        KVStoreServer(create("dist")).run()
    node.shutdown()
    sys.exit(0)
