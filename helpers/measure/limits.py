"""Which numbers of a record cannot be right: those above the data sheet, or above the measured peak or bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.measure import published
from helpers.measure.records import Note

LIMITS = {"GFLOP/s": "peak", "GB/s": "bandwidth"}  # how the labels of the limits begin, by the unit of what they limit
MARGIN = 1.1  # above this multiple of a measured limit something is wrong; below, it may be the spread of both


def is_limit(note: Note) -> bool:
    """Return whether a note is a measured peak or bandwidth."""
    return note.label.startswith(LIMITS.get(note.unit, "\0"))


def find_impossible(notes: Sequence[Note]) -> dict[tuple[str, str], str]:
    """Return why notes cannot be right, by lesson and label.

    A note is impossible if it is above what the data sheet of its device promises. If it is more than 10 % above the
    peak or the bandwidth that was measured on the same device, one of the two is wrong: the measured limit if the data
    sheet allows the note. Without a data sheet nobody knows which of them it is, and the note counts as wrong.

    Args:
        notes: of a record, each with its device.
    """
    reasons = {}
    for note in notes:
        if note.unit in LIMITS and (excess := published.describe_excess(note.device, note.value, note.unit)):
            reasons[note.lesson, note.label] = excess
    possible = [note for note in notes if note.unit in LIMITS and (note.lesson, note.label) not in reasons]
    for note in possible:
        same = [each for each in possible if is_limit(each) and (each.unit, each.device) == (note.unit, note.device)]
        most = max((each.value for each in same), default=note.value)
        if note.value <= MARGIN * most:
            continue
        if published.find_data_sheet(note.device):
            why = f"{most:,.0f} {note.unit} is too low: {note.label} reached {note.value:,.0f}."
            reasons |= {(each.lesson, each.label): why for each in same}
        else:
            limit = f"the measured {LIMITS[note.unit]} of {most:,.0f}"
            reasons[note.lesson, note.label] = (
                f"{note.value:,.0f} {note.unit} is more than {limit}. One of them is wrong."
            )
    return reasons
