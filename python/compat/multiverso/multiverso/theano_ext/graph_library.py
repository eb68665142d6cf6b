"""Finds Theano or one of its successors, and makes Theano 1.0.5 and Lasagne 0.1 importable."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from typing import Any

NAMES = ("theano", "aesara", "pytensor")


def prepare() -> None:
    """Gives NumPy's build configuration the two names that Theano 1.0.5 reads at its import. Newer NumPy has dropped
    them. Does nothing without Theano, or where the names exist."""
    if "theano" in sys.modules or importlib.util.find_spec("theano") is None:
        return
    try:
        import numpy.distutils.__config__ as config
    except ImportError:  # NumPy without distutils, which Theano can't use
        return
    for name in ("blas_opt_info", "lapack_opt_info"):
        if not hasattr(config, name):
            setattr(config, name, {})


def find() -> Any:
    """The module theano, aesara or pytensor: what the program has imported already, otherwise the first of these that
    is installed. Raises ImportError if none is."""
    for name in NAMES:
        if name in sys.modules:
            return sys.modules[name]
    prepare()
    for name in NAMES:
        if importlib.util.find_spec(name) is not None:
            return importlib.import_module(name)
    raise ImportError("multiverso.theano_ext needs Theano 1.0.5, aesara or pytensor, and none of them is installed: "
                      "pip install pytensor")


_DOWNSAMPLE = "theano.tensor.signal.downsample"


class _Downsample(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the module of older Theanos that Lasagne 0.1 imports, from Theano's `pool`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name == _DOWNSAMPLE else None

    def exec_module(self, module: Any) -> None:
        pool = importlib.import_module("theano.tensor.signal.pool")

        def max_pool_2d(input: Any, ds: Any, ignore_border: Any = None, st: Any = None, padding: Any = (0, 0),
                        mode: str = "max") -> Any:
            return pool.pool_2d(input, ws=ds, ignore_border=ignore_border, stride=st, pad=padding, mode=mode)

        module.__doc__ = "Pooling by its former names."
        module.max_pool_2d = max_pool_2d
        module.max_pool_2d_same_size = pool.max_pool_2d_same_size
        module.DownsampleFactorMax = pool.Pool


def restore_downsample() -> None:
    """From now on `theano.tensor.signal.downsample` can be imported. A Theano that has this module keeps its own."""
    if not any(isinstance(finder, _Downsample) for finder in sys.meta_path):
        sys.meta_path.append(_Downsample())
