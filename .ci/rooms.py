"""Print what a test run took, and the lines of each room beside its budget: a report, in which nothing fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
# Lines of Python, for orientation: a room that outgrows its own says why, and never squeezes.
BUDGETS = {
    "helpers": 30,  # the root folder alone
    "helpers/measure": 620,
    "helpers/devices": 1_400,
    "helpers/judge": 1_600,
    "helpers/tile": 1_450,
    "helpers/doctor": 2_400,
    "helpers/lessons": 5_900,
    "helpers/commands": 2_000,
    "tests": 9_500,  # with their data: right answers, broken machines
}


def lines(paths: list[Path]) -> int:
    """Return how many lines some files hold together."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def main(results: Path) -> None:
    """Print the two parts of the report.

    Args:
        results: what pytest wrote of its run, as JUnit's XML.
    """
    if results.exists():
        suites = list(ElementTree.parse(results).getroot().iter("testsuite"))
        counts = {
            key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
        }
        seconds = sum(float(suite.get("time", 0)) for suite in suites)
        print(f"\n{seconds:,.0f} s: " + ", ".join(f"{count:,} {key}" for key, count in counts.items()))
    command = ["git", "ls-files", "*.py", "tests/*.toml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rooms: dict[str, list[Path]] = {room: [] for room in BUDGETS}
    for name in listed.splitlines():
        top, *rest = Path(name).parts
        if top in ("helpers", "tests") and (ROOT / name).exists():
            room = f"{top}/{rest[0]}" if top == "helpers" and len(rest) > 1 else top
            rooms.setdefault(room, []).append(ROOT / name)
    print(f"\n{'room':<18} {'lines':>7} {'budget':>7}")
    for room, paths in rooms.items():
        budget = BUDGETS.get(room)
        print(f"{room:<18} {lines(paths):7,} {f'{budget:,}' if budget else 'none':>7}")
    inside = [path for room, paths in rooms.items() if room != "tests" for path in paths]
    print(f"{'helpers in all':<18} {lines(inside):7,} {sum(BUDGETS.values()) - BUDGETS['tests']:7,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
