"""Lesson 08's own machinery: rings, pipelines, and what devices exchange on JAX."""

import sys
import types

import numpy as np
import pytest

from helpers.judge import checks, messages
from helpers.lessons import lesson_08, lesson_08b


def test_a_pipeline_waits_for_what_is_not_there_yet(capsys):
    lesson_08b.draw_pipeline(lambda stage, stages, parts: [("F", 0), ("F", 1), ("B", 1), ("B", 0)], stages=2, parts=2)
    rows = [line.split()[2:] for line in capsys.readouterr().out.splitlines()[1:3]]
    assert rows == [
        ["F0", "F1", ".", ".", ".", "B1", "B1", "B0", "B0"],
        [".", "F0", "F1", "B1", "B1", "B0", "B0", ".", "."],
    ]


def test_a_pipeline_whose_stages_wait_for_each_other_says_so():
    def crossed(stage, stages, parts):  # stage 0 wants B1 first, stage 1 F0
        first = 1 - stage
        return [(kind, part) for part in (first, stage) for kind in "FB"]

    with pytest.raises(checks.NotYet, match="wait for each other: stage 0 with B1, stage 1 with F0"):
        lesson_08b.draw_pipeline(crossed, stages=2, parts=2)


def test_ranks_see_nothing_but_what_is_sent_and_print_once(capsys):
    held = [np.array([rank]) for rank in range(3)]

    def pass_on(rank, send, receive):
        print(rank)
        mine = held[rank].copy()
        send((rank + 1) % 3, mine)
        mine += 10
        return receive((rank - 1) % 3)

    returned, sent = messages.play(pass_on, 3)
    assert [int(array[0]) for array in returned] == [2, 0, 1]
    assert [int(array[0]) for array in sent[0, 1]] == [0] and sent[0, 2] == []
    assert sorted(capsys.readouterr().out.split()) == ["0", "1", "2"]


def test_who_waits_in_vain_or_names_a_rank_that_is_not_there_is_told():
    with pytest.raises(checks.NotYet, match="rank 0 would wait forever"):
        messages.play(lambda rank, send, receive: receive(1) if rank == 0 else None, 2)
    with pytest.raises(checks.NotYet, match="rank 0 addresses rank 0"):
        messages.play(lambda rank, send, receive: send(rank, np.zeros(1)), 2)


@pytest.mark.parametrize(
    ("gpus", "visible", "names"),
    [([], [], "CPU"), (["a", "b", "c"], ["a", "b"], "GPU")],
)
def test_two_gpus_are_taken_or_two_made_of_the_processor(monkeypatch, gpus, visible, names):
    """A stand-in for TensorFlow, because no machine of the tests has a GPU: it notes what is asked of it."""
    asked = []
    config = types.SimpleNamespace(
        experimental=types.SimpleNamespace(enable_tensor_float_32_execution=lambda enabled: None),
        list_physical_devices=lambda kind: ["processor"] if kind == "CPU" else [*gpus, "one that fails"],
        get_visible_devices=lambda kind: gpus,
        set_visible_devices=lambda visible, kind: asked.append(("visible", visible)),
        LogicalDeviceConfiguration=lambda: "logical",
        set_logical_device_configuration=lambda device, parts: asked.append((device, parts)),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    places = lesson_08.set_up_two_devices()
    assert places == [f"{names}:0", f"{names}:1"]
    more = [] if visible else [("processor", ["logical", "logical"])]
    assert asked == [("visible", visible), *more]
