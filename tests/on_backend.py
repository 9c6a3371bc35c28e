"""What the tests do on a real backend, in one process for each, which has KERAS_BACKEND.

    python tests/on_backend.py

The last line written is JSON: what each part saw. The parts only look; the tests judge what `record` returns.
"""

import faulthandler
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

from helpers import devices, training
from helpers.lessons import lesson_00
from helpers.running.quiet import caught_stderr
from helpers.training import models, progress_line

HERE = Path(__file__).parent
BACKENDS = ("tensorflow", "jax")
rng = np.random.default_rng(0)


@functools.cache
def run(backend):
    """Run every part in a process of its own; return what they saw, with "out" and "err", the lines written."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    *out, last = done.stdout.splitlines()
    return json.loads(last) | {"out": out, "err": done.stderr}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow) for name in BACKENDS])
def record(request):
    """What the parts saw on each backend."""
    if not devices.is_installed(request.param):
        pytest.skip(f"{request.param} is not installed here")
    return run(request.param)


def small(optimizer="adam"):
    """A network of two layers for images of 16 pixels, with all that is drawn at random: weights, dropout, order."""
    from keras import Input, Sequential, layers

    model = Sequential([Input((16,)), layers.Dense(32, "relu"), layers.Dropout(0.2), layers.Dense(10, "softmax")])
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def small_data(n=100):
    return rng.random((n, 16), np.float32), rng.integers(0, 10, n).astype(np.uint8)  # as MNIST's labels are


def flat(model):
    return np.concatenate([weights.ravel() for weights in model.get_weights()])


def error_of(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except BaseException as error:
        return type(error).__name__, str(error)
    return "", ""


def after(step, do):
    """Return a callback that does something after a step of the first epoch."""
    import keras

    calls = iter([do])
    first = lambda batch, logs: batch + 1 == step and next(calls, lambda: None)()  # noqa: E731
    return keras.callbacks.LambdaCallback(on_train_batch_end=first)


# ---------------------------------------------------------------------------------------------- training


def started():
    """The device, twice; whether interrupts have a stack; and what another backend is told."""
    found = {"devices": [training.start(), training.start()], "stack": faulthandler.is_enabled()}
    other = {"tensorflow": "jax", "jax": "tensorflow"}[os.environ["KERAS_BACKEND"]]
    os.environ["KERAS_BACKEND"], kept = other, os.environ["KERAS_BACKEND"]
    found["another backend"] = error_of(training.start)
    os.environ["KERAS_BACKEND"] = kept
    return found


def graphs():
    """How many of TensorFlow's graphs are left after two trainings of lesson 04's kind; the first part that trains."""
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        return None
    for _ in range(2):
        training.seed(0)
        model = models.build_mlp()
        model.compile("rmsprop", "sparse_categorical_crossentropy")
        model.fit(np.zeros((8, 784), np.uint8), np.zeros(8, int), verbose=0)
        del model
    training.seed(0)
    return sum(type(kept).__name__ == "FuncGraph" for kept in gc.get_objects())


def loaded():
    """Processor time of lesson 00's load, and the kind of device that it keeps busy."""
    device = devices.find_default_device(os.environ["KERAS_BACKEND"])
    work = lesson_00.make_work(device)
    before = time.process_time()
    returned = [work() for _ in range(5)]  # a slice is sized by the clock, and a busy machine leaves it little
    return {"kind": device.kind, "seconds": time.process_time() - before, "returned": returned}


def piped():
    """TensorFlow's options after `start`, and in a pipeline that does or does not ask for autotuning."""
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        return None
    import tensorflow as tf

    options, wish = tf.data.Options(), tf.data.Options()
    wish.autotune.enabled = True
    numbers = tf.data.Dataset.range(3).with_options(options)
    with caught_stderr():  # TensorFlow warns that the option changes
        wished = numbers.with_options(wish).options().autotune.enabled
    return {
        "in a pipeline": numbers.options().autotune.enabled,
        "if wished": wished,
        "numbers": [int(number) for number in numbers.batch(2).unbatch()],
    }


def seeded():
    """Two trainings with one seed and one with another: first weights and last weights."""
    import keras

    x, y = small_data()
    firsts, lasts, drawn = [], [], []
    for number in (1, 1, 2):
        training.seed(number)
        model = small()
        firsts.append(flat(model))
        model.fit(x, y, batch_size=20, epochs=2, verbose=0)
        lasts.append(flat(model))
        drawn.append(np.asarray(keras.random.uniform((4,))))

    def gaps(runs):
        return [float(np.abs(runs[0] - run).max()) for run in runs[1:]]

    keras.config.set_dtype_policy("mixed_bfloat16")
    training.seed(1)
    policy = keras.config.dtype_policy().name
    keras.config.set_dtype_policy("float32")
    return {
        "first": gaps(firsts),
        "last": gaps(lasts),
        "drawn": gaps(drawn),
        "policy": policy,
        "tensorflow": "tensorflow" in sys.modules,
    }


def budgeted():
    """Trainings whose steps take a second each, 10 in an epoch, by a clock that only they move."""
    x, y = small_data()
    model, clock = small(), types.SimpleNamespace(now=0.0)
    real, progress_line.time = progress_line.time, types.SimpleNamespace(perf_counter=lambda: clock.now)

    def fit(title, budget, epochs=20, do=lambda: None):
        import keras

        def tick(batch, logs):
            clock.now += 1

        slow = keras.callbacks.LambdaCallback(on_train_batch_end=tick)
        shown, lines = training.progress(title, budget), []
        before, show = flat(model), progress_line.Line.show
        progress_line.Line.show = lambda self, text: (lines.append(text), show(self, text))
        with training.interruptible(model):
            callbacks = [slow, after(5, do), shown]
            history = model.fit(x, y, batch_size=10, epochs=epochs, verbose=0, callbacks=callbacks).history
        progress_line.Line.show = show
        return {
            "epochs": shown.epochs,
            "an epoch": shown.epoch_seconds,
            "seconds": shown.seconds,
            "lines": lines,
            "in history": len(history["loss"]),
            "learned": float(np.abs(flat(model) - before).max()),
        }

    def fail():
        raise ValueError("a layer broke")

    try:
        return {
            "no limit": fit("no limit", float("inf")),
            "just enough": fit("just enough", 200.0),
            "three": fit("three", 35.0),
            "a half": fit("a half", 3.5),
            "by you": fit("by you", 35.0, do=lambda: os.kill(os.getpid(), signal.SIGINT)),
            "error": error_of(fit, "fails", 35.0, do=fail),
            "after an error": error_of(os.kill, os.getpid(), signal.SIGINT)[0],
        }
    finally:
        progress_line.time = real


# ---------------------------------------------------------------------------------------------- models, lesson 05


def networks():
    """The articles' networks."""
    mlp, cnn, plain = models.build_mlp(), models.build_cnn(), models.build_plain_mlp(0.1)
    return {
        "parameters": [model.count_params() for model in (mlp, cnn, plain)],
        "shapes": [(model.input_shape, model.output_shape) for model in (mlp, cnn)],
        "without dropout": not any(getattr(layer, "rate", 0) for layer in plain.layers),
        "dtypes": [str(model.inputs[0].dtype) for model in (mlp, cnn)],
    }


PARTS = (started, graphs, loaded, piped, seeded, budgeted, networks)

if __name__ == "__main__":
    print(json.dumps({part.__name__: part() for part in PARTS}))
