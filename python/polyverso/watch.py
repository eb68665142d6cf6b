"""Integration of requests with asyncio: mv_event_fd() wakes the event loop, mv_poll() returns the finished requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import Dict, Iterator, Tuple

from . import capi, membership

_AT_ONCE = 64


class Watch:
    """Passes each finished request of one node to the future that waits for it. It may belong to any event loop."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._fd = capi.mv_event_fd(node)
        self._lock = threading.Lock()
        self._waiting: Dict[int, asyncio.Future] = {}
        self._readers: Dict[asyncio.AbstractEventLoop, int] = {}

    @contextlib.contextmanager
    def finished(self, request: int) -> Iterator[asyncio.Future]:
        """A future of the running event loop, which is set when the request has finished."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            self._waiting[request] = future
            self._readers[loop] = self._readers.get(loop, 0) + 1
            if self._readers[loop] == 1:
                loop.add_reader(self._fd, self._hand_out)
        try:
            yield future
        finally:
            with self._lock:
                self._waiting.pop(request, None)
                self._readers[loop] -= 1
                if not self._readers[loop]:
                    del self._readers[loop]
                    loop.remove_reader(self._fd)

    def _hand_out(self) -> None:
        more = True
        while more:
            handles = capi.mv_poll(self._node, _AT_ONCE, 0)
            more = len(handles) == _AT_ONCE
            for handle in handles:
                with self._lock:
                    future = self._waiting.pop(handle, None)
                # A request that is not awaited is left to its owner's wait().
                if future is not None:
                    future.get_loop().call_soon_threadsafe(_set, future)
        membership.hand_out(self._node)


def _set(future: asyncio.Future) -> None:
    if not future.done():
        future.set_result(None)


_watches: Dict[Tuple[int, int, int], Watch] = {}
_watches_lock = threading.Lock()


def watch_of(node: int) -> Watch:
    """The Watch of a node. A forked child and a restarted node have Watches of their own."""
    key = (os.getpid(), node, capi.mv_event_fd(node))
    with _watches_lock:
        if key not in _watches:
            _watches[key] = Watch(node)
        return _watches[key]
