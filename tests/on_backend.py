"""What the tests of training and models do on a real backend, in a process of its own that has KERAS_BACKEND.

    python tests/on_backend.py FOLDER PART ...

The last line written is JSON: what each part saw. The parts only look; the tests judge.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np

from helpers import data, models, training
from helpers.lessons import lesson_05, lesson_08

rng = np.random.default_rng(0)
PIXELS = rng.integers(0, 256, (32, 28, 28, 1), dtype=np.uint8)
LABELS = rng.integers(0, 10, 32)


def small(optimizer="adam"):
    """A network of two layers for images of 16 pixels, with all that is drawn at random: weights, dropout, order."""
    from keras import Input, Sequential, layers

    model = Sequential([Input((16,)), layers.Dense(32, "relu"), layers.Dropout(0.2), layers.Dense(10, "softmax")])
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def small_data(n=100):
    return rng.random((n, 16), np.float32), rng.integers(0, 10, n)


def flat(model):
    return np.concatenate([weights.ravel() for weights in model.get_weights()])


def error_of(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except BaseException as error:
        return type(error).__name__, str(error)
    return "", ""


# ---------------------------------------------------------------------------------------------- training


def started():
    """The device, twice; and what `start` left behind."""
    seen = {"devices": [training.start(), training.start()]}
    other = {"tensorflow": "jax", "jax": "tensorflow"}[os.environ["KERAS_BACKEND"]]
    os.environ["KERAS_BACKEND"], kept = other, os.environ["KERAS_BACKEND"]
    seen["another backend"] = error_of(training.start)
    os.environ["KERAS_BACKEND"] = kept
    return seen


def piped():
    """TensorFlow's options after `start`, and in a pipeline that does or does not ask for autotuning."""
    import tensorflow as tf

    options, wish = tf.data.Options(), tf.data.Options()
    wish.autotune.enabled = True
    numbers = tf.data.Dataset.range(3).with_options(options)
    return {
        "autotune": options.autotune.enabled,
        "in a pipeline": numbers.options().autotune.enabled,
        "if wished": numbers.with_options(wish).options().autotune.enabled,
        "is a class": isinstance(options, tf.data.Options) and isinstance(numbers.options(), tf.data.Options),
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
    return {"first": gaps(firsts), "last": gaps(lasts), "drawn": gaps(drawn), "policy": policy,
            "tensorflow": "tensorflow" in sys.modules}  # fmt: skip


def unchecked():
    """What happens to bad data that nobody looked at; one network from the same weights each time."""
    import keras

    x, y = small_data()
    model = small(keras.optimizers.SGD())
    start, before = model.get_weights(), flat(model)
    seen = {}
    for label in (10, -1):
        seen[f"label {label}"] = error_of(model.fit, x, np.full(len(x), label), batch_size=100, epochs=1, verbose=0)
        seen[f"learned from label {label}"] = float(np.abs(flat(model) - before).max())
    for name, value in {"NaN": np.nan, "infinity": np.inf}.items():
        bad = x.copy()
        bad[7, 3] = value
        model.set_weights(start)
        error = error_of(model.fit, bad, y, batch_size=100, epochs=1, verbose=0)
        answers = np.asarray(model(x))
        alike = np.array_equal(answers, np.repeat(answers[:1], len(x), axis=0), equal_nan=True)
        seen[name] = {"error": error, "alike": alike, "weights": int(np.isnan(flat(model)).sum())}
    steps = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
    model.fit(x, y, batch_size=101, epochs=3, verbose=0, callbacks=[count])
    seen["steps of 3 epochs"] = len(steps)
    return seen


def once(function):
    """Return a function that calls another the first time alone."""
    calls = iter([function])
    return lambda: next(calls, lambda: None)()


def interrupted():
    """Ctrl-C in plain Python: once, twice, after an error in the training, and where it is ignored."""
    import keras

    x, y = small_data()
    model = small()

    class After(keras.callbacks.Callback):
        """Do something after the fifth step."""

        def __init__(self, do):
            super().__init__()
            self.do = do

        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                self.do()

    def press(times=1):
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)

    def fail():
        raise ValueError("a layer broke")

    def fit(do, title, epochs=3):
        shown, before = training.progress(title), flat(model)
        error = error_of(model.fit, x, y, batch_size=10, epochs=epochs, verbose=0, callbacks=[shown, After(do)])
        learned = float(np.abs(flat(model) - before).max())
        restored = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return {"error": error[0], "interrupted": shown.interrupted, "learned": learned, "restored": restored,
                "epochs": len(shown.seconds)}  # fmt: skip

    seen = {
        "none": fit(lambda: None, "none"),
        "one": fit(press, "one"),
        "two": fit(lambda: press(2), "two"),
        "press after two": error_of(press)[0],
        "failed": fit(fail, "failed"),
        "failed again": fit(fail, "failed again"),
        "another": fit(press, "another"),
        "press in the end": [error_of(press)[0] for _ in range(3)],
        "unknown length": fit_a_generator(model, x, y),
    }
    for after in range(10):  # somewhere in a step, not between two
        timer = threading.Timer(0.05 + after / 200, press)
        seen[f"at any time {after}"] = fit(once(timer.start), "at any time", epochs=1_000_000)
        timer.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seen["ignored"] = fit(press, "ignored")
    seen["still ignored"] = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return seen


def fit_a_generator(model, x, y):
    """A training whose number of steps Keras does not know, twice with one callback."""
    shown, training.REDRAW = training.progress("generator"), 0
    for _ in range(2):
        batches = ((x, y) for _ in range(3))
        error = error_of(model.fit, batches, epochs=1, shuffle=False, verbose=0, callbacks=[shown])
    return error[0]


# ---------------------------------------------------------------------------------------------- models


def sizes():
    mlp, last, first = models.mlp(), models.cnn(), models.cnn(channels="first")
    return {
        "parameters": [model.count_params() for model in (mlp, last, first)],
        "inputs": [model.input_shape for model in (mlp, last, first)],
        "dtypes": [str(model.inputs[0].dtype) for model in (mlp, last, models.cnn(uint8=False))],
        "inside": [layer.output.shape for layer in first.layers[1:4]],
        "outputs": [model.output_shape for model in (mlp, last, first)],
    }


FORMS = {
    "as it is": {},
    "matrix, four, float32 in": {"matrix": True, "four": True, "uint8": False},
    "bfloat16, matrix, four": {"precision": "mixed_bfloat16", "matrix": True, "four": True},
}


def forms():
    """The same weights in every form: how far the answers, and the weights after a step of SGD, lie apart."""
    import keras

    training.seed(0)
    dropout, answers, stepped = keras.layers.Dropout, {}, {}
    weights = models.cnn().get_weights()
    for name, form in FORMS.items():
        model = models.cnn(**form)
        model.set_weights(weights)
        images = PIXELS if form.get("uint8", True) else PIXELS.astype("float32") / 255
        answers[name] = np.asarray(model(images), "float32")
        for layer in model.layers:
            if isinstance(layer, dropout):
                layer.rate = 0  # or each form draws other pixels to drop
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy")
        model.train_on_batch(images, LABELS)
        stepped[name] = flat(model)
    start = np.concatenate([one.ravel() for one in weights])
    return {
        "answers": {name: float(np.abs(one - answers["as it is"]).max()) for name, one in answers.items()},
        "steps": {name: float(np.abs(one - stepped["as it is"]).max()) for name, one in stepped.items()},
        "step": float(np.abs(stepped["as it is"] - start).max()),
        "policy": keras.config.dtype_policy().name,
    }


def layers_alone():
    """The two layers against Keras' own, on images with an odd number of rows, and with what they cannot do."""
    import keras

    images = rng.random((2, 7, 9, 3), np.float32)
    convolution, pooling = lesson_05.im2col_convolution(), lesson_05.slice_max_pooling()
    theirs, ours = keras.layers.Conv2D(4, (3, 2)), convolution(4, (3, 2))
    expected = np.asarray(theirs(images))
    ours.build(images.shape)
    ours.set_weights(theirs.get_weights())
    pooled = np.asarray(pooling(2)(images)), np.asarray(keras.layers.MaxPooling2D(2)(images))
    refused = {
        "strides": error_of(convolution, 4, 3, strides=2),
        "padding": error_of(convolution, 4, 3, padding="same"),
        "size": error_of(pooling, 3),
        "first": error_of(convolution, 4, 3, data_format="channels_first"),
    }
    same = [float(np.abs(np.asarray(ours(images)) - expected).max()), float(np.abs(pooled[0] - pooled[1]).max())]
    return {"same": same, "refused": refused}


def refusals():
    """What `cnn` refuses, and the policy that it leaves behind."""
    import keras

    seen = {
        name: error_of(models.cnn, **{name: True}, channels="first", precision="mixed_bfloat16")
        for name in ("matrix", "four")
    }
    seen["precision"] = error_of(models.cnn, precision="float7")[0]
    seen["policy"] = keras.config.dtype_policy().name
    keras.config.set_dtype_policy("mixed_bfloat16")
    models.cnn()
    seen["policy of the learner"] = keras.config.dtype_policy().name
    keras.config.set_dtype_policy("float32")
    return seen


def without_chance():
    """One epoch of the network without dropout, twice from the same weights, and Keras' own first loss."""
    images, model = PIXELS.reshape(-1, 784), models.plain_mlp(0.1)
    initial = model.get_weights()
    first = model.evaluate(images[:8], LABELS[:8], verbose=0)[0]
    trainings = []
    for _ in range(2):
        model.set_weights(initial)
        trainings.append(lesson_08.losses(model, images, LABELS, 8))
    return {"parameters": model.count_params(), "before": first, "trainings": trainings}


def files():
    return sorted(str(path.relative_to(models.FOLDER)) for path in models.FOLDER.rglob("*"))


def flat_network():
    """A network of its own kind that takes images with the channels first."""
    from keras import Input, Sequential, layers

    return Sequential([Input((1, 28, 28)), layers.Flatten(), layers.Dense(10)])


def kept(folder):
    """Keep and read again, what may overwrite what, and a network with the channels first."""
    models.FOLDER = folder / os.environ["KERAS_BACKEND"] / "kept"
    model = models.cnn()
    said = [models.save_cnn(model, 0.9912, 12, 60_000, "MNIST")]
    again, sentence = models.trained_cnn()
    seen = {
        "same": float(np.abs(flat(again) - flat(model)).max()),
        "sentence": sentence,
        "evaluated": len(again.evaluate(PIXELS, LABELS, verbose=0)),
        "files": files(),
    }
    other = models.cnn()
    for dataset, epochs in ((data.STAND_IN, 1000), ("MNIST", 1), ("MNIST", 13)):
        said.append(models.save_cnn(other, 0.5, epochs, 60_000, dataset))
    seen["facts"] = json.loads((models.FOLDER / "cnn.json").read_text(encoding="utf-8"))
    seen["replaced"] = float(np.abs(flat(models.trained_cnn()[0]) - flat(other)).max())
    first = models.cnn(channels="first", uint8=False, precision="mixed_bfloat16")
    said.append(models.save_cnn(first, 0.99, 14, 60_000, "MNIST"))
    # Convolutions with the channels first do not run on TensorFlow's CPU: what the dense layer reads is put in order.
    maps, kernel = rng.random((64, 12, 12)), first.get_weights()[4]
    last = models.trained_cnn()[0].get_weights()[4]
    apart = maps.ravel() @ kernel - maps.transpose(1, 2, 0).ravel() @ last
    seen["channels first"] = float(np.abs(apart).max())
    said += [models.save_cnn(model, 1.0, 99, 60_000, "MNIST") for model in (models.mlp(), small(), flat_network())]
    return {**seen, "said": said, "files at the end": files()}


def unwritable(folder):
    """A file where the folder should be: whoever runs this, nothing can be written there."""
    (folder / "file").write_text("in the way")
    models.FOLDER = folder / "file" / "models"
    return models.save_cnn(models.cnn(), 0.99, 1, 1, "MNIST")


DAMAGE = {
    "weights": ("cnn.weights.h5", b"\x89HDF\r\n\x1a\nand then nothing"),
    "weights that are text": ("cnn.weights.h5", b"no weights"),
    "facts": ("cnn.json", b'{"accuracy": 0.'),
    "facts of another kind": ("cnn.json", b'["accuracy", "epochs", "images", "dataset"]'),
    "facts that are text": ("cnn.json", b'{"accuracy": "x", "epochs": "many", "images": 1, "dataset": "MNIST"}'),
}


def damaged(folder):
    """Each damage in turn: what is read, and whether any training then replaces it."""
    seen = {}
    for name, (file, content) in DAMAGE.items():
        models.FOLDER = folder / name
        models.save_cnn(models.cnn(), 0.99, 12, 60_000, "MNIST")
        (models.FOLDER / file).write_bytes(content)
        print(f"{name}:", flush=True)
        seen[name] = [models._load(models.cnn()), models.save_cnn(models.cnn(), 0.5, 1, 32, "MNIST")]
        seen[name] += [models._load(models.cnn()), files()]
    return seen


def trained_here(folder):
    """The small training, where nothing is kept, and where the file holds another network."""
    data.load_mnist = lambda: data.Dataset("little", PIXELS[..., 0], LABELS, PIXELS[..., 0], LABELS, "the test")
    models.FOLDER = folder / "nothing there"
    print("nothing there:", flush=True)
    seen = [models.trained_cnn()[1]]
    models.FOLDER = folder / "other network"
    models.save_cnn(models.cnn(), 0.99, 12, 60_000, "MNIST")
    models.mlp().save_weights(models.FOLDER / "cnn.weights.h5")
    print("other network:", flush=True)
    model, sentence = models.trained_cnn()
    return [*seen, sentence, bool(np.isfinite(np.asarray(model(PIXELS))).all())]


def exchanged(folder):
    """Weights and answers for the other backend, and the answers from those that it left."""
    here = os.environ["KERAS_BACKEND"]
    models.FOLDER = folder / here
    model = models.cnn()
    models.save_cnn(model, 0.99, 1, 1, "MNIST")
    np.save(folder / f"{here}.npy", np.asarray(model(PIXELS)))
    seen = {}
    for other in {"tensorflow", "jax"} - {here}:
        if (folder / f"{other}.npy").exists():
            models.FOLDER = folder / other
            answers = np.asarray(models.trained_cnn()[0](PIXELS))
            seen[other] = float(np.abs(answers - np.load(folder / f"{other}.npy")).max())
    return seen


def look(folder, parts):
    """Return what each part saw, as JSON."""
    seen = {"started": started()}
    for part in parts:
        function = globals()[part]
        seen[part] = function(*[Path(folder)] * function.__code__.co_argcount)
    return json.dumps(seen)


if __name__ == "__main__":
    print(look(sys.argv[1], sys.argv[2:]))
