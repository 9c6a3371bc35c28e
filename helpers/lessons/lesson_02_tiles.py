"""Lesson 02, Multiply matrices with OpenCL: what a tiled kernel touches, and which mistake that shows."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices.kernel_text import without_comments
from helpers.judge.trace import Touch, Trace
from helpers.measure.plots import BLUE, GREY, ORANGE, SKY, figure, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_rounds(recorded: Trace, size: int, group: tuple[int, int], title: str, element: tuple[int, int]) -> None:
    """Draw what one work-group of the tiled kernel loads in each round, and what one element of C uses of it.

    Args:
        recorded: of a launch on square matrices; a round is what lies between every second barrier.
        size: rows and columns of the matrices.
        group: the work-group, its ids in both dimensions.
        title: the message of the figure.
        element: the local ids in both dimensions of the work-item whose use is framed.
    """
    touches = [touch for touch in recorded.touches if tuple(recorded.group_ids[touch.item, :2]) == group]
    last = max(touch.rounds for touch in touches) // 2
    words = []
    with figure(7.5, 4.3, title, ncols=last) as (drawn, axes):
        for number, panel in enumerate(np.atleast_1d(axes)):
            filled = [touch for touch in touches if (touch.rounds + 1) // 2 == number]
            loads = [touch for touch in filled if touch.reads and touch.array in recorded.lengths]
            stores = [touch for touch in touches if touch.writes and touch.array in recorded.lengths]
            reads = [touch for touch in touches if touch.reads and touch.rounds == 2 * number + 1]
            reads = [touch for touch in reads if touch.array not in recorded.lengths]
            framed = _find_loaded(filled, [read for read in reads if _has_ids(recorded, read, element)])
            framed += [touch for touch in stores if _has_ids(recorded, touch, element)]
            _draw_matrices(panel, size, recorded, [*loads, *stores], framed)
            caption = f"{len(loads)} loads, each used {len(reads) / max(len(loads), 1):g} times"
            panel.set_title(f"round {number + 1}\n{caption}", fontsize=9.5)
            words.append(f"Round {number + 1}: {caption}")
    framed_in_words = f"Framed: what the work-item with the local ids {element[0]},{element[1]} multiplies"
    show(drawn, f"{title}. {'. '.join(words)}. {framed_in_words}.")


def _has_ids(recorded: Trace, touch: Touch, ids: tuple[int, int]) -> bool:
    return tuple(recorded.local_ids[touch.item, :2]) == ids


def _find_loaded(filled: Sequence[Touch], reads: Sequence[Touch]) -> list[Touch]:
    """Return the loads from global memory whose numbers were read later from the tiles.

    Args:
        filled: what work-items touched while they filled the tiles: each loads one number into either.
        reads: what was read from the tiles afterwards.
    """
    tiles = {read.array for read in reads}
    fillers = {(touch.array, touch.index): touch.item for touch in filled if touch.writes and touch.array in tiles}
    loads = {(touch.array, touch.item): touch for touch in filled if touch.reads and touch.array not in tiles}
    # A tile is called after its matrix: a_tile holds numbers of a.
    found = (loads.get((read.array[0], fillers.get((read.array, read.index), -1))) for read in reads)
    return [load for load in found if load]


def _draw_matrices(panel: Axes, size: int, recorded: Trace, touches: Sequence[Touch], framed: Sequence[Touch]) -> None:
    """Draw A, B and C with their touched elements: the local ids of who loads, and frames."""
    from matplotlib.patches import Rectangle

    start = 1.2 * size
    origin = {"a": (0, start), "b": (start, 0), "c": (start, start)}
    colors = {"a": ORANGE, "b": SKY, "c": BLUE}
    for name, (x, y) in origin.items():
        panel.add_patch(Rectangle((x, y), size, size, facecolor="none", edgecolor=GREY))
        panel.text(x + size / 2, y - 0.1, name.upper(), fontsize=11, ha="center", va="bottom")
    for touch in touches:
        x, y = origin[touch.array][0] + touch.index % size, origin[touch.array][1] + touch.index // size
        panel.add_patch(Rectangle((x, y), 1, 1, facecolor=colors[touch.array], edgecolor="white"))
        if touch.reads:
            across, down = recorded.local_ids[touch.item, :2]
            panel.text(x + 0.5, y + 0.52, f"{across},{down}", fontsize=7, ha="center", va="center")
    for touch in framed:
        x, y = origin[touch.array][0] + touch.index % size, origin[touch.array][1] + touch.index // size
        panel.add_patch(Rectangle((x, y), 1, 1, facecolor="none", edgecolor="black", lw=2))
    panel.set(xlim=(-0.2, 2.2 * size + 0.2), ylim=(2.2 * size + 0.2, -0.8), aspect="equal")
    panel.axis("off")


def count_reads(recorded: Trace) -> tuple[int, int, int]:
    """Return how many numbers all work-items of a product load of A and of B, and read of local memory."""
    counted = collections.Counter(touch.array for touch in recorded.touches if touch.reads)
    a, b = (counted[name] for name in list(recorded.lengths)[:2])
    return a, b, counted.total() - a - b


def name_missing_barrier(traced: Trace, source: str) -> str:
    """Return a sentence on which of a tiled kernel's two barriers does not hold; empty if no tile is raced over.

    Between two barriers, each work-item either fills the tiles or uses them. One that does both in this order lacks
    the barrier after the filling; one that does both in the other order lacks the barrier after the use.
    """
    orders: dict[tuple[int, int], str] = collections.defaultdict(str)
    for touch in traced.touches:
        if touch.array not in traced.lengths:
            orders[touch.item, touch.barriers] += "w" if touch.writes else "r"
    raced = re.search(r"both touch (\w+)\[", (traced.races() or [""])[0])
    if raced is None or raced[1] in traced.lengths:
        return ""
    text = without_comments(source)
    if "CLK_GLOBAL_MEM_FENCE" in text and "CLK_LOCAL_MEM_FENCE" not in text:
        return "CLK_GLOBAL_MEM_FENCE orders global memory alone, and tiles lie in local memory: CLK_LOCAL_MEM_FENCE."
    fault = "does not hold for the whole group" if text.count("barrier(") > 1 else "is missing"
    if any("wr" in order for order in orders.values()):
        return f"The first wait {fault}: the tiles are used before the whole group has filled them."
    if any("rw" in order for order in orders.values()):
        return f"The second wait {fault}: the tiles are filled for the next round while others still use them."
    return ""


def name_wrong_ids(traced: Trace, columns: int) -> str:
    """Return a sentence if C's row or column comes from a wrong id: the other dimension's, or a local one.

    Args:
        traced: the record of a launch with one work-item for each element of C, the third array.
        columns: of C.
    """
    (across, down), (x, y) = traced.global_ids.T[:2], traced.local_ids.T[:2]
    product = list(traced.lengths)[2]
    stores = [touch for touch in traced.touches if touch.writes and touch.array == product]
    local = "comes from a local id, which begins anew in each group: use the global id."
    wrong = {
        "The ids are swapped: here dimension 0 gives the row of C, and it should give the column.": (across, down),
        f"C's row {local}": (y, across),
        f"C's column {local}": (down, x),
        f"C's place {local}": (y, x),
    }
    right = down * columns + across
    for sentence, (row, column) in wrong.items():
        places = row * columns + column
        if all(touch.index == places[touch.item] for touch in stores):
            return sentence if any(touch.index != right[touch.item] for touch in stores) else ""
    return ""


def name_product(a: np.ndarray, b: np.ndarray, actual: np.ndarray, tile: int) -> str:
    """Return a sentence on the one known mistake by which all of C is as it is; empty if there is none or several.

    Args:
        a: float32 of shape (m, k), whose numbers have exact sums.
        b: float32 of shape (k, n).
        actual: C, of shape (m, n).
        tile: rows and columns of the kernel's tiles; 1 if it has none.
    """
    found = [name for name, product in _compute_mistakes(a, b, tile) if np.array_equal(product, actual)]
    return f" All of C is as if {found[0]}." if len(found) == 1 else ""


def _compute_mistakes(a: np.ndarray, b: np.ndarray, tile: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what C is by a mistake, in words that follow "as if", and that C; `name_product` has the arguments."""
    (m, k), n = a.shape, b.shape[1]
    yield "A's columns, not its rows, lay one after the other: `a[i * m + row]`", a.reshape(k, m).T @ b
    yield "B's columns, not its rows, lay one after the other: `b[column * k + i]`", a @ b.reshape(n, k).T
    yield "columns, not rows, of both A and B lay one after the other", a.reshape(k, m).T @ b.reshape(n, k).T
    yield "C's columns, not its rows, lay one after the other: `c[column * m + row]`", (a @ b).T.reshape(m, n)
    if k < n:
        yield (
            "a row of B had k numbers: `b[i * k + column]`",
            a @ b.ravel()[np.add.outer(k * np.arange(k), np.arange(n))],
        )
    if m <= n:
        same = (a * b[:, :m].T).sum(axis=1, keepdims=True)
        yield "`row` chose the column of B: `b[i * n + row]`", np.repeat(same, n, axis=1)
    yield "only the last product counted, not the sum", a[:, -1:] @ b[-1:]
    yield "the last product were left out", a[:, :-1] @ b[:-1]
    yield "the first product were left out", a[:, 1:] @ b[1:]
    if tile > 1 and not any(size % tile for size in (m, n, k)):
        yield "the sum began anew in each round", a[:, -tile:] @ b[-tile:]
        yield "only the first round counted", a[:, :tile] @ b[:tile]
        first_rows, first_columns, first_steps = (np.arange(size) % tile for size in (m, n, k))
        yield "every group loaded A's first rows: the local id is not the row", a[first_rows] @ b
        yield "every group loaded B's first columns: the local id is not the column", a @ b[:, first_columns]
        yield "every round loaded the same tile of A: `start` is missing", a[:, first_steps] @ b
        yield "every round loaded the same tile of B: `start` is missing", a @ b[first_steps]
        yield "rows of B's tile met columns of A's: swap the tiles", _swap_tiles(a, b, tile)
        yield "rows and columns of A's tile were swapped", _turn_tiles(a, tile) @ b
        yield "rows and columns of B's tile were swapped", a @ _turn_tiles(b, tile)
        yield "rows and columns of both tiles were swapped", _turn_tiles(a, tile) @ _turn_tiles(b, tile)


def _swap_tiles(a: np.ndarray, b: np.ndarray, tile: int) -> np.ndarray:
    """Return C whose tiles are sums of a tile of B times a tile of A, in this order."""
    (m, k), n = a.shape, b.shape[1]
    of_a, of_b = a.reshape(m // tile, tile, k // tile, tile), b.reshape(k // tile, tile, n // tile, tile)
    return np.einsum("syci,risx->rycx", of_b, of_a).reshape(m, n)


def _turn_tiles(matrix: np.ndarray, tile: int) -> np.ndarray:
    """Return a matrix in which each tile is transposed in its place.

    >>> _turn_tiles(np.arange(8).reshape(2, 4), 2).tolist()
    [[0, 4, 2, 6], [1, 5, 3, 7]]
    """
    rows, columns = matrix.shape
    tiles = matrix.reshape(rows // tile, tile, columns // tile, tile)
    return tiles.transpose(0, 3, 2, 1).reshape(rows, columns)


def describe_strides(traced: Trace) -> str:
    """Return a remark on arrays of which neighbors in dimension 0 load numbers that lie apart; empty if there is none.

    Such a kernel is right, and may be slow on a GPU.
    """
    loads: dict[tuple, list[int]] = collections.defaultdict(list)
    for touch in traced.touches:
        if touch.reads and touch.array in traced.lengths:
            x, y = traced.global_ids[touch.item, :2].tolist()
            loads[touch.array, y, x, tuple(traced.group_ids[touch.item, :2].tolist())].append(touch.index)
    apart: dict[str, set[int]] = collections.defaultdict(set)
    for (array, y, x, group), mine in loads.items():
        for here, there in zip(mine, loads.get((array, y, x + 1, group), ()), strict=False):
            apart[array].add(abs(there - here))
    named = [array for array, steps in sorted(apart.items()) if min(steps) > 1]
    if not named:
        return ""
    arrays = " and ".join(named)
    return f", but neighbors load numbers of {arrays} that lie rows apart, which may be slow on a GPU (lesson 15)"


def name_number(source: str, define: re.Pattern[str], tile: int) -> str:
    """Return a hint if a tiled kernel holds its own T as a number in its text; otherwise nothing.

    Args:
        source: of the kernel.
        define: finds the line that sets T, and the number in it.
        tile: the T that is tried.
    """
    number = define.findall(source)[0]
    body = without_comments(define.sub("", source))
    if number == str(tile) or not re.search(rf"\b{number}\b", body):
        return ""
    return f" The kernel says {number} below `#define`: write `T` there."
