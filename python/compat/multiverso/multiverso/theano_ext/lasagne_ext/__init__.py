"""For Lasagne 0.1. Import it before lasagne: it recreates a module of older Theanos that Lasagne imports."""

from .. import graph_library

graph_library.restore_downsample()
