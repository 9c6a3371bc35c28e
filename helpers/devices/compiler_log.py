"""What a compiler of OpenCL C says, as a learner can use it: the lines of the source, and what is wrong there.

PoCL (3.0, 3.1), Intel's driver for processors and Mesa's rusticl (22.3, on llvmpipe) were run. The form of Apple's,
AMD's and NVIDIA's is that of logs that others have published, such as https://github.com/opencv/opencv_contrib/issues/2108.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from helpers.devices.kernel_text import without_comments

# `file:line:column: error: words`. PoCL writes `error: file:line:column <Spelling=file:line:column>: words` where the
# code comes from a macro, and every built-in function is a macro of PoCL's.
COMPLAINT = re.compile(
    r"(?P<kind>error: |warning: |note: |remark: )?(?:(?P<file>\S.*?)?:)?(?P<line>\d+):(?P<column>\d+)"
    r"(?: <Spelling=(?P<macro_file>.+?):(?P<macro_line>\d+):\d+>)?: "
    r"(?P<kind_behind>(?:fatal )?error: |warning: |note: |remark: )?(?P<says>.+)"
)
INCLUDED = re.compile(r"In file included from (?:\S.*:)?(\d+):$")  # the line of the source, before a complaint
EXPANDED = re.compile(r"expanded from macro '")
# What PoCL, Apple and others call their built-in functions: https://github.com/beehive-lab/TornadoVM/issues/66
RENAMED = re.compile(r"\b_{1,2}(?:cl|fast_relax)_(\w+)")
# A function without a body: PoCL, Intel, NVIDIA, Mesa, and linkers of LLVM's kind.
UNRESOLVED = re.compile(
    r"Cannot find symbol (\w+)|Symbols not found: \[ (\w+)|Unresolved extern function '(\w+)'"
    r'|Unresolved external reference to "(\w+)"'
    r"|undefined (?:symbol|reference)[^\w]*(?:to )?[`'\"]?(\w+)"
)
AMBIGUOUS = (
    "Each built-in function has versions for several types, and these arguments fit no single one. Give all of them "
    "one type: `0.0f` beside a float, `(float)i` for an int."
)
ATOMIC = (
    "`atomic_add` and its like exist for whole numbers only."  # OpenCL C 1.2, 6.12.11: atomic_xchg alone takes a float
)


@dataclass
class _Complaint:
    """What a compiler says of one place."""

    line: int
    column: int
    says: str
    file: str | None = None  # as the compiler calls it
    macros: list[int] = field(default_factory=list)  # lines of the source whose macros were expanded there


def explain_log(source: str, log: str) -> tuple[str, str]:
    """Turn a compiler's log into what is wrong and why, with the lines of the source that it complains about.

    Args:
        source: the OpenCL C that was compiled.
        log: the compiler's output.

    Returns:
        The two texts; both are empty if the log complains about no line of the source.
    """
    complaints = _list_complaints(log) or _find_missing_functions(source, log)
    if not complaints:
        return "", ""
    blocks = [_show(source, complaint) for complaint in complaints]
    ambiguous = [complaint.says for complaint in complaints if "is ambiguous" in complaint.says]
    if ambiguous:
        blocks.append(ATOMIC if all("atom" in says for says in ambiguous) else AMBIGUOUS)
    return "The kernel does not compile.", "\n".join(blocks)


def _list_complaints(log: str) -> list[_Complaint]:
    """Return the errors in a log; an error inside an included file is one of the line that includes it."""
    complaints: list[_Complaint] = []
    included = 0
    for line in map(str.strip, log.splitlines()):
        match = COMPLAINT.match(line)
        if match and int(match["line"]):  # Intel's driver has remarks on a line 0
            _add_complaint(complaints, match, included)
        header = INCLUDED.match(line)
        included = (included or int(header[1])) if header else 0
    return complaints


def _add_complaint(complaints: list[_Complaint], match: re.Match[str], included: int) -> None:
    """Add an error to the complaints, or a macro to the last one; warnings and other notes are left out.

    Args:
        complaints: those found so far.
        match: of COMPLAINT.
        included: the line of the source that includes the file of this error; 0 if it is the source itself.
    """
    kind = match["kind"] or match["kind_behind"] or "error: "
    if kind.endswith("error: "):
        place = (included, 1) if included else (int(match["line"]), int(match["column"]))
        complaints.append(_Complaint(*place, match["says"], match["file"]))
        if match["macro_file"] and match["macro_file"] == match["file"]:
            complaints[-1].macros.append(int(match["macro_line"]))
    elif complaints and EXPANDED.search(match["says"]) and match["file"] == complaints[-1].file:
        complaints[-1].macros.append(int(match["line"]))


def _find_missing_functions(source: str, log: str) -> list[_Complaint]:
    """Return a complaint about each function that the source names and that no linker found."""
    names = dict.fromkeys(next(filter(None, match.groups())) for match in UNRESOLVED.finditer(log))
    complaints = []
    for name in names:
        if place := re.search(rf"\b{name}\b", without_comments(source)):
            before = source[: place.start()]
            column = place.start() - (before.rfind("\n") + 1) + 1
            says = f"the function '{name}' is declared, and has no body"
            complaints.append(_Complaint(before.count("\n") + 1, column, says))
    return complaints


def _show(source: str, complaint: _Complaint) -> str:
    """Return a complaint with its line of the source, and a mark below its column."""
    lines = source.splitlines() or [""]
    number = min(complaint.line, len(lines))
    says = RENAMED.sub(lambda found: found[0] if found[0] in source else found[1], complaint.says)
    macros = [_name_macro(lines, line) for line in complaint.macros if line <= len(lines)]
    inside = f" (in the macro {', '.join(macros)})" if macros else ""
    return f"line {number}: {says}{inside}\n    {lines[number - 1]}\n    {' ' * (complaint.column - 1)}^"


def _name_macro(lines: list[str], number: int) -> str:
    """Return the name of the macro to which a line belongs, with the number of that line."""
    first = number
    while first > 1 and lines[first - 2].endswith("\\"):
        first -= 1
    defined = re.match(r"\s*#\s*define\s+(\w+)", lines[first - 1])
    return f"{defined[1]}, line {number}" if defined else f"of line {number}"
