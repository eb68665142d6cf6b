"""A recurrent network that learns to add two-digit numbers, in Keras 3, synchronised by a callback.

    python3 examples/multiverso/keras_addition_rnn.py
    polyverso run -n 4 -- python3 examples/multiverso/keras_addition_rnn.py
    mpirun -np 4 python3 examples/multiverso/keras_addition_rnn.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import common  # noqa: E402
import keras  # noqa: E402
import multiverso as mv  # noqa: E402
import numpy as np  # noqa: E402
from multiverso.theano_ext.keras_ext.callbacks import MVCallback  # noqa: E402

CHARACTERS = "0123456789+ "
QUESTION, ANSWER = 5, 3  # characters


def one_hot(text: str) -> np.ndarray:
    return np.eye(len(CHARACTERS), dtype="float32")[[CHARACTERS.index(character) for character in text]]


def sums() -> tuple[np.ndarray, np.ndarray]:
    """All questions as "7+15 ", with the digits reversed, as recurrent networks learn it better, and the answers."""
    pairs = [(a, b) for a in range(100) for b in range(100)]
    np.random.default_rng(0).shuffle(pairs)
    questions = np.stack([one_hot(f"{a}+{b}".ljust(QUESTION)[::-1]) for a, b in pairs])
    answers = np.stack([one_hot(str(a + b).ljust(ANSWER)) for a, b in pairs])
    return questions, answers


mv.init()
settings = common.options(epochs=10)
keras.utils.set_random_seed(1 + mv.worker_id())
questions, answers = sums()
test_questions, test_answers = questions[:1000], answers[:1000]
own = slice(1000 + mv.worker_id(), None, mv.workers_num())

model = keras.Sequential([
    keras.layers.Input((QUESTION, len(CHARACTERS))), keras.layers.LSTM(64), keras.layers.RepeatVector(ANSWER),
    keras.layers.LSTM(64, return_sequences=True), keras.layers.Dense(len(CHARACTERS), activation="softmax")])
model.compile(keras.optimizers.Adam(0.003), "categorical_crossentropy", metrics=["accuracy"])

report = common.Report()
callback = MVCallback(model, freq=4)  # MULTIVERSO: the only difference
for epoch in range(settings.epochs):
    model.fit(questions[own], answers[own], batch_size=32, epochs=1, shuffle=True, verbose=0, callbacks=[callback])
    mv.barrier()
    callback.kpm.sync_all_param()  # now with the last changes of all
    loss, accuracy = model.evaluate(test_questions, test_answers, batch_size=500, verbose=0)
    report.epoch(epoch, loss, 1 - accuracy)

mv.barrier()
mv.shutdown()
