"""helpers.cluster and `python -m helpers train` on real processes: several launchers, lost peers, a slowed link."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import slow_link

from helpers import ROOT, cluster
from helpers.cluster import Member
from helpers.compute import processes
from helpers.errors import WorkshopError

LONG = 300  # seconds: against a hang; no run of a test takes so long
TRAIN = [sys.executable, "-P", "-m", "helpers", "train"]
SHORT = ["--steps", "8", "--every", "3"]
LAUNCHERS = (
    "ANYGPU_",
    "OMPI_",
    "SLURM_",
    "PMIX_",
    "JOB_COMPLETION_INDEX",
    "MASTER_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
)
posix = pytest.mark.skipif(os.name == "nt", reason="written for POSIX signals")


def children():
    return {one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """Before every test no launcher's variables; after it no process and no file that was not asked for."""
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        if name not in ("ANYGPU_MNIST", "ANYGPU_PROFILE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before = children()
    yield
    assert children() <= before
    # mpirun keeps a folder for its session, which goes with the last run of that user.
    assert [path.name for path in (tmp_path / "temporary").iterdir() if not path.name.startswith("ompi.")] == []


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def refused(function, *words):
    with pytest.raises(WorkshopError) as caught:
        function()
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
    assert "Why: " in message and "Next: " in message
    return message


# ------------------------------------------------------------------------------------------------------ who am I?

OMPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "PMIX_NAMESPACE": "1531576321",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_STEP_NODELIST": "gpu[007-008,012]", "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "3", "SLURM_LOCALID": "1",
}  # fmt: skip
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "LOCAL_RANK": "0"}
AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "2", "ANYGPU_WORLD_SIZE": "4", "ANYGPU_COORDINATOR": "train-0.train:29500"}
OWN = {"ANYGPU_RANK": "1", "ANYGPU_WORLD_SIZE": "3", "ANYGPU_COORDINATOR": "[::1]:29500", "ANYGPU_BIND": "::"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, Member(0, 1)),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}, Member(0, 1)),  # without a rank: of something else
        ({"SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}, Member(0, 1)),  # in an allocation, not started with srun
        (OWN, Member(1, 3, "[::1]:29500", "ANYGPU variables", bind="::")),
        (OMPI, Member(1, 2, "10.96.0.1:PORT", "Open MPI", 0)),
        (OMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, Member(1, 2, "127.0.0.1:PORT", "Open MPI", 0)),
        (OMPI | SLURM, Member(1, 2, "10.96.0.1:PORT", "Open MPI", 0)),  # mpirun inside an allocation
        (TORCHRUN, Member(0, 2, "10.0.0.1:29500", "torchrun-style variables", 0)),
        (TORCHRUN | {"MASTER_ADDR": "fd00::1"}, Member(0, 2, "[fd00::1]:29500", "torchrun-style variables", 0)),
        (TORCHRUN | AGENT, Member(0, 2, "10.0.0.1:29501", "torchrun-style variables", 0)),
        (SLURM, Member(3, 4, "gpu007:PORT", "SLURM", 1)),
        (SLURM | {"SLURM_STEP_NODELIST": "a1,b2"}, Member(3, 4, "a1:PORT", "SLURM", 1)),
        (SLURM | {"SLURM_STEP_NODELIST": "n[01,03]"}, Member(3, 4, "n01:PORT", "SLURM", 1)),
        (SLURM | {"SLURM_STEP_NUM_NODES": "1"}, Member(3, 4, "127.0.0.1:PORT", "SLURM", 1)),
        (KUBERNETES, Member(2, 4, "train-0.train:29500", "Kubernetes Indexed Job")),
    ],
)  # fmt: skip
def test_every_launcher_is_recognized(variables, expected):
    found = cluster.find(variables)
    port = found.coordinator.rpartition(":")[2]
    assert not port or 1024 <= int(port) < 65536
    assert found == Member(**vars(expected) | {"coordinator": expected.coordinator.replace("PORT", port)})
    if variables and "PORT" in expected.coordinator:
        assert cluster.find(variables | {"ANYGPU_COORDINATOR": "me:1234"}).coordinator == "me:1234"


def test_the_ranks_of_one_job_agree_on_the_port_and_two_jobs_do_not():
    def port(**changes):
        return cluster.find(SLURM | changes).coordinator

    assert port() == port(SLURM_PROCID="0", SLURM_LOCALID="0")
    assert port() != port(SLURM_JOB_ID="78") and port() != port(SLURM_STEP_ID="1")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"ANYGPU_RANK": "0"}, ["ANYGPU_WORLD_SIZE is missing"]),
        ({"ANYGPU_RANK": "0", "ANYGPU_WORLD_SIZE": "2"}, ["ANYGPU_COORDINATOR is missing"]),
        ({"JOB_COMPLETION_INDEX": "0", "ANYGPU_WORLD_SIZE": "2"}, ["ANYGPU_COORDINATOR is missing"]),
        (OWN | {"ANYGPU_RANK": "one"}, ["ANYGPU_RANK is 'one'", "whole number"]),
        (OWN | {"ANYGPU_RANK": "3"}, ["ANYGPU_RANK=3 and ANYGPU_WORLD_SIZE=3 do not fit", "0 to 2"]),
        (OWN | {"ANYGPU_COORDINATOR": "somewhere"}, ["'somewhere' is not HOST:PORT", "10.0.0.1:29500"]),
        (OWN | {"ANYGPU_COORDINATOR": "here:99999"}, ["is not HOST:PORT"]),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, ["MASTER_ADDR is missing", "torchrun"]),
        (OMPI | {"OMPI_MCA_orte_hnp_uri": ""}, ["ANYGPU_COORDINATOR is missing", "Open MPI on several machines"]),
    ],
)
def test_variables_that_do_not_fit_are_told(variables, words):
    refused(lambda: cluster.find(variables), *words)


def test_one_process_alone_joins_nobody():
    assert cluster.join(Member(0, 1)).size == 1


# ------------------------------------------------------------------------------------------------------ coming together


def member(rank, size, port, **more):
    return Member(rank, size, f"127.0.0.1:{port}", "a test", **more)


def test_a_coordinator_that_never_comes():
    port, start = free_port(), time.monotonic()
    words = (f"The coordinator 127.0.0.1:{port} did not come within 0.5 s", "Rank 1 tried", "Connection refused")
    refused(lambda: cluster.join(member(1, 2, port), seconds=0.5), *words)
    assert time.monotonic() - start < 30


def test_a_coordinator_whose_name_is_unknown():
    lost = Member(1, 2, "no-such-machine.invalid:29500", "a test")
    refused(lambda: cluster.join(lost, seconds=0.3), "no-such-machine.invalid:29500 did not come")


def test_a_coordinator_that_comes_and_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused(lambda: cluster.join(member(1, 2, port), seconds=0.5), "did not come within 0.5 s", "timed out")


def test_rank_0_names_those_that_are_missing():
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(lambda: cluster.join(member(2, 4, port), seconds=1))
        refused(lambda: cluster.join(member(0, 4, port), seconds=0.7), "rank 1, 3 of 4", "firewall")
        refused(second.result, "did not come within 1 s")


@pytest.mark.parametrize(
    ("rank", "size", "why"),
    [(1, 3, "two processes say that they are rank 1"), (1, 2, "rank 1 of 2 came to rank 0 of 3")],
)
def test_processes_that_do_not_fit_are_told_so(rank, size, why):
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        others = [
            pool.submit(lambda one=one: cluster.join(one, seconds=5))
            for one in (member(1, 3, port), member(rank, size, port))
        ]
        refused(
            lambda: cluster.join(member(0, 3, port), seconds=5),
            "do not fit together",
            why.replace("rank 1 of 2", "rank 1 of 2"),
        )
        said = []
        for other in others:
            with pytest.raises(WorkshopError) as caught:
                other.result()
            said.append(str(caught.value))
    assert any(why in one for one in said)


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused(
            lambda: cluster.join(member(0, 2, port), seconds=1), f"cannot listen on 127.0.0.1, port {port}", "free port"
        )


def test_strangers_at_the_door_do_no_harm():
    port, noise = free_port(), [b"", b"GET / HTTP/1.1\r\n\r\n", b"anygpu one 2", b"anygpu 7"]

    def knock():
        for words in noise:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as one:
                    one.sendall(words)
                    break
                time.sleep(0.01)

    with ThreadPoolExecutor(1) as pool:
        strangers = pool.submit(knock)
        refused(lambda: cluster.join(member(0, 2, port), seconds=2), "rank 1 of 2")
        strangers.result()


def add_up(process, addresses):
    import subprocess

    from helpers import cluster

    member = cluster.join(cluster.Member(process, 2, addresses[0], "helpers.compute.processes"), seconds=60)
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    seconds = cluster.time_exchange(4_000, 3)
    every = multihost_utils.process_allgather(np.array([10.0 + process]))
    listening = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True).stdout if process == 0 else ""
    import os

    ours = [line.split()[3] for line in listening.splitlines() if f"pid={os.getpid()}," in line]
    return member.rank, jax.device_count(), every.ravel().tolist(), seconds, ours


def test_two_processes_join_and_listen_on_this_machine_alone():
    made = processes.run(add_up, processes=2, seconds=LONG)
    for rank, (number, devices, every, seconds, listening) in enumerate(made.results):
        assert (number, devices, every) == (rank, 2, [10.0, 11.0])
        assert len(seconds) == 3 and min(seconds) > 0
        assert all("127.0.0.1" in address for address in listening)
    if shutil.which("ss"):
        assert made.results[0][4]


# ------------------------------------------------------------------------------------------------------ one script


def train(arguments, env=None, before=(), seconds=LONG):
    return processes.run_command([*before, *TRAIN, *arguments], seconds, processes.environment(env))


def result(folder):
    return json.loads((folder / "result.json").read_text())


def saved(folder, *more):
    return [*SHORT, "--save", str(folder / "result.json"), *more]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process alone makes of the joined batch."""
    folder = tmp_path_factory.mktemp("alone")
    environment = {name: None for name in os.environ if name.startswith(LAUNCHERS) and name != "ANYGPU_MNIST"}
    done = train(saved(folder), environment)
    assert done.status == 0, done.stderr
    assert "1 process, launcher: none" in done.stdout
    return result(folder)


def assert_equal_losses(one, other):
    """Sums in another order differ in the last bit, and training makes that grow: 1e-5 holds for the first steps."""
    assert one["losses"][:5] == pytest.approx(other["losses"][:5], abs=1e-5)
    assert one["losses"] == pytest.approx(other["losses"], abs=1e-3)


def assert_same(folder, alone, launcher):
    two = result(folder)
    assert [two["losses"][0], two["losses"][-1]] != [0, 0]
    assert_equal_losses(two, alone)
    assert (two["launcher"], two["rank"], two["world_size"], two["steps"]) == (launcher, 0, 2, 8)
    assert two["accuracy"] == pytest.approx(alone["accuracy"], abs=1e-2)
    assert two["exchange_seconds"] > 0 and two["exchange_bytes"] == 4 * alone["parameters"] == 4 * 669_706


def assert_rank_0_alone_prints(done):
    assert done[0].stdout.count("Last loss") == 1 and done[1].stdout == ""
    assert [one.stderr for one in done] == ["", ""]


@pytest.mark.slow
def test_under_helpers_processes(tmp_path, alone):
    def work(process, addresses, arguments):
        import sys

        from helpers.compute import processes

        own = {"ANYGPU_RANK": str(process), "ANYGPU_WORLD_SIZE": "2", "ANYGPU_COORDINATOR": addresses[0]}
        command = [sys.executable, "-P", "-m", "helpers", "train", *arguments]
        done = processes.run_command(command, 250, processes.environment(own))
        return done.status, done.stdout, done.stderr

    made = processes.run(work, processes=2, seconds=LONG, arguments={"arguments": saved(tmp_path)})
    assert [status for status, *_ in made.results] == [0, 0], made.results
    assert "Last loss" in made.results[0][1] and made.results[1][1:] == ("", "")
    assert_same(tmp_path, alone, "ANYGPU variables")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mpirun"), reason="needs Open MPI: apt-get install openmpi-bin")
def test_under_mpirun(tmp_path, alone):
    root = ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    done = train(saved(tmp_path), before=["mpirun", *root, "--oversubscribe", "-n", "2"])
    assert done.status == 0, done.stderr
    assert done.stdout.count("Last loss") == 1
    assert_same(tmp_path, alone, "Open MPI")


@pytest.mark.slow
def test_with_torchrun_style_variables(tmp_path, alone):
    port = str(free_port())

    def one(rank):
        own = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        return train(saved(tmp_path), own | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(one, range(2)))
    assert [one.status for one in done] == [0, 0], done
    assert_rank_0_alone_prints(done)
    assert_same(tmp_path, alone, "torchrun-style variables")


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs PyTorch: python3 workshop.py lab --with torch")
def test_under_torchrun_itself(tmp_path, alone):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    torchrun += [f"--master-port={free_port()}", "--no-python"]
    torchrun += [f"--log-dir={tmp_path}/logs"]  # left in TMPDIR otherwise
    done = train(saved(tmp_path), before=torchrun)
    assert done.status == 0, done.stderr
    assert_same(tmp_path, alone, "torchrun-style variables")


@pytest.mark.slow
def test_a_checkpoint_of_two_processes_is_taken_up_by_one(tmp_path, alone):
    folder = str(tmp_path / "kept")
    first = slow_link.both([*TRAIN, "--steps", "3", "--checkpoint", folder], f"127.0.0.1:{free_port()}")
    assert [one.status for one in first] == [0, 0], first
    assert [path.name for path in Path(folder).iterdir()] == ["checkpoint.npz"]
    done = train(saved(tmp_path, "--checkpoint", folder))
    assert done.status == 0, done.stderr
    assert result(tmp_path)["resumed_at"] == 3
    assert_equal_losses(result(tmp_path), alone)
    other = train(["--steps", "9", "--batch", "64", "--checkpoint", folder])
    assert other.status == 2 and "belongs to another training" in other.stderr and "same --batch" in other.stderr
    (Path(folder) / "checkpoint.npz").write_bytes(b"PK, and no more")
    other = train(["--steps", "9", "--checkpoint", folder])
    assert other.status == 2 and "is not a checkpoint of this command" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "0"], "not a whole number above 0"),
        (["--batch", "many"], "not a whole number above 0"),
        (["--every"], "expected one argument"),
    ],
)
def test_a_mistake_in_the_arguments_is_told(arguments, words):
    done = train(arguments)
    assert done.status == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_variables_that_do_not_fit_end_the_command_at_once():
    done = train([], {"ANYGPU_RANK": "2", "ANYGPU_WORLD_SIZE": "2"})
    assert done.status == 2 and done.stderr.startswith("ANYGPU_RANK=2 and ANYGPU_WORLD_SIZE=2 do not fit.")


@pytest.mark.slow
def test_a_coordinator_that_never_comes_ends_the_command():
    own = {"ANYGPU_RANK": "1", "ANYGPU_WORLD_SIZE": "2", "ANYGPU_COORDINATOR": f"127.0.0.1:{free_port()}"}
    done = train(["--wait", "1"], own)
    assert done.status == 2 and done.stdout == ""
    assert "did not come within 1 s" in done.stderr and len(done.stderr.splitlines()) == 3


@pytest.mark.slow
def test_a_place_that_cannot_be_written_to_is_told_and_the_other_process_ends(tmp_path):
    (tmp_path / "file").write_text("a file, so that no folder can be made in it")
    arguments = ["--steps", "2", "--lost-after", "5", "--save", str(tmp_path / "file" / "result.json")]
    done = slow_link.both([*TRAIN, *arguments], f"127.0.0.1:{free_port()}")
    assert [one.status for one in done] == [2, 2], done
    assert "result.json cannot be written.\nWhy:  The system says: " in done[0].stderr
    assert "Another process of this training is lost" in done[1].stderr


# ------------------------------------------------------------------------------------------------------ a lost peer


class Pair:
    """Two processes of one training, started and not waited for."""

    def __init__(self, arguments):
        port = free_port()
        self.processes = []
        for rank in range(2):
            own = {"ANYGPU_RANK": str(rank), "ANYGPU_WORLD_SIZE": "2", "ANYGPU_COORDINATOR": f"127.0.0.1:{port}"}
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
            environment = processes.environment(own)
            self.processes.append(subprocess.Popen([*TRAIN, *arguments], env=environment, text=True, **pipes))

    def trainer(self, rank):
        """The process that trains, below the one that was started."""
        (child,) = psutil.Process(self.processes[rank].pid).children()
        return child

    def ends(self):
        """Return (status, standard error) of both."""
        said = [process.communicate(timeout=LONG)[1] for process in self.processes]
        return [(process.returncode, text) for process, text in zip(self.processes, said, strict=True)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            processes.kill_tree(process)
            process.communicate()


def until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


ENDLESS = ["--steps", "1000000", "--lost-after", "4"]


@pytest.mark.slow
@posix
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_all_in_seconds_and_the_training_goes_on_from_its_checkpoint(tmp_path, alone, rank):
    folder = tmp_path / "kept"
    file = folder / "checkpoint.npz"
    with Pair([*ENDLESS, "--every", "3", "--checkpoint", str(folder)]) as pair:
        until(file.exists)
        pair.trainer(rank).kill()
        start = time.monotonic()
        ends = pair.ends()
        assert time.monotonic() - start < 60  # seconds, on a machine that is not busy: 0 to 5
    assert [status for status, _ in ends] == [2, 2], ends
    assert "ended by SIGKILL" in ends[rank][1]
    message = ends[1 - rank][1]
    assert message.startswith("Another process of this training is lost") and "same --checkpoint" in message
    assert len(message.splitlines()) == 3 and "Traceback" not in message and "@ 0x" not in message
    assert [path.name for path in folder.iterdir() if path.name != "checkpoint.npz.new"] == ["checkpoint.npz"]

    steps = len(json.loads(str(np.load(file)["arr_0"]))["losses"])
    assert steps % 3 == 0
    more = steps + 3
    arguments = ["--steps", str(more), "--checkpoint", str(folder), "--save", str(tmp_path / "result.json")]
    done = slow_link.both([*TRAIN, *arguments], f"127.0.0.1:{free_port()}")
    assert [one.status for one in done] == [0, 0], done
    resumed = result(tmp_path)
    assert (resumed["resumed_at"], resumed["steps"]) == (steps, more)
    arguments = ["--steps", str(more), "--save", str(tmp_path / "result.json")]
    unbroken = slow_link.both([*TRAIN, *arguments], f"127.0.0.1:{free_port()}")
    assert [one.status for one in unbroken] == [0, 0], unbroken
    assert resumed["losses"] == pytest.approx(result(tmp_path)["losses"], abs=1e-5)


@pytest.mark.slow
@posix
def test_a_process_that_stands_still_is_noticed(tmp_path):
    with Pair([*ENDLESS, "--every", "3", "--checkpoint", str(tmp_path / "kept")]) as pair:
        until((tmp_path / "kept" / "checkpoint.npz").exists)
        frozen = pair.trainer(1)
        frozen.suspend()
        status = pair.processes[0].wait(LONG)
        message = pair.processes[0].stderr.read()
        frozen.kill()
    assert status == 2
    assert "Another process of this training is lost" in message and "rank 1 gives no sign of life" in message


@pytest.mark.slow
@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_who_ends_the_command_ends_the_process_that_trains(tmp_path, number):
    with Pair([*ENDLESS, "--every", "3", "--checkpoint", str(tmp_path / "kept")]) as pair:
        until((tmp_path / "kept" / "checkpoint.npz").exists)
        trainers = [pair.trainer(rank) for rank in range(2)]
        pair.processes[1].send_signal(number)
        ends = pair.ends()
        until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in trainers))
    assert ends[0][0] == 2 and "is lost" in ends[0][1]
    assert ends[1][0] in (-number, 130)
    assert "Traceback" not in ends[1][1]


def test_what_is_no_lost_peer_keeps_its_traceback():
    with pytest.raises(RuntimeError, match="of my own"), cluster.watch():
        raise RuntimeError("a mistake of my own")
    words = "UNKNOWN: Gloo all-reduce failed: Connection closed by peer [127.0.0.1]:7"
    for kind in (RuntimeError, ValueError):  # JAX raises either
        with pytest.raises(WorkshopError, match=r"is lost.*\n.*Connection closed by peer"), cluster.watch():
            raise kind(words)
    with pytest.raises(ValueError, match="of my own"), cluster.watch():
        raise ValueError("a mistake of my own")


@posix
@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "The following tasks are unhealthy (stopped sending heartbeats):\n1\nThe tasks",
            "rank 1 gives no sign of life",
        ),
        ("coordination service: Socket closed", "rank 0, does not answer"),
        ("RPC: /xla.coordination.CoordinationService/RegisterTask", "left before all had joined"),
    ],
)
def test_an_abort_of_jax_is_put_into_words(said, words):
    noise = "F1122 07:05:18.1 9583 client.h:80] Terminating process"
    code = f"import os, sys; sys.stderr.write({noise!r} + '\\n' + {said!r} + '\\n'); sys.stderr.flush(); os.abort()"
    refused(lambda: cluster.guard([sys.executable, "-c", code]), "is lost, so this one stops", words)


@posix
def test_the_guard_passes_on_what_is_ours(capfd):
    code = "import sys; print('[Gloo] Rank 0'); print('ours'); print('bad', file=sys.stderr); sys.exit(3)"
    assert cluster.guard([sys.executable, "-c", code]) == 3
    assert capfd.readouterr() == ("ours\n", "bad\n")
    record = """E1122 12:11:00.036131   25630 coordination_service_agent.cc:289] Polled an error
Additional GRPC error information from remote target coordination_service while calling /xla.Coordination/PollForError:
:UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"Socket closed"}
"""
    code = f"import sys; sys.stderr.write({record!r} + 'bad\\n'); sys.exit(2)"
    assert cluster.guard([sys.executable, "-c", code]) == 2
    assert capfd.readouterr() == ("", "bad\n")  # a record of several lines goes as a whole
    code = "import sys; print('of a library', file=sys.stderr)"
    assert cluster.guard([sys.executable, "-c", code]) == 0
    assert capfd.readouterr() == ("", "")
    refused(lambda: cluster.guard([sys.executable, "-c", "import os; os.abort()"]), "ended by SIGABRT")


# ------------------------------------------------------------------------------------------------------ the exchange


def test_the_formula_of_the_ring():
    assert cluster.exchange_bytes(1000, 1) == 0
    assert cluster.exchange_bytes(1000, 2) == 1000
    assert cluster.exchange_bytes(1000, 4) == 1500
    assert cluster.exchange_seconds(8_000, 4, 1000) == 12
    assert cluster.exchange_seconds(8_000, 4, 1000, latency=0.5) == 15
    assert cluster.exchange_seconds(8_000, 1, 1000, latency=0.5) == 0


@pytest.mark.parametrize("members", [2, 3, 8])
def test_a_link_is_found_from_two_exchanges(members):
    points = [(size, cluster.exchange_seconds(size, members, 1e9, 2e-5)) for size in (4, 10_000_000)]
    assert cluster.link(*points, members) == pytest.approx((1e9, 2e-5))


@pytest.fixture
def cable():
    try:
        with slow_link.slowed():
            pass
    except slow_link.Forbidden as error:
        pytest.skip(f"no network namespaces with a slowed link here: {error}")
    yield
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert f"anygpu-{os.getpid()}-" not in names


@pytest.mark.slow
def test_a_slowed_link_carries_the_bytes_of_the_formula(cable):
    size, repeats = 2_000_000, 4
    ((seconds, sent),) = slow_link.exchanges([size], repeats)
    expected = (repeats + 1) * cluster.exchange_bytes(size, 2)
    assert expected < sent < 1.15 * expected  # headers, acknowledgements and signs of life come on top
    rate = size / statistics.median(seconds)
    print(f"{rate / 1e6:.1f} MB/s of the link's 12.5")
    assert rate < 1.1 * 12.5e6  # faster than the cable, it would not have gone through it


@pytest.mark.slow
def test_two_machines_with_a_slow_link_train_the_same_network(tmp_path, alone, cable):
    with slow_link.slowed() as before:
        done = slow_link.both([*TRAIN, *saved(tmp_path)], f"{slow_link.ADDRESSES[0]}:29500", before)
    assert [one.status for one in done] == [0, 0], done
    assert_rank_0_alone_prints(done)
    assert_same(tmp_path, alone, "ANYGPU variables")


def test_the_namespaces_go_when_something_fails(cable):
    with pytest.raises(RuntimeError), slow_link.slowed():
        raise RuntimeError


# ------------------------------------------------------------------------------------------------------ docs/scaling.md

PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
MODELS = {
    "lesson 04's MLP, float32": 4 * 669_706, "ResNet-50, float32": 4 * 25_600_000,
    "1 billion parameters, bfloat16": 2 * 10**9, "7 billion parameters, bfloat16": 2 * 7 * 10**9,
}  # fmt: skip
LINKS = {
    "Ethernet 1 Gb/s": 0.125e9, "10 Gb/s": 1.25e9, "100 Gb/s": 12.5e9, "InfiniBand NDR, 400 Gb/s": 50e9,
    "NVLink 4": 450e9,
}  # fmt: skip


def table(first, rows):
    """A table of docs/scaling.md, made by the calculator: milliseconds with three digits."""
    lines = [[first, *LINKS], ["---"] + ["---:"] * len(LINKS)]
    for name, size, members, latency in rows:
        times = [1e3 * cluster.exchange_seconds(size, members, rate, latency) for rate in LINKS.values()]
        lines.append([name, *(f"{float(f'{one:.3g}'):,.10g}" for one in times)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES = (
    table("model", [(name, size, 8, 0.0) for name, size in MODELS.items()]),
    table("processes", [(f"{number:,}", 2e9, number, 5e-6) for number in (2, 8, 64, 1024)]),
)


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_the_tables_of_the_page_are_those_of_the_calculator(number):
    assert TABLES[number] in PAGE, TABLES[number]


def test_the_page_names_every_option_and_every_variable():
    options = train(["--help"]).stdout
    named = set(re.findall(r"--[a-z-]+", options)) - {"--help"}
    assert [option for option in named if option not in PAGE] == []
    source = (ROOT / "helpers" / "cluster.py").read_text(encoding="utf-8")
    variables = set(re.findall(r'"((?:ANYGPU|SLURM|MASTER|JOB)_[A-Z_]+)"', source))
    hidden = {"SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES"}  # details of where they meet
    assert [name for name in variables - hidden if name not in PAGE] == []


def manifests():
    import yaml

    text = (ROOT / "docs" / "cluster" / "kubernetes.yaml").read_text(encoding="utf-8")
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def test_the_parts_of_the_kubernetes_manifest_fit_together():
    have = manifests()
    job, service = have["Job"]["spec"], have["Service"]
    name, pod = have["Job"]["metadata"]["name"], job["template"]["spec"]
    (container,) = pod["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert (job["completionMode"], job["completions"]) == ("Indexed", job["parallelism"])
    found = cluster.find(variables | {"JOB_COMPLETION_INDEX": "1"})
    assert found.size == job["completions"] and found.launcher == "Kubernetes Indexed Job"
    assert found.coordinator == f"{name}-0.{pod['subdomain']}:{service['spec']['ports'][0]['port']}"
    assert pod["subdomain"] == service["metadata"]["name"] and service["spec"]["clusterIP"] == "None"
    own = {"job-name": name}
    assert service["spec"]["selector"] == have["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == own
    claim = have["PersistentVolumeClaim"]["metadata"]["name"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim
    assert container["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert not container["securityContext"]["allowPrivilegeEscalation"] and container["resources"]["limits"]
    asked = train([*container["args"], "--steps=none"])  # every other argument is known
    assert "'none' is not a whole number above 0" in asked.stderr


@pytest.mark.skipif(
    not importlib.util.find_spec("kubernetes_validate"), reason="needs kubernetes-validate: pip install it (144 MB)"
)
def test_kubernetes_accepts_the_manifest():
    import kubernetes_validate

    for one in manifests().values():
        kubernetes_validate.validate(one, "1.34", strict=True)


def test_the_script_for_slurm_is_a_script_that_starts_the_command():
    file = ROOT / "docs" / "cluster" / "train.sbatch"
    text = file.read_text(encoding="utf-8")
    assert text.startswith("#!/bin/bash\n") and "srun" in text
    before, _, after = text.partition("\nset -euo pipefail")
    assert "#SBATCH" in before and "#SBATCH" not in after  # sbatch reads them before the first command alone
    words = after.replace("\\\n", " ").split("helpers train", 1)[1].split()
    asked = train([*words, "--steps=none"])
    assert "'none' is not a whole number above 0" in asked.stderr
    for tool in (["bash", "-n"], ["shellcheck"]):
        if shutil.which(tool[0]):
            done = subprocess.run([*tool, str(file)], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
