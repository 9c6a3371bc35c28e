"""Lesson 08's own machinery: what several devices exchange on JAX, and the losses that are compared."""

import sys
import threading
import types

import numpy as np
import pytest

from helpers.compute import devices, processes
from helpers.judge import checks
from helpers.lessons import lesson_08


def exchange_on_jax(images, labels):
    import keras

    from helpers.compute import models
    from helpers.lessons import lesson_08

    keras.distribution.set_distribution(keras.distribution.DataParallel())
    split_batch = lesson_08.all_reduces(models.plain_mlp(0.1), images, labels)
    keras.utils.clear_session()  # or the layers' names go on counting
    layouts = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((1, 2), ["batch", "model"]))
    for columns, rows in (("dense", "dense_1"), ("hidden_2", "hidden_3")):
        layouts[f".*/{columns}/kernel"] = (None, "model")
        layouts[f".*/{rows}/kernel"] = ("model", None)
    split_weights = keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
    keras.distribution.set_distribution(split_weights)
    pairs = (models.plain_mlp(0.1), lesson_08.deep_mlp())
    return split_batch, *(lesson_08.all_reduces(network, images, labels) for network in pairs)


def test_what_the_devices_exchange_is_read_from_the_compiled_program():
    """Gradients of all six weights where the batch is split; activations of 12 images where the weights are.

    In a middle layer the way back needs an exchange of its own: the layers below want the gradient by its inputs.
    """
    if not devices.installed("jax"):
        pytest.skip("JAX is not installed here")
    two = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    images, labels = np.zeros((12, 784), np.uint8), np.zeros(12, np.uint8)
    added, cut, middle = processes.run(
        exchange_on_jax, variables=two, arguments={"images": images, "labels": labels}
    ).result
    exchanged = [shape for line in added for shape in line.split()]
    sizes = [int(np.prod([int(size) for size in shape[4:-1].split(",")])) for shape in exchanged]
    assert sorted(sizes) == sorted([784 * 512, 512, 512 * 512, 512, 512 * 10, 10])
    assert cut == ["f32[12,512]"]
    assert middle == ["f32[12,512]"] * 2


def test_the_devices_of_a_ring_see_nothing_but_what_is_sent():
    def pass_on(pieces, me, swap):
        arrived = swap(pieces[0])
        pieces[0] += 1
        return arrived

    held = [[np.array([me])] for me in range(3)]
    returned, sent = lesson_08.ring(pass_on, held)
    assert [int(array[0]) for array in returned] == [2, 0, 1]
    assert [[int(array[0]) for array in arrays] for arrays in sent] == [[0], [1], [2]]
    assert [int(pieces[0][0]) for pieces in held] == [0, 1, 2]


def test_a_device_of_a_ring_that_never_ends_is_stopped_and_the_others_with_it():
    def wait(pieces, me, swap):
        while me == 1:
            pass
        return swap(pieces[0])

    before = threading.active_count()
    with pytest.raises(checks.NotYet, match=r"device 1 stopped with TimeoutError: it had not returned after 0.2 s"):
        lesson_08.ring(wait, [[np.zeros(2)]] * 3, seconds=0.2)
    assert threading.active_count() == before


def test_a_device_of_a_ring_that_waits_in_vain_is_told_why():
    def first_alone(pieces, me, swap):
        return swap(pieces[0]) if me == 0 else None

    with pytest.raises(checks.NotYet, match=r"device 0 waits .* never comes.* begun were: device 0 1, device 1 0"):
        lesson_08.ring(first_alone, [[np.zeros(2)]] * 2)


@pytest.mark.parametrize(
    ("gpus", "cut", "calls"),
    [
        ([], False, [("visible", [])]),
        (["a"], False, [("visible", []), ("growth", "a")]),
        (["a"], True, [("logical", "a", [2048, 2048])]),
        (["a", "b", "c"], False, [("visible", ["a", "b"]), ("growth", "a"), ("growth", "b"), ("growth", "c")]),
    ],
)
def test_two_gpus_are_taken_or_the_halves_of_one_or_none(monkeypatch, gpus, cut, calls):
    """A stand-in for TensorFlow, because no machine of the tests has a GPU: it notes what is asked of it."""
    asked = []
    experimental = types.SimpleNamespace(set_memory_growth=lambda gpu, on: asked.append(("growth", gpu)))
    config = types.SimpleNamespace(
        experimental=experimental,
        LogicalDeviceConfiguration=lambda memory_limit: memory_limit,
        set_logical_device_configuration=lambda gpu, halves: asked.append(("logical", gpu, halves)),
        set_visible_devices=lambda seen, kind: asked.append(("visible", seen)),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    lesson_08.choose_gpus(gpus, cut)
    assert asked == calls
