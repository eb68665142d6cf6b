"""Multiverso's extensions for Theano, Lasagne and Keras.

    from multiverso.theano_ext import sharedvar                       # Theano, aesara or pytensor
    from multiverso.theano_ext.lasagne_ext import param_manager       # Lasagne
    from multiverso.theano_ext.keras_ext.callbacks import MVCallback  # Keras 3
    from multiverso.theano_ext import param_manager                   # the base class, for any framework

Importing this package imports none of the frameworks. It makes Theano 1.0.5 and Lasagne 0.1 importable, if they are
installed.
"""

from . import graph_library

graph_library.prepare()
graph_library.restore_downsample()
