"""Requests: unfinished calls to wait for, to test or to await."""

from __future__ import annotations

from typing import Any, Generator, Optional

from . import capi
from .arrays import milliseconds
from .errors import Error, HandleError
from .handles import Handle


class Request(Handle):
    """An unfinished call, from Table.get_async(), Table.add_async() and the like. Wait for it, or `await` it.

    A dropped request continues. Its outcome is lost, except for the error of an add: the next call on the table,
    barrier() or shutdown() raises it.
    """

    _instead = "wait for it here, and pass the result of wait()"

    def __init__(self, node: int, handle: int, result: Any = None) -> None:
        self._handle: Optional[int] = handle
        self._node = node
        self._result = result
        self._error: Optional[Error] = None

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
        if self._handle is not None:
            try:
                if not capi.mv_request_test(self._handle):
                    return False
            except Error as error:
                self._error = error
            self._handle = None
        return True

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits, and returns the call's result: the array of a get, None for an add.

        timeout: seconds to wait here; None = as long as the call's own deadline allows. After a
        TimeoutError the request is still running.
        """
        if self._handle is not None:
            try:
                capi.mv_request_wait(self._handle, milliseconds(timeout))
            except Error as error:
                if self._alive():
                    raise
                self._error = error
            self._handle = None
        if self._error is not None:
            raise self._error
        return self._result

    def cancel(self) -> None:
        """Withdraws the call. An add may have been applied nevertheless."""
        if self._handle is not None:
            capi.mv_request_cancel(self._handle)
            self._error = Error(capi.MV_ECANCELED)
            self._handle = None

    def _alive(self) -> bool:
        try:
            capi.mv_request_error(self._handle)
        except HandleError:
            return False
        except Error:
            pass
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            from .watch import watch_of  # asyncio takes most of the time of an import

            with watch_of(self._node).finished(self._handle) as finished:
                # Test again after the registration: the request may have finished in between.
                if not self.done():
                    yield from finished.__await__()
        return self.wait()

    def __repr__(self) -> str:
        return f"<polyverso.Request {'finished' if self._handle is None else 'unfinished'}>"
