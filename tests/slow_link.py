"""Two network namespaces joined by a link that `tc` slows: two machines with a cable, as far as a program can tell.

`python tests/slow_link.py` prints the calculator of helpers.cluster beside measured exchanges, here and on such a link.
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]  # as a script

from helpers import cluster  # noqa: E402
from helpers.compute import processes  # noqa: E402
from helpers.measure.tables import Table  # noqa: E402

ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 29500
MLP = 4 * 669_706  # bytes of the gradient of lesson 04's network

# What both processes run: an all-reduce of each size, and what the interface sent meanwhile.
SCRIPT = """
import json, sys
from pathlib import Path
from helpers import cluster  # noqa: E402

member = cluster.join(seconds=60)
sizes, repeats, interface = json.loads(sys.argv[1])
found = []
for size in sizes:
    cluster.time_exchange(size, 1)  # the first connects, too
    counter = Path("/sys/class/net", interface, "statistics/tx_bytes")
    before = int(counter.read_text())
    seconds = cluster.time_exchange(size, repeats)
    found.append([seconds, int(counter.read_text()) - before])
if member.rank == 0:
    print(json.dumps(found), flush=True)
import jax
jax.distributed.shutdown()
"""


class Forbidden(Exception):
    """This system lets us make no network namespaces; the text says why."""


def _do(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise Forbidden(f"{' '.join(command)}: {done.stderr.strip()}")


@contextlib.contextmanager
def slowed(rate="100mbit"):
    """Give two network namespaces a link between them, slowed in both directions; take them away at the end.

    Yields:
        For each, what to put before a command so that it runs there. Its interface is called `cable`.
    """
    if missing := [name for name in ("ip", "tc") if not shutil.which(name)]:
        raise Forbidden(f"not installed: {', '.join(missing)} (iproute2)")
    names = [f"anygpu-{os.getpid()}-{number}" for number in range(2)]
    try:
        for name in names:
            _do("ip", "netns", "add", name)
            _do("ip", "-n", name, "link", "set", "lo", "up")
        _do("ip", "-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            _do("ip", "-n", name, "address", "add", f"{address}/24", "dev", "cable")
            _do("ip", "-n", name, "link", "set", "cable", "up")
            if rate:
                limit = ("rate", rate, "burst", "32kbit", "latency", "400ms")
                _do("tc", "-n", name, "qdisc", "add", "dev", "cable", "root", "tbf", *limit)
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30)


def both(command, host, before=((), ()), seconds=300.0):
    """Run a command as two processes of one training, and return how each ended; nothing of them stays.

    Args:
        command: program and arguments.
        host: where rank 0 is.
        before: what stands before the command, for each.
        seconds: for both.
    """
    from concurrent.futures import ThreadPoolExecutor

    def one(rank):
        variables = {"ANYGPU_RANK": str(rank), "ANYGPU_WORLD_SIZE": "2", "ANYGPU_COORDINATOR": host}
        return processes.run_command([*before[rank], *command], seconds, processes.environment(variables))

    with ThreadPoolExecutor(2) as pool:
        try:
            return list(pool.map(one, range(2)))
        except BaseException:
            processes.kill_all()
            raise


def exchanges(sizes, repeats=5, rate="100mbit"):
    """Time all-reduces of several sizes (bytes) between two processes: here if rate is empty, or on a slowed link.

    Returns:
        For each size (seconds of each repeat, bytes that rank 0 sent meanwhile, one more all-reduce among them).
    """
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(slowed(rate)) if rate else [[], []]
        words = json.dumps([sizes, repeats, "cable" if rate else "lo"])
        host = f"{ADDRESSES[0] if rate else '127.0.0.1'}:{PORT}"
        done = both([sys.executable, "-P", "-c", SCRIPT, words], host, before)
    if any(one.status for one in done):
        raise AssertionError("\n".join(one.stdout + one.stderr for one in done))
    line = next(line for line in done[0].stdout.splitlines() if line.startswith("[["))
    return [(seconds, sent) for seconds, sent in json.loads(line)]


def compare():
    """Print predicted and measured exchanges of lesson 04's gradient, on loopback and on a link of 100 Mbit/s."""
    rows = []
    sizes = [4, MLP, 4 * MLP]
    for title, rate, given in (("loopback", "", None), ("tc: 100 Mbit/s", "100mbit", 12.5e6)):
        try:
            found = exchanges(sizes, 7, rate)
        except Forbidden as error:
            print(f"{title}: skipped, {error}")
            continue
        took = [statistics.median(seconds) for seconds, _ in found]
        speed, latency = cluster.link((sizes[0], took[0]), (sizes[2], took[2]))
        predicted = cluster.exchange_seconds(MLP, 2, given or speed, 0 if given else latency)
        basis = "the link's rate" if given else f"4 B and {sizes[2] / 1e6:.1f} MB: {speed / 1e6:.0f} MB/s"
        spread = f"{1e3 * min(found[1][0]):.1f} to {1e3 * max(found[1][0]):.1f}"
        rows.append([title, basis, f"{1e3 * predicted:.1f}", f"{1e3 * took[1]:.1f}", spread, f"{1e6 * took[0]:.0f}"])
    print(Table(rows, ["link", "predicted from", "predicted ms", "measured ms (median)", "range", "4 bytes, µs"]))


if __name__ == "__main__":
    compare()
