"""The works of TensorFlow, JAX, PyTorch (with Keras) and ONNX Runtime: libraries' products, the articles' networks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from helpers.compute import products
from helpers.measure import timing
from helpers.ranking import tasks
from helpers.ranking.tasks import BATCH, COPIED, MEMORY, PRODUCT, Prepare, Work

if TYPE_CHECKING:
    import keras


class Library(NamedTuple):
    """What the works need of a framework, on the device that the process was given."""

    upload: Callable[[np.ndarray, str], Any]  # takes an array and the name of a dtype; the framework's on the device
    increment: Callable[[Any], Any]  # adds 1, into a new array
    multiply: Callable[[Any, Any], Any]  # two matrices
    download: Callable[[Any], np.ndarray]  # as NumPy's float32


def tensorflow_library(identifier: str) -> Library:
    """TensorFlow, of whose devices this process sees one besides the processor."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    kind, number = identifier.strip("/").split(":")
    tf.config.set_visible_devices([gpus[int(number)]] if kind == "GPU" else [], "GPU")
    tensor_float_32 = tf.config.experimental.enable_tensor_float_32_execution
    product = tf.function(tf.linalg.matmul)

    def upload(array: np.ndarray, dtype: str) -> tf.Tensor:
        return tf.cast(tf.constant(array), dtype)

    def multiply(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        tensor_float_32(False)  # float32 means float32; the networks keep TensorFlow's default
        try:
            return product(a, b)
        finally:
            tensor_float_32(True)

    return Library(upload, tf.function(lambda x: x + 1.0), multiply, lambda x: tf.cast(x, "float32").numpy())


def jax_library(identifier: str) -> Library:
    """JAX, with one device as the default of this process."""
    import jax

    platform, number = identifier.split(":")
    there = next(device for device in jax.local_devices(backend=platform) if device.id == int(number))
    jax.config.update("jax_default_device", there)

    def upload(array: np.ndarray, dtype: str) -> jax.Array:
        return jax.device_put(jax.numpy.asarray(array, dtype), there)

    multiply = jax.jit(lambda a, b: jax.numpy.matmul(a, b, precision="highest"))
    return Library(upload, jax.jit(lambda x: x + 1.0), multiply, lambda x: np.asarray(x.astype("float32")))


def torch_library(identifier: str) -> Library:
    """PyTorch on one device."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32

    def upload(array: np.ndarray, dtype: str) -> torch.Tensor:
        return torch.from_numpy(array.copy()).to(identifier).to(getattr(torch, dtype))

    return Library(upload, lambda x: x + 1.0, lambda a, b: a @ b, lambda x: x.to("cpu").to(torch.float32).numpy())


# Of a training before it is judged: its loss rises at first, and falls below where it began after 5 (CNN) or 6 (MLP).
STEPS = {"mlp": 16, "cnn": 8}
LIBRARIES = {"tensorflow": tensorflow_library, "jax": jax_library, "torch": torch_library}


def by_keras(framework: str, identifier: str, kind: str) -> dict[str, Prepare]:
    """One of Keras' backends (KERAS_BACKEND names the same): its own products and copy, the articles' networks."""
    from helpers.compute import models, training

    library = LIBRARIES[framework](identifier)
    training.start()

    def copy() -> Work:
        source = np.arange(COPIED, dtype=np.float32) % 1024
        x, last = library.upload(source, "float32"), []

        def once() -> object:
            last.clear()  # before the next one needs as much room
            last.append(library.increment(x))
            return last[0]

        return tasks.vector_work("64 MiB, x + 1", 8.0 * COPIED, once, timing.synchronise,
                                 lambda: library.download(last[0]), source + 1)  # fmt: skip

    def product(dtype: str) -> Work:
        size = tasks.size_for(kind, by_library=True)
        a, b = (library.upload(one, dtype) for one in tasks.matrices(size))
        last: list[object] = []

        def once() -> object:
            last[:] = [library.multiply(a, b)]
            return last[0]

        return tasks.product_work(size, once, timing.synchronise, lambda: library.download(last[0]), dtype)

    def short_product() -> Work:
        try:
            made = product("bfloat16")
            made.do(1)
            made.check()
        except products.Refused:
            raise
        except Exception:  # each framework raises its own kind where the device has no such numbers
            made = product("float16")
        return made

    def train(network: str) -> Work:
        import keras

        random.seed(0)  # Keras draws the seed of its dropout layers from here: every run leaves out the same numbers
        model = ours(models.mlp() if network == "mlp" else models.cnn(), network)
        optimizer = keras.optimizers.RMSprop() if network == "mlp" else keras.optimizers.Adadelta(1.0)
        model.compile(optimizer, "sparse_categorical_crossentropy")
        pixels, labels = tasks.images()
        x = pixels.reshape(BATCH, *model.input_shape[1:])
        losses: list[float] = []

        def once() -> object:
            losses.append(float(model.train_on_batch(x, labels)))
            return losses[-1]

        def check() -> str:
            for _ in range(STEPS[network] - 1):
                once()
            return tasks.check_training(network, losses)

        return Work(_said(BATCH), BATCH, once, timing.synchronise, check)

    def infer(images: int) -> Work:
        model = ours(models.cnn(), "cnn")
        pixels, last = tasks.images()[0][:images], []

        def once() -> None:
            last[:] = [model.predict_on_batch(pixels)]

        # The answers are NumPy's already: nothing is left to wait for.
        return Work(_said(images), images, once, timing.synchronise, lambda: tasks.check_answers("cnn", last[0]))

    return {
        MEMORY: copy,
        PRODUCT: lambda: product("float32"),
        "16-bit product": short_product,
        "MLP training": lambda: train("mlp"),
        "CNN training": lambda: train("cnn"),
        "CNN inference": lambda: infer(BATCH),
        "CNN, one image": lambda: infer(1),
    }


def ours(model: keras.Model, network: str) -> keras.Model:
    """Give a network of `helpers.compute.models` the weights that every framework gets."""
    model.set_weights([array for layer in tasks.weights(network) for array in layer])
    return model


def _said(images: int) -> str:
    return f"batches of {images}, random bytes in MNIST's shape" if images > 1 else "one image of random bytes"


# ------------------------------------------------------------------------------------------------ ONNX Runtime


def cnn_as_onnx() -> bytes:
    """Return article C's network as an ONNX file, opset 13, with the weights that every framework gets.

    Images come as in MNIST, uint8 of shape (n, 28, 28, 1); ONNX convolves (n, channels, 28, 28), with kernels of shape
    (out, in, 3, 3). What is flattened is turned back first, so that the dense layer takes Keras' weights as they are.
    """
    from onnx import TensorProto, helper, numpy_helper

    layers = tasks.weights("cnn")
    constants = {"scale": np.float32(1 / 255)}
    for number, layer in enumerate(layers):
        kernel = layer.kernel.transpose(3, 2, 0, 1) if layer.kernel.ndim == 4 else layer.kernel
        constants |= {f"kernel{number}": np.ascontiguousarray(kernel), f"bias{number}": layer.bias}
    node = helper.make_node
    nodes = [
        node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
        node("Mul", ["floats", "scale"], ["scaled"]),
        node("Transpose", ["scaled"], ["x"], perm=[0, 3, 1, 2]),
        node("Conv", ["x", "kernel0", "bias0"], ["conv0"]),
        node("Relu", ["conv0"], ["relu0"]),
        node("Conv", ["relu0", "kernel1", "bias1"], ["conv1"]),
        node("Relu", ["conv1"], ["relu1"]),
        node("MaxPool", ["relu1"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Transpose", ["pooled"], ["turned"], perm=[0, 2, 3, 1]),
        node("Flatten", ["turned"], ["flat"]),
        node("Gemm", ["flat", "kernel2", "bias2"], ["dense2"]),
        node("Relu", ["dense2"], ["relu2"]),
        node("Gemm", ["relu2", "kernel3", "bias3"], ["dense3"]),
        node("Softmax", ["dense3"], ["answers"], axis=1),
    ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", 28, 28, 1])
    answers = helper.make_tensor_value_info("answers", TensorProto.FLOAT, ["n", 10])
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "cnn", [pixels], [answers], held)
    opset = helper.make_opsetid("", 13)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


def by_onnxruntime(identifier: str, kind: str) -> dict[str, Prepare]:
    """ONNX Runtime: a product and article C's network, with one provider and without the processor behind it."""

    def product() -> Work:
        size, last = tasks.size_for(kind, by_library=True), []
        a, b = tasks.matrices(size)
        session = products.onnx_session(identifier)

        def once() -> None:
            last[:] = session.run(None, {"a": a, "b": b})

        return tasks.product_work(size, once, tasks.no_wait, lambda: last[0])

    def infer(images: int) -> Work:
        pixels, last = tasks.images()[0][:images], []
        session = products.onnx_session(identifier, cnn_as_onnx())

        def once() -> None:
            last[:] = session.run(None, {"pixels": pixels})

        return Work(_said(images), images, once, tasks.no_wait, lambda: tasks.check_answers("cnn", last[0]))

    return {PRODUCT: product, "CNN inference": lambda: infer(BATCH), "CNN, one image": lambda: infer(1)}
