"""What the other processes hear when this one fails: the exception that ended its part of the work."""

from __future__ import annotations

import atexit
import contextlib
import sys
from typing import Iterator, Optional, Set

from . import capi
from .errors import Error

_LONGEST = 500

# The nodes of open_node() that have not ended. mv_init()'s is 0, whoever has called it.
_opened: Set[int] = set()


def opened(node: int) -> None:
    """For a node that has begun."""
    _opened.add(node)


def ended(node: int) -> None:
    """For a node that has shut down."""
    _opened.discard(node)


def is_failure(error: Optional[BaseException]) -> bool:
    """Whether an exception that ends a block means that its work is not done. exit(0) and the close() of a generator
    mean no failure."""
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return error is not None and not isinstance(error, GeneratorExit)


def reason_of(error: BaseException) -> str:
    """The type and the text of an exception, as one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # of a __str__() of the program's own
        text = ""
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    line = line.encode("utf-8", "backslashreplace").decode()  # the name of a file may have surrogates
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def report(error: BaseException) -> int:
    """Gives the exception of a callback to the errors that it causes, also in other processes. Returns the status that
    the callback ends with."""
    with contextlib.suppress(Error):  # no memory: the errors have the status only
        capi.mv_callback_error(reason_of(error))
    return error.status if isinstance(error, Error) else capi.MV_EINVAL


def abort(node: int, reason: str) -> None:
    """Leaves the cluster as lost; nothing if the node has ended. Never raises: another error is under way."""
    ended(node)
    with contextlib.suppress(Error):  # a forked child, whose parent has the node
        capi.mv_abort(node, reason)


@contextlib.contextmanager
def unless_forked() -> Iterator[None]:
    """For the end of a block: a child that was forked inside of it has nothing to close, its parent does so."""
    try:
        yield
    except Error as failure:
        if failure.status != capi.MV_EFORK:
            raise


def _at_exit() -> None:
    """An uncaught exception ends the process. Without one, the library's own exit handler looks at the exit status."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if sys.flags.interactive or hasattr(sys, "ps1") or not is_failure(error):
        return
    for node in (0, *_opened):
        abort(node, reason_of(error))


atexit.register(_at_exit)
