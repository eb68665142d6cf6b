"""Theano's shared variables with a table behind each: of Theano 1.0.5, aesara or pytensor, whichever is installed.

    W = sharedvar.mv_shared(value=numpy.zeros((n_in, n_out), dtype=theano.config.floatX), name="W", borrow=True)
    ...                                  # train
    W.mv_sync()                          # add this worker's change to the table, and take the sum of all workers'
    sharedvar.sync_all_mv_shared_vars()  # the same for every variable that mv_shared() made
"""

from typing import Any, Dict, List, Tuple, Type

import numpy as np

from polyverso import capi
from polyverso.errors import StateError

from . import graph_library
from .synced import SyncedArray

_library = graph_library.find()


def _mv_sync(self: Any) -> None:
    """Adds the change of the value since the last sync to the table, and sets the value to the table's. Raises
    polyverso.StateError for a copy by pickle or copy, which has no table."""
    synced = self.tag.synced
    if synced is None:
        raise StateError(capi.MV_ESTATE, f"{self!s}: a pickled or copied variable has no table; make a new "
                                   "one with mv_shared(value=variable.get_value())")
    value = self.get_value(borrow=True)
    latest = synced.sync(np.asarray(value))
    if isinstance(value, np.ndarray) and value.flags.writeable and value.dtype == latest.dtype:
        np.copyto(value, latest)  # on the CPU this is the variable's own memory: set_value() would allocate a copy
    else:
        self.set_value(latest)


def _reduce_ex(self: Any, protocol: Any) -> Tuple[Any, ...]:
    original = type(self).__mro__[1]
    _, _, *rest = original.__reduce_ex__(self, max(2, protocol))
    return _restore, (original,), *rest


_classes: Dict[type, type] = {}


def _class_for(original: type) -> type:
    """The library's own class of shared variables with mv_sync(). It has no other base, so that a variable may change
    to it. One for each `original`."""
    if original not in _classes:
        members = {"__doc__": original.__doc__, "mv_sync": _mv_sync, "__reduce_ex__": _reduce_ex}
        _classes[original] = type("MV" + original.__name__, (original,), members)
    return _classes[original]


def _restore(original: Type[Any]) -> Any:
    made = _class_for(original)
    return made.__new__(made)


def mv_shared(*args: Any, **kwargs: Any) -> Any:
    """theano.shared() with the same arguments, whose variable has a table: see mv_sync(). Collective: every worker
    makes the same variables in the same order, after multiverso.init(). The value is the master worker's on all
    workers when this returns. The table has the value's dtype: with floatX=float32, as Multiverso's tables.

    Raises TypeError for values that are no arrays of numbers, polyverso.StateError without init()."""
    variable = _library.shared(*args, **kwargs)
    value = variable.get_value(borrow=True)
    if not isinstance(value, (np.ndarray, np.generic, float, int)):
        raise TypeError(f"mv_shared: a table holds arrays of numbers, not a {type(value).__name__}")
    made = mv_shared.shared_vars  # type: ignore[attr-defined]
    label = f'the shared variable "{variable.name}"' if variable.name else f"mv_shared.shared_vars[{len(made)}]"
    synced = SyncedArray(np.asarray(value), label)
    variable.set_value(synced.latest)
    variable.__class__ = _class_for(type(variable))
    variable.tag.synced = synced  # clones have it, too
    made.append(variable)
    return variable


mv_shared.shared_vars: List[Any] = []  # type: ignore[attr-defined]  # all variables, as in Multiverso


def sync_all_mv_shared_vars() -> None:
    """mv_sync() of every variable that mv_shared() has made since init(). Every worker calls it."""
    capi.mv_rank(0)  # an error without init()
    made = mv_shared.shared_vars  # type: ignore[attr-defined]
    made[:] = [variable for variable in made if variable.tag.synced.is_open()]
    for variable in made:
        variable.mv_sync()
