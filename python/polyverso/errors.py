"""The exceptions of polyverso: one class for each family of status codes in MV_STATUS_MAP of polyverso.h."""

from __future__ import annotations

import builtins

from . import capi
from .names import in_python, listing

__all__ = [
    "ArgumentError",
    "Error",
    "HandleError",
    "Interrupted",
    "NotFoundError",
    "OutOfStepError",
    "ParameterError",
    "PeerError",
    "StateError",
    "SystemFailure",
    "TimeoutError",
]
__dir__ = listing(__all__)


class Error(Exception):
    """Any failed call. `status` is the code (capi.MV_ESHAPE), `name` its name, `text` a sentence about this call."""

    def __init__(self, status: int, text: str = "") -> None:
        self.status = status
        self.name = capi.mv_status_name(status)
        self.text = text or capi.mv_status_message(status)
        super().__init__(status, self.text)

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"

    def rename(self, function: str, actual: str) -> None:
        """Replaces the name of a function in the text, for functions that share one of C."""
        self.text = self.text.replace(function, actual)
        self.args = self.status, self.text


class ArgumentError(Error, ValueError):
    """Invalid data or an invalid argument: shape, dtype, a row id, a name, a value that is not finite."""


class NotFoundError(ArgumentError, LookupError):
    """There is no such table, key, file, or checkpoint."""


class ParameterError(ArgumentError, TypeError):
    """A function has no parameter of this name."""


class HandleError(Error, ValueError):
    """The handle names no node, table or request, or one that is closed, or one of another kind."""


class StateError(Error, RuntimeError):
    """The call is not allowed now: before init, after shutdown, in a forked child, or against an earlier call."""


class TimeoutError(Error, builtins.TimeoutError):
    """The deadline passed."""


class PeerError(Error, ConnectionError):
    """Another process, or the connection to it, is lost."""

    def __init__(self, status: int, text: str = "") -> None:
        Error.__init__(self, status, text)

    # OSError formats two arguments differently.
    __str__ = Error.__str__


class OutOfStepError(Error, RuntimeError):
    """The workers of a sync-mode table do not make the same adds and gets."""


class Interrupted(Error):
    """A signal ended a wait that can't be resumed, and its handler did not raise."""


class SystemFailure(Error):
    """A failure on this machine: no memory, no descriptors, or a defect of the library."""


_FAMILIES = {
    "argument": ArgumentError,
    "handle": HandleError,
    "state": StateError,
    "timeout": TimeoutError,
    "peer": PeerError,
    "step": OutOfStepError,
    "interrupt": Interrupted,
    "system": SystemFailure,
}


def wrong_type(text: str) -> TypeError:
    """The exception for an argument of a wrong type; the C functions raise it."""
    return TypeError(in_python(text))


def from_status(status: int, text: str = "") -> Error:
    """The exception for a status; the C functions raise it."""
    if status == capi.MV_ENOTFOUND:
        return NotFoundError(status, in_python(text))
    return _FAMILIES.get(capi.mv_status_family(status), Error)(status, in_python(text))
