"""Logistic regression in Theano, aesara or pytensor, each parameter with a table of its own.

    python3 examples/multiverso/theano_logistic_regression.py
    polyverso run -n 4 -- python3 examples/multiverso/theano_logistic_regression.py
    mpirun -np 4 python3 examples/multiverso/theano_logistic_regression.py
"""

import importlib

import common
import multiverso as mv
import numpy as np

mv.init()
from multiverso.theano_ext import graph_library, sharedvar  # noqa: E402

theano = graph_library.find()
T = importlib.import_module(f"{theano.__name__}.tensor")

settings = common.options(epochs=15)
images, labels, test_images, test_labels = common.digits()

# MULTIVERSO: mv_shared instead of theano.shared. The master worker's values count.
W = sharedvar.mv_shared(value=np.zeros((64, 10), dtype="float32"), name="W", borrow=True)
b = sharedvar.mv_shared(value=np.zeros((10,), dtype="float32"), name="b", borrow=True)

x, y = T.matrix("x", dtype="float32"), T.vector("y", dtype="int32")
scores = T.dot(x, W) + b
scores = scores - scores.max(axis=1, keepdims=True)
log_p = scores - T.log(T.exp(scores).sum(axis=1, keepdims=True))
loss = -log_p[T.arange(y.shape[0]), y].mean()
error = T.neq(T.argmax(log_p, axis=1), y).mean()
rate = np.float32(0.1)
train = theano.function([x, y], loss, updates=[(p, p - rate * T.grad(loss, p)) for p in (W, b)])
evaluate = theano.function([x, y], [loss, error])

report = common.Report()
for epoch in range(settings.epochs):
    for batch in common.batches(images, labels, 16, epoch):
        train(*batch)
        sharedvar.sync_all_mv_shared_vars()  # MULTIVERSO: add the changes, and take the sum of all workers' changes
    mv.barrier()
    sharedvar.sync_all_mv_shared_vars()  # now with the last changes of all
    report.epoch(epoch, *evaluate(test_images, test_labels))

mv.barrier()
mv.shutdown()
