"""Train lesson 04's network on one process or on many, with Keras on JAX: the same losses, however many they are.

Every launcher starts it unchanged, once for each process: docs/scaling.md has mpirun, torchrun, SLURM and Kubernetes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import cluster
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import keras
    import numpy as np

    from helpers.cluster import Member
    from helpers.compute.data import Dataset

GUARDED = "ANYGPU_GUARDED"  # set for the process that trains; the one before it looks how it ends
SEED, RATE = 0, 0.1  # the same for all processes: they start with the same weights, and agree on the order of images
FILE = "checkpoint.npz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--steps", type=_positive, help="how many steps in all (default: one epoch)")
    parser.add_argument("--epochs", type=_positive, help="how many epochs, instead of --steps")
    parser.add_argument("--batch", type=_positive, default=128, help="images a step, of all processes together (128)")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="go on from its checkpoint; keep one there")
    parser.add_argument("--every", type=_positive, default=100, help="steps from one checkpoint to the next (100)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the result as JSON (rank 0 does)")
    parser.add_argument("--wait", type=float, default=cluster.WAIT, help="seconds to wait for the others (60)")
    parser.add_argument(
        "--lost-after", type=float, default=cluster.LOST_AFTER, help="silent seconds after which one is lost (10)"
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Train; rank 0 alone prints. The status is 0 for a whole training, and 2 if another process is lost."""
    member = cluster.find()  # what is wrong with the variables is told before anything starts
    if not os.environ.get(GUARDED):
        # What this process would do alone, another one does, so that its end can be put into words.
        variables = os.environ | {GUARDED: "1", "KERAS_BACKEND": "jax", "PYTHONUNBUFFERED": "1"}
        given = {name: value for name, value in vars(args).items() if name != "rest" and value is not None}
        words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        return cluster.guard([sys.executable, "-P", "-m", "helpers", "train", *words], variables)
    cluster.end_with_the_guard()
    os.environ["KERAS_BACKEND"] = "jax"
    try:
        with cluster.watch():
            cluster.join(member, args.wait, args.lost_after)
            _train(args, member)
        _shut_down()
    except WorkshopError as error:
        print(error, file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(2)  # JAX would wait for the lost process before it lets Python end, and then abort
    except Exception:
        if member.size == 1:
            raise
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)  # the same, and the guard would take the abort for a lost peer
    return 0


def _shut_down() -> None:
    """Leave together: whoever goes first would be a lost peer for the others."""
    import jax

    with cluster.watch():
        jax.distributed.shutdown()


def _train(args: argparse.Namespace, member: Member) -> None:
    from helpers.compute import data, training

    say = print if member.rank == 0 else lambda *words: None
    with _without("sklearn", "matplotlib"):
        device = training.start()
    training.seed(SEED)
    with contextlib.redirect_stdout(sys.stdout if member.rank == 0 else io.StringIO()):
        dataset = data.load_mnist()
    _all_have(dataset)
    steps_an_epoch = len(dataset.x_train) // args.batch
    steps = args.steps or (args.epochs or 1) * steps_an_epoch
    rows = _rows(args.batch, member, steps_an_epoch)
    model = _model()
    at, losses = _resume(args, model, member, dataset.name)
    say(f"{member.size} process{'es' * (member.size > 1)}, launcher: {member.launcher}; Keras on {device}")
    say(f"Steps {at} to {steps} of {args.batch} images, {rows.stop - rows.start} of them here.")
    seconds: list[float] = []
    for step in range(at, steps):
        x, y = _batch(dataset, step, args.batch, steps_an_epoch)
        start = time.perf_counter()
        losses.append(float(model.train_on_batch(x[rows], y[rows])[0]))
        seconds.append(time.perf_counter() - start)
        if args.checkpoint and member.rank == 0 and ((step + 1) % args.every == 0 or step + 1 == steps):
            _keep(args, model, losses, dataset.name)
        if (step + 1) % max(1, steps // 10) == 0:
            say(f"step {step + 1:>5} of {steps}: loss {losses[-1]:.4f}")
    result = _result(args, member, model, dataset, losses, seconds, at, device)
    if member.rank == 0:
        say(_summary(result))
        if args.save:
            _write(args.save, json.dumps(result, indent=1).encode() + b"\n")


@contextlib.contextmanager
def _without(*modules: str) -> Iterator[None]:
    """Let `import` not find some modules in the block. Keras imports these two for what nobody needs here: 3 s."""
    hidden = [name for name in modules if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


def _rows(batch: int, member: Member, steps_an_epoch: int) -> slice:
    """Return this process' part of every batch, in the order of the ranks."""
    import jax

    if batch % jax.device_count():
        raise WorkshopError(
            f"A batch of {batch} images cannot be shared by {jax.device_count()} devices.",
            "Each device gets equally many images, so that the mean of their gradients is that of the whole batch.",
            f"Choose a multiple: --batch {-(-batch // jax.device_count()) * jax.device_count()}",
        )
    if not steps_an_epoch:
        raise WorkshopError(f"A batch of {batch} images is more than there are.", "", "Choose a smaller --batch.")
    share = batch // member.size
    return slice(member.rank * share, (member.rank + 1) * share)


def _batch(dataset: Dataset, step: int, batch: int, steps_an_epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels of a step; who asks again, after a crash, gets the same."""
    import numpy as np

    epoch, number = divmod(step, steps_an_epoch)
    order = np.random.default_rng([SEED, epoch]).permutation(len(dataset.x_train))
    chosen = order[number * batch : (number + 1) * batch]
    return dataset.x_train[chosen].reshape(len(chosen), -1), dataset.y_train[chosen]


def _model() -> keras.Model:
    """Return lesson 04's network without dropout, with copies on all devices of all processes."""
    import keras

    from helpers.compute import models

    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    return models.plain_mlp(RATE)


def _all_have(dataset: Dataset) -> None:
    """Refuse a training in which some processes have MNIST and others the stand-in: its losses would mean nothing."""
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    if jax.process_count() > 1:
        told = multihost_utils.process_allgather(np.array([len(dataset.x_train)]))
        if len(set(told.ravel().tolist())) > 1:
            raise WorkshopError(
                "The processes have different datasets.",
                f"This one has: {dataset.name}.",
                "Put mnist.npz where every process finds it, and set ANYGPU_MNIST to its path for all of them.",
            )


# --- Checkpoints: one file, replaced in one step, so that it is whole whenever this process is killed


def _state(model: keras.Model) -> list[keras.Variable]:
    model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def _keep(args: argparse.Namespace, model: keras.Model, losses: list[float], dataset: str) -> None:
    """Write the weights, the optimizer's state and the losses until now; rank 0 does it for all."""
    import numpy as np

    about = json.dumps({"batch": args.batch, "dataset": dataset, "losses": losses})
    file = io.BytesIO()
    np.savez(file, np.array(about), *(np.asarray(one.value) for one in _state(model)))
    _write(args.checkpoint / FILE, file.getvalue())


def _resume(args: argparse.Namespace, model: keras.Model, member: Member, dataset: str) -> tuple[int, list[float]]:
    """Take the state of the last checkpoint, if there is one, and return (steps done, their losses)."""
    import numpy as np
    from jax.experimental import multihost_utils

    variables, losses = _state(model), []
    values = [np.asarray(one.value) for one in variables]
    if member.rank == 0 and args.checkpoint and (args.checkpoint / FILE).exists():
        values, losses = _read(args, values, dataset)
    at = len(losses)
    if member.size > 1:  # from rank 0 to all: they need no shared disk
        at = int(multihost_utils.broadcast_one_to_all(np.array(at)))
        values = multihost_utils.broadcast_one_to_all(values) if at else values
    if at:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(np.asarray(value))
    return at, losses or [0.0] * at


def _read(args: argparse.Namespace, now: list[np.ndarray], dataset: str) -> tuple[list[np.ndarray], list[float]]:
    import zipfile

    import numpy as np

    file = args.checkpoint / FILE
    try:
        with np.load(file, allow_pickle=False) as stored:
            about = json.loads(str(stored["arr_0"]))
            values = [stored[f"arr_{number + 1}"] for number in range(len(now))]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise WorkshopError(
            f"{file} is not a checkpoint of this command.", f"{error}", "Delete it, or name another folder."
        ) from None
    if (about["batch"], about["dataset"]) != (args.batch, dataset):
        raise WorkshopError(
            f"{file} belongs to another training.",
            f"It has batches of {about['batch']} images of {about['dataset']}; now it is {args.batch} of {dataset}.",
            "Name another folder, or train with the same --batch and data.",
        )
    return values, about["losses"]


def _write(file: Path, content: bytes) -> None:
    """Write a file in one step: who is killed meanwhile leaves the old one as it was."""
    new = file.with_name(file.name + ".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
    except OSError as error:
        why = f"The system says: {error.strerror}."
        raise WorkshopError(f"{file} cannot be written.", why, "Name a place with free space that is yours.") from None


# --- The result


def _result(
    args: argparse.Namespace, member: Member, model: keras.Model, dataset: Dataset,
    losses: list[float], seconds: list[float], at: int, device: str,
) -> dict[str, object]:  # fmt: skip
    """Measure the exchange alone, judge the network on unseen images, and put all that is known into plain data."""
    parameters = model.count_params()
    exchange = statistics.median(cluster.time_exchange(4 * parameters)) if member.size > 1 else 0.0
    step = statistics.median(seconds[1:] or seconds) if seconds else 0.0  # the first one compiles
    share = len(dataset.x_test) // member.size
    mine = slice(member.rank * share, (member.rank + 1) * share)
    judged = model.test_on_batch(dataset.x_test[mine].reshape(share, -1), dataset.y_test[mine], return_dict=True)
    return {
        "launcher": member.launcher, "rank": member.rank, "world_size": member.size, "coordinator": member.coordinator,
        "device": device, "dataset": dataset.name, "batch": args.batch, "steps": len(losses), "resumed_at": at,
        "losses": losses, "accuracy": float(judged["accuracy"]), "parameters": parameters,
        "seconds_a_step": step, "exchange_bytes": 4 * parameters, "exchange_seconds": exchange,
        "exchange_share": exchange / step if step else 0.0,
    }  # fmt: skip


def _summary(result: dict[str, object]) -> str:
    lines = [f"Last loss {result['losses'][-1]:.6f}; {100 * result['accuracy']:.2f} % of unseen images right."]
    if result["seconds_a_step"]:
        lines.append(f"A step takes {1e3 * result['seconds_a_step']:.1f} ms here (median; the first one is left out).")
    if result["world_size"] > 1:
        megabytes, milliseconds = result["exchange_bytes"] / 1e6, 1e3 * result["exchange_seconds"]
        lines.append(f"The exchange of {megabytes:.1f} MB of gradients, timed alone, takes {milliseconds:.1f} ms.")
    return "\n".join(lines)
