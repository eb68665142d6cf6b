"""A convolutional network in Theano 1.0.5, each parameter with a table of its own.

    python3 examples/multiverso/theano_convnet.py
    polyverso run -n 4 -- python3 examples/multiverso/theano_convnet.py
    mpirun -np 4 python3 examples/multiverso/theano_convnet.py
"""

from typing import Any

import common
import multiverso as mv
import numpy as np

mv.init()
from multiverso.theano_ext import graph_library, sharedvar  # noqa: E402

theano = graph_library.find()
import theano.tensor as T  # noqa: E402
from theano.tensor.nnet import conv2d, relu, softmax  # noqa: E402
from theano.tensor.signal import pool  # noqa: E402

settings = common.options(epochs=8)
images, labels, test_images, test_labels = common.digits(flat=False)
random = np.random.RandomState(1)


def parameter(name: str, *shape: int) -> Any:
    # MULTIVERSO: mv_shared instead of theano.shared. The master worker's values count.
    fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
    values = random.normal(size=shape) * np.sqrt(2 / fan_in) if len(shape) > 1 else np.zeros(shape)
    return sharedvar.mv_shared(value=values.astype("float32"), name=name, borrow=True)


parameters = [parameter("filters", 16, 1, 3, 3), parameter("filter_bias", 16),
              parameter("hidden", 16 * 9, 32), parameter("hidden_bias", 32),
              parameter("output", 32, 10), parameter("output_bias", 10)]
filters, filter_bias, hidden, hidden_bias, output, output_bias = parameters

x, y = T.tensor4("x", dtype="float32"), T.vector("y", dtype="int32")
units = relu(conv2d(x, filters) + filter_bias.dimshuffle("x", 0, "x", "x"))
units = pool.pool_2d(units, (2, 2), ignore_border=True).flatten(2)
units = relu(T.dot(units, hidden) + hidden_bias)
p = softmax(T.dot(units, output) + output_bias)
loss = -T.log(p[T.arange(y.shape[0]), y] + np.float32(1e-7)).mean()
error = T.neq(T.argmax(p, axis=1), y).mean()
rate = np.float32(0.05)
train = theano.function([x, y], loss, updates=[(p, p - rate * T.grad(loss, p)) for p in parameters])
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
