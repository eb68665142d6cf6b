"""Changes of a cluster's membership: mv_membership_next() in Python's words, with callbacks."""

from __future__ import annotations

import collections
import threading
from typing import Any, Callable, Deque, Dict, Optional

from . import capi
from .errors import TimeoutError as Timeout

KINDS = {
    capi.MV_MEMBER_JOINED: "joined",
    capi.MV_MEMBER_LEFT: "left",
    capi.MV_MEMBER_LOST: "lost",
    capi.MV_MEMBER_DRAINING: "draining",
    capi.MV_MEMBER_DRAINED: "drained",
    capi.MV_MEMBER_TOOK_OVER: "took_over",
}
_ROLES = {capi.MV_ROLE_WORKER: "worker", capi.MV_ROLE_SERVER: "server", capi.MV_ROLE_ALL: "all"}
_MOST = 256

Event = Dict[str, Any]


class News:
    """The events of a node that were not returned to its program yet."""

    def __init__(self) -> None:
        self.callback: Optional[Callable[[Event], Any]] = None
        self.taken: Deque[Event] = collections.deque(maxlen=_MOST)


_news: Dict[int, News] = {}
_lock = threading.Lock()


def news_of(node: int) -> News:
    with _lock:
        return _news.setdefault(node, News())


def forget(node: int) -> None:
    with _lock:
        _news.pop(node, None)


def _next(node: int, timeout_ms: int) -> Optional[Event]:
    try:
        event = capi.mv_membership_next(node, timeout_ms)
    except Timeout:
        return None
    event["kind"] = KINDS[event["kind"]]
    event["role"] = _ROLES.get(event["role"], "scheduler")
    if event["part"] < 0:
        del event["part"]
    return event


def next_event(node: int, timeout_ms: int) -> Optional[Event]:
    taken = news_of(node).taken
    return taken.popleft() if taken else _next(node, timeout_ms)


def hand_out(node: int) -> None:
    """After a poll: passes what has happened to the callback, or keeps it for next_event(), so that the descriptor is not readable for ever."""
    with _lock:
        news = _news.get(node)
    if news is None:
        return
    while (event := _next(node, 0)) is not None:
        news.taken.append(event)
    while news.callback is not None and news.taken:
        news.callback(news.taken.popleft())
