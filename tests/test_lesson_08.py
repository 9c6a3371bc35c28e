"""Lesson 08's own machinery: what several devices exchange on JAX, and the losses that are compared."""

import numpy as np
import pytest

from helpers import devices, processes
from helpers.lessons import lesson_08


def exchange_on_jax(images, labels):
    import keras

    from helpers import models
    from helpers.lessons import lesson_08

    keras.distribution.set_distribution(keras.distribution.DataParallel())
    split_batch = lesson_08.all_reduces(models.plain_mlp(0.1), images, labels)
    keras.utils.clear_session()  # or the layers' names go on counting
    layouts = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((1, 2), ["batch", "model"]))
    layouts[".*/dense/kernel"] = (None, "model")
    layouts[".*/dense_1/kernel"] = ("model", None)
    split_weights = keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
    keras.distribution.set_distribution(split_weights)
    return split_batch, lesson_08.all_reduces(models.plain_mlp(0.1), images, labels)


def test_what_the_devices_exchange_is_read_from_the_compiled_program():
    """Gradients of all six weights where the batch is split; activations of 12 images where the weights are."""
    if not devices.installed("jax"):
        pytest.skip("JAX is not installed here")
    two = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    images, labels = np.zeros((12, 784), np.uint8), np.zeros(12, np.uint8)
    added, cut = processes.run(exchange_on_jax, variables=two, arguments={"images": images, "labels": labels}).result
    exchanged = [shape for line in added for shape in line.split()]
    sizes = [int(np.prod([int(size) for size in shape[4:-1].split(",")])) for shape in exchanged]
    assert sorted(sizes) == sorted([784 * 512, 512, 512 * 512, 512, 512 * 10, 10])
    assert cut == ["f32[12,512]"]


def test_means_so_far_are_those_that_keras_shows():
    assert lesson_08.running_mean([1.0, 3.0, np.float32(5.0)]) == [1.0, 2.0, 3.0]
    assert lesson_08.running_mean([]) == []
