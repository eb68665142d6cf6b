"""Finds the modules `multiverso` and `dpwa` of polyverso-compat where no real ones are installed.

polyverso_compat.pth imports this at the start of Python. The modules lie in a folder that is on no search path, so that
pip never overwrites the files of a real distribution by ours or ours by its; and the finder is asked after all others,
so that an import takes the real module wherever it is.
"""

import importlib.machinery
import os
import sys

_FOLDER = os.path.join(os.path.dirname(__file__), "modules")
_MODULES = ("dpwa", "multiverso")


class _Finder:
    """The last entry of sys.meta_path, or one that behaves as if it were the last."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in _MODULES:
            return None
        later = sys.meta_path[sys.meta_path.index(cls) + 1 :] if cls in sys.meta_path else []
        for finder in later:  # such as that of an editable installation, which starts after this
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return spec
        return importlib.machinery.PathFinder.find_spec(name, [_FOLDER])


def install():
    """Adds the finder, once."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
