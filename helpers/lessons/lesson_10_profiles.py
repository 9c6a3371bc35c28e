"""Serve lesson 10: profiles of ONNX Runtime, a recorded one and those of exercise 3, and the check of that exercise."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NotRequired, TypedDict

import numpy as np

from helpers.devices.products import CPU_PROVIDER as CPU
from helpers.judge import checks


class Event(TypedDict):
    """An event of a profile that ONNX Runtime writes."""

    cat: str  # "Session", "Node", "Kernel" or "Api"
    name: str
    dur: NotRequired[int]  # microseconds
    args: dict[str, str]  # of a node: op_name and provider


# A profile that was recorded on an NVIDIA H200 on 28 November 2026: ONNX Runtime 1.27 ran the lesson's file, as Keras
# on TensorFlow writes it, with 50 images through WebGPU. First the operators of each provider (`Node` events, each
# operator once), then the GPU's kernels (`Api` events, without the nodes' long names) with
# their microseconds.
WEBGPU_NODES = {
    "WebGpuExecutionProvider": "Concat Conv Gemm MaxPool MemcpyFromHost MemcpyToHost Mul Relu Reshape Shape Softmax "
    "Transpose",
    CPU: "Cast Gather Slice",
}
WEBGPU_KERNELS = [
    ("Conv&Conv2dMM", 19),
    ("Conv&Conv2dMM", 90),
    ("MaxPool&Pool", 16),
    ("Concat&Concat", 11),
    ("Gemm&Gemm", 321),
    ("Relu&Relu", 8),
    ("Gemm&Gemm", 21),
    ("Softmax&Softmax", 8),
]


def load_webgpu_profile() -> list[Event]:
    """Return the events of the profile that was recorded on an NVIDIA H200 through WebGPU."""
    events = [Event(cat="Api", name=name, dur=time, args={}) for name, time in WEBGPU_KERNELS]
    for provider, operators in WEBGPU_NODES.items():
        for operator in operators.split():
            args = {"op_name": operator, "provider": provider}
            events.append(Event(cat="Node", name=f"{operator}_kernel_time", args=args))
    return events


def _make_events(*nodes: tuple[str, str], kind: str = "Node") -> list[Event]:
    """Return events as a profile has them: of each node, given as operator and provider, between those of the session.

    Args:
        nodes: for each the operator and the provider.
        kind: their category; "Kernel" is a GPU's own record of what a node did.
    """
    events = [Event(cat="Session", name="session_initialization", dur=9000, args={})]
    for number, (operator, provider) in enumerate(nodes):
        args = {"op_name": operator, "provider": provider}
        events.append(Event(cat=kind, name=f"node_{number}_kernel_time", dur=7 * number % 300, args=args))
    return [*events, Event(cat="Session", name="model_run", dur=700, args={})]


def _find_where_ran(events: Sequence[Event]) -> dict[str, list[str]]:
    """Return for each provider the operators that it ran, sorted, each once."""
    found: dict[str, set[str]] = {}
    for event in events:
        if event["cat"] == "Node":
            found.setdefault(event["args"]["provider"], set()).add(event["args"]["op_name"])
    return {provider: sorted(operators) for provider, operators in found.items()}


def _describe_events(events: Sequence[Event]) -> str:
    """Return the category, operator and provider of events in words, of many only the first."""
    words = [" ".join([event["cat"], *event["args"].values()]) for event in events]
    return f"the {len(words)} events {'; '.join(words[:8])}{'; ...' if len(words) > 8 else ''}"


def _has_twice(found: Mapping[str, object]) -> bool:
    """Return whether a provider's list has an operator twice."""
    return any(isinstance(names, list) and len(set(names)) < len(names) for names in found.values())


@checks.print_verdict
def check_where_ran(learner: Callable[[list[Event]], dict[str, list[str]]]) -> Iterator[str]:
    """Judge exercise 3 of lesson 10: the operators that each provider ran, from a profile's events."""
    cuda, rng = "CUDAExecutionProvider", np.random.default_rng()
    tried = [
        _make_events(("Conv", CPU)),
        _make_events(("Softmax", cuda), ("Conv", CPU), ("Conv", cuda), ("Softmax", cuda)),
    ]
    tried += [_make_events(("Conv", CPU)) + _make_events(("Conv", cuda), kind="Kernel")]
    tried += [_make_events(), _make_events(("MatMul", "CoreMLExecutionProvider"), ("Shape", CPU))]
    tried += [_make_events(("MemcpyFromHost", cuda), ("Conv", cuda), ("MemcpyToHost", cuda), ("Softmax", CPU))]
    tried += [_make_events(("Conv", cuda), *400 * [("Softmax", CPU)])]  # the last events alone don't show the GPU
    for count in range(1, 12):
        operators = rng.choice(["Conv", "Gemm", "Relu", "MaxPool"], count).tolist()
        providers = rng.choice([cuda, CPU, "MIGraphXExecutionProvider", "WebGpuExecutionProvider"], count).tolist()
        tried.append(_make_events(*zip(operators, providers, strict=True)))
    for events in tried:
        where, expected = f"for {_describe_events(events)}, where_ran", _find_where_ran(events)
        came = checks.answer(learner, given := copy.deepcopy(events), who=where)
        if came is None:
            raise checks.NotDone(f"where_ran returned None. ({checks.RETURNS})")
        if not isinstance(came, Mapping):
            raise checks.NotYet(f"{where} returned {checks.short(came)}; expected a dictionary.")
        plain = {
            str(key): list(map(str, names)) if isinstance(names, Iterable) else names for key, names in came.items()
        }
        if plain != expected:
            again = "an operator is listed more than once: " if _has_twice(plain) else ""
            raise checks.NotYet(f"{again}{where} returned {checks.short(plain)}; expected {expected}.")
        if given != events:
            raise checks.NotYet(f"{where} changed the events that it got.")
    yield f"{len(tried)} profiles"
