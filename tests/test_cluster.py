"""`python -m helpers train` on real processes: several launchers, lost processes, and the files of docs/cluster."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from waiting import alive, in_the_end

from helpers import ROOT
from helpers.commands import train
from helpers.errors import WorkshopError
from helpers.running import processes
from helpers.training import data

LONG = 600  # seconds: against a hang
TRAIN = [sys.executable, "-P", "-m", "helpers", "train"]
OMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "ANYGPU_COORDINATOR": "node7:29500"}
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "LOCAL_RANK": "0"}
AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "2", "ANYGPU_WORLD_SIZE": "4", "ANYGPU_COORDINATOR": "train-0.train:29500"}
OWN = {"ANYGPU_RANK": "1", "ANYGPU_WORLD_SIZE": "3", "ANYGPU_COORDINATOR": "node1:29500"}
LAUNCHERS = ("ANYGPU_", "OMPI_", "SLURM_", "PMIX_", "JOB_COMPLETION_INDEX", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_")


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Before every test no launcher's variables; after it no process."""
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        if name not in ("ANYGPU_MNIST", "ANYGPU_PROFILE"):
            monkeypatch.delenv(name)
    before = set(psutil.Process().children(recursive=True))
    yield
    left = {child for child in set(psutil.Process().children(recursive=True)) - before if alive(child)}
    for child in left:
        child.kill()
    assert not left


def find(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return train.find()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1, "none", None, "")),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}, (0, 1, "none", None, "")),  # without a rank: another's
        (OWN, (1, 3, "ANYGPU variables", None, "node1:29500")),
        (OMPI, (1, 2, "Open MPI", None, "127.0.0.1:PORT")),
        (OMPI | SLURM, (1, 2, "Open MPI", None, "node7:29500")),  # mpirun inside an allocation
        (TORCHRUN, (0, 2, "torchrun-style variables", 0, "10.0.0.1:29500")),
        (TORCHRUN | AGENT, (0, 2, "torchrun-style variables", 0, "10.0.0.1:29501")),
        (SLURM, (3, 4, "SLURM's srun", 1, "node7:29500")),
        (KUBERNETES, (2, 4, "Kubernetes Indexed Job", None, "train-0.train:29500")),
    ],
)
def test_every_launcher_is_recognized(monkeypatch, variables, expected):
    found = find(monkeypatch, variables)
    port = found.coordinator.rpartition(":")[2]
    assert tuple(found) == (*expected[:4], expected[4].replace("PORT", port))


@pytest.mark.parametrize(
    ("variables", "fact"),
    [
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, "srun"),  # in an allocation, not started with srun
        (OWN | {"ANYGPU_RANK": "one"}, "'one'"),
        (OMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "ANYGPU_COORDINATOR"),  # several machines
        (OWN | {"ANYGPU_COORDINATOR": "node1"}, "'node1'"),  # the port is forgotten
        (OWN | {"ANYGPU_COORDINATOR": "node1:99999"}, "'node1:99999'"),
        (TORCHRUN | AGENT | {"MASTER_PORT": "65535"}, "'10.0.0.1:65536'"),
        (TORCHRUN | {"RANK": "2"}, "no rank 2 in 2 processes"),
    ],
)
def test_variables_that_do_not_fit_are_refused(monkeypatch, variables, fact):
    with pytest.raises(WorkshopError, match=fact):
        find(monkeypatch, variables)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def pair(*arguments, ranks=(0, 1)):
    """Start processes of one training of two, and do not wait for them."""
    own = {"ANYGPU_WORLD_SIZE": "2", "ANYGPU_COORDINATOR": f"127.0.0.1:{free_port()}"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    variables = [processes.environment(own | {"ANYGPU_RANK": str(rank)}) for rank in ranks]
    return [subprocess.Popen([*TRAIN, *arguments], env=environment, **pipes) for environment in variables]


def ends(started):
    """Return (status, stdout, stderr) of each."""
    with ThreadPoolExecutor(len(started)) as pool:
        texts = list(pool.map(lambda process: process.communicate(timeout=LONG), started))
    return [(process.returncode, *text) for process, text in zip(started, texts, strict=True)]


def batch():
    """A tenth of the images, so that an epoch has ten steps."""
    return ["--batch", str(len(data.load_mnist().x_train) // 20 * 2)]


def losses(folder):
    """The loss of every step, which the checkpoint keeps, too."""
    with np.load(folder / "checkpoint.npz", allow_pickle=False) as kept:
        return kept["losses"].ravel()


@pytest.mark.slow
def test_the_losses_are_those_of_one_process_and_go_on_from_a_checkpoint(tmp_path):
    two = [*TRAIN, "--epochs", "2", *batch(), "--checkpoint"]
    assert processes.run_command([*two, str(tmp_path)], LONG, processes.environment()).status == 0
    alone = losses(tmp_path)
    kept = tmp_path / "kept"
    for epochs in (1, 2):
        started = pair("--epochs", str(epochs), *batch(), "--checkpoint", str(kept))
        (status, printed, errors), (other, nothing, _) = ends(started)
        assert (status, other, nothing, len(losses(kept))) == (0, 0, "", 10 * epochs), errors
        assert f"Epochs {epochs - 1} to {epochs}, each 10 steps" in printed
        assert "A step here" in printed and "the middle half spans" in printed
    assert printed.count("Last loss") == 1
    # Sums in another order differ in the last bit, and training makes that grow: 1e-5 holds for the first steps.
    assert losses(kept)[:5] == pytest.approx(alone[:5], abs=1e-5)
    assert losses(kept) == pytest.approx(alone, abs=1e-3)
    if mpirun := shutil.which("mpirun"):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        command = [mpirun, *root, "--oversubscribe", "-n", "2", *two, str(tmp_path / "mpirun")]
        done = processes.run_command(command, LONG, processes.environment())
        assert done.status == 0 and "launcher: Open MPI" in done.stdout, done.stderr
        assert losses(tmp_path / "mpirun") == pytest.approx(alone, abs=1e-3)


@pytest.mark.slow
def test_a_folder_that_cannot_keep_this_training_is_refused_by_all_and_a_finished_one_says_so(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "checkpoint.npz").write_text("no archive")
    (tmp_path / "other").mkdir()
    np.savez(tmp_path / "other" / "checkpoint.npz", np.zeros(9), losses=[[0.0] * 10])
    kept = [*TRAIN, "--checkpoint", str(tmp_path / "kept")]
    assert processes.run_command([*kept, *batch()], LONG, processes.environment()).status == 0
    done = processes.run_command([*kept, *batch()], LONG, processes.environment())
    assert done.status == 0 and "Nothing is left to do" in done.stdout and "A step" not in done.stdout
    assert losses(tmp_path / "kept").size == 10
    refused = processes.run_command([*kept, "--batch", "64"], LONG, processes.environment())
    assert refused.status == 2 and "another --batch" in refused.stderr and "Traceback" not in refused.stderr
    for folder, why in (("file", "cannot read and write"), ("damaged", "is damaged"), ("other", "another network")):
        for status, _, errors in ends(pair(*batch(), "--checkpoint", str(tmp_path / folder))):
            assert status == 2 and why in errors and "Traceback" not in errors, errors


@pytest.mark.slow
def test_who_waits_for_a_process_that_never_comes_ends():
    (status, _, errors), *_ = ends(pair("--wait", "1", ranks=[0]))
    assert status and "RegisterTask" in errors  # JAX's own words


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="written for POSIX signals")
@pytest.mark.parametrize(("rank", "number"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_a_lost_process_ends_all_and_nothing_is_left_but_a_whole_checkpoint(tmp_path, rank, number):
    file = tmp_path / "kept" / "checkpoint.npz"
    started = pair("--epochs", "1000000", *batch(), "--checkpoint", str(file.parent))
    in_the_end(file.exists, LONG)
    connections = [
        connection for process in started for connection in psutil.Process(process.pid).net_connections("tcp")
    ]
    listening = {
        connection.laddr.ip.removeprefix("::ffff:") for connection in connections if connection.status == "LISTEN"
    }
    assert listening == {"127.0.0.1"}  # the coordinator and Gloo
    started[rank].send_signal(number)
    (status, _, errors), *_ = ends([started[1 - rank]])
    assert status and errors
    started[rank].kill()  # whoever stands still
    started[rank].communicate()
    assert file.exists()


def test_the_files_for_slurm_and_kubernetes_start_the_command_as_it_is(monkeypatch):
    import yaml

    text = (ROOT / "docs" / "cluster" / "kubernetes.yaml").read_text(encoding="utf-8")
    parts = {part["kind"]: part.get("spec") for part in yaml.safe_load_all(text)}
    job = parts["Job"]
    assert parts["NetworkPolicy"]["ingress"]  # nothing checks who connects to rank 0
    (container,) = job["template"]["spec"]["containers"]
    variables = {part["name"]: part["value"] for part in container["env"] if "value" in part}
    found = find(monkeypatch, variables | {"JOB_COMPLETION_INDEX": "1"})
    assert (found.rank, found.size, found.launcher) == (1, job["completions"], "Kubernetes Indexed Job")
    script = (ROOT / "docs" / "cluster" / "train.sbatch").read_text(encoding="utf-8")
    words = script.replace("\\\n", " ").split("helpers train", 1)[1].split()
    for arguments in (container["args"], words):  # every other argument is known
        refused = processes.run_command([*TRAIN, *arguments, "--epochs=none"], LONG, processes.environment())
        assert "'none' is not a whole number" in refused.stderr
