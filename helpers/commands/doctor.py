"""Say what is wrong here, why, and the next command."""

from __future__ import annotations

import argparse
from pathlib import Path

from helpers.errors import WorkshopError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--quick", action="store_true", help="only what takes less than a second")
    parser.add_argument("--json", action="store_true", help="print JSON for programs (helpers/doctor/output.py)")
    parser.add_argument("--report", metavar="FILE", type=Path, help="also write a text to send to whoever helps you")


def run(args: argparse.Namespace) -> int:
    """Examine this machine, print the findings, and return 0 unless one of them stops the workshop."""
    from helpers import doctor
    from helpers.doctor import output

    findings = doctor.examine(quick=args.quick)
    text = doctor.report(findings)
    print(output.as_json(findings) if args.json else text)
    if args.report:
        try:
            args.report.write_text(output.as_report(findings, text), encoding="utf-8")
        except OSError as error:
            why = f"The system says: {error.strerror}."
            raise WorkshopError(f"{args.report} cannot be written.", why, "Name another file.") from None
        if not args.json:
            print(f"\nWritten to {args.report}, without your name and your folders: read it, then send it.")
    return doctor.status(findings)
