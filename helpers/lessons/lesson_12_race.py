"""Lesson 12, Break kernels on purpose: a race, drawn."""

from __future__ import annotations

import itertools

from helpers.errors import WorkshopError
from helpers.measure import plots

STEPS = ("read", "add", "write")  # of `total[0] += 1`


def follow_order(order: str) -> tuple[list[tuple[str, str]], int]:
    """Follow two work-items that each add 1 to the same total, which begins at 0.

    Args:
        order: three times A and three times B; each letter is the next step of that work-item: read, add, write.

    Returns:
        For each step the work-item and what it does, such as ("A", "read 0"); and the total at the end.
    """
    if sorted(order) != list("AAABBB"):
        raise WorkshopError(
            f"{order!r} is not an order of the six steps.",
            "Each of the two work-items, A and B, takes three steps: read, add, write.",
            'Write three times A and three times B, for example "AABABB".',
        )
    total, held, taken, done = 0, {"A": 0, "B": 0}, {"A": 0, "B": 0}, []
    for item in order:
        step = STEPS[taken[item]]
        taken[item] += 1
        if step == "read":
            held[item] = total
        what = f"{step}\n{held[item]}"
        if step == "add":
            what += " + 1"
            held[item] += 1
        elif step == "write":
            total = held[item]
        done.append((item, what))
    return done, total


def draw_orders(*orders: str) -> None:
    """Draw the steps of two work-items in each order, and print how many of all orders lose an addition.

    Args:
        orders: as `follow_order` takes them.
    """
    looks = {"read": (plots.SKY, ""), "add": ("#EEEEEE", ""), "write": (plots.ORANGE, "//")}
    words = []
    title = "A drawing, not a measurement: A and B each add 1 to total, which begins at 0"
    with plots.figure(7.5, 1.75 * len(orders) + 0.6, title, nrows=len(orders), sharex=True, squeeze=False) as (
        drawn,
        axes,
    ):
        for panel, order in zip(axes[:, 0], orders, strict=True):
            done, total = follow_order(order)
            fate = "both additions are kept" if total == 2 else "one addition is lost"
            for time, (item, text) in enumerate(done):
                color, hatch = looks[text.split()[0]]
                row = "AB".index(item)
                panel.barh(row, 0.94, left=time + 0.03, height=0.84, color=color, hatch=hatch, edgecolor="white")
                place = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"}
                panel.text(time + 0.5, row, text, ha="center", va="center", fontsize=11, bbox=place)
            panel.set_title(f"{order}: total = {total}, {fate}", fontsize=11)
            panel.set(yticks=(0, 1), yticklabels=("work-item A", "work-item B"), ylim=(1.5, -0.5), xlim=(0, 6))
            panel.grid(visible=False)
            words.append(
                f"{order}: {', '.join(f'{item} {text}' for item, text in done)}; total {total}".replace("\n", " ")
            )
        axes[-1, 0].set(xlabel="order in time, from left to right (steps)", xticks=range(7))
    plots.show(drawn, f"{title}. {'. '.join(words)}.")
    every = sorted({"".join(order) for order in itertools.permutations("AAABBB")})
    totals = [follow_order(order)[1] for order in every]
    lost = sum(total < 2 for total in totals)
    print(
        f"computed: of the {len(every)} possible orders, {lost} lose an addition; the smallest total is {min(totals)}"
    )
