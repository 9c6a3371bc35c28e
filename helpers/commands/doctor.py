"""Say what is wrong here, why, and the next command."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--quick", action="store_true", help="only what takes less than a second")


def run(args: argparse.Namespace) -> int:
    """Examine this machine, print the findings, and return 0 unless one of them stops the workshop."""
    from helpers.machine import doctor

    findings = doctor.examine(quick=args.quick)
    print(doctor.report(findings))
    return doctor.status(findings)
