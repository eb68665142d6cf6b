"""Finds Theano or one of its successors, and makes Theano 1.0.5 and Lasagne 0.1 importable."""

import importlib
import importlib.util
import sys
import types
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


def restore_downsample() -> None:
    """Recreates `theano.tensor.signal.downsample`, which Lasagne 0.1 imports, from Theano's `pool`."""
    prepare()
    if importlib.util.find_spec("theano") is None:
        raise ImportError("Lasagne needs Theano 1.0.5, which is not installed: pip install Theano==1.0.5 'numpy<1.24'")
    name = "theano.tensor.signal.downsample"
    signal = importlib.import_module("theano.tensor.signal")
    if hasattr(signal, "downsample"):
        return
    pool = importlib.import_module("theano.tensor.signal.pool")

    def max_pool_2d(input: Any, ds: Any, ignore_border: Any = None, st: Any = None, padding: Any = (0, 0),
                    mode: str = "max") -> Any:
        return pool.pool_2d(input, ws=ds, ignore_border=ignore_border, stride=st, pad=padding, mode=mode)

    downsample = types.ModuleType(name, "Pooling by its former names.")
    downsample.max_pool_2d = max_pool_2d  # type: ignore[attr-defined]
    downsample.max_pool_2d_same_size = pool.max_pool_2d_same_size  # type: ignore[attr-defined]
    downsample.DownsampleFactorMax = pool.Pool  # type: ignore[attr-defined]
    sys.modules[name] = signal.downsample = downsample
