"""What the classes of handles have in common: they can't be copied to another object or process."""

from __future__ import annotations

import weakref
from typing import Any, Optional


class Handle:
    """Base class of objects that refer to something of this process by a number. The number means nothing, or
    something else, in another process, and one object alone closes or releases it."""

    _instead = "create another one in that process"  # of copying it
    is_closed = False  # by this object

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"this {type(self).__name__}"

    @property
    def _end(self) -> str:
        """For repr(), after an error of the library: what has ended this object."""
        return "closed" if self.is_closed else "after shutdown"

    def _copied_how(self) -> str:
        return self._instead

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a polyverso {type(self).__name__} belongs to this process: it can't be pickled or copied; {self._copied_how()}"
        )


_objects: "weakref.WeakValueDictionary[int, Handle]" = weakref.WeakValueDictionary()


def remember(number: int, handle: Handle) -> None:
    """Keeps the object's label for messages about the number, as long as the object lives."""
    _objects[number] = handle


def of_number(number: int) -> Optional[Handle]:
    """The object of a number that the library has never used twice."""
    return _objects.get(number)
