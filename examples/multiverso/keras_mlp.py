"""A network with one hidden layer in Keras 3, synchronised by a callback after every batch.

    python3 examples/multiverso/keras_mlp.py
    polyverso run -n 4 -- python3 examples/multiverso/keras_mlp.py
    mpirun -np 4 python3 examples/multiverso/keras_mlp.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import common  # noqa: E402
import keras  # noqa: E402
import multiverso as mv  # noqa: E402
from multiverso.theano_ext.keras_ext.callbacks import MVCallback  # noqa: E402

mv.init()
settings = common.options(epochs=15)
images, labels, test_images, test_labels = common.digits()
keras.utils.set_random_seed(1 + mv.worker_id())

model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(64, activation="relu"),
                          keras.layers.Dense(10, activation="softmax")])
model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])

report = common.Report()
callback = MVCallback(model, freq=1)  # MULTIVERSO: the only difference
for epoch in range(settings.epochs):
    model.fit(images, labels, batch_size=16, epochs=1, shuffle=True, verbose=0, callbacks=[callback])
    mv.barrier()
    callback.kpm.sync_all_param()  # now with the last changes of all
    loss, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    report.epoch(epoch, loss, 1 - accuracy)

mv.barrier()
mv.shutdown()
