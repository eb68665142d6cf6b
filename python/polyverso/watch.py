"""Integration of requests with asyncio: mv_event_fd() wakes the event loop, mv_poll() returns the finished requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import Dict, Iterator, List, Tuple

from . import capi, membership
from .errors import HandleError, StateError

_AT_ONCE = 64


class Watch:
    """Passes each finished request of one node to the futures that wait for it. They may belong to any event loops."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._fd = capi.mv_event_fd(node)
        self._lock = threading.Lock()
        self._waiting: Dict[int, List[asyncio.Future]] = {}
        self._readers: Dict[asyncio.AbstractEventLoop, int] = {}

    @contextlib.contextmanager
    def finished(self, request: int) -> Iterator[asyncio.Future]:
        """A future of the running event loop, which is set when the request has finished."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            if loop not in self._readers:
                loop.add_reader(self._fd, self._hand_out)  # first: some loops raise NotImplementedError
            self._waiting.setdefault(request, []).append(future)
            self._readers[loop] = self._readers.get(loop, 0) + 1
        try:
            yield future
        finally:
            with self._lock:
                futures = self._waiting.get(request, [])
                if future in futures:
                    futures.remove(future)
                    if not futures:
                        del self._waiting[request]
                self._readers[loop] -= 1
                if not self._readers[loop]:
                    del self._readers[loop]
                    loop.remove_reader(self._fd)

    def _hand_out(self) -> None:
        more = True
        while more:
            try:
                handles = capi.mv_poll(self._node, _AT_ONCE, 0)
            except (HandleError, StateError):  # the node has ended
                return self.end()
            more = len(handles) == _AT_ONCE
            for handle in handles:
                self.hand_over(handle)
        membership.hand_out(self._node)

    def hand_over(self, handle: int) -> None:
        """The request has finished. One that is not awaited is left to its owner's wait()."""
        with self._lock:
            futures = self._waiting.pop(handle, [])
        _wake(futures)

    def end(self) -> None:
        """The node has ended, and its descriptor will not be readable again."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            _wake(futures)


def _wake(futures: List[asyncio.Future]) -> None:
    for future in futures:
        with contextlib.suppress(RuntimeError):  # its loop is closed
            future.get_loop().call_soon_threadsafe(_set, future)


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


def forget(node: int) -> None:
    """For a node that has ended: wakes the tasks that still await its requests."""
    with _watches_lock:
        ended = [_watches.pop(key) for key in list(_watches) if key[:2] == (os.getpid(), node)]
    for watch in ended:
        watch.end()
