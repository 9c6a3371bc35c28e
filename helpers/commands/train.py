"""Train lesson 04's network on one process or on many, with Keras on JAX: the same losses, however many they are.

Every launcher starts it unchanged, once for each process: docs/scaling.md has mpirun, torchrun, SLURM and Kubernetes.
JAX connects the processes, and asks none of them who it is: whoever reaches their ports can take part, or stop them. So
they listen on 127.0.0.1, unless the launcher or ANYGPU_COORDINATOR names another address.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from helpers.errors import WorkshopError
from helpers.running import workarounds

if TYPE_CHECKING:
    import keras

    from helpers.training.data import Dataset

SEED, RATE = 0, 0.1  # the same for all processes: they start with the same weights, and agree on the order of images
LOST_AFTER = 10  # seconds: a process that is silent for so long counts as lost
UNWRITABLE, MISFIT = -1, -2  # said by rank 0 in place of the number of epochs that are done
REFUSALS = {
    UNWRITABLE: "The process with rank 0 cannot read and write files there.",
    MISFIT: "Its checkpoint.npz is damaged, or of another network, another dataset or another --batch.",
}
# By the variable with the rank: the launcher, its variables with the world size and with the rank on one machine. JAX
# finds SLURM and Open MPI 4 itself, but then its coordinator listens on all addresses.
LAUNCHERS = {
    "ANYGPU_RANK": ("ANYGPU variables", "ANYGPU_WORLD_SIZE", ""),
    "OMPI_COMM_WORLD_RANK": ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "RANK": ("torchrun-style variables", "WORLD_SIZE", "LOCAL_RANK"),
    "SLURM_PROCID": ("SLURM's srun", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    "JOB_COMPLETION_INDEX": ("Kubernetes Indexed Job", "ANYGPU_WORLD_SIZE", ""),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--epochs", type=_positive, default=1, help="how often every image is shown (1)")
    parser.add_argument("--batch", type=_positive, default=128, help="images a step, of all processes together (128)")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="go on from its last epoch; keep each")
    parser.add_argument("--wait", type=int, default=60, help="seconds to wait for the others (60)")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Train; rank 0 alone prints. Where another process is lost, JAX says so and ends this one."""
    member = find()
    os.environ["KERAS_BACKEND"] = "jax"
    if member.size == 1:
        _train(args, member)
        return 0
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Python's handler would wait for an exchange that never ends
    if member.rank:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        join(member, args.wait)
        _train(args, member)
        sys.modules["jax"].distributed.shutdown()  # leave together: whoever goes first is a lost peer for the others
        return 0
    except KeyboardInterrupt:
        status = 130
    except WorkshopError as error:
        print(error, file=sys.stderr)
        status = 2
    except Exception:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    os._exit(status)  # JAX would wait for a lost process before it lets Python end, and then abort


class Member(NamedTuple):
    """One process among those of a training."""

    rank: int  # its number, from 0; the process with rank 0 is the coordinator
    size: int  # how many processes there are: the world size
    launcher: str = "none"
    local_rank: int | None = None  # its number on its own machine, where the launcher says it: the GPU to take
    coordinator: str = ""  # HOST:PORT, where rank 0 listens


def find() -> Member:
    """Return which process of which training this is, from the launcher's environment variables.

    Raises:
        WorkshopError: a variable is missing, is no number, or is too large.
    """
    name = next((name for name in LAUNCHERS if name in os.environ), "")
    if not name:
        return Member(0, 1)
    launcher, size_name, local_name = LAUNCHERS[name]
    rank, size = _number(name), _number(size_name)
    if rank >= size:
        advice = "Ranks begin at 0. Complete examples: docs/scaling.md."
        raise WorkshopError(f"There is no rank {rank} in {size} processes.", f"{name} and {size_name} say so.", advice)
    local_rank = _number(local_name) if local_name in os.environ else None
    return Member(rank, size, launcher, local_rank, _coordinator(size) if size > 1 else "")


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if text.isdecimal():
        return int(text)
    why = "A launcher sets it to a whole number for every process; under SLURM that is srun."
    raise WorkshopError(f"The variable {name} is {text!r}.", why, "Complete examples: docs/scaling.md.")


def _coordinator(size: int) -> str:
    """Return HOST:PORT, on which all processes agree without talking."""
    have, address = os.environ, os.environ.get("ANYGPU_COORDINATOR", "")
    if not address and "MASTER_ADDR" in have:
        taken = have.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by torchrun's own store
        address = f"{have['MASTER_ADDR']}:{_number('MASTER_PORT') + taken}"
    elif not address and have.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(size):  # all are on this machine
        job = have.get("PMIX_NAMESPACE", "").encode()
        address = f"127.0.0.1:{61440 + zlib.crc32(job) % 4096}"  # two jobs rarely share a port
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and 0 < int(port) < 2**16:
        return address
    raise WorkshopError(
        f"The processes cannot meet at {address!r}.",
        "They may be on several machines, and have to know rank 0's address and a port from 1 to 65535.",
        "Set ANYGPU_COORDINATOR for every process to rank 0's HOST:PORT, such as 10.0.0.1:29500: docs/scaling.md.",
    )


def join(member: Member, wait: int) -> None:
    """Connect this process with the others; afterwards `jax.devices()` are those of all.

    Args:
        member: which process this is.
        wait: seconds until all have to be there; then JAX aborts this process.
    """
    import jax
    from jax._src import xla_bridge

    workarounds.refuse_old_jax()
    host, _, port = member.coordinator.rpartition(":")
    bind = os.environ.get("ANYGPU_BIND", host)
    chosen = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"} & set(os.environ)
    options = {
        "local_device_ids": None if chosen or member.local_rank is None else [member.local_rank],
        "coordinator_bind_address": f"{bind}:{port}",
        "initialization_timeout": wait,
        "heartbeat_timeout_seconds": LOST_AFTER,
        "shutdown_timeout_seconds": LOST_AFTER,
        "cluster_detection_method": "deactivate",  # the launcher's variables are read here
    }
    if member.rank == 0:
        try:
            socket.create_server((bind, int(port))).close()  # where it cannot listen, JAX crashes
        except OSError as error:
            advice = "Set ANYGPU_COORDINATOR for every process to rank 0's host and a port that is free there."
            raise WorkshopError(f"Rank 0 cannot listen on {bind}, port {port}.", str(error), advice) from None
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(member.coordinator, member.size, member.rank, **options)
    # Gloo would listen where the machine's name leads: on Debian that is 127.0.1.1, which no other machine can reach.
    # JAX 0.10 has the argument and no way to it: https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/_src/xla_bridge.py
    if make := getattr(getattr(xla_bridge, "_jax", None), "make_gloo_tcp_collectives", None):
        xla_bridge._jax.make_gloo_tcp_collectives = functools.partial(make, hostname=_own_address(host))


def _own_address(host: str) -> str:
    """Return this machine's address in the network in which the coordinator is; nothing is sent."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return probe.getsockname()[0]


def _train(args: argparse.Namespace, member: Member) -> None:
    import numpy as np

    from helpers import training
    from helpers.measure import timing
    from helpers.training import checkpoint, data

    dataset = data.load_mnist()
    sys.modules["matplotlib"] = None  # Keras would import it for a second, and not use it
    device = training.start()
    training.seed(SEED)
    steps, share = len(dataset.x_train) // args.batch, args.batch // member.size
    model = _model(args.batch, dataset)
    file = args.checkpoint / "checkpoint.npz" if args.checkpoint else None
    losses = _resume(file, model, steps, member)
    begin, seconds = len(losses), []
    print(f"{member.size} process{'es' * (member.size > 1)}, launcher: {member.launcher}; Keras on {device}")
    if begin < args.epochs:
        print(f"Epochs {begin} to {args.epochs}, each {steps} steps of {args.batch} images, {share} of them here.")
    else:
        print(f"Nothing is left to do: {file} has {begin} epochs. For one more: --epochs {begin + 1}")
    for epoch in range(begin, args.epochs):
        order = np.random.default_rng([SEED, epoch]).permutation(len(dataset.x_train))
        losses.append([])
        for step in range(steps):
            mine = order[step * args.batch + member.rank * share :][:share]
            start = time.perf_counter()
            images, labels = dataset.x_train[mine].reshape(share, -1), dataset.y_train[mine]
            losses[-1].append(float(model.train_on_batch(images, labels)[0]))
            seconds.append(time.perf_counter() - start)
        if file and not member.rank:
            checkpoint.save(file, model, losses)
        print(f"epoch {epoch + 1} of {args.epochs}: loss {np.mean(losses[-1]):.4f}", flush=True)
    unseen = slice(member.rank, None, member.size)
    images = dataset.x_test[unseen].reshape(-1, 784)
    accuracy = float(model.test_on_batch(images, dataset.y_test[unseen], return_dict=True)["accuracy"])
    print(f"Last loss {losses[-1][-1]:.6f}; {100 * accuracy:.2f} % of unseen images right.")
    if seconds[2:]:  # the first step compiles, and one alone has no spread
        print(timing.Measurement("A step here, the first left out", device, tuple(seconds[1:])))


def _model(batch: int, dataset: Dataset) -> keras.Model:
    """Return lesson 04's network without dropout, with copies on all devices of all processes.

    Raises:
        WorkshopError: the processes have different images, or the devices cannot share a batch.
    """
    import jax
    import keras
    import numpy as np
    from jax.experimental import multihost_utils

    from helpers.training import models

    counts = multihost_utils.process_allgather(np.array([len(dataset.x_train)]))
    if len(set(np.ravel(counts).tolist())) > 1:  # some have MNIST, others the stand-in: their losses would mean nothing
        raise WorkshopError(
            "The processes have different datasets.",
            f"This one has: {dataset.name}.",
            "Put mnist.npz where every process finds it, and set ANYGPU_MNIST to its path for all of them.",
        )
    if batch % jax.device_count() or batch > len(dataset.x_train):
        raise WorkshopError(
            f"A batch of {batch} images cannot be shared by {jax.device_count()} devices.",
            f"Each device gets equally many images, and there are {len(dataset.x_train)}.",
            f"Choose a multiple: --batch {jax.device_count() * 64}",
        )
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    return models.build_plain_mlp(RATE)


def _resume(file: Path | None, model: keras.Model, steps: int, member: Member) -> list[list[float]]:
    """Take the last checkpoint, if there is one, from rank 0 to all: they need no shared disk.

    Returns:
        The losses of each epoch that is done.

    Raises:
        WorkshopError: rank 0 cannot write in the folder, or its checkpoint does not fit. All ranks say it.
    """
    import numpy as np
    from jax.experimental import multihost_utils

    from helpers.training import checkpoint

    variables = checkpoint.state(model)
    begin, losses, values = 0, np.empty((0, steps)), [np.asarray(variable.value) for variable in variables]
    if file and not member.rank:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=file.parent).close()
            if file.exists():
                losses, values = checkpoint.read(file, model)
                begin = len(losses) if losses.shape[1:] == (steps,) else MISFIT
        except OSError:
            begin = UNWRITABLE
        except ValueError:
            begin = MISFIT
    begin = int(multihost_utils.broadcast_one_to_all(np.array(begin)))  # the refusals, too: nobody waits for rank 0
    if begin in REFUSALS:
        folder = file.parent if file else "that rank 0 was given"
        what = f"The folder {folder} cannot keep this training's checkpoints."
        raise WorkshopError(what, REFUSALS[begin], "Name another folder after --checkpoint.")
    if begin:
        for variable, value in zip(variables, multihost_utils.broadcast_one_to_all(values), strict=True):
            variable.assign(np.asarray(value))
    return [[0.0] * steps] * begin if member.rank else losses.tolist()
