"""Serve lesson 05b, Make a training faster: its checks, its figure, the profile of a network, its table of claims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from helpers.judge import checks
from helpers.measure import published, records, timing
from helpers.measure.plots import BLUE, ORANGE, figure, show
from helpers.measure.tables import Table

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

        def claim_every_other(a: np.ndarray, b: np.ndarray, asked: list = asked) -> bool:
            asked.append((np.asarray(a).tolist(), np.asarray(b).tolist()))
            return len(asked) % 2 == 1

        call = f"with {length} times in each series and runs = {runs}"
        share = checks.answer(learner, first.copy(), second.copy(), runs, claim_every_other, who=f"{call} false_claims")
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
        claims = (len(wanted) + 1) // 2
        if not isinstance(share, int | float | np.number) or abs(share - claims / len(wanted)) > 1e-6:
            raise checks.NotYet(
                f"{call} the rule claimed a difference {claims} times of {len(wanted)}; "
                f"expected {claims / len(wanted):.4g}, from 0 to 1, came {checks.short(share)}."
            )
    half = len(times) // 2
    share = learner(times[:half], times[half : 2 * half], 5, rule)
    account = f"on this device's times, the second half beside the first: {100 * share:.0f} false claims of 100"
    yield checks.keep_right("false_claims", learner, account)


def draw_false_claims(times: np.ndarray, rules: Mapping[str, Rule]) -> None:
    """Draw how often each rule claims a difference against the number of runs, with the times shuffled.

    Args:
        times: seconds of one work.
        rules: two, by name.
    """
    counts, rng = (3, 5, 7, 9, 11, 13, 17, 21), np.random.default_rng()
    found: dict[str, list[float]] = {name: [] for name in rules}
    for runs in counts:
        drawn = rng.choice(times, (2, 1_000 * runs))  # 1,000 comparisons, the same for each rule
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
            seconds = rng.permutation([1e-3, 2e-3, 2.5e-3])  # no one of them exceeds the sum of the others
            rates = {"compute": 10.0 ** rng.integers(9, 14), "memory": 10.0 ** rng.integers(8, 13)}
            yield (
                float(seconds[0] * rates["compute"]),
                float(seconds[1] * rates["memory"]),
                {**rates, "waiting": float(seconds[2])},
            )

    yield checks.keep_right("find_limit", learner, checks.judge_function(learner, find_limit, cases))


def read_gpu_rates(waiting: float) -> dict[str, float]:
    """Return what NVIDIA's data sheet promises of an H100, in float32 without matrix units, with a host's waiting."""
    sheet = published.find_data_sheet("NVIDIA H100 80GB HBM3")
    assert sheet is not None
    return {"compute": 1e9 * sheet.gflops, "memory": 1e9 * sheet.bandwidth, "waiting": waiting}


def make_rates_table(rates: Mapping[str, float], device: str) -> Table:
    """Return a table of a device's three rates beside those of an H100, as `find_limit` takes them."""
    here, gpu = ([_describe_rate(name, each[name]) for name in rates] for each in (rates, read_gpu_rates(0)))
    gpu[-1] = "assumed as here"
    below = [f"here: {device}, measured, the fastest runs."]
    return Table(list(zip(rates, here, gpu, strict=True)), ("", "here", "an H100, by NVIDIA's data sheet"), below)


def _describe_rate(name: str, rate: float) -> str:
    """Return a rate with its unit: operations or bytes a second, or the seconds of a call."""
    if name == "waiting":
        return f"{timing.duration(rate)} a call"
    return f"{rate / 1e9:,.0f} {'GFLOP/s' if name == 'compute' else 'GB/s'}"


def make_profile_table(
    model: keras.Model, images: np.ndarray, device: str, rates: Mapping[str, float]
) -> tuple[Table, list[str]]:
    """Return a table of what each layer of a network does forward, how long it takes, and what limits it where.

    The limits are found by the learner's `find_limit` if `check_find_limit` found it right. Each layer is timed with
    an eighth of the images and with all of them, in turn. A question mark follows a limit that explains less than half
    of the layer's time.

    Args:
        model: of layers in a row.
        images: as many as divide by 8.
        device: where it runs.
        rates: of this device, as `find_limit` takes them.

    Returns:
        The table; and what limits most layers on an H100, with an eighth of the images and with MORE times as many.
    """
    find, gpu, rows = checks.find_right("find_limit", find_limit), read_gpu_rates(rates["waiting"]), []
    limits: list[list[str]] = []
    below, is_busy = [f"here: {device}, the fastest of 7 runs."], False
    few: Tensor = images[: len(images) // 8]
    many: Tensor = images
    for layer in model.layers:
        output = layer(few)
        if not layer.name.startswith(("flatten", "rescaling", "dropout")):
            ways = {"few": functools.partial(layer, few), "many": functools.partial(layer, many)}
            timed = timing.measure_interleaved(ways, device, repeats=7)
            few_seconds, many_seconds = (min(run.seconds) for run in timed.values())
            operations, size = count_work(layer, few.shape, output.shape)
            bound = max(operations / rates["compute"], size / rates["memory"], rates["waiting"])
            is_busy |= few_seconds < 0.8 * bound or many_seconds < 0.5 * few_seconds
            doubt = " ?" if few_seconds > 2 * bound else ""
            limits.append([find(operations, size, gpu), find(MORE * operations, MORE * size, gpu)])
            rows.append(
                (
                    type(layer).__name__,
                    f"{operations / 1e6:,.1f} million, {size / 1e6:.1f} MB",
                    f"{timing.duration(few_seconds)} ({timing.duration(bound)})",
                    find(operations, size, rates) + doubt,
                    f"{many_seconds / few_seconds:.1f} times",
                    " / ".join(limits[-1]),
                )
            )
        few, many = output, layer(many)
    if is_busy:
        below.append("A layer was faster than the rates allow, or with more images: the device was busy meanwhile.")
    count = len(images) // 8
    times = f"fastest run of {count} images (by the rates)"
    headers = ("layer", "operations, bytes", times, "limit here", "8 times the images")
    columns = [list(column) for column in zip(*limits, strict=True)]
    table = Table(rows, (*headers, f"on an H100, {count} / {MORE * count:,} images"), below)
    return table, [max(column, key=column.count) for column in columns]


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


# ------------------------------------------------------------------------------------------------- its changes


def make_claims_table(timed: Mapping[str, timing.Measurement], steps: int) -> Table:
    """Return a table of the forms of a network: a step's time and what may be said of it, here and where recorded.

    Args:
        timed: by form; the first is compared with.
        steps: in a run.
    """
    before, *_ = timed.values()
    rows = []
    for name, run in timed.items():
        each = timing.Measurement(name, run.device, tuple(seconds / steps for seconds in run.seconds))
        records.add_run(each, amount="a step", lesson="05b")
        claim = "" if run is before else timing.decide(before.seconds, run.seconds)
        ratio = max(before.median / run.median, run.median / before.median)
        verdict = claim if claim in ("", "no claim") else f"{ratio:.2g} times {claim}"
        low, high = map(timing.duration, each.quartiles)
        rows.append((name, f"{timing.duration(each.median)} ({low} to {high})", verdict))
    headers = ("form", "a step here (middle half)", "beside the article's")
    below = [f"here: {before.device}, {len(before.seconds)} runs of each, in turn."]
    table = records.add_column(Table(rows, headers, below), "05b")
    return Table(table.rows, (*headers, "a step on a GPU"), table.below)
