"""What an operation of the backend returns: torch.distributed's Work, over a request of the library."""

from __future__ import annotations

import atexit
import datetime
import queue
import threading
import time
import weakref
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

from ..errors import Error, TimeoutError


class Work(dist.Work):
    """An operation of a process group. `finish` runs once when it has succeeded, with the request's result: it copies
    results to where the caller wants them. Any thread may wait."""

    # Most works have no values of their own here.
    _error: Optional[Error] = None
    _source: Optional[int] = None
    _future: Optional[torch.futures.Future] = None

    def __init__(self, futures: Futures, request: Any, tensors: List[Any], finish: Optional[Callable[[Any], None]] = None) -> None:
        super().__init__()
        self._futures = futures
        self._request = request  # None: it has ended
        self._tensors = tensors
        self._finish = finish
        self._lock = threading.Lock()

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        """Waits until the tensors have their results. Raises the operation's error. After `timeout` it raises
        TimeoutError, and the operation continues."""
        self.settle(timeout.total_seconds() if timeout else None)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        request = self._request
        if request is not None and self._lock.acquire(blocking=False):
            try:
                if self._request is not None and self._request.done():
                    self._wait(None)
            finally:
                self._lock.release()
        elif request is not None and not _is_running(request):
            with self._lock:  # the thread that waits for it is about to end it. Two must not: the first one releases the request
                pass
        return self._request is None

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Error]:
        return self._error

    def result(self) -> List[Any]:
        return self._tensors

    def source_rank(self) -> int:
        """The rank whose message a receive from any rank has received."""
        if self._source is None:
            raise RuntimeError("work.source_rank() is for a finished receive from any rank")
        return self._source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future:
        """A future of the tensors, as DistributedDataParallel needs it."""
        with self._lock:
            if self._future is None:
                ended: torch.futures.Future = torch.futures.Future()
                # Only an exception in then() is an error for C++, too.
                self._future = ended.then(_outcome)
                self._futures.put(self, ended)
        return self._future

    def settle(self, seconds: Optional[float] = None) -> Optional[Error]:
        """Waits until it has ended. Returns its error."""
        if not self._lock.acquire(timeout=-1 if seconds is None else seconds):
            raise _still_running(seconds)
        try:
            if self._request is not None:
                self._wait(seconds)
        finally:
            self._lock.release()
        return self._error

    def _wait(self, seconds: Optional[float]) -> None:
        try:
            result = self._request.wait(seconds)
        except Error as error:
            if self._request.handle is not None:  # this wait has failed, not the operation
                raise
            self._error = error
        else:
            if self._finish is not None:
                self._finish(result)
        self._request = self._finish = None


def _is_running(request: Any) -> bool:
    """Whether a request is unfinished for which another thread waits."""
    from .. import capi

    handle = request.handle
    if handle is None:
        return False
    try:
        capi.mv_request_error(handle)
    except Error as error:
        return error.status == capi.MV_EPENDING
    return False


def _still_running(seconds: Optional[float]) -> TimeoutError:
    from .. import capi

    return TimeoutError(capi.MV_ETIMEOUT, f"work.wait(): not finished within {seconds} s; the operation continues")


def _outcome(ended: torch.futures.Future) -> List[Any]:
    error, tensors = ended.value()
    if error is not None:
        raise error
    return tensors


class Message(Work):
    """A send or a receive. It may end later than works that were begun after it."""


class Received(Message):
    """A receive from any rank. The result of its request is the sender's rank."""

    def __init__(self, futures: Futures, request: Any, tensors: List[Any], write_back: Callable[[], None]) -> None:
        super().__init__(futures, request, tensors, self._received)
        self._write_back = write_back

    def _received(self, source: int) -> None:
        self._source = source
        self._write_back()


class Call:
    """A blocking call as a request: its first wait makes it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.handle: Optional[int] = 0

    def done(self) -> bool:
        return self.handle is None

    def wait(self, timeout: Optional[float] = None) -> Any:
        self.handle = None
        return self._function()


_running: weakref.WeakSet[Futures] = weakref.WeakSet()


@atexit.register
def _end_threads() -> None:
    """A thread that is inside PyTorch's C++ when the interpreter ends would abort the process. One that still waits for
    another rank is outside of it, and is left alone."""
    for futures in list(_running):
        futures.close(0.2)


class Futures:
    """Sets the futures of a group's operations on threads of its own. One thread waits for the operations, in the order in
    which their futures were asked for, and sets them in this order: callbacks of one future run before those of the next.
    Callbacks may wait for other futures: if one asks for a future itself, or takes longer than `_PATIENCE`, another thread
    takes over. A message has a thread for itself, because it may end later than what follows it."""

    _PATIENCE = 0.5  # seconds

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue = queue.SimpleQueue()
        self._threads: List[threading.Thread] = []
        self._ready = 0  # threads of the queue that are not in callbacks
        self._is_closed = False
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of the thread that takes the next from the queue, and waits for its operation
        self._last = threading.Event()  # set once the callbacks of the last future that was taken have run
        self._last.set()
        self._mine = threading.local()  # .done: the event of the future whose callbacks this thread runs

    def put(self, work: Work, ended: torch.futures.Future) -> None:
        done = getattr(self._mine, "done", None)
        if done is not None:
            done.set()  # a callback will wait for this future
        with self._lock:
            is_closed = self._is_closed
            if not is_closed and isinstance(work, Message):
                self._start(self._serve_one, work, ended)
            elif not is_closed:
                self._asked.put((work, ended))
                self._have_one_ready()
        if is_closed:
            self._serve_one(work, ended)

    def close(self, seconds: Optional[float] = None) -> None:
        """Ends the threads, and waits for their end, at most so many seconds. Call it when no operation can run any more."""
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, []
            for _ in threads:
                self._asked.put(None)
        until = None if seconds is None else time.monotonic() + seconds
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(None if until is None else max(0.0, until - time.monotonic()))

    def _start(self, function: Callable[..., None], *arguments: Any) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=function, args=arguments, name="polyverso futures", daemon=True)
        thread.start()
        self._threads.append(thread)
        _running.add(self)

    def _have_one_ready(self) -> None:
        if self._ready == 0 and not self._is_closed and not self._asked.empty():
            self._ready += 1
            self._start(self._serve)

    def _serve(self) -> None:
        while True:
            with self._turn:
                asked = self._asked.get()
                if asked is None:
                    return
                work, ended = asked
                error = self._settled(work)
                before, self._last = self._last, threading.Event()
                self._mine.done = self._last
            with self._lock:
                self._ready -= 1
                self._have_one_ready()
            before.wait(self._PATIENCE)
            ended.set_result((error, work.result()))
            self._mine.done.set()
            self._mine.done = None
            del asked, work, ended  # the tensors
            with self._lock:
                self._ready += 1

    def _serve_one(self, work: Work, ended: torch.futures.Future) -> None:
        ended.set_result((self._settled(work), work.result()))

    @staticmethod
    def _settled(work: Work) -> Optional[BaseException]:
        try:
            return work.settle()
        except BaseException as failure:  # of copying the results
            return failure
