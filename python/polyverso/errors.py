"""The exceptions of polyverso: one class for each family of statuses in MV_STATUS_MAP of polyverso.h."""

from __future__ import annotations

import builtins

from . import capi


class Error(Exception):
    """Any failed call: `status` is the number (capi.MV_ESHAPE), `name` its name, `text` a sentence about this call."""

    def __init__(self, status: int, text: str = "") -> None:
        self.status = status
        self.name = capi.mv_status_name(status)
        self.text = text or capi.mv_status_message(status)
        super().__init__(status, self.text)

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class ArgumentError(Error, ValueError):
    """The data or an argument does not fit: shape, dtype, a row id, a name, a value that is not finite."""


class HandleError(Error, ValueError):
    """No such node, table or request, or it is closed, or of another kind."""


class StateError(Error, RuntimeError):
    """The call does not fit the moment: before init, after shutdown, in a forked child, against an earlier one."""


class TimeoutError(Error, builtins.TimeoutError):
    """The deadline passed."""


class PeerError(Error, ConnectionError):
    """Another process, or the way to it, is gone."""

    def __init__(self, status: int, text: str = "") -> None:
        Error.__init__(self, status, text)

    # OSError has its own idea of str() for two arguments.
    __str__ = Error.__str__


class OutOfStepError(Error, RuntimeError):
    """In sync mode the workers do not make the same adds and gets."""


class Interrupted(Error):
    """A signal, whose handler did not raise, ended a wait that can't be resumed."""


class SystemFailure(Error):
    """This machine refused: memory, descriptors, or a defect of the library."""


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


def from_status(status: int, text: str = "") -> Error:
    """The exception for a status; the C functions raise what this returns."""
    return _FAMILIES.get(capi.mv_status_family(status), Error)(status, text)
