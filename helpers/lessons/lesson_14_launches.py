"""Lesson 14b's two launches in JavaScript: Node.js notes which ones a learner's addThree records, and they are judged.

No browser is needed, and none of the JavaScript is parsed here: Node.js runs it with a pass that only notes what it is
asked for (helpers/web/launches.js). Where no Node.js is, the page runs the same file and sends the same notes.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers import ROOT
from helpers.judge import checks
from helpers.judge.wgsl_recorder import GROUP

NOTES = ROOT / "helpers" / "web" / "launches.js"
COUNTS = (100_000, 1, 64, 65, 6_400, 70_001)  # elements that a learner's addThree is called for
NODE_SECONDS = 30.0
PAGE_JUDGES = "Run the next cell in JupyterLab: your browser runs it, and says whether it is right."
NODE = """
let noted;
try {
  const { addThree } = await import("data:text/javascript," + encodeURIComponent(JAVASCRIPT));
  noted = noteLaunches(addThree, COUNTS);
} catch (error) {
  noted = [{ count: 0, calls: [], error: String(error) }];
}
console.log(JSON.stringify(noted));
"""


def find_node() -> str | None:
    """Return the path of Node.js, this machine's or that of the package playwright (tests); None if there is none."""
    if found := shutil.which("node"):
        return found
    package = importlib.util.find_spec("playwright")
    if package is None or package.origin is None:
        return None
    return next(map(str, (Path(package.origin).parent / "driver").glob("node*")), None)


def note_launches(javascript: str) -> list[dict[str, Any]]:
    """Return which launches a learner's addThree records for each of COUNTS, as helpers/web/launches.js notes them.

    Args:
        javascript: a module that exports addThree(pass, first, second, count).

    Raises:
        NotJudged: there is no Node.js, or it gave no answer in NODE_SECONDS.
    """
    node = find_node()
    if node is None:
        raise checks.NotJudged(f"there is no Node.js here to run your JavaScript. {PAGE_JUDGES}")
    main = NODE.replace("JAVASCRIPT", json.dumps(javascript)).replace("COUNTS", json.dumps(COUNTS))
    try:
        run = subprocess.run(
            [node, "--input-type=module"],
            input=NOTES.read_text(encoding="utf-8") + main,
            capture_output=True,
            timeout=NODE_SECONDS,
            encoding="utf-8",
            check=True,
        )
        return json.loads(run.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise checks.NotJudged(
            f"Node.js gave no answer in {NODE_SECONDS:.0f} seconds. Either addThree never ends, or this machine is "
            "too busy to tell."
        ) from None
    except (subprocess.CalledProcessError, json.JSONDecodeError, IndexError):
        raise checks.NotJudged(f"Node.js ended without an answer. {PAGE_JUDGES}") from None


def judge_launches(notes: Sequence[Mapping[str, Any]]) -> str:
    """Judge two launches in one pass, `first` and then `second`, each with as few workgroups of 64 as cover `count`.

    Args:
        notes: for each count what helpers/web/launches.js noted: count, calls, error.

    Returns:
        What was tried, for the verdict.

    Raises:
        NotDone: nothing is launched, or both faults of the given addThree are still there.
        NotYet: a launch is missing, stands in the wrong place, or has another number of workgroups.
    """
    for noted in notes:
        if noted["error"]:
            comment = " In JavaScript, `//` begins a comment." if "SyntaxError" in noted["error"] else ""
            raise checks.NotYet(f"addThree stopped with {noted['error']}.{comment}")
    if not any(noted["calls"] for noted in notes):
        raise checks.NotDone("addThree launches nothing.")
    if all(_has_both_faults(noted) for noted in notes):
        raise checks.NotDone("addThree still has both faults.")
    for noted in notes:
        calls, where = noted["calls"], f"count = {noted['count']:,}"
        if len(calls) != 2:
            raise checks.NotYet(f"{where}: expected two launches, `first` and then `second`; came {len(calls)}.")
        if calls[0]["group"] == "second.group" and calls[1]["group"] == "first.group":
            raise checks.NotYet(
                f"{where}: expected `first` and then `second`, which adds to what `first` wrote; came the other order."
            )
        for name, call in zip(("first", "second"), calls, strict=True):
            _expect_launch(f"{where}, launch of `{name}`", name, call, noted["count"])
    return f"{len(notes)} counts of up to {max(noted['count'] for noted in notes):,}, two launches each"


def _has_both_faults(noted: Mapping[str, Any]) -> bool:
    """Return whether the launches are those of the given addThree: fractions of groups, and the first pipeline."""
    calls = [(call["pipeline"], call["group"], call["groups"]) for call in noted["calls"]]
    return calls == [("first.pipeline", f"{name}.group", [noted["count"] / GROUP]) for name in ("first", "second")]


def _expect_launch(where: str, name: str, call: Mapping[str, Any], count: int) -> None:
    """Refuse a launch with another pipeline or group than `name`'s, or with another number of workgroups."""
    if call["group"] != f"{name}.group" and call.get("elsewhere"):
        raise checks.NotYet(f"{where}: {call['elsewhere']} sets another group. The kernel declares `@group(0)`.")
    for kind, other in (("pipeline", "group"), ("group", "pipeline")):
        if call[kind] != f"{name}.{kind}":
            raise checks.NotYet(
                f"{where}: expected {name}.{kind}, came {call[kind] or 'none'}. A {other} needs its own {kind}."
            )
    sizes, expected = call["groups"], -(-count // GROUP)
    came = f"dispatchWorkgroups({', '.join('NaN' if size is None else f'{size:.10g}' for size in sizes)})"
    if not sizes or None in sizes or any(size != 1 for size in sizes[1:]):
        raise checks.NotYet(f"{where}: expected one number, {expected:,} workgroups, came {came}.")
    needed = f"expected {expected:,} workgroup{'' if expected == 1 else 's'}"
    whole = int(sizes[0])  # as WebGPU does it
    if whole < expected:
        cut = f" WebGPU cuts this number to {whole:,}." if whole != sizes[0] else ""
        lost = f"{count - GROUP * whole:,} of the {count:,} elements"
        raise checks.NotYet(f"{where}: {needed}, came {came}.{cut} No invocation is left for {lost}.")
    if whole > expected:
        raise checks.NotYet(f"{where}: {needed}, came {came}. The last ones have no element.")
