"""The figures of the ranking: all machines of the gallery beside the learner's, and one machine under its ceilings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from helpers.measure.plots import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, figure, show
from helpers.ranking import files
from helpers.ranking.results import Result, digits
from helpers.ranking.scoring import Score, score
from helpers.ranking.tasks import OPERATIONS, TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of the three numbers: colour, marker, and how far above the middle of their row.
SCORES = {"overall": (BLUE, "o", 0.0), "training": (GREEN, "s", 0.22), "inference": (PINK, "D", -0.22)}
NETWORK = "CNN training"  # whose limit the gallery's figure shows
LOOKS = {  # of the frameworks
    "numpy": (GREY, "v"), "opencl": (ORANGE, "o"), "webgpu": (PINK, "P"), "tensorflow": (BLUE, "s"),
    "jax": (GREEN, "D"), "torch": (RED, "^"), "onnxruntime": (SKY, "X"),
}  # fmt: skip


def draw_gallery(yours: Result | None = None, others: Sequence[Result] | None = None) -> None:
    """Draw every machine of the gallery, the best above, with yours marked: its scores, and its CNN under its limit.

    Args:
        yours: your result; without it the gallery alone.
        others: the results to draw beside it; the gallery's if None.
    """
    found = list(files.gallery() if others is None else others)
    rows = [(result.name or "a machine", result, score(result)) for result in found]
    rows += [("yours", yours, score(yours))] if yours else []
    rows.sort(key=lambda row: row[2].overall or 0)
    words, names = [], []
    with figure(9.5, 1.9 + 0.5 * len(rows), ncols=2, sharey=True) as (drawn, (left, right)):
        for place, (name, result, scored) in enumerate(rows):
            if result is yours:
                for panel in (left, right):
                    panel.axhspan(place - 0.42, place + 0.42, color=ORANGE, alpha=0.25, lw=0)
            short = f"\n{len(scored.tasks)} of {scored.of_how_many} tasks" if scored.missing else ""
            names.append(f"{name}{'' if scored.reproducible else ' (noisy)'}{short}")
            for kind, (colour, marker, above) in SCORES.items():
                value = getattr(scored, kind)
                if value and scored.whole(kind):  # a score over other tasks is another score
                    inside = colour if scored.reproducible else "white"
                    left.plot(value, place + above, marker=marker, color=colour, mfc=inside, ms=8, ls="")
            words.append(f"{names[-1].replace(chr(10), ', ')}: {_said(scored)}{_network(right, place, result, scored)}")
        left.axvline(100, color="black", lw=1, ls="--")
        left.set(yticks=range(len(rows)), yticklabels=names, xscale="log", title="Scores (dashed: the reference, 100)")
        left.set_xlabel("score, more is faster")
        right.set(xscale="log", title=f"{NETWORK} under its limit")
        right.set_xlabel("images/s; blue line: middle half; black: measured ceiling")
        for panel in (left, right):
            panel.set_ylim(-0.6, len(rows) - 0.4)
            panel.grid(axis="y", visible=False)
            panel.margins(x=0.15)
            _plain(panel)
        handles = [
            left.plot([], [], marker=marker, color=colour, ls="", label=kind)[0]
            for kind, (colour, marker, _) in SCORES.items()
        ]
        handles.append(left.plot([], [], marker="o", color=GREY, mfc="white", ls="",
                                 label="hollow: noisy, not reproducible")[0])  # fmt: skip
        drawn.legend(handles=handles, loc="outside lower center", ncols=4)
    show(drawn, f"The gallery, {len(rows)} machines. {'; '.join(reversed(words))}.")


def _plain(panel: Axes) -> None:
    """Write 50, 100, 200 below a logarithmic axis, and show a factor of 4 at least."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = panel.get_xlim()
    middle = (low * high) ** 0.5
    panel.set_xlim(min(low, middle / 2), max(high, middle * 2))
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
    panel.xaxis.set_minor_formatter(NullFormatter())


def _said(scored: Score) -> str:
    numbers = ((kind, getattr(scored, kind) if scored.whole(kind) else None) for kind in SCORES)
    return ", ".join(f"{kind} {digits(value)}" if value else f"no {kind}" for kind, value in numbers)


def _network(panel: Axes, place: int, result: Result, scored: Score) -> str:
    """Draw the best speed of NETWORK with its middle half, and the limit of that device; return it in words."""
    if NETWORK not in scored.tasks:
        return ""
    row = scored.tasks[NETWORK].row
    panel.plot(row.quartiles, [place, place], color=BLUE, lw=2)
    panel.plot(row.speed, place, marker="s", color=BLUE, mfc=BLUE if scored.reproducible else "white", ms=8)
    limit = row.ceiling.value * 1e9 / OPERATIONS[NETWORK] if row.ceiling else None
    if limit:
        panel.plot([limit, limit], [place - 0.35, place + 0.35], color="black", lw=2)
    below = f", limit {digits(limit)}" if limit else ""
    return f", {NETWORK} {digits(row.speed)} images/s with {row.title}{below}"


def draw_tasks(result: Result) -> None:
    """Draw what each framework reached in each task, in percent of its device's measured ceiling."""
    measured = [row for row in result.rows if row.percent is not None and TASKS[row.task].group != "ceiling"]
    doubtful = [row for row in measured if not result.noise.quiet or (row.unit == "GB/s" and result.noise.memory)]
    names = [name for name in TASKS if any(row.task == name for row in measured)]
    words = []
    with figure(7.5, 1.6 + 0.38 * len(names)) as (drawn, axes):
        for row in measured:
            colour, marker = LOOKS[row.framework]
            place = len(names) - 1 - names.index(row.task)
            inside = "white" if row in doubtful else colour
            axes.plot(row.percent, place, marker=marker, color=colour, mfc=inside, ms=8, ls="")
            words.append(f"{row.task} with {row.title} {row.percent:.3g} %{' (noisy)' if row in doubtful else ''}")
        axes.axvline(100, color="black", lw=1.5)
        axes.set(yticks=range(len(names)), yticklabels=names[::-1], xscale="log", ylim=(-0.6, len(names) - 0.4))
        axes.set_title(f"How near each comes to the ceilings of {' and '.join(sorted({one.chip for one in measured}))}")
        axes.set_xlabel("percent of the measured ceiling: fastest copy (GB/s), fastest float32 (GFLOP/s)")
        _plain(axes)
        titles = {row.framework: row.title for row in measured}
        handles = [
            axes.plot([], [], marker=LOOKS[name][1], color=LOOKS[name][0], ls="", label=title)[0]
            for name, title in titles.items()
        ]
        if doubtful:
            handles.append(axes.plot([], [], marker="o", color=GREY, mfc="white", ls="", label="hollow: noisy")[0])
        drawn.legend(handles=handles, loc="outside lower center", ncols=4)
    show(drawn, f"Percent of the measured ceiling. {'; '.join(words)}.")
