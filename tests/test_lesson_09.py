"""Lesson 09's own machinery: its trainings with lost processes, who reaches its servers, and what it draws."""

import inspect
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.compute import checkpoint, data, devices, private_network, processes, worker
from helpers.errors import WorkshopError
from helpers.lessons import lesson_09 as lesson

NOTEBOOK = ROOT / "notebooks" / "09-train-on-several-machines.ipynb"
SHAPES = [(784, 512), (512,), (512, 512), (512,), (512, 10), (10,)]
needs_both = pytest.mark.skipif(
    os.name == "nt" or not (devices.installed("jax") and devices.installed("tensorflow")),
    reason="needs JAX, TensorFlow and POSIX signals",
)
# What workers noted: worker, began, awake, computed, wrote, read, written, loss.
NOTES = np.array(
    [[0, 0.0, 0.0, 1.0, 1.1, 0, 1, 2.0], [1, 0.0, 0.5, 1.5, 1.6, 0, 2, 1.8], [0, 1.2, 1.2, 2.2, 2.3, 1, 3, 1.6]], float
)


@pytest.fixture(scope="module")
def functions():
    """The functions for processes that the notebook shows."""
    shown = {}
    for cell in lesson_files.read(NOTEBOOK).cells:
        found = re.match(r"def (\w+)\(process, addresses", cell.source)
        if cell.cell_type == "code" and found:
            shown[found[1]] = worker.Script(found[1], cell.source).define()
    return SimpleNamespace(**shown)


@pytest.fixture(scope="module")
def arguments():
    rng, mnist = np.random.default_rng(0), data.load_mnist()
    initial = [rng.normal(0, 0.05, shape).astype("float32") for shape in SHAPES]
    images, labels = np.resize(mnist.x_train.reshape(-1, 784), (1024, 784)), np.resize(mnist.y_train, 1024)
    return {"initial": initial, "images": images, "labels": labels}


# ------------------------------------------------------------------------------------------- who reaches the servers?

# Another account's program: reach the port on every address of this computer, read the secret, enter the network.
INTRUDER = """
import ctypes, encodings.idna, os, pathlib, socket, sys, psutil

port, secret, pid = sys.argv[1:]
cards = psutil.net_if_addrs().values()
addresses = {found.address for card in cards for found in card if found.family == socket.AF_INET}
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for address in sorted(addresses):
    print(address, socket.socket().connect_ex((address, int(port))))
for path in (secret, f"/proc/{pid}/ns/user", f"/proc/{pid}/ns/net"):
    try:
        print(path, os.open(path, os.O_RDONLY))
    except OSError as error:
        print(path, error.strerror)
"""


def serve(process, addresses, folder):
    import os
    import socket
    import time
    from pathlib import Path

    port = int(addresses[0].rpartition(":")[2])
    if process == 1:  # a process of the same run reaches it
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
        Path(folder, "reached").touch()
        return "reached"
    server = socket.create_server(("", port))  # on all addresses, as TensorFlow does
    Path(folder, "listens").write_text(f"{port} {os.getpid()}")
    while not (Path(folder, "done").exists() and Path(folder, "reached").exists()):
        time.sleep(0.05)
    return server.getsockname()[0]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another account")
@pytest.mark.skipif(not private_network.available(), reason="this system lets us make no network namespace")
@pytest.mark.parametrize("private", [False, True])
def test_another_account_reaches_no_server_in_a_private_network(tmp_path, private):
    secret, answer = tmp_path / "secret", []
    secret.write_text("mine")
    secret.chmod(0o600)

    def intrude():
        while not (tmp_path / "listens").exists() or " " not in (tmp_path / "listens").read_text():
            time.sleep(0.05)
        port, pid = (tmp_path / "listens").read_text().split()
        command = [sys.executable, "-c", INTRUDER, port, str(secret), pid]
        answer.append(subprocess.run(command, capture_output=True, text=True, timeout=300))
        (tmp_path / "done").touch()

    threading.Thread(target=intrude, daemon=True).start()
    run = processes.run(serve, 2, 300, arguments={"folder": str(tmp_path)}, private_network=private)
    assert run.results == ["0.0.0.0", "reached"]
    *tried, file, user, network = answer[0].stdout.splitlines()
    assert tried and all(line.endswith(" 0") != private for line in tried), answer[0]  # 0: connected
    assert [line.rpartition(" ")[2] for line in (file, user, network)] == ["denied"] * 3


def test_servers_that_others_could_reach_are_not_started(monkeypatch, capsys):
    def start(process):
        return process

    for name in [name for name in os.environ if name.startswith(("JUPYTERHUB_", "BINDER_", "ANYGPU_OPEN"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(private_network, "available", lambda: False)
    monkeypatch.setattr(lesson, "other_accounts", list)
    assert lesson.who_reaches_servers() == lesson.OPEN
    assert lesson.run_servers(start, 1).results == [0]
    monkeypatch.setenv("JUPYTERHUB_USER", "ann")
    assert lesson.run_servers(start, 1) is None
    monkeypatch.setenv("BINDER_LAUNCH_HOST", "https://mybinder.org/")
    assert lesson.who_reaches_servers() == lesson.OPEN
    monkeypatch.delenv("JUPYTERHUB_USER")
    monkeypatch.setattr(lesson, "other_accounts", lambda: ["ben"])
    assert lesson.asynchronous_run(start, {}, []) == {}
    assert capsys.readouterr().out.count("ANYGPU_OPEN_SERVERS=1") == 2
    monkeypatch.setenv("ANYGPU_OPEN_SERVERS", "1")
    assert lesson.who_reaches_servers() == lesson.OPEN


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can start another's program")
def test_other_accounts_are_seen_by_their_programs():
    before = lesson.other_accounts()
    program, pipes = (
        "import os; os.setuid(54321); print(); input()",
        {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE},
    )
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as other:
        other.stdout.readline()
        assert set(lesson.other_accounts()) == {*before, "54321"}
        other.stdin.close()


def test_without_servers_the_notebooks_cells_have_nothing_to_show():
    """What needs them asks first: `if run:` and `if trained:`."""
    cells = [cell.source for cell in lesson_files.read(NOTEBOOK).cells if cell.cell_type == "code"]
    nothing = {"lesson": lesson, "checks": None, "timing": None, "plots": None, "tables": None}
    values = {"run": None, "trained": {}, "broken": None, "steps": 4}
    needing = [source for source in cells if "trained" in source and "asynchronous_run" not in source]
    needing += [source for source in cells if "run.result)" in source]
    assert len(needing) == 5
    for source in needing:
        exec(source, nothing | values)
    lesson.plan_table({})


# ---------------------------------------------------------------------------------------------------- small machinery


def test_a_run_that_takes_too_long_takes_nothing_from_the_next(monkeypatch):
    def sleep():
        import time

        time.sleep(300)

    def add(a):
        return a + 1

    monkeypatch.setattr(lesson, "SECONDS", 2.0)
    with pytest.raises(WorkshopError, match="2 s"):
        lesson.run(sleep)
    monkeypatch.setattr(lesson, "SECONDS", 300.0)
    assert lesson.run(add, arguments={"a": 1}).result == 2


def test_a_rank_has_its_own_part_of_every_batch():
    assert lesson.rank_indices(512, 0, 2).tolist() == [*range(128), *range(256, 384)]
    assert lesson.rank_indices(512, 1, 2).tolist() == [*range(128, 256), *range(384, 512)]


def test_what_is_drawn_is_what_the_processes_noted():
    assert lesson.staleness(NOTES).tolist() == [0, 1, 1]
    drawn = lesson.spans({"notes": NOTES, "updates": [], "pause": 0.5}, 1)
    assert ("worker 1", "sleep", 0.0, 0.5) in drawn
    assert ("worker 1", "read, compute", 0.5, 1.5) in drawn
    assert ("worker 0", "write", 1.0, 1.1) in drawn
    synchronous = lesson.spans({"notes": NOTES, "updates": [(1.6, 1.61), (7.0, 7.1)], "pause": 0.0}, 1)
    assert ("server", "write", 1.6, 1.61) in synchronous
    assert not [span for span in synchronous if span[2] == 7.0]
    assert not [span for span in synchronous if span[1] == "write" and span[0] != "server"]


def test_a_missing_framework_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda name: name == "jax")
    lesson.need("jax")
    with pytest.raises(WorkshopError, match=r"TensorFlow(?s:.*)lab --accel cpu"):
        lesson.need("tensorflow", "jax")


def test_a_launched_process_that_fails_is_refused():
    say = "import os, sys; print(os.environ['ANYGPU_RANK'], os.environ['ANYGPU_WORLD_SIZE']); "
    assert lesson.launch([sys.executable, "-c", say], 2) == "0 2"
    with pytest.raises(WorkshopError, match=r"(?s)process 1.*status 3.*no luck"):
        rest = "\nif os.environ['ANYGPU_RANK'] == '1': print('no luck', file=sys.stderr); sys.exit(3)"
        lesson.launch([sys.executable, "-c", say + rest], 2)


def test_the_writing_that_the_lesson_shows_is_what_runs():
    text = "\n".join(cell.source for cell in lesson_files.read(NOTEBOOK).cells if cell.cell_type == "markdown")
    assert re.sub(r"  # noqa:.*", "", inspect.getsource(checkpoint.save)) in text


# ------------------------------------------------------------------------------------------------------ the exercises


def output(judge, answer, capsys):
    judge(answer)
    return capsys.readouterr().out


def test_a_share_that_loses_an_image_is_refused_every_time(capsys):
    def share(images, rank, size):
        return int(rank * (images / size)), int((rank + 1) * (images / size))

    for _ in range(5):
        assert "image 60 is in 0 parts" in output(lesson.check_share, share, capsys)


def test_a_store_keeps_the_first_part_of_a_write_that_dies():
    store = lesson.Store()
    store.write("a", [1, 2, 3])
    store._dies = 2, 1
    for numbers in ([4, 5, 6], [7]):  # the dead do nothing more
        with pytest.raises(lesson.Died):
            store.write("a", numbers)
    store._dies = None
    assert (store.names(), store.read("a")) == (["a"], [4])
    with pytest.raises(TypeError, match="list of numbers"):
        store.write("a", 3)


# ---------------------------------------------------------------------------------------- trainings that lose a process


@pytest.mark.slow
@needs_both
def test_an_asynchronous_training_loses_no_step_with_its_worker(functions, arguments):
    plan = [("broken", True, 0.0, 24, 10)]
    broken = lesson.asynchronous_run(functions.parameter_server, arguments, plan)["broken"]
    assert len(broken["notes"]) == 24
    assert broken["version"] in (24, 25)  # a step that was written and not answered counts twice


@pytest.mark.slow
@needs_both
def test_whenever_a_process_dies_the_same_loss_is_reached(functions, arguments, tmp_path):
    """Four epochs of four steps: before there is a checkpoint, at an epoch's end, before the last step."""
    whole = lesson.synchronous_run(functions.synchronous, arguments, 4).result["losses"]
    for at, begins in ((1, (0,)), (8, (4, 8)), (15, (12,))):
        folder = str(tmp_path / str(at))
        Path(folder).mkdir()
        broken = lesson.survivor(lesson.synchronous_run(functions.synchronous, arguments, 4, folder, at))
        assert broken["noticed"] < 30
        resumed = lesson.synchronous_run(functions.synchronous, arguments, 4, folder).result
        assert resumed["begin"] in begins
        np.testing.assert_allclose(resumed["losses"], whole, rtol=0, atol=1e-5)


@pytest.mark.slow
@needs_both
@pytest.mark.parametrize("whole_file", [False, True])
def test_who_dies_while_it_writes_the_checkpoint_resumes_to_the_same_loss(functions, arguments, tmp_path, whole_file):
    """Rank 0 dies in the second writing: with half of the new file, or with all of it and not yet renamed."""
    whole = lesson.synchronous_run(functions.synchronous, arguments, 4).result["losses"]
    cut = f"""
    def dying(file, model, losses, save=lesson.save):
        from unittest import mock

        def end(new, target):
            if not {whole_file}:
                new.write_bytes(new.read_bytes()[: new.stat().st_size // 2])
            lesson.die()

        with mock.patch("pathlib.Path.replace", end) if len(losses) == 8 else mock.patch("os.environ", os.environ):
            save(file, model, losses)

    import os

    lesson.save = dying
    steps ="""
    source = inspect.getsource(functions.synchronous).replace("\n    steps =", cut, 1)
    dying = worker.Script("dying", source.replace("def synchronous(", "def dying(")).define()
    broken = lesson.synchronous_run(dying, arguments, 4, str(tmp_path), 99)
    assert broken.failures[0].startswith("the process was ended by SIGKILL")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.npz", "new.npz"]
    resumed = lesson.synchronous_run(functions.synchronous, arguments, 4, str(tmp_path)).result
    assert resumed["begin"] == 4
    np.testing.assert_allclose(resumed["losses"], whole, rtol=0, atol=1e-5)


@pytest.mark.slow
@needs_both
def test_the_lessons_network_is_article_as():
    def both(initial):
        from helpers.lessons import lesson_09 as lesson

        lesson.import_keras()
        from helpers.compute import models

        ours, given = lesson.network(initial), models.plain_mlp(lesson.RATE)
        given.set_weights(initial)
        import numpy as np

        images = np.arange(784 * 32, dtype="uint8").reshape(32, 784)
        return [[model.train_on_batch(images, np.arange(32) % 10)] for model in (ours, given) for _ in range(3)]

    rng = np.random.default_rng(0)
    initial = [rng.normal(0, 0.05, shape).astype("float32") for shape in SHAPES]
    losses = processes.run(both, variables=lesson.JAX_ENV, arguments={"initial": initial}).result
    losses = [float(np.ravel(loss[0])[0]) for loss in losses]
    assert losses[:3] == losses[3:]


def test_nothing_is_left_when_a_process_dies(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def one_dies(process):
        from helpers.lessons import lesson_09 as lesson

        if process == 1:
            lesson.die()
        return lesson.listening()

    before = set(psutil.Process().children(recursive=True))
    run = processes.run(one_dies, 2, 100, check=False)
    assert run.results[0] == []
    assert run.failures[1]
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not list(tmp_path.iterdir())
