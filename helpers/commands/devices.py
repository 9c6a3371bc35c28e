"""List what can compute here, as each framework sees it."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for each framework (60)")


def run(args: argparse.Namespace) -> int:
    """Ask every framework and print one table; the status is 0 if any of them found a device."""
    from helpers import devices

    answers = devices.find(timeout=args.timeout)
    print(devices.table(answers))
    return 0 if any(answer.devices for answer in answers) else 1
