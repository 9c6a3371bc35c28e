"""Lesson 08's own machinery: rings, pipelines, and what devices exchange on JAX."""

import sys
import types

import numpy as np
import pytest

from helpers.compute import devices, processes
from helpers.judge import checks
from helpers.lessons import lesson_08


def exchange_on_jax():
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from helpers.lessons import lesson_08

    mesh = Mesh(jax.devices(), ["both"])
    whole, cut = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("both"))
    x = np.ones((12, 3), np.float32)
    program = jax.jit(lambda x: x.sum(axis=0), out_shardings=whole)
    return [lesson_08.all_reduces(program, jax.device_put(x, lies)) for lies in (whole, cut)]


def test_the_all_reduces_are_read_from_the_compiled_program():
    if not devices.installed("jax"):
        pytest.skip("JAX is not installed here")
    two = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    assert processes.run(exchange_on_jax, variables=two).result == [0, 1]


def test_a_pipeline_waits_for_what_is_not_there_yet(capsys):
    lesson_08.draw_pipeline(lambda stage, stages, parts: [("F", 0), ("F", 1), ("B", 1), ("B", 0)], stages=2, parts=2)
    rows = [line.split()[2:] for line in capsys.readouterr().out.splitlines()[1:3]]
    assert rows == [["F0", "F1", ".", ".", "B1", "B0"], [".", "F0", "F1", "B1", "B0", "."]]


def test_a_pipeline_whose_stages_wait_for_each_other_says_so():
    def crossed(stage, stages, parts):  # stage 0 wants B1 first, stage 1 F0
        first = 1 - stage
        return [(kind, part) for part in (first, stage) for kind in "FB"]

    with pytest.raises(checks.NotYet, match="wait for each other: stage 0 with B1, stage 1 with F0"):
        lesson_08.draw_pipeline(crossed, stages=2, parts=2)


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


def test_a_device_of_a_ring_that_waits_in_vain_is_told_why():
    def first_alone(pieces, me, swap):
        return swap(pieces[0]) if me == 0 else None

    with pytest.raises(checks.NotYet, match=r"device 0 waits .* never comes.* begun were: device 0 1, device 1 0"):
        lesson_08.ring(first_alone, [[np.zeros(2)]] * 2)


@pytest.mark.parametrize(
    ("gpus", "seen", "names"),
    [([], [], "CPU"), (["a"], [], "CPU"), (["a", "b"], ["a", "b"], "GPU"), (["a", "b", "c"], ["a", "b"], "GPU")],
)
def test_two_gpus_are_taken_or_two_made_of_the_processor(monkeypatch, gpus, seen, names):
    """A stand-in for TensorFlow, because no machine of the tests has a GPU: it notes what is asked of it."""
    asked = []
    config = types.SimpleNamespace(
        list_physical_devices=lambda kind: gpus if kind == "GPU" else ["processor"],
        set_visible_devices=lambda seen, kind: asked.append(("visible", seen)),
        experimental=types.SimpleNamespace(set_memory_growth=lambda gpu, on: asked.append(("growth", gpu))),
        LogicalDeviceConfiguration=lambda: "logical",
        set_logical_device_configuration=lambda device, parts: asked.append((device, parts)),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    places, _ = lesson_08.two_devices()
    assert places == [f"{names}:0", f"{names}:1"]
    more = [("growth", gpu) for gpu in seen] or [("processor", ["logical", "logical"])]
    assert asked == [("visible", seen), *more]
