"""Join the processes of one training, whatever started them, and know what their exchange costs. Lesson 09 uses it.

JAX connects the processes, and they do not ask each other for any proof of identity: whoever reaches their ports can
take part, or stop them. So everything here stays on 127.0.0.1 unless the launcher or `ANYGPU_COORDINATOR` names
another address, and then the network has to be a private one. docs/scaling.md has the launchers.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from helpers.errors import WorkshopError

LOCAL = "127.0.0.1"
WAIT = 60.0  # seconds for all processes to come
LOST_AFTER = 10.0  # seconds without a sign of life from a process whose connections are still open
FIRST_PORT, PORTS = 61440, 4096  # above the ports that Linux gives to outgoing connections


# --------------------------------------------------------------------------------------------------------------------
# Who am I?


@dataclass(frozen=True)
class Member:
    """One process among those of a training."""

    rank: int  # its number, from 0; the process with rank 0 is the coordinator
    size: int  # how many processes there are: the world size
    coordinator: str = ""  # HOST:PORT where the processes meet; empty for one process alone
    launcher: str = "none"  # what started it, in words
    local_rank: int | None = None  # its number on its own machine, where the launcher tells it: the GPU to take
    bind: str = ""  # the address on which rank 0 listens; the coordinator's own if empty

    def __str__(self) -> str:
        meet = f", coordinator {self.coordinator}" if self.size > 1 else ""
        return f"rank {self.rank} of {self.size} (launcher: {self.launcher}{meet})"


def find(variables: Mapping[str, str] | None = None) -> Member:
    """Tell from the environment variables which process of which training this is; nothing is connected.

    Looked for in this order: the workshop's own variables, Open MPI, torchrun and its like, SLURM, Kubernetes.

    Args:
        variables: the environment; this process' own if None. ANYGPU_COORDINATOR overrides where they meet, and
            ANYGPU_BIND where rank 0 listens.

    Raises:
        WorkshopError: a variable is missing or is no number, or rank and world size do not fit.
    """
    have = dict(os.environ if variables is None else variables)
    own, local = have.get("ANYGPU_COORDINATOR", ""), None
    if "ANYGPU_RANK" in have:
        launcher, names = "ANYGPU variables", ("ANYGPU_RANK", "ANYGPU_WORLD_SIZE")
        meet = lambda: _need(have, "ANYGPU_COORDINATOR", launcher)  # noqa: E731
    elif "OMPI_COMM_WORLD_RANK" in have:
        launcher, names, local = (
            "Open MPI",
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            "OMPI_COMM_WORLD_LOCAL_RANK",
        )
        meet = lambda: _open_mpi(have)  # noqa: E731
    elif "RANK" in have and "WORLD_SIZE" in have:
        launcher, names, local = "torchrun-style variables", ("RANK", "WORLD_SIZE"), "LOCAL_RANK"
        meet = lambda: _torchrun(have)  # noqa: E731
    elif "SLURM_PROCID" in have and "SLURM_STEP_NODELIST" in have:
        launcher, local = "SLURM", "SLURM_LOCALID"
        names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in have else "SLURM_NTASKS")
        meet = lambda: _slurm(have)  # noqa: E731
    elif "JOB_COMPLETION_INDEX" in have and "ANYGPU_WORLD_SIZE" in have:
        launcher, names = "Kubernetes Indexed Job", ("JOB_COMPLETION_INDEX", "ANYGPU_WORLD_SIZE")
        meet = lambda: _need(have, "ANYGPU_COORDINATOR", launcher)  # noqa: E731
    else:
        return Member(0, 1)
    rank, size = (_number(have, name, launcher) for name in names)
    if not 0 <= rank < size:
        raise WorkshopError(
            f"{names[0]}={rank} and {names[1]}={size} do not fit.",
            f"The ranks of {size} processes are 0 to {size - 1}. These variables are from: {launcher}.",
            "Start all processes with one launcher, or remove the variables that an older one left.",
        )
    local_rank = _number(have, local, launcher) if local and local in have else None
    coordinator = (own or meet()) if size > 1 else ""
    if coordinator:
        _host_and_port(coordinator)
    return Member(rank, size, coordinator, launcher, local_rank, have.get("ANYGPU_BIND", ""))


def _need(have: Mapping[str, str], name: str, launcher: str) -> str:
    if have.get(name):
        return have[name]
    raise WorkshopError(
        f"The variable {name} is missing.",
        f"This process was started with {launcher}, and has to know it before it can join the others.",
        "Set it for every process; docs/scaling.md has complete examples.",
    )


def _number(have: Mapping[str, str], name: str, launcher: str) -> int:
    text = _need(have, name, launcher)
    if text.isdecimal():
        return int(text)
    why = f"It has to be a whole number, and was read because of the launcher: {launcher}."
    raise WorkshopError(f"{name} is {text!r}.", why, "Set it to a number for every process, or remove it.")


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and 0 < int(port) < 65536:
        return host.strip("[]"), int(port)
    raise WorkshopError(
        f"The coordinator's address {address!r} is not HOST:PORT.",
        "All processes meet at this address, which belongs to rank 0.",
        "Write it like 10.0.0.1:29500, with a port from 1024 to 65535 that is free there.",
    )


def _port(job: str) -> int:
    """Return a port that all processes of a job agree on without talking, and two jobs rarely share."""
    return FIRST_PORT + zlib.crc32(job.encode()) % PORTS


def _open_mpi(have: Mapping[str, str]) -> str:
    """Where rank 0 is: here, if all processes are here, or on the machine of mpirun, as JAX assumes, too.

    Open MPI 4 tells mpirun's address: `1531576320.0;tcp://10.96.0.1,10.148.0.1:34911`; version 5 does not.
    """
    uri = have.get("OMPI_MCA_orte_hnp_uri", "")
    port = _port(have.get("PMIX_NAMESPACE") or uri)
    if have.get("OMPI_COMM_WORLD_LOCAL_SIZE") == have.get("OMPI_COMM_WORLD_SIZE"):
        return f"{LOCAL}:{port}"
    if found := re.search(r"tcp://([^,:]+)", uri):
        return f"{found[1]}:{port}"
    return _need(have, "ANYGPU_COORDINATOR", "Open MPI on several machines")


def _torchrun(have: Mapping[str, str]) -> str:
    """MASTER_ADDR:MASTER_PORT, or the port after it: torchrun itself keeps the first for its own store."""
    port = _number(have, "MASTER_PORT", "torchrun-style variables")
    taken = have.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"
    host = _need(have, "MASTER_ADDR", "torchrun-style variables")
    return f"{f'[{host}]' if ':' in host else host}:{port + taken}"


def _slurm(have: Mapping[str, str]) -> str:
    """The first machine of a list such as `node[001,007-015],other`."""
    port = _port(have.get("SLURM_JOB_ID", "") + "." + have.get("SLURM_STEP_ID", ""))
    if have.get("SLURM_STEP_NUM_NODES") == "1":
        return f"{LOCAL}:{port}"
    first = re.match(r"([^,\[]+)(?:\[([^,\-\]]+))?", have["SLURM_STEP_NODELIST"])
    return f"{first[1]}{first[2] or ''}:{port}"


# --------------------------------------------------------------------------------------------------------------------
# Join


def join(member: Member | None = None, seconds: float = WAIT, lost_after: float = LOST_AFTER) -> Member:
    """Connect this process with the others of its training, on JAX; afterwards `jax.devices()` are those of all.

    Call it before anything computes with JAX. One process alone joins nobody, and that is fine.

    Args:
        member: which process this is, if not what `find` finds.
        seconds: how long to wait for the others.
        lost_after: after so many silent seconds a process counts as lost. One that was killed is noticed at once,
            because its connections end; this is for a machine that vanishes or stands still.

    Raises:
        WorkshopError: a variable is wrong, the coordinator or another process does not come, or two say that they are
            the same.
    """
    member = member or find()
    if member.size == 1:
        return member
    end = time.monotonic() + seconds
    host, port = _host_and_port(member.coordinator)
    own = _own_address(host, port, member, end)
    if member.rank == 0:
        _wait_for_the_others(member, member.bind or own, port, end, seconds)
    else:
        _come_to_the_coordinator(member, host, port, end, seconds)
    _initialize(member, own, lost_after)
    return member


def _own_address(host: str, port: int, member: Member, end: float) -> str:
    """Return this machine's address in the network in which the coordinator is; nothing is sent."""
    while True:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return probe.getsockname()[0]
        except OSError as error:  # a name that is not known yet: Kubernetes enters it when the pod has started
            if time.monotonic() > end:
                raise _no_coordinator(member, str(error)) from None
        time.sleep(0.1)


def _wait_for_the_others(member: Member, address: str, port: int, end: float, seconds: float) -> None:
    """Rank 0: let all come and tell them to go on. JAX would abort this process without a word on who is missing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, port), family=family)
    except OSError as error:
        raise WorkshopError(
            f"Rank 0 cannot listen on {address}, port {port}.",
            f"The system says: {error.strerror}. The port is taken, or the address belongs to another machine.",
            "Set ANYGPU_COORDINATOR for every process to HOST:PORT, with rank 0's host and a free port.",
        ) from None
    with contextlib.ExitStack() as stack:
        stack.enter_context(server)
        here: dict[int, socket.socket] = {}
        while len(here) < member.size - 1:
            server.settimeout(max(end - time.monotonic(), 0.001))
            try:
                one = stack.enter_context(server.accept()[0])
                one.settimeout(5)
                hello = one.recv(100).decode(errors="replace").split()
            except TimeoutError:
                if time.monotonic() < end:
                    continue  # a stranger that says nothing
                missing = [str(rank) for rank in range(1, member.size) if rank not in here]
                raise WorkshopError(
                    f"Not all processes have come within {seconds:g} s: rank {', '.join(missing)} of {member.size}.",
                    f"Rank 0 waited on {address}, port {port} (launcher: {member.launcher}).",
                    "Look whether they were started, what they say, and whether a firewall lets them reach this port.",
                ) from None
            except OSError:
                continue
            if len(hello) != 3 or hello[0] != "anygpu" or not (hello[1] + hello[2]).isdecimal():
                continue  # a stranger
            rank, size = int(hello[1]), int(hello[2])
            if size != member.size or rank in here or not 0 < rank < size:
                why = f"rank {rank} of {size} came to rank 0 of {member.size}"
                if size == member.size and rank in (0, *here):
                    why = f"two processes say that they are rank {rank}"
                for other in (*here.values(), one):
                    with contextlib.suppress(OSError):
                        other.sendall(why.encode())
                raise _no_fit(why)
            here[rank] = one
        for one in here.values():
            with contextlib.suppress(OSError):  # who left meanwhile is missed by JAX
                one.sendall(b"go")


def _come_to_the_coordinator(member: Member, host: str, port: int, end: float, seconds: float) -> None:
    """Say who we are to rank 0, and wait until all have come."""
    why = ""
    while (left := end - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as connection:
                connection.sendall(f"anygpu {member.rank} {member.size}".encode())
                connection.settimeout(max(end - time.monotonic(), 0.001))
                answer = connection.recv(200).decode(errors="replace")
            if answer == "go":
                return
            if answer:
                raise _no_fit(answer)
            why = "it came, and closed the connection before all had come"
        except OSError as error:
            why = error.strerror or str(error)
        time.sleep(0.1)
    raise _no_coordinator(member, why, seconds)


def _no_coordinator(member: Member, why: str, seconds: float | None = None) -> WorkshopError:
    when = f" within {seconds:g} s" if seconds is not None else ""
    return WorkshopError(
        f"The coordinator {member.coordinator} did not come{when}.",
        f"Rank {member.rank} tried to reach it; the last answer was: {why}.",
        "Look whether rank 0 was started and what it says, and whether this machine can reach that address and port.",
    )


def _no_fit(why: str) -> WorkshopError:
    return WorkshopError(
        f"The processes do not fit together: {why}.",
        "Each process needs a rank of its own, and all the same world size.",
        "End what is left of an older start, and start all processes anew, with one launcher.",
    )


def _initialize(member: Member, own: str, lost_after: float) -> None:
    """Start JAX's own service with its time-outs, and Gloo, which exchanges arrays between processors."""
    import inspect

    import jax
    from jax._src import xla_bridge

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Gloo would listen where the machine's name leads: on Debian that is 127.0.1.1, which no other machine can reach.
    # JAX 0.10 has the argument and no way to it: https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/_src/xla_bridge.py
    compiled = getattr(xla_bridge, "_jax", None)
    if hasattr(compiled, "make_gloo_tcp_collectives"):
        make = getattr(compiled.make_gloo_tcp_collectives, "func", compiled.make_gloo_tcp_collectives)
        compiled.make_gloo_tcp_collectives = functools.partial(make, hostname=own)
    _, port = _host_and_port(member.coordinator)
    bind = member.bind or own
    chosen = any(have in os.environ for have in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"))
    options = {
        "local_device_ids": None if chosen or member.local_rank is None else [member.local_rank],
        "cluster_detection_method": "deactivate",
        "coordinator_bind_address": f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}",
        "initialization_timeout": 30,
        "heartbeat_timeout_seconds": max(1, round(lost_after)),
        "shutdown_timeout_seconds": max(1, round(lost_after)),
    }
    if jax.__version_info__ < (0, 4, 36):  # took the word for the name of a kind of cluster; Intel Macs stay at 0.4.34
        del options["cluster_detection_method"]
    known = inspect.signature(jax.distributed.initialize).parameters
    jax.distributed.initialize(
        member.coordinator, member.size, member.rank, **{name: options[name] for name in options if name in known}
    )


# --------------------------------------------------------------------------------------------------------------------
# A peer that is lost

# What Gloo, NCCL and JAX's coordination service say in that case.
_LOST = re.compile(
    r"Gloo \S+ failed|Connection (?:reset|closed) by peer|NCCL|coordination service|[Hh]eartbeat|RegisterTask|Barrier"
)
# Lines of compiled code; the last two go on with what one before them said.
_NATIVE = re.compile(
    r"[EWIF]\d{4} \d\d:\d\d:\d\d|\*\*\* Check failure|\s+@ |\[Gloo\]|Additional GRPC error information|:[A-Z_]+:"
)


def lost_peer(why: str) -> WorkshopError:
    """Return the message for a process that has lost another one.

    Args:
        why: what was seen.
    """
    return WorkshopError(
        "Another process of this training is lost, so this one stops, too.",
        f"{why} Synchronous training needs every process at every step.",
        "Look at the end of the other processes' output. Then start all of them again: with the same --checkpoint the "
        "training goes on at its last checkpoint.",
    )


@contextlib.contextmanager
def watch() -> Iterator[None]:
    """Put into words that a peer is lost, where JAX raises an exception for it in the block.

    It does so when a peer's connections end, for example after `kill -9`, if this process waits for an exchange. A
    silent peer, or a lost coordinator, ends the whole process from compiled code instead: `guard` sees that.

    Raises:
        WorkshopError: another process is lost.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:  # JaxRuntimeError is the one; while it compiles, JAX raises the other
        text = str(error)
        if not _LOST.search(text):
            raise
        raise lost_peer(f"JAX says: {text.splitlines()[0][:300]}.") from None


def guard(command: Sequence[str], variables: Mapping[str, str] | None = None) -> int:
    """Run one process of a training, and say in words how it ended if compiled code ended it.

    JAX aborts a process whose coordinator or peer is lost, with a dump on standard error, and no handler of Python can
    stop that; so another process has to look. What the command writes is passed on, without compiled code's log lines.
    The command has to call `end_with_the_guard` and then ends with this process, however that ends.

    Args:
        command: program and arguments.
        variables: its environment.

    Returns:
        Its exit status.

    Raises:
        WorkshopError: it was ended by a signal; a lost peer is told as such.
    """
    from helpers.compute import processes

    errors: list[str] = []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=variables, encoding="utf-8", errors="replace", **pipes) as process:
        reader = threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True)
        reader.start()
        try:
            for line in process.stdout:
                if not _NATIVE.match(line):
                    print(line, end="", flush=True)
            status = process.wait()
        except BaseException:
            processes.kill_tree(process)
            raise
        reader.join(5)
    ours = [line for line in errors if not _NATIVE.match(line)]
    if status >= 0:
        if status:
            sys.stderr.writelines(ours)
        return status
    if status == -signal.SIGABRT and _LOST.search("".join(errors)):
        raise lost_peer(f"JAX says: {_reason(errors)}")
    name = {int(one): one.name for one in signal.Signals}.get(-status, f"signal {-status}")
    last = "".join(ours[-8:]).strip()
    raise WorkshopError(
        f"This process of the training was ended by {name}.",
        last or "Somebody ended it, or the system did, for example because memory ran out.",
        "Start all processes again: with the same --checkpoint the training goes on at its last checkpoint.",
    )


def _reason(errors: Sequence[str]) -> str:
    """The shortest true sentence of a dump of JAX's coordination service."""
    text = "".join(errors)
    if "stopped sending heartbeats" in text or "heartbeat timeout" in text:
        who = re.search(r"stopped sending heartbeats\):\n([\d, ]+)\n|Task (\d+) heartbeat timeout", text)
        return (
            f"rank {(who[1] or who[2]).strip()} gives no sign of life." if who else "a process gives no sign of life."
        )
    if "Failed to send RPC to coordination service" in text or "Socket closed" in text:
        return "the coordinator, rank 0, does not answer any more."
    if "RegisterTask" in text:
        return "a process left before all had joined."
    found = re.search(r"Gloo [^\n]*", text)
    return f"{found[0][:300]}." if found else "the connection to another process ended."


def end_with_the_guard() -> None:
    """For the process that `guard` runs: end when the guard does, and leave Ctrl-C to it."""
    from helpers.compute import worker

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker._end_with_the_caller()


# --------------------------------------------------------------------------------------------------------------------
# What an exchange costs


def exchange_bytes(model_bytes: float, processes: int) -> float:
    """Return how many bytes each process sends, and receives, when gradients are summed in a ring: 2 (n - 1) / n times.

    Args:
        model_bytes: of the gradient: parameters times 4 for float32, times 2 for bfloat16.
        processes: n, how many take part.
    """
    return 2 * (processes - 1) / processes * model_bytes


def exchange_seconds(model_bytes: float, processes: int, bytes_per_second: float, latency: float = 0.0) -> float:
    """Return the time that a ring all-reduce of the gradient takes at best.

    The ring has 2 (n - 1) steps; in each, every process sends one n-th of the gradient to its neighbour, and waits for
    a message: 2 (n - 1) (latency + model_bytes / n / bytes_per_second). Patarasuk and Yuan, Bandwidth optimal
    all-reduce algorithms for clusters of workstations, J. Parallel and Distributed Computing 69 (2009); the terms for
    latency and bandwidth are those of Thakur, Rabenseifner and Gropp, Optimization of collective communication
    operations in MPICH, Int. J. of High Performance Computing Applications 19 (2005).

    Args:
        model_bytes: of the gradient: parameters times 4 for float32, times 2 for bfloat16.
        processes: n, how many take part; each has its own link.
        bytes_per_second: of one link, in each direction. A link of 100 Mbit/s has 12.5e6.
        latency: seconds for a message without content, one way.
    """
    return exchange_bytes(model_bytes, processes) / bytes_per_second + 2 * (processes - 1) * latency


def link(small: tuple[float, float], large: tuple[float, float], processes: int = 2) -> tuple[float, float]:
    """Return (bytes per second, latency in seconds) of a link from two all-reduces: `exchange_seconds` solved for both.

    Args:
        small: (bytes, seconds) of a small one, for example of 4 bytes.
        large: (bytes, seconds) of a large one.
        processes: how many took part.
    """
    more = exchange_bytes(large[0] - small[0], processes)
    bytes_per_second = more / max(large[1] - small[1], 1e-12)
    latency = (small[1] - exchange_bytes(small[0], processes) / bytes_per_second) / (2 * (processes - 1))
    return bytes_per_second, max(latency, 0.0)


def time_exchange(model_bytes: int, repeats: int = 5) -> list[float]:
    """Time the all-reduce of one float32 array between all devices of a training that was joined; all have to call it.

    Args:
        model_bytes: of the array, a multiple of 4.
        repeats: how many all-reduces, after one that compiles.

    Returns:
        The seconds of each, as this process sees them.
    """
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("process",))
    rows = NamedSharding(mesh, PartitionSpec("process"))
    ones = np.ones((jax.local_device_count(), max(1, model_bytes // 4)), np.float32)
    array = jax.make_array_from_process_local_data(rows, ones)
    add = jax.jit(lambda one: one.sum(axis=0), out_shardings=NamedSharding(mesh, PartitionSpec()))
    add(array).block_until_ready()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        add(array).block_until_ready()
        taken.append(time.perf_counter() - start)
    return taken
