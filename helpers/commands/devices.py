"""List what can compute here, as each framework sees it, and whether it computes right."""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for each framework (60)")


def run(args: argparse.Namespace) -> int:
    """Ask every framework and print one table; the status is 0 if any of them found a device that computes right."""
    from helpers import devices

    titles = ", ".join(framework.title for framework in devices.FRAMEWORKS.values())
    print(f"Asking {titles}. This takes about ten seconds, or longer on a busy machine.", file=sys.stderr, flush=True)
    answers = devices.find(timeout=args.timeout)
    print(devices.make_table(answers))
    if any(device.has_loop_fault for answer in answers for device in answer.devices):
        print("The lessons use a device that compiles some loops wrongly only if no other of its kind computes right.")
    return 0 if any(device.is_usable for answer in answers for device in answer.devices) else 1
