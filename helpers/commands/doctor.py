"""Say what is wrong here, why, and the next command."""

from __future__ import annotations

import argparse
from pathlib import Path

from helpers.errors import WorkshopError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--quick", action="store_true", help="only what takes less than a second")
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="also write a report that you can send when you ask for help"
    )


def run(args: argparse.Namespace) -> int:
    """Examine this machine, print the findings, and return 0 unless one of them stops the workshop."""
    from helpers import doctor
    from helpers.doctor.terminal import LETTER

    findings = doctor.examine(quick=args.quick)
    text = doctor.report(findings)
    print(text.replace(LETTER, f"doctor --report {args.report}") if args.report else text)
    if args.report:
        from helpers.doctor.letter import compose_letter

        try:
            args.report.write_text(compose_letter(findings), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            why = f"The system says: {error.strerror}."
            raise WorkshopError(f"{args.report} cannot be written.", why, "Name another file.") from None
        print(f"\nThe report is in {args.report.resolve()}. Read it before you send it.")
    return doctor.status(findings)
