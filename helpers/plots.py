"""Every figure of the lessons, in one style: labelled axes, units, colour-blind-safe, one message each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from helpers.machine.monitor import Samples
    from helpers.opencl import Trace
    from helpers.timing import Measurement
    from helpers.training import Trial


# The palette of Okabe and Ito, made to be told apart with any kind of colour vision (jfly.uni-koeln.de/color).
BLUE, ORANGE, GREEN, RED, SKY, PINK, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#777777"
GROUP_COLOURS = (SKY, ORANGE, GREEN, PINK)
STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


@contextmanager
def figure(width: float = 7.5, height: float = 3.5, **subplots: object) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure in the workshop's style, and its axes; sizes in inches."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(width, height))
        yield drawn, drawn.subplots(**subplots)


def show(drawn: Figure, alt: str) -> None:
    """Display a figure as a PNG with an alternative text, which JupyterLab and the HTML pages read out."""
    import io

    from IPython.display import Image, display

    png = io.BytesIO()
    drawn.savefig(png, format="png", dpi=96)
    display(Image(data=png.getvalue(), format="png", alt=alt))


def digits(images: np.ndarray, labels: np.ndarray, title: str, columns: int = 10) -> None:
    """Show images in a grid, each under its label.

    Args:
        images: uint8 array of shape (n, 28, 28).
        labels: integer array of shape (n,).
        title: what the images are, with the dataset's name.
        columns: images in a row.
    """
    rows = -(-len(images) // columns)
    with figure(7.5, 0.9 * rows + 0.4, nrows=rows, ncols=columns, squeeze=False) as (drawn, axes):
        for one in axes.flat:
            one.axis("off")
        for one, image, label in zip(axes.flat, images, labels, strict=False):
            one.imshow(image, cmap="gray_r", vmin=0, vmax=255)
            one.set_title(str(label), fontsize=10, loc="center")
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}: {len(images)} handwritten digits, each under its label.")


def idle_and_busy(samples: Samples, device: str) -> None:
    """Show how far a device was used while idle and while the lesson kept it busy.

    Args:
        samples: what `monitor.watch` saw; without a utilisation there is nothing to draw, and it says so.
        device: the name of the device.
    """
    taken = [
        (second, percent, phase)
        for second, percent, phase in zip(samples.times, samples.utilisation, samples.phases, strict=True)
        if percent is not None
    ]
    if not taken:
        print("no figure:", samples.problem or samples.description)
        return
    with figure(7.5, 3.0) as (drawn, axes):
        for phase, colour, marker in (("idle", GREY, "o"), ("busy", BLUE, "s")):
            points = [(second, percent) for second, percent, was in taken if was == phase]
            axes.plot(
                *(zip(*points, strict=True) if points else ((), ())), color=colour, marker=marker, ms=4, label=phase
            )
        axes.set(xlabel="time (s)", ylabel="utilisation (%)", title=device)
        axes.set_ylim(-5, max([115, *(percent for _, percent, _ in taken)]))
        axes.legend(loc="upper left", ncols=2)
    show(drawn, f"Utilisation of {device} in percent over time, idle first and then busy. {samples.verdict()}")


def work_items(trace: Trace, title: str) -> None:
    """Draw which work-item touched which element: arrays that are read above, arrays that are written below.

    Args:
        trace: what `helpers.opencl.trace` recorded of a one-dimensional launch of at most about 20 work-items.
        title: the message of the figure.
    """
    written = {touch.array for touch in trace.touches if touch.writes}
    above = [array for array in trace.lengths if array not in written]
    rows = {array: row for row, array in enumerate([*above, None, *(a for a in trace.lengths if a in written)])}
    middle, items = rows[None], len(trace.global_ids)
    indices = [touch.index for touch in trace.touches]
    first, last = min([0, *indices]), max([items - 1, *indices, *(length - 1 for length in trace.lengths.values())])
    with figure(max(7.5, 0.42 * (last - first + 1) + 1.6), 0.8 * len(rows) + 0.9) as (drawn, axes):
        for touch in trace.touches:
            row = rows[touch.array]
            aside = 0.22 * max(abs(row - middle) - 1, 0)  # an arrow from a farther array passes the nearer one's number
            ends = [(touch.index - aside, row), (touch.item - aside, middle)]
            colour = RED if not touch.inside else BLUE if touch.writes else GREY
            _arrow(axes, *(reversed(ends) if touch.writes else ends), colour)
            if not touch.inside:
                _cell(axes, touch.index, row, "white", "×", RED)
        for item in range(items):
            group = GROUP_COLOURS[trace.group_ids[item, 0] % len(GROUP_COLOURS)]
            _cell(axes, item, middle, group, f"{trace.global_ids[item, 0]}", small=f"{trace.local_ids[item, 0]}")
        for array, length in trace.lengths.items():
            for element in range(length):
                _cell(axes, element, rows[array], "white", f"{element}")
        labels = {row: f"array {array}" if array else "work-items" for array, row in rows.items()}
        axes.set_yticks(list(labels), list(labels.values()))
        axes.set(xlim=(first - 0.8, last + 0.8), ylim=(len(rows) - 0.5, -0.5), xticks=[], title=title)
        axes.set_xlabel(
            "work-items: one colour for each work-group, large the global id, small the local id; arrays: the index",
            fontsize=8.5,
        )
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    bad = len(trace.outside)
    show(drawn, f"{title}. {items} work-items and the elements that each touched; {bad} accesses lie outside an array.")


def _cell(axes: Axes, x: float, y: float, colour: str, text: str, edge: str = "black", small: str = "") -> None:
    """A box around (x, y)."""
    from matplotlib.patches import Rectangle

    line = "--" if edge == RED else "-"
    axes.add_patch(Rectangle((x - 0.4, y - 0.3), 0.8, 0.6, facecolor=colour, edgecolor=edge, lw=1, ls=line, zorder=1))
    axes.text(x - 0.1 * bool(small), y, text, ha="center", va="center", fontsize=10, color=edge, zorder=4)
    axes.text(x + 0.26, y + 0.17, small, ha="center", va="center", fontsize=7, color=edge, zorder=4)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    down = 0.3 if end[1] > start[1] else -0.3
    tip = (end[0], end[1] - down)
    look = {"arrowstyle": "-|>", "color": colour, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=tip, xytext=(start[0], start[1] + down), arrowprops=look, zorder=3)


def where_time_goes(parts: dict[str, float], title: str) -> None:
    """Show the parts of one run as one bar, in milliseconds.

    Args:
        parts: seconds by the name of the part, in order.
        title: the message of the figure, with the device.
    """
    colours = (SKY, BLUE, ORANGE, GREEN, PINK, GREY)
    with figure(7.5, 1.9) as (drawn, axes):
        left = 0.0
        for (part, seconds), colour in zip(parts.items(), colours, strict=False):
            axes.barh(
                0,
                seconds * 1e3,
                left=left * 1e3,
                color=colour,
                edgecolor="white",
                label=f"{part}: {seconds * 1e3:.2g} ms",
            )
            left += seconds
        axes.set(xlabel="time (ms)", yticks=[], title=title)
        drawn.legend(loc="outside lower center", ncols=len(parts))
    words = ", ".join(f"{part} {seconds * 1e3:.2g} ms" for part, seconds in parts.items())
    show(drawn, f"{title}: {words}.")


def time_against_size(series: dict[str, list[tuple[int, Measurement]]], title: str, xlabel: str) -> None:
    """Draw time against size on logarithmic axes, each point with the quartiles of its runs.

    Args:
        series: for each line its points: the size and what was measured there.
        title: the message of the figure.
        xlabel: what the size counts.
    """
    looks = ((ORANGE, "o", "-"), (BLUE, "s", "-"), (SKY, "^", "--"), (GREEN, "D", "--"))
    with figure(7.5, 4.2) as (drawn, axes):
        for (label, points), (colour, marker, line) in zip(series.items(), looks, strict=False):
            sizes = [size for size, _ in points]
            axes.plot(sizes, [m.median for _, m in points], color=colour, marker=marker, ls=line, ms=5, label=label)
            low, high = zip(*(m.quartiles for _, m in points), strict=True)
            axes.fill_between(sizes, low, high, color=colour, alpha=0.2, lw=0)
        axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="time of one run (s)", title=title)
        axes.legend()
    show(drawn, f"{title} Lines: {', '.join(series)}; time in seconds against {xlabel}, both axes logarithmic.")


def _extent(spans: Sequence[tuple[str, str, float, float]]) -> tuple[float, float]:
    """When the first piece of work began, and how long it took until the last one ended; in seconds."""
    begin = min(span[2] for span in spans)
    return begin, max(span[3] for span in spans) - begin


def busy(spans: Sequence[tuple[str, str, float, float]]) -> dict[str, float]:
    """Return for each device the share of the run in which it worked, from 0 to 1.

    Args:
        spans: pieces of work as `timing.Record` notes them; those of one device do not overlap.
    """
    _, whole = _extent(spans)
    devices = sorted({device for device, *_ in spans})
    return {
        device: sum(until - begin for where, _, begin, until in spans if where == device) / whole for device in devices
    }


def timeline(runs: Mapping[str, Sequence[tuple[str, str, float, float]]], title: str) -> None:
    """Draw what each device did when, one panel a run below the other, all on the same scale.

    Args:
        runs: for each run its pieces of work: the device, what it did, and the seconds at which it began and ended, on
            any clock.
        title: the message of the figure, with the devices.
    """
    from matplotlib.patches import Patch

    kinds = list(dict.fromkeys(what for spans in runs.values() for _, what, _, _ in spans))
    looks = dict(zip(kinds, ((BLUE, ""), (ORANGE, "//"), (GREEN, ".."), (PINK, "xx")), strict=False))
    devices = sorted({device for spans in runs.values() for device, *_ in spans})
    words = []
    with figure(7.5, (0.42 * len(devices) + 0.45) * len(runs) + 0.9, nrows=len(runs), sharex=True, squeeze=False) as (
        drawn,
        axes,
    ):
        for panel, (name, spans) in zip(axes[:, 0], runs.items(), strict=True):
            origin, length = _extent(spans)
            for device, what, begin, until in spans:
                colour, hatch = looks[what]
                panel.barh(
                    devices.index(device), 1e3 * (until - begin), left=1e3 * (begin - origin), height=0.7,
                    color=colour, hatch=hatch, edgecolor="white", lw=0.8,
                )  # fmt: skip
            for device, share in busy(spans).items():
                words.append(f"{name}, {device}: busy {share:.0%}")
                panel.annotate(f"busy {share:.0%}", (1e3 * length, devices.index(device)), xytext=(6, 0),
                               fontsize=9, textcoords="offset points", va="center")  # fmt: skip
            panel.set_title(f"{name}: {1e3 * length:.3g} ms", fontsize=10)
            panel.set(yticks=range(len(devices)), yticklabels=devices, ylim=(len(devices) - 0.5, -0.5))
            panel.grid(axis="y", visible=False)
        axes[-1, 0].set(xlabel="time since the first piece of work (ms)")
        axes[-1, 0].set_xlim(0, 1.16e3 * max(_extent(spans)[1] for spans in runs.values()))
        handles = [
            Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=what)
            for what, (colour, hatch) in looks.items()
        ]
        drawn.legend(handles=handles, loc="outside lower center", ncols=len(kinds))
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}. {'; '.join(words)}.")


def speed_up(lines: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw how many times as fast 1, 2, 3 ... devices are as one, beside the best that there could be.

    Args:
        lines: for each case the factor for 1 device, 2 devices and so on.
        title: the message of the figure; it says whether the factors were measured or computed.
    """
    most = max(len(factors) for factors in lines.values())
    looks = ((BLUE, "s"), (ORANGE, "o"), (GREEN, "^"), (PINK, "D"))
    with figure(7.5, 3.8) as (drawn, axes):
        axes.plot([1, most], [1, most], color=GREY, ls="--", lw=1.2, label="ideal: as many times as devices")
        axes.axhline(1, color=GREY, lw=0.8)
        for (name, factors), (colour, marker) in zip(lines.items(), looks, strict=False):
            axes.plot(range(1, len(factors) + 1), factors, color=colour, marker=marker, ms=5, label=name)
        axes.set(xlabel="devices", ylabel="times as fast as one", title=title, ylim=(0, None))
        axes.set_xticks(range(1, most + 1))
        axes.legend()
    words = "; ".join(f"{name}: {factors[-1]:.2g} with {len(factors)}" for name, factors in lines.items())
    show(drawn, f"{title}. Times as fast as one device: {words}.")


def blocks(steps: Mapping[str, tuple[int, int]], size: int, title: str) -> None:
    """Draw what a block of C = A B needs: some rows of A and as many columns of B as the block has.

    Args:
        steps: for each step the rows and the columns of C that are computed together.
        size: rows and columns of the matrices.
        title: the message of the figure.
    """
    from matplotlib.patches import Rectangle

    words = []
    with figure(7.5, 2.9, ncols=len(steps)) as (drawn, axes):
        for panel, (name, (rows, columns)) in zip(axes, steps.items(), strict=True):
            gap, top, left = size * 0.25, 0.4 * size, 0.3 * size
            matrices = {"A": (0, size + gap), "B": (size + gap, 0), "C": (size + gap, size + gap)}
            needed = {"A": (0, top, size, rows), "B": (left, 0, columns, size), "C": (left, top, columns, rows)}
            for matrix, (x, y) in matrices.items():
                right, down, wide, high = needed[matrix]
                colour = BLUE if matrix == "C" else ORANGE
                panel.add_patch(Rectangle((x, y), size, size, facecolor="none", edgecolor=GREY))
                panel.add_patch(Rectangle((x + right, y + down), wide, high, facecolor=colour, edgecolor=colour))
                panel.text(x + 2, y + size - 2, matrix, fontsize=10, va="bottom")
            loads = (rows + columns) / (rows * columns)
            panel.set_title(f"{name}\n{rows} x {columns}: {loads:.2g} loads\nfor one multiply-add", fontsize=9.5)
            panel.set(xlim=(-1, 2 * size + gap + 1), ylim=(2 * size + gap + 1, -1), aspect="equal")
            panel.axis("off")
            words.append(f"{name}: {rows} rows of A and {columns} columns of B, {loads:.2g} loads for one multiply-add")
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}. {'; '.join(words)}.")


def bars(speeds: Mapping[str, tuple[float, float, float]], title: str, xlabel: str) -> None:
    """Draw how fast each of several ways is, one bar a way, with the middle half of its runs.

    Args:
        speeds: for each way the lower quartile, the median and the upper quartile.
        title: the message of the figure, with the device.
        xlabel: what is drawn, with its unit.
    """
    with figure(7.5, 0.36 * len(speeds) + 1.1) as (drawn, axes):
        for place, (low, middle, high) in enumerate(speeds.values()):
            errors = [[middle - low], [high - middle]]
            axes.barh(place, middle, xerr=errors, color=BLUE, error_kw={"ecolor": "black", "capsize": 3})
            axes.annotate(f"{middle:.3g}", (high, place), xytext=(6, 0), textcoords="offset points", va="center")
        axes.set(yticks=range(len(speeds)), yticklabels=list(speeds), xlabel=xlabel, title=title)
        axes.set_xlim(0, 1.15 * max(high for _, _, high in speeds.values()))
        axes.set_ylim(len(speeds) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
    words = "; ".join(f"{name}: {middle:.3g}" for name, (_, middle, _) in speeds.items())
    show(drawn, f"{title}. {xlabel}: {words}.")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share > 0.1 else f"{100 * share:.1g} %"


def roofline(
    points: Mapping[str, tuple[float, float]], bandwidth: float, ceilings: Mapping[str, float], title: str
) -> None:
    """Draw how fast each program is under the device's measured ceilings (Williams, Waterman, Patterson, 2009).

    Args:
        points: for each program the operations for each byte that it asks of global memory, and its GFLOP/s.
        bandwidth: what the device's memory delivers, in GB/s.
        ceilings: what arithmetic delivers, in GFLOP/s: first the peak, then lower ones, which are dashed.
        title: the message of the figure, with the device.
    """
    looks = ((ORANGE, "o"), (SKY, "v"), (PINK, "^"), (GREEN, "D"), (BLUE, "s"), (RED, "P"))
    peak = next(iter(ceilings.values()))
    ridge = peak / bandwidth
    reach = [ridge, *(x for x, _ in points.values())]
    left, right = min(reach) / 4, max(reach) * 4
    with figure(7.5, 4.8) as (drawn, axes):
        axes.plot([left, ridge, right], [left * bandwidth, peak, peak], color="black", lw=1.6)
        for number, (name, speed) in enumerate(ceilings.items()):
            side = "top" if number else "bottom"
            axes.annotate(f"{name}: {speed:.3g} GFLOP/s", (right, speed), xytext=(0, -3 if number else 2),
                          textcoords="offset points", ha="right", va=side, fontsize=9)  # fmt: skip
            if number:
                axes.plot([speed / bandwidth, right], [speed, speed], color="black", lw=1, ls="--")
        axes.annotate(f"memory: {bandwidth:.3g} GB/s", (left, left * bandwidth), xytext=(2, 40), fontsize=9,
                      textcoords="offset points", va="bottom")  # fmt: skip
        for (name, (x, speed)), (colour, marker) in zip(points.items(), looks, strict=False):
            label = f"{name}: {speed:.3g} GFLOP/s, {_percent(speed / peak)} of the peak"
            axes.plot(x, speed, color=colour, marker=marker, ms=9, ls="", label=label)
        axes.set(xscale="log", yscale="log", xlim=(left, right), title=title)
        axes.set(xlabel="operations for each byte asked of global memory (FLOP/byte)", ylabel="speed (GFLOP/s)")
        lowest = min([left * bandwidth, *ceilings.values(), *(speed for _, speed in points.values())])
        axes.set_ylim(lowest / 2.5, peak * 3)
        drawn.legend(loc="outside lower center", ncols=2)
    words = "; ".join(f"{name}: {speed:.3g} GFLOP/s at {x:.3g} FLOP/byte" for name, (x, speed) in points.items())
    roofs = ", ".join(f"{name} {speed:.3g} GFLOP/s" for name, speed in ceilings.items())
    show(drawn, f"{title}. Ceilings: memory {bandwidth:.3g} GB/s, {roofs}. {words}.")


def repeated(results: Mapping[str, Sequence[float]], right: float, title: str, ylabel: str) -> None:
    """Draw what each of several kernels returned in run after run, beside the right answer.

    Args:
        results: for each kernel what it returned, in the order of its runs.
        right: what every run should return.
        title: the message of the figure, with the device.
        ylabel: what was returned.
    """
    looks = ((RED, "x", 7), (BLUE, "s", 11), (GREEN, "^", 5))  # a triangle fits into a square
    with figure(7.5, 3.2) as (drawn, axes):
        axes.axhline(right, color=GREY, ls="--", lw=1.2, label=f"right: {right:,}")
        for (name, values), (colour, marker, size) in zip(results.items(), looks, strict=False):
            runs, hollow = range(1, len(values) + 1), "none" if marker == "s" else colour
            axes.plot(runs, values, color=colour, marker=marker, ms=size, mfc=hollow, ls="", label=name)
        most = max([right, *(value for values in results.values() for value in values)])
        axes.set(xlabel="run", ylabel=ylabel, title=title, ylim=(0, 1.1 * most))
        axes.set_xticks(range(1, max(map(len, results.values())) + 1))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        drawn.legend(loc="outside lower center", ncols=len(results) + 1)
    words = "; ".join(f"{name}: {min(values):,} to {max(values):,}" for name, values in results.items())
    show(drawn, f"{title}. Right would be {right:,}. {words}.")


# ---------------------------------------------------------------------------------------------- trained networks


def curves(history: dict[str, list[float]], title: str) -> None:
    """Draw loss and accuracy against the epoch, on the training images and on the test images.

    Args:
        history: what `fit` returns as `history`: loss, accuracy, val_loss and val_accuracy, one entry an epoch.
        title: the message of the figure, with the dataset.
    """
    from matplotlib.ticker import MaxNLocator

    with figure(7.5, 3.2, ncols=2) as (drawn, axes):
        for one, name, ylabel, factor in zip(
            axes, ("accuracy", "loss"), ("accuracy (%)", "loss"), (100, 1), strict=True
        ):
            for key, colour, marker, label in (
                (name, ORANGE, "o", "training images"), (f"val_{name}", BLUE, "s", "test images"),
            ):  # fmt: skip
                values = [factor * value for value in history[key]]
                one.plot(range(1, len(values) + 1), values, color=colour, marker=marker, ms=4, label=label)
            one.set(xlabel="epoch", ylabel=ylabel)
            one.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0].legend(loc="lower right")
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}: accuracy and loss by epoch, on training images and on test images.")


def confusion(counts: np.ndarray, title: str) -> None:
    """Show how often each digit was taken for each other one; the right answers, far more, stay grey.

    Args:
        counts: integers of shape (classes, classes): row the digit shown, column the answer.
        title: the message of the figure, with the dataset.
    """
    import numpy as np

    wrong = counts * (1 - np.eye(len(counts), dtype=counts.dtype))
    with figure(5.6, 4.6) as (drawn, axes):
        axes.imshow(np.ma.masked_equal(wrong, 0), cmap="Oranges", vmin=0, vmax=max(wrong.max(), 1) * 1.3)
        for (row, column), count in np.ndenumerate(counts):
            if count:
                grey = GREY if row == column else "black"
                axes.text(column, row, f"{count}", ha="center", va="center", fontsize=8.5, color=grey)
        ticks = range(len(counts))
        axes.set(xlabel="what the network said", ylabel="what it was shown", xticks=ticks, yticks=ticks, title=title)
        axes.grid(False)
    show(drawn, f"{title}: {wrong.sum()} wrong answers of {counts.sum()}, as a matrix of digit shown and answer given.")


def time_per_image(measured: dict[int, Measurement], published: dict[str, tuple[int, float]], title: str) -> None:
    """Draw the time for one image against the batch size, beside published figures; both axes logarithmic.

    Args:
        measured: for each batch size one training step, in seconds.
        published: for each device its batch size and its seconds for one image.
        title: the message of the figure, with the device.
    """
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    sizes = sorted(measured)
    with figure(7.5, 4.0) as (drawn, axes):
        medians = [measured[size].median / size * 1e6 for size in sizes]
        low, high = zip(*([q / size * 1e6 for q in measured[size].quartiles] for size in sizes), strict=True)
        axes.plot(sizes, medians, color=BLUE, marker="s", ms=5, label="measured here")
        axes.fill_between(sizes, low, high, color=BLUE, alpha=0.2, lw=0)
        for (label, (size, seconds)), marker, colour in zip(
            published.items(), ("^", "v"), (ORANGE, GREEN), strict=False
        ):
            axes.plot([size], [seconds * 1e6], marker=marker, ms=8, mfc="none", mew=2, ls="", color=colour, label=label)
        axes.set(xscale="log", yscale="log", xlabel="images in a batch", ylabel="time for one image (µs)", title=title)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.minorticks_off()
        axes.legend()
    show(drawn, f"{title} Time for one image in microseconds against the batch size, both axes logarithmic.")


def by_seed(accuracies: dict[str, dict[int, float]], images: int, title: str) -> None:
    """Show the test accuracies of several seeds, each with the error of counting.

    Args:
        accuracies: for each way of training the accuracy by seed, from 0 to 1.
        images: how many test images were counted.
        title: the message of the figure, with the dataset.
    """
    rows = [(way, seed, accuracy) for way, seeds in accuracies.items() for seed, accuracy in seeds.items()]
    looks = dict(zip(accuracies, ((ORANGE, "o"), (BLUE, "s"), (GREEN, "^")), strict=False))
    with figure(7.5, 0.4 * len(rows) + 1.1) as (drawn, axes):
        for row, (way, _, accuracy) in enumerate(rows):
            colour, marker = looks[way]
            error = (accuracy * (1 - accuracy) / images) ** 0.5
            label = way if way not in [before for before, *_ in rows[:row]] else None
            axes.errorbar(100 * accuracy, row, xerr=100 * error, fmt=marker, color=colour, capsize=4, label=label)
        axes.set_yticks(range(len(rows)), [f"seed {seed}" for _, seed, _ in rows])
        axes.set(xlabel="accuracy on the test images (%)", ylim=(len(rows) - 0.5, -0.5), title=title)
        drawn.legend(loc="outside lower center", ncols=len(accuracies))
    words = "; ".join(f"{way}, seed {seed}: {100 * accuracy:.2f} %" for way, seed, accuracy in rows)
    show(drawn, f"{title}: {words}.")


def maps(images: Sequence[np.ndarray], titles: Sequence[str], title: str, columns: int = 2) -> None:
    """Show arrays as pictures, each on a scale of its own: blue above zero, white at zero, orange below.

    Args:
        images: arrays of two axes.
        titles: what stands above each.
        title: the message of the figure.
        columns: pictures in a row.
    """
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("orange-white-blue", [RED, "white", BLUE])
    rows = -(-len(images) // columns)
    size = min(7.5 / columns, 2.6)
    with figure(size * columns, (size + 0.2 * any(titles)) * rows + 0.4, nrows=rows, ncols=columns, squeeze=False) as (
        drawn,
        axes,
    ):
        for one in axes.flat:
            one.set(xticks=[], yticks=[])
            one.grid(False)
            one.spines[:].set_visible(True)
        for one, image, above in zip(axes.flat, images, titles, strict=False):
            largest = float(np.abs(image).max()) or 1.0
            one.imshow(image, cmap=colours, vmin=-largest, vmax=largest)
            one.set_title(above, fontsize=9, loc="center")
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    show(drawn, f"{title}: {len(images)} pictures.")


def trials(tried: Sequence[Trial], steps: int, title: str) -> None:
    """Draw the time of a training step for each change that was tried, and what became of it.

    Args:
        tried: what `training.keep_what_pays` returns, the form to start from first.
        steps: training steps in one run of a trial.
        title: the message of the figure, with the device.
    """
    with figure(7.5, 0.42 * len(tried) + 0.9) as (drawn, axes):
        for row, trial in enumerate(tried):
            if trial.run is None:
                axes.annotate(
                    trial.verdict, (0, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9
                )
                continue
            milliseconds = 1e3 / steps
            low, high = (milliseconds * quartile for quartile in trial.run.quartiles)
            median = milliseconds * trial.run.median
            colour = BLUE if trial.verdict == "kept" else ORANGE if trial.verdict == "start" else GREY
            axes.barh(row, median, color=colour, height=0.6)
            axes.plot([low, high], [row, row], color="black", lw=1.5)
            axes.annotate(f"{median:.3g} ms  {trial.verdict}", (max(high, median), row), xytext=(6, 0),
                          textcoords="offset points", va="center", fontsize=9)  # fmt: skip
        axes.set_yticks(
            range(len(tried)), [f"{trial.name}" if trial.verdict == "start" else f"+ {trial.name}" for trial in tried]
        )
        longest = max((1e3 / steps * trial.run.median for trial in tried if trial.run), default=1)
        axes.set(xlabel="time of one training step (ms)", xlim=(0, 1.6 * longest), ylim=(len(tried) - 0.5, -0.5))
        axes.grid(axis="y", visible=False)
        drawn.suptitle(title, fontsize=11, x=0.01, ha="left")
    times = {trial.name: f"{1e3 / steps * trial.run.median:.3g} ms, " if trial.run else "" for trial in tried}
    words = "; ".join(f"{trial.name}: {times[trial.name]}{trial.verdict}" for trial in tried)
    show(drawn, f"{title} {words}.")
