"""Train lesson 04's network on several processes: each computes the gradients of its share, and JAX averages them.

A launcher starts it once for each process: docs/scaling.md. JAX finds SLURM and Open MPI. Nothing checks who connects.
"""

import argparse
import contextlib
import functools
import os
import socket
import sys
import zlib
from pathlib import Path

import jax
import numpy as np
from jax._src import distributed, xla_bridge
from jax.experimental.multihost_utils import broadcast_one_to_all, process_allgather

os.environ["KERAS_BACKEND"] = "jax"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the workshop's folder, for its network and its data
SEED, RATE = 0, 0.1  # the same in all processes: they start with equal weights, and agree on the order of the images


def join() -> None:
    """Connect this process with the others, so that `jax.devices()` lists the devices of all; alone, do nothing."""
    variables = os.environ
    options: dict = dict.fromkeys(("heartbeat_timeout_seconds", "shutdown_timeout_seconds"), 10)  # if a process is lost
    rank = variables.get("RANK", variables.get("JOB_COMPLETION_INDEX"))  # torchrun's or yours; Kubernetes'
    if rank is not None:
        port = int(variables["MASTER_PORT"]) + (1 if variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else 0)
        variables["JAX_COORDINATOR_ADDRESS"] = f"{variables['MASTER_ADDR']}:{port}"  # torchrun uses MASTER_PORT itself
        options |= {"num_processes": int(variables["WORLD_SIZE"]), "process_id": int(rank)}
        if "LOCAL_RANK" in variables:
            options["local_device_ids"] = [int(variables["LOCAL_RANK"])]  # one GPU for each process of a machine
    elif not any(name.startswith(("OMPI_COMM_WORLD_", "SLURM_STEP_")) for name in variables):
        return
    if "JAX_COORDINATOR_ADDRESS" in variables:  # JAX's own detection would let rank 0 listen on all addresses
        variables.setdefault("JAX_COORDINATOR_BIND_ADDRESS", variables["JAX_COORDINATOR_ADDRESS"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(**options)
    # Gloo would listen where this machine's name leads (Debian: 127.0.1.1). It gets its address in rank 0's network.
    if make := getattr(getattr(xla_bridge, "_jax", None), "make_gloo_tcp_collectives", None):
        with socket.socket(type=socket.SOCK_DGRAM) as probe:  # nothing is sent
            probe.connect((str(distributed.global_state.coordinator_address).rpartition(":")[0], 9))
            xla_bridge._jax.make_gloo_tcp_collectives = functools.partial(make, hostname=probe.getsockname()[0])


def main() -> None:
    """Train, keep a checkpoint after each epoch, and let rank 0 print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=1, help="how often every image is shown (1)")
    parser.add_argument("--batch", type=int, default=128, help="images a step, of all processes together (128)")
    parser.add_argument("--checkpoint", type=Path, help="an .npz file of rank 0: go on from it, and keep it")
    args = parser.parse_args()
    join()
    import keras

    from helpers.training import checkpoint, data, models

    rank, size, devices = jax.process_index(), jax.process_count(), jax.devices()
    if args.batch % len(devices):
        sys.exit(f"{args.batch} images cannot be shared equally by {len(devices)} devices.")
    with contextlib.redirect_stdout(sys.stderr):
        dataset = data.load_mnist()
    images, labels, steps = dataset.x_train.reshape(-1, 784), dataset.y_train, len(dataset.x_train) // args.batch
    if np.ptp(process_allgather(np.array([len(images)]))):
        sys.exit(f"The processes have different datasets, this one {dataset.name}. Set ANYGPU_MNIST for all of them.")
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    keras.utils.set_random_seed(SEED)
    model = models.build_plain_mlp(RATE)
    variables = checkpoint.state(model)
    losses, values = [], [variable.numpy() for variable in variables]
    if args.checkpoint and rank == 0 and args.checkpoint.exists():
        kept, values = checkpoint.read(args.checkpoint, model)
        losses = kept.tolist()
    done, *values = broadcast_one_to_all([np.array(len(losses)), *values])
    for variable, value in zip(variables, values, strict=True):
        variable.assign(np.asarray(value))
    for epoch in range(int(done) // steps, args.epochs):
        order = np.random.default_rng([SEED, epoch]).permutation(len(images))[: steps * args.batch]
        for mine in order.reshape(steps, size, -1)[:, rank]:
            losses.append(float(model.train_on_batch(images[mine], labels[mine])[0]))  # of all processes' images
        if args.checkpoint and rank == 0:
            args.checkpoint.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.save(args.checkpoint, model, losses)
    weights = b"".join(np.asarray(variable.value).tobytes() for variable in model.variables)
    if np.ptp(process_allgather(np.array([zlib.crc32(weights)], np.int64))):
        sys.exit("The processes hold different weights.")
    if rank == 0:
        where = ", ".join(f"{device} in process {device.process_index}" for device in devices)
        print(
            f"{where}: {dataset.name}, loss {losses[0]:.4f} to {losses[-1]:.4f} in {len(losses)} steps, equal weights"
        )
    jax.distributed.shutdown()  # together: a process that leaves first would count as lost


if __name__ == "__main__":
    main()
