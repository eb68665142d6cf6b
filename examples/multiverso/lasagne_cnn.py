"""A convolutional network in Lasagne 0.1 on Theano 1.0.5, all parameters in one table.

    python3 examples/multiverso/lasagne_cnn.py
    polyverso run -n 4 -- python3 examples/multiverso/lasagne_cnn.py
    mpirun -np 4 python3 examples/multiverso/lasagne_cnn.py
"""

import common
import multiverso as mv
import numpy as np
from multiverso.theano_ext.lasagne_ext import param_manager  # before lasagne

import lasagne
import theano
import theano.tensor as T

mv.init()
theano.config.floatX = "float32"
settings = common.options(epochs=8)
images, labels, test_images, test_labels = common.digits(flat=False)
lasagne.random.set_rng(np.random.RandomState(1))

x, y = T.tensor4("x", dtype="float32"), T.vector("y", dtype="int32")
layer = lasagne.layers.InputLayer((None, 1, 8, 8), x)
layer = lasagne.layers.Conv2DLayer(layer, 16, (3, 3), W=lasagne.init.HeNormal("relu"))
layer = lasagne.layers.MaxPool2DLayer(layer, (2, 2))
layer = lasagne.layers.DenseLayer(layer, 32)
network = lasagne.layers.DenseLayer(layer, 10, nonlinearity=lasagne.nonlinearities.softmax)

p = T.clip(lasagne.layers.get_output(network), 1e-7, 1.0)
loss = lasagne.objectives.categorical_crossentropy(p, y).mean()
error = T.neq(T.argmax(p, axis=1), y).mean()
updates = lasagne.updates.sgd(loss, lasagne.layers.get_all_params(network, trainable=True), learning_rate=0.05)
train = theano.function([x, y], loss, updates=updates, allow_input_downcast=True)
evaluate = theano.function([x, y], [loss, error])

lpm = param_manager.LasagneParamManager(network)  # MULTIVERSO: the master worker's values count
report = common.Report()
for epoch in range(settings.epochs):
    for batch in common.batches(images, labels, 16, epoch):
        train(*batch)
        lpm.sync_all_param()  # MULTIVERSO: add the changes, and take the sum of all workers' changes
    mv.barrier()
    lpm.sync_all_param()  # now with the last changes of all
    report.epoch(epoch, *evaluate(test_images, test_labels))

mv.barrier()
mv.shutdown()
