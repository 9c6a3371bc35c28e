"""Every figure of the lessons, in one style: labeled axes, units, color-blind-safe, one message each."""

from __future__ import annotations

import textwrap
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, overload

from helpers.measure.timing import duration

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from helpers.measure.timing import Span


# The palette of Okabe and Ito, made to be told apart with any kind of color vision (jfly.uni-koeln.de/color).
BLUE, ORANGE, GREEN, RED, SKY, PINK, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#777777"
STYLE: dict[Any, Any] = {  # matplotlib's own type for it names some 340 settings
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


@overload
def figure(width: float, height: float, title: str = "") -> AbstractContextManager[tuple[Figure, Axes]]: ...
@overload
def figure(
    width: float,
    height: float,
    title: str = "",
    *,
    nrows: int = 1,
    ncols: int = 1,
    sharex: bool = False,
    sharey: bool = False,
    squeeze: bool = True,
    height_ratios: Sequence[float] | None = None,
) -> AbstractContextManager[tuple[Figure, np.ndarray]]: ...
def figure(width: float, height: float, title: str = "", **subplots: Any) -> AbstractContextManager[tuple[Figure, Any]]:
    """Yield a figure in the workshop's style, and its axes, or an array of them where rows or columns are named.

    Args:
        width: in inches.
        height: in inches.
        title: the message over all of the axes, in as many lines as it needs.
        subplots: rows and columns, as matplotlib's `Figure.subplots` takes them.
    """
    return _open_figure(width, height, title, subplots)


@contextmanager
def _open_figure(width: float, height: float, title: str, subplots: Mapping[str, Any]) -> Generator[tuple[Figure, Any]]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(width, height))
        if title:  # 11 letters of size 11 fill an inch
            drawn.suptitle(textwrap.fill(title, int(11 * width)), fontsize=11, x=0.01, ha="left")
        yield drawn, drawn.subplots(**subplots)


def show(drawn: Figure, alt: str) -> None:
    """Display a figure as a PNG with an alternative text, which JupyterLab and the HTML pages read out."""
    import io

    from IPython.display import Image, display

    png = io.BytesIO()
    drawn.savefig(png, format="png", dpi=96)
    display(Image(data=png.getvalue(), format="png", alt=alt))


def draw_digits(images: np.ndarray, labels: np.ndarray, title: str, columns: int = 10) -> None:
    """Show images in a grid, each under its label, in a thin frame, so that an empty one is seen.

    Args:
        images: uint8 array of shape (n, 28, 28).
        labels: integer array of shape (n,).
        title: what the images are, with the dataset's name.
        columns: images in a row.
    """
    rows = -(-len(images) // columns)
    with figure(7.5, 0.9 * rows + 0.4, title, nrows=rows, ncols=columns, squeeze=False) as (drawn, axes):
        for panel in axes.flat:
            panel.axis("off")
        for panel, image, label in zip(axes.flat, images, labels, strict=False):
            panel.axis("on")
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set(visible=True, linewidth=0.5, color=GREY)
            panel.imshow(image, cmap="gray_r", vmin=0, vmax=255)
            panel.set_title(str(label), fontsize=10, loc="center")
    show(drawn, f"{title}: {len(images)} handwritten digits, each under its label.")


def draw_speeds(
    ways: Mapping[str, tuple[float, float, float]],
    title: str,
    xlabel: str,
    *,
    colors: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    line: tuple[str, float] | None = None,
) -> tuple[Figure, str]:
    """Draw how fast each of several ways is, with the middle half of its runs; `show(*draw_speeds(...))` displays it.

    Args:
        ways: for each way the lower quartile, the median and the upper quartile.
        title: the message of the figure, with the device.
        xlabel: what is drawn, with its unit.
        colors: for each way; blue where there is none.
        notes: for each way a text after its number.
        line: a value to compare with, drawn as a dashed line, and its name before it.

    Returns:
        The figure, and its alternative text.
    """
    colors, notes, words = colors or {}, notes or {}, []
    values = [value for quartiles in ways.values() for value in quartiles] + ([line[1]] if line else [])

    def number(value: float) -> str:  # three significant digits: 0.238, 26.8, 1,200
        return f"{float(f'{value:.3g}'):,g}"

    height = 1.4 + sum(0.2 + 0.2 * len(name.splitlines()) for name in ways)
    with figure(7.5, height, title) as (drawn, axes):
        for place, (name, (low, middle, high)) in enumerate(ways.items()):
            axes.barh(place, middle, height=0.65, color=colors.get(name, BLUE))
            axes.plot([low, high], [place, place], color="black", lw=1.5, marker="|", ms=8)
            axes.annotate(
                number(middle) + notes.get(name, ""),
                (max(high, middle), place),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
            words.append(f"{' '.join(name.split())}: {number(middle)}{notes.get(name, '')}")
        if line:
            axes.axvline(line[1], color="black", ls="--", lw=1)
            words.append(f"{line[0]}: {number(line[1])}")
        marks = f"black: middle half of the runs{f'; dashed: {line[0]}' if line else ''}"
        axes.set(yticks=range(len(ways)), ylim=(len(ways) - 0.4, -0.6), xlabel=xlabel)
        axes.set_yticklabels(list(ways), fontsize=9)
        axes.set_xlim(0, 1.18 * max(values))
        axes.grid(axis="y", visible=False)
        drawn.supxlabel(marks, fontsize=9, x=0.99, ha="right")
    return drawn, f"{title}. {xlabel}: {'; '.join(words)}."


def draw_timeline(runs: Mapping[str, Sequence[Span]], title: str) -> None:
    """Draw what each device did when, one panel a run below the other, all on the same scale.

    Args:
        runs: for each run its pieces of work: the device, what it did, and the seconds at
            which it began and ended; those of one device do not overlap. A device that "sleeps" is not busy.
        title: the message of the figure, with the devices.
    """
    from matplotlib.patches import Patch

    kinds = sorted({what for spans in runs.values() for _, what, _, _ in spans})  # the same colors in each figure
    looks = dict(zip(kinds, ((BLUE, ""), (ORANGE, "//"), (GREEN, ".."), (PINK, "xx")), strict=False))
    devices = sorted({device for spans in runs.values() for device, *_ in spans})
    words, lengths = [], []
    height = (0.42 * len(devices) + 0.45) * len(runs) + 0.9
    with figure(7.5, height, title, nrows=len(runs), sharex=True, squeeze=False) as (drawn, axes):
        for panel, (name, spans) in zip(axes[:, 0], runs.items(), strict=True):
            origin = min(begin for _, _, begin, _ in spans)
            length = max(until for *_, until in spans) - origin
            lengths.append(length)
            busy: dict[str, float] = {}
            for device, what, begin, until in spans:
                busy[device] = busy.get(device, 0) + (what != "sleeps") * (until - begin) / length
                color, hatch = looks[what]
                panel.barh(
                    devices.index(device),
                    1e3 * (until - begin),
                    left=1e3 * (begin - origin),
                    height=0.7,
                    color=color,
                    hatch=hatch,
                    edgecolor="white",
                    lw=0.8,
                )
            for device, share in sorted(busy.items()):
                words.append(f"{name}, {device}: busy {share:.0%}")
                panel.annotate(
                    f"busy {share:.0%}",
                    (1e3 * length, devices.index(device)),
                    xytext=(6, 0),
                    fontsize=9,
                    textcoords="offset points",
                    va="center",
                )
            panel.set_title(f"{name}: {duration(length)}", fontsize=10)
            panel.set(yticks=range(len(devices)), yticklabels=devices, ylim=(len(devices) - 0.5, -0.5))
            panel.grid(axis="y", visible=False)
        axes[-1, 0].set(xlabel="time since the first piece of work (ms)")
        axes[-1, 0].set_xlim(0, 1.16e3 * max(lengths))
        handles = [Patch(fc=color, hatch=hatch, ec="white", label=what) for what, (color, hatch) in looks.items()]
        drawn.legend(handles=handles, loc="outside lower center", ncols=len(kinds))
    show(drawn, f"{title}. {'; '.join(words)}.")
