"""For Lasagne 0.1 on Theano 1.0.5."""

import importlib.util

if importlib.util.find_spec("theano") is None:
    raise ImportError("Lasagne needs Theano 1.0.5, which is not installed: pip install Theano==1.0.5 'numpy<1.24'")
