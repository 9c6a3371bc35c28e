"""Serve lesson 05b, Make a training faster: its checks, its figure, the profile of a network, a product for a layer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from helpers.judge import checks
from helpers.measure import published, records, timing
from helpers.measure.plots import BLUE, ORANGE, figure, show
from helpers.measure.tables import Table
from helpers.running.quiet import caught_stderr

if TYPE_CHECKING:
    import keras

Tensor: TypeAlias = Any  # of whichever backend Keras runs on; Keras has no type for all of them
Rule = Callable[[np.ndarray, np.ndarray], bool]  # whether it claims that two timings differ

# ------------------------------------------------------------------------------------------------- exercise 1


def false_claims(first: np.ndarray, second: np.ndarray, runs: int, rule: Rule) -> float:
    """Return the share, from 0 to 1, of comparisons of one work with itself in which a rule claims a difference.

    Exercise 1 of lesson 05b writes this function.

    Args:
        first: the seconds of many runs of one piece of work.
        second: as many of the same work.
        runs: how many of each are compared at a time, in their order; a shorter rest is left out.
        rule: takes two lists of seconds.
    """
    starts = range(0, len(first) - runs + 1, runs)
    return sum(bool(rule(first[k : k + runs], second[k : k + runs])) for k in starts) / len(starts)


@checks.print_verdict
def check_false_claims(learner: Callable[..., float], times: np.ndarray, rule: Rule) -> Iterator[str]:
    """Judge exercise 1 of lesson 05b: how often a rule claims a difference between two timings of the same work.

    Args:
        learner: the function.
        times: seconds of one work, which a right function is then tried on.
        rule: the rule that is tried.
    """
    for length, runs in ((12, 3), (20, 4), (17, 5)):
        first, second = np.random.default_rng().permutation(2 * length).reshape(2, length) / 16
        asked: list[tuple[list, list]] = []

        def spy(a: np.ndarray, b: np.ndarray, asked: list = asked) -> bool:
            asked.append((np.asarray(a).tolist(), np.asarray(b).tolist()))
            return bool(np.median(a) > np.median(b))

        call = f"with {length} times in each series and runs = {runs}"
        share = checks.answer(learner, first.copy(), second.copy(), runs, spy, who=f"{call} false_claims")
        if share is None or share is ...:
            raise checks.NotDone("false_claims returns nothing.")
        wanted = [
            (first[k : k + runs].tolist(), second[k : k + runs].tolist()) for k in range(0, length // runs * runs, runs)
        ]
        for number, pair in enumerate(wanted):
            came = asked[number] if number < len(asked) else "no question"
            if came != pair and came != pair[::-1]:
                raise checks.NotYet(f"{call} question {number + 1} to the rule: expected {pair}, came {came}.")
        if len(asked) > len(wanted):
            raise checks.NotYet(f"{call} the rule was asked {len(asked)} times; expected {len(wanted)}.")
        expected = sum(np.median(a) > np.median(b) for a, b in asked) / len(wanted)
        if not isinstance(share, int | float | np.number) or abs(share - expected) > 1e-6:
            raise checks.NotYet(
                f"{call} the rule claimed a difference {expected * len(wanted):.0f} times of {len(wanted)}; "
                f"expected {checks.short(expected)}, from 0 to 1, came {checks.short(share)}."
            )
    half = len(times) // 2
    share = learner(times[:half], times[half : 2 * half], 5, rule)
    yield f"on this device's times, the second half beside the first: {100 * share:.0f} false claims of 100"


def draw_false_claims(times: np.ndarray, rules: Mapping[str, Rule]) -> None:
    """Draw how often each rule claims a difference against the number of runs, with the times shuffled.

    Args:
        times: seconds of one work.
        rules: two, by name.
    """
    counts, rng = (3, 5, 7, 9, 11, 13, 17, 21), np.random.default_rng()
    found: dict[str, list[float]] = {name: [] for name in rules}
    for runs in counts:
        drawn = rng.choice(times, (2, 2_000 * runs))  # 2,000 comparisons, the same for each rule
        for name, rule in rules.items():
            found[name].append(100 * false_claims(*drawn, runs, rule))
    title = f"{len(times)} times of the same step, shuffled: few runs need a larger gap"
    with figure(7.5, 3.3, title) as (drawn, axes):
        for (name, shares), color, marker in zip(found.items(), (ORANGE, BLUE), "os", strict=True):
            axes.plot(counts, shares, color=color, marker=marker, label=name)
        axes.axhline(1, color="black", ls="--", lw=1, label="1 of 100")
        axes.set(xlabel="runs of each", ylabel="false claims (of 100)", xticks=counts)
        axes.legend()
    texts = [f"{name}: {', '.join(f'{share:.1f}' for share in shares)}" for name, shares in found.items()]
    show(drawn, f"{title}. False claims of 100, for {counts} runs: {'; '.join(texts)}.")


# ------------------------------------------------------------------------------------------------- exercise 2


def find_limit(operations: float, size: float, rates: Mapping[str, float]) -> str:
    """Return which of three takes longest: "compute", "memory" or "waiting"; exercise 2 of lesson 05b writes this.

    Args:
        operations: additions and multiplications.
        size: bytes read and written.
        rates: operations a second, bytes a second, and the seconds that a call costs before it computes anything.
    """
    seconds = {"compute": operations / rates["compute"], "memory": size / rates["memory"], "waiting": rates["waiting"]}
    return max(seconds, key=lambda name: seconds[name])


@checks.print_verdict
def check_find_limit(learner: Callable[..., str]) -> Iterator[str]:
    """Judge exercise 2 of lesson 05b: what limits a piece of work."""

    def cases(rng: np.random.Generator) -> Iterator[tuple]:
        yield 2e9, 1e6, {"compute": 1e11, "memory": 1e10, "waiting": 1e-5}
        for _ in range(20):
            seconds = rng.permutation([1e-5, 1e-3, 3e-3])  # of the three
            rates = {"compute": 10.0 ** rng.integers(9, 14), "memory": 10.0 ** rng.integers(8, 13)}
            yield (
                float(seconds[0] * rates["compute"]),
                float(seconds[1] * rates["memory"]),
                {**rates, "waiting": float(seconds[2])},
            )

    yield checks.judge_function(learner, find_limit, cases)
    _right_limits.append(learner)


_right_limits: list[Callable[..., str]] = [find_limit]


def read_gpu_rates(waiting: float) -> dict[str, float]:
    """Return what NVIDIA's data sheet promises of an H100, in float32 without matrix units, with a host's waiting."""
    sheet = published.find_data_sheet("NVIDIA H100 80GB HBM3")
    assert sheet is not None
    return {"compute": 1e9 * sheet.gflops, "memory": 1e9 * sheet.bandwidth, "waiting": waiting}


def make_profile_table(
    model: keras.Model, images: np.ndarray, device: str, rates: Mapping[str, float]
) -> tuple[Table, list[str]]:
    """Return a table of what each layer of a network does forward, how long it takes, and what limits it where.

    The limits are found by the learner's `find_limit` if `check_find_limit` found it right.

    Args:
        model: of layers in a row.
        images: a batch.
        device: where it runs.
        rates: of this device, as `find_limit` takes them.

    Returns:
        The table; and what limits most layers on an H100, with these images and with MORE times as many.
    """
    find, gpu, rows = _right_limits[-1], read_gpu_rates(rates["waiting"]), []
    limits: list[list[str]] = []
    x: Tensor = images
    for layer in model.layers:
        y = layer(x)
        if not layer.name.startswith(("flatten", "rescaling", "dropout")):
            run = timing.measure(functools.partial(layer, x), device=device)
            operations, size = count_work(layer, x.shape, y.shape)
            bound = max(operations / rates["compute"], size / rates["memory"], rates["waiting"])
            limits.append([find(operations, size, gpu), find(MORE * operations, MORE * size, gpu)])
            work = f"{operations / 1e6:,.1f} million", f"{size / 1e6:.1f} MB"
            times = f"{timing.duration(min(run.seconds))} ({timing.duration(bound)})"
            rows.append((type(layer).__name__, *work, times, find(operations, size, rates), " / ".join(limits[-1])))
        x = y
    count, speeds = len(images), f"{rates['compute'] / 1e9:,.0f} GFLOP/s, {rates['memory'] / 1e9:.1f} GB/s"
    last = f"on an H100, {count} / {MORE * count:,} images"
    more = [f"{gpu[what] / rates[what]:,.0f} times" for what in ("compute", "memory")]
    below = [
        f"here: {device}, the fastest runs: {speeds}, {timing.duration(rates['waiting'])} a call.",
        f"H100: {more[0]} the operations, {more[1]} the bytes a second (NVIDIA's data sheet), calls as here.",
    ]
    headers = ("layer", "operations", "moved", "fastest run (by the rates)", "limit here", last)
    columns = [list(column) for column in zip(*limits, strict=True)]
    return Table(rows, headers, below), [max(column, key=column.count) for column in columns]


MORE = 256  # times as many images, in the last column of the profile


def count_work(layer: keras.Layer, before: Sequence[int], after: Sequence[int]) -> tuple[float, float]:
    """Return a layer's additions and multiplications, and the bytes (float32) that it reads and writes at least once.

    Args:
        layer: with weights in a kernel, or without weights.
        before: the shape of what it takes.
        after: the shape of what it makes.
    """
    weights = int(sum(np.prod(weight.shape) for weight in layer.weights))
    numbers = int(np.prod(before)) + int(np.prod(after)) + weights
    if not layer.weights:
        return float(np.prod(before)), 4.0 * numbers  # each number is compared once
    return 2.0 * int(np.prod(layer.kernel.shape)) * int(np.prod(after)) / after[-1], 4.0 * numbers


# ------------------------------------------------------------------------------------------------- exercise 3


def neighbors(x: Tensor) -> Tensor:
    """Return for each place of a 3 x 3 filter the nine pixels under it, channels included; exercise 3 writes this.

    Args:
        x: of shape (n, h, w, c).

    Returns:
        A tensor of shape (n, h - 2, w - 2, 9 c): rows first, then columns, then channels.
    """
    from keras import ops

    h, w = x.shape[1:3]
    return ops.concatenate([x[:, i : i + h - 2, j : j + w - 2] for i in range(3) for j in range(3)], axis=-1)


_right_neighbors: list[tuple[Callable[[Tensor], Tensor], str]] = [(neighbors, "the solution's")]


@checks.print_verdict
def check_neighbors(learner: Callable[[Tensor], Tensor]) -> Iterator[str]:
    """Judge exercise 3 of lesson 05b: the pixels under a 3 x 3 filter; a right one computes in the network."""
    import keras
    from keras import ops

    def call(x: np.ndarray) -> np.ndarray | None:
        found = learner(ops.convert_to_tensor(x))
        return None if found is None or found is ... else ops.convert_to_numpy(found)

    def right(x: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))  # (n, h, w, c, 3, 3)
        return np.moveaxis(windows, 3, -1).reshape(*windows.shape[:3], -1)

    def cases(rng: np.random.Generator) -> list[tuple]:
        small = np.arange(12, dtype=np.float32).reshape(1, 3, 4, 1)
        sizes = ((1, 3, 3, 2), (2, 5, 4, 3), (3, 4, 9, 1))
        return [(small,), *((rng.integers(-99, 999, size).astype(np.float32),) for size in sizes)]

    call.__name__ = "neighbors"
    yield checks.judge_function(call, right, cases)
    model = keras.Sequential([keras.Input((6, 5, 2)), _define_product(learner)(4, 3)])
    images = np.random.default_rng().random((3, 6, 5, 2), np.float32)
    who = "in a network, where the backend traces it and x.shape[0] may be None, neighbors"
    checks.answer(lambda: model.predict(images, batch_size=2, verbose=0), who=who)
    yield "and in a network"
    _right_neighbors.append((learner, "your"))


def exchange_layers(model: keras.Model, others: Mapping[type[keras.Layer], type[keras.Layer]]) -> keras.Model:
    """Return a new network with the weights of another, whose layers of some classes have other classes."""
    import keras

    def make_other(layer: keras.Layer) -> keras.Layer:
        return others.get(type(layer), type(layer)).from_config(layer.get_config())

    with caught_stderr():  # `from_config` imports TensorFlow, on every backend
        exchanged = keras.models.clone_model(model, clone_function=make_other)
    exchanged.set_weights(model.get_weights())
    return exchanged


def define_product_convolution() -> tuple[type[keras.layers.Conv2D], str]:
    """Return a class of Conv2D(3) that computes one matrix product, and in words whose `neighbors` it calls."""
    find, whose = _right_neighbors[-1]
    return _define_product(find), whose


def _define_product(find: Callable[[Tensor], Tensor]) -> type[keras.layers.Conv2D]:
    """Return a class of Conv2D(3) that calls a given `neighbors`; it is defined in a call, which imports Keras."""
    from keras import layers, ops

    class ProductConv2D(layers.Conv2D):
        """A 3 x 3 convolution with stride 1 and without padding."""

        def call(self, inputs: Tensor) -> Tensor:
            kernel = ops.reshape(self.kernel, (-1, self.filters))
            return self.activation(ops.matmul(find(inputs), kernel) + self.bias)

    return ProductConv2D


def make_claims_table(timed: Mapping[str, timing.Measurement], steps: int, whose: str) -> Table:
    """Return a table of the forms of a network: a step's time and what may be said of it, here and where recorded.

    Args:
        timed: by form; the first is compared with.
        steps: in a run.
        whose: `neighbors` computes in the matrix product, in words.
    """
    before, *_ = timed.values()
    rows = []
    for name, run in timed.items():
        each = timing.Measurement(name, run.device, tuple(seconds / steps for seconds in run.seconds))
        records.add_run(each, amount="a step", lesson="05b")
        claim = "" if run is before else timing.decide(before.seconds, run.seconds)
        ratio = max(before.median / run.median, run.median / before.median)
        verdict = claim if claim in ("", "no claim") else f"{ratio:.2g} times {claim}"
        rows.append((name, timing.duration(each.median), verdict))
    table = records.add_column(
        Table(
            rows,
            ("form", "a step here", "beside the article's"),
            [f"here: {before.device}; the matrix product calls {whose} neighbors."],
        ),
        "05b",
    )
    return Table(table.rows, (*table.headers[:-1], "a step on a GPU"), table.below)
