"""Requests: unfinished calls to wait for, to test or to await."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generator, Optional

from . import capi
from .arrays import milliseconds
from .errors import Error, HandleError, StateError, TimeoutError
from .handles import Handle

if TYPE_CHECKING:
    from .watch import Watch


class Request(Handle):
    """An unfinished call, from Table.get_async(), Table.add_async() and the like. Wait for it, or `await` it.

    Threads and tasks may wait for one request at the same time; all get its outcome.

    A dropped request continues. Its outcome is lost, except for the error of an add: the next call on the table,
    barrier() or shutdown() raises it.
    """

    _instead = "wait for it here, and pass the result of wait()"

    def __init__(self, node: int, handle: int, result: Any = None) -> None:
        self._handle: Optional[int] = handle
        self._node = node
        self._result = result
        self._error: Optional[Error] = None
        self._turn = threading.Lock()  # of the thread that asks the library: it tells only one that a request has finished
        self._watch: Optional[Watch] = None  # once somebody awaits it

    def __del__(self, _release: Any = capi.mv_request_release) -> None:
        if self._handle is not None:
            try:
                _release(self._handle)
            except Exception:  # the node is closed, or this is a forked child
                pass

    @property
    def handle(self) -> Optional[int]:
        """The mv_request; None once it has finished."""
        return self._handle

    def done(self) -> bool:
        """Whether it has finished, successfully or not. Never waits, and never raises the call's own error."""
        if self._handle is not None and self._turn.acquire(blocking=False):  # otherwise another thread waits for it
            try:
                if self._handle is not None and capi.mv_request_test(self._handle):
                    self._finish(None)
            except Error as error:
                self._finish(error)
            finally:
                self._turn.release()
        return self._handle is None

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits, and returns the call's result: the array of a get, None for an add.

        timeout: seconds to wait here; None = as long as the call's own deadline allows. After a
        TimeoutError the request is still running.
        """
        handle = self._handle
        if handle is not None:
            if self._turn.locked():
                _check_process(handle)
            if not self._turn.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
                raise TimeoutError(capi.MV_ETIMEOUT, "the request has not finished; another thread waits for it, too")
            try:
                if self._handle is not None:
                    capi.mv_request_wait(self._handle, milliseconds(timeout))
                    self._finish(None)
            except Error as error:
                if self._alive():
                    raise
                self._finish(error)
            finally:
                self._turn.release()
        if self._error is not None:
            raise self._error
        return self._result

    def _finish(self, error: Optional[Error]) -> None:
        """The library reports an outcome once, and has reported it to this thread."""
        handle, self._handle = self._handle, None
        if handle is not None and self._error is None:
            self._error = error
        if handle is not None and self._watch is not None:
            self._watch.hand_over(handle)

    def cancel(self) -> None:
        """Withdraws the call. An add may have been applied nevertheless."""
        handle = self._handle
        if handle is not None:
            capi.mv_request_cancel(handle)
            self._finish(Error(capi.MV_ECANCELED))

    def _alive(self) -> bool:
        try:
            capi.mv_request_error(self._handle)
        except HandleError:
            return False
        except Error:
            pass
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        handle = self._handle
        if handle is not None and not self.done():
            from .watch import watch_of  # asyncio takes most of the time of an import

            self._watch = watch_of(self._node)
            with self._watch.finished(handle) as finished:
                # Test again after the registration: the request may have finished in between.
                if not self.done():
                    yield from finished.__await__()
            if not self._has_node():
                self._finish(StateError(capi.MV_ESTATE, "the node has shut down"))
        try:
            return self.wait()
        except HandleError:
            if self._has_node():
                raise
            raise StateError(capi.MV_ESTATE, "the node has shut down") from None

    def _has_node(self) -> bool:
        try:
            capi.mv_rank(self._node)
        except (HandleError, StateError):
            return False
        return True

    def __repr__(self) -> str:
        return f"<polyverso.Request {'finished' if self._handle is None else 'unfinished'}>"


def _check_process(handle: int) -> None:
    """Raises in a forked child: the thread that held the lock of this request at the fork is not there to release it."""
    try:
        capi.mv_request_error(handle)
    except Error as error:
        if error.status == capi.MV_EFORK:
            raise
