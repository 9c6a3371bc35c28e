"""Lesson 09's own machinery: what is drawn and told of a distributed training, and that nothing of one stays behind."""

import inspect
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import lose_workers
import numpy as np
import psutil
import pytest
from jupyter_client.manager import start_new_kernel

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.compute import data, devices, processes, worker
from helpers.errors import WorkshopError
from helpers.lessons import lesson_09 as lesson

NOTEBOOK = ROOT / "notebooks" / "09-train-on-several-machines.ipynb"
SHAPES = [(784, 512), (512,), (512, 512), (512,), (512, 10), (10,)]
needs_both = pytest.mark.skipif(
    os.name == "nt" or not (devices.installed("jax") and devices.installed("tensorflow")),
    reason="needs JAX, TensorFlow and POSIX signals",
)


def notes(*rows):
    """What workers noted: worker, began, awake, computed, wrote, read, written, loss."""
    return np.array(rows, float)


ONE = notes([0, 0.0, 0.0, 1.0, 1.1, 0, 1, 2.0], [1, 0.0, 0.5, 1.5, 1.6, 0, 2, 1.8], [0, 1.2, 1.2, 2.2, 2.3, 1, 3, 1.6])


@pytest.fixture(scope="module")
def functions():
    return SimpleNamespace(**lose_workers.shown_functions())


@pytest.fixture(scope="module")
def arguments():
    rng, mnist = np.random.default_rng(0), data.load_mnist()
    initial = [rng.normal(0, 0.05, shape).astype("float32") for shape in SHAPES]
    images, labels = np.resize(mnist.x_train.reshape(-1, 784), (1024, 784)), np.resize(mnist.y_train, 1024)
    return {"initial": initial, "images": images, "labels": labels}


def test_each_process_has_its_own_part_of_every_batch():
    first, second = (lesson.of_each_batch(512, process, 2) for process in (0, 1))
    assert first.tolist() == [*range(128), *range(256, 384)]
    assert second.tolist() == [*range(128, 256), *range(384, 512)]
    assert lesson.of_each_batch(512, 0, 1).tolist() == list(range(512))


class Weights:
    """What `save` and `load` use of a model."""

    class Number:
        def __init__(self, value):
            self.assign(value)

        def numpy(self):
            return self.value

        def assign(self, value):
            self.value = np.array(value, "float32")

    trainable_variables = ()

    def __init__(self, *values):
        self.variables = [self.Number(value) for value in values]
        self.optimizer = SimpleNamespace(build=lambda variables: None, variables=[self.Number(0.05)])


def test_what_a_checkpoint_keeps_comes_back(tmp_path):
    file, model, other = tmp_path / "checkpoint.npz", Weights([1, 2], 3), Weights([0, 0], 0)
    assert lesson.load(file, other) == []
    lesson.save(file, model, [2.5, 2.25])
    assert lesson.load(file, other) == [2.5, 2.25]
    assert [one.value.tolist() for one in other.variables] == [[1, 2], 3]
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint.npz"]


def test_who_fails_while_writing_leaves_the_old_checkpoint(tmp_path):
    file = tmp_path / "checkpoint.npz"
    lesson.save(file, Weights(1), [2.0])
    broken = Weights(7, 8)
    broken.variables[1].numpy = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        lesson.save(file, broken, [2.0, 1.0])
    (tmp_path / "new.npz").write_bytes(b"half")
    assert lesson.load(file, Weights(0)) == [2.0]


def test_what_the_runs_of_a_preview_may_take_together_has_an_end(monkeypatch, capsys):
    monkeypatch.setenv("ANYGPU_PROFILE", "preview")
    monkeypatch.setattr(lesson, "SECONDS", 100.0)
    monkeypatch.setattr(lesson, "PREVIEW_SECONDS", 100.0)
    monkeypatch.setattr(lesson, "_runs", {"a": 30.0, "b": 50.0})
    assert lesson.seconds_left() == 20
    assert lesson.seconds_left("b") == 70  # run again, it counts once
    assert not lesson.skipped("this", 10)
    assert lesson.skipped("that", 25)
    assert lesson.skipped("it")
    assert capsys.readouterr().out.splitlines() == [
        "skipped under preview as the time is short: that",
        "skipped under preview: it",
    ]
    monkeypatch.setattr(lesson, "_runs", {"a": 130.0})
    assert lesson.seconds_left() == 1
    monkeypatch.setenv("ANYGPU_PROFILE", "lab")
    assert lesson.seconds_left() == lesson.SECONDS
    assert not lesson.skipped("it")


def test_a_run_is_timed(monkeypatch):
    monkeypatch.setattr(lesson, "_runs", {})

    def add(a):
        return a + 1

    assert lesson.run(add, arguments={"a": 1}).result == 2
    assert 0 < lesson._runs["add"] < 100


def test_staleness_counts_the_updates_of_others():
    assert lesson.staleness(ONE).tolist() == [0, 1, 1]


def test_what_is_drawn_is_what_the_processes_noted():
    drawn = lesson.spans({"notes": ONE, "updates": [], "pause": 0.5}, 1)
    assert ("worker 1", "sleep", 0.0, 0.5) in drawn
    assert ("worker 1", "read, compute", 0.5, 1.5) in drawn
    assert ("worker 0", "write", 1.0, 1.1) in drawn
    synchronous = lesson.spans({"notes": ONE, "updates": [(1.6, 1.61), (7.0, 7.1)], "pause": 0.0}, 1)
    assert ("server", "write", 1.6, 1.61) in synchronous
    assert not [span for span in synchronous if span[2] == 7.0]
    assert ("worker 1", "read, compute", 0.0, 1.5) in synchronous
    assert not [span for span in synchronous if span[1] == "write" and span[0] != "server"]


def test_a_panel_says_how_many_steps_it_shows():
    result = {"notes": ONE, "updates": [], "pause": 0.0}
    assert list(lesson.panels({"asynchronous": result, "asynchronous, straggler": result})) == [
        "asynchronous, 3 steps",
        "asynchronous, straggler, 3 steps",
    ]


def test_the_loss_after_the_same_time_is_compared():
    def run(seconds, falls):
        rows = [
            [0, seconds * n, seconds * n, seconds * n, seconds * (n + 1), n, n + 1, 2 - falls * n] for n in range(20)
        ]
        return {"notes": notes(*rows), "updates": []}

    runs = {
        "synchronous": run(1, 0.09),
        "synchronous, straggler": run(3, 0.05),
        "asynchronous, straggler": run(1, 0.04),
    }
    assert lesson.lower_after_same_time(runs) == "asynchronous"
    runs["asynchronous, straggler"] = run(1, 0.001)
    assert lesson.lower_after_same_time(runs) == "synchronous"


def test_what_became_of_a_training_is_told():
    result = {"notes": ONE, "version": 4, "returned": {"noticed": 0.02, "recovered": 1.5, "returned": 1}}
    rows = dict(lesson.survival_table(3, 2, result).rows)
    assert rows["steps with a result"] == 3
    assert rows["updates on the server"] == 4
    assert rows["of these by worker 0 and worker 1"] == "2 and 1"
    assert rows["the coordinator noticed after"] == "20 ms"
    assert "the coordinator noticed after" not in dict(lesson.survival_table(3, 2, result | {"returned": {}}).rows)


def test_a_missing_framework_is_told_at_once(monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda name: name == "jax")
    lesson.need("jax")
    with pytest.raises(WorkshopError, match=r"needs TensorFlow, not installed(?s:.*)lab --accel cpu"):
        lesson.need("tensorflow", "jax")


def test_a_survivor_without_a_result_is_told():
    run = SimpleNamespace(result=None, failures=["it had not ended after 100 s"])
    with pytest.raises(WorkshopError, match=r"process 0 has no result(?s:.*)not ended after 100 s"):
        lesson.survivor(run)
    assert lesson.survivor(SimpleNamespace(result=3)) == 3


def test_what_takes_long_in_a_step_is_told_by_what_was_measured():
    assert lesson.what_takes_long(0.030, 0.002, 0.020).endswith("So most of it is the exchange itself.")
    assert "28 ms more" in lesson.what_takes_long(0.030, 0.002, 0.020)
    assert lesson.what_takes_long(0.030, 0.002, 0.035).endswith(
        "the exchange itself, as exactly as such times can tell."
    )
    assert "only when the processes compute, too" in lesson.what_takes_long(0.030, 0.002, 0.003)
    assert "too busy to tell" in lesson.what_takes_long(0.030, 0.002, 0.090)
    assert "too busy to tell" in lesson.what_takes_long(0.002, 0.002, 0.001)


def test_a_link_is_told_only_where_the_larger_array_took_longer():
    told = lesson.link_told({4: 1e-4, 2_000_000: 1.1e-3, 20_000_000: 1.01e-2}, [1.8e-3, 2e-3, 9e-3])
    assert told.splitlines() == [
        "this computer: 2.00 GB/s, latency 50 µs",
        "one array, 2.0 MB: calculated 1.1 ms, the fastest 1.1 ms",
        "7 arrays, 2.0 MB: calculated 1.7 ms, the fastest 1.8 ms, the median 2 ms: about what the formula says",
    ]
    told = lesson.link_told({4: 1e-4, 2_000_000: 1.1e-3, 20_000_000: 1.01e-2}, [2e-3, 17e-3, 18e-3])
    assert told.endswith("the fastest 2 ms, the median 17 ms: 10 times what the formula says")
    for large in (1e-4, 0.5e-4):
        told = lesson.link_told({4: 1e-4, 2_000_000: 1e-3, 20_000_000: large}, [1e-2])
        assert told == "too noisy to tell here: 20.0 MB took no longer than 4 bytes"


def _complaint(judge, answer, capsys):
    judge(answer)
    return capsys.readouterr().out


def test_a_share_that_loses_an_image_is_refused_every_time(capsys):
    def share(images, rank, size):
        return int(rank * (images / size)), int((rank + 1) * (images / size))

    for _ in range(5):
        told = _complaint(lesson.check_share, share, capsys)
        assert "image 60 is in 0 parts; expected one" in told


def test_a_latency_counted_once_is_told_with_four_processes(capsys):
    told = _complaint(
        lesson.check_exchange_seconds,
        lambda size, n, rate, latency: latency * 2 + 2 * (n - 1) * size / n / rate,
        capsys,
    )
    assert "(8, 4," in told


def test_a_wrong_weight_is_told_with_its_index(capsys):
    def receive(server, number, gradient):
        if number not in server["done"]:
            server["weights"] = server["weights"] - 0.1 * gradient + (gradient.size > 1)
            server["done"].add(number)

    told = _complaint(lesson.check_receive, receive, capsys)
    assert "at index [0, 0]" in told


def test_a_store_keeps_the_first_part_of_a_write_that_dies():
    store = lesson.Store()
    store.write("a", [1, 2, 3])
    store._dies = 2, 1
    with pytest.raises(lesson.Died):
        store.write("a", [4, 5, 6])
    with pytest.raises(lesson.Died):  # the dead do nothing more
        store.write("a", [7])
    store._dies = None
    assert store.names() == ["a"]
    assert store.read("a") == [4]
    store.delete("a")
    assert store.names() == []
    with pytest.raises(TypeError, match="takes a list of numbers"):
        store.write("a", 3)


def test_a_checkpoint_written_over_the_old_one_is_told(capsys):
    def newest(store):
        step, *weights = store.read("a") if store.names() and store.read("a") else (None,)
        return (step, weights) if weights else None

    def check(save):
        lesson.check_checkpoints(save, newest)

    told = _complaint(check, lambda store, step, weights: store.write("a", [step, *weights]), capsys)
    assert told.startswith(
        "not yet: save(store, 1, [0.25, 1.0, 2.5, 0.0]) died when 2 of 5 numbers of a write were there; after this, "
        "newest(store): expected None or (1, [0.25, 1.0, 2.5, 0.0]), actual (1, [0.25])"
    )


def test_who_dies_twice_may_not_lose_the_last_checkpoint(capsys):
    def save(store, step, weights):
        for name in store.names()[:-1]:
            store.delete(name)
        store.write(f"{step:05d}", [len(weights), *weights])

    def newest(store):
        whole = [(int(one), store.read(one)) for one in store.names()]
        whole = [(step, numbers[1:]) for step, numbers in whole if numbers and len(numbers) == numbers[0] + 1]
        return max(whole, default=None)

    told = _complaint(lambda save: lesson.check_checkpoints(save, newest), save, capsys)
    assert told.startswith(
        "not yet: save(store, 2, [0.5, 2.0, 2.5, 0.0]) died when 0 of 5 numbers of a write were there; then "
        "save(store, 2, [0.5, 2.0, 2.5, 0.0]) died when 0 of 5 numbers of a write were there; after this, "
        "newest(store): expected (1, [0.25, 1.0, 2.5, 0.0]) or (2, [0.5, 2.0, 2.5, 0.0]), actual None"
    )


def test_a_newest_that_prints_is_told_of_return(capsys):
    def save(store, step, weights):
        store.write(str(step), weights)

    told = _complaint(lambda newest: lesson.check_checkpoints(save, newest), lambda store: None, capsys)
    assert "actual None (It is `return` that hands a value back, not `print`.)" in told


def test_a_server_that_was_not_changed_is_told(capsys):
    def receive(server, number, gradient):
        if number in server["done"]:
            server["weights"] = server["weights"] - 0.1 * gradient

    told = _complaint(lesson.check_receive, receive, capsys)
    assert "server is as before; expected weights [99.9]." in told
    assert "returns" not in told


def test_a_set_is_told_as_one(capsys):
    def receive(server, number, gradient):
        server["weights"] = server["weights"] - 0.1 * gradient

    assert 'server["done"]: expected {0}, actual set()' in _complaint(lesson.check_receive, receive, capsys)


def test_losses_are_compared_in_words():
    assert [lesson.how_equal(one) for one in (0.0, 1e-6, 1e-3)] == ["exactly", "almost", "no"]


def test_of_a_dump_the_reason_is_told():
    dump = (
        "F1122 07:21:29.016327 372 client.h:80] Terminating process because the service failed. Disable it. "
        "absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded\n    @ 0x7fc6f5440634  absl::Flush()\n"
    )
    run = SimpleNamespace(failures=["the process was ended by SIGABRT"], stderr=[dump])
    assert lesson.last_words(run) == (
        "the process was ended by SIGABRT\n"
        "JAX said: Terminating process because the service failed. DEADLINE_EXCEEDED: Deadline Exceeded"
    )
    quiet = SimpleNamespace(failures=[""], stderr=[""])
    assert lesson.last_words(quiet) == "the process ended by itself"


def test_a_launched_process_that_fails_is_told():
    say = "import os, sys; print(os.environ['ANYGPU_RANK'], os.environ['ANYGPU_WORLD_SIZE']); "
    assert lesson.launch([sys.executable, "-c", say], 2) == "0 2"
    with pytest.raises(WorkshopError, match=r"(?s)Process 1 ended with status 3.*no luck"):
        rest = "\nif os.environ['ANYGPU_RANK'] == '1': print('no luck', file=sys.stderr); sys.exit(3)"
        lesson.launch([sys.executable, "-c", say + rest], 2)


def test_the_last_loss_is_read():
    assert lesson.last_loss("step 20\nLast loss 1.234567; 80.00 %") == "1.234567"
    assert lesson.last_loss("") == "none"


def test_the_folded_code_is_what_runs():
    text = "\n".join(cell.source for cell in lesson_files.read(NOTEBOOK).cells if cell.cell_type == "markdown")
    assert lesson.shown_source(lesson.multi_worker) in text
    assert "noqa" not in lesson.shown_source(lesson.multi_worker)
    assert "def multi_worker" in inspect.getsource(lesson.multi_worker)
    assert lesson.shown_source(lesson.save) in text


@pytest.mark.slow
@needs_both
def test_a_killed_worker_costs_no_step_and_the_same_loss_is_reached(functions, arguments):
    table = lesson.lose_workers(functions.parameter_server, functions.synchronous, arguments, 24, 4)
    by = {row[0]: row for row in table.rows}
    assert by["asynchronous"][2] == 0
    assert by["asynchronous"][3] in (0, 1)
    assert by["synchronous"][2] == 0
    assert abs(float(by["synchronous"][-2]) - float(by["synchronous"][-1])) < 1e-5


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
    assert sorted(one.name for one in tmp_path.iterdir()) == ["checkpoint.npz", "new.npz"]
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
    told = processes.run(both, variables=lesson.JAX, arguments={"initial": initial}).result
    assert [float(np.ravel(one[0])[0]) for one in told[:3]] == [float(np.ravel(one[0])[0]) for one in told[3:]]


@pytest.mark.slow
@needs_both
def test_the_notebooks_interrupt_ends_a_training_that_has_lost_a_worker(tmp_path):
    """The survivor waits, because it is stopped; the interrupt reaches the kernel in the middle of the run."""
    waiting = tmp_path / "waiting"

    def one_dies(process, folder):
        import time
        from pathlib import Path

        from helpers.lessons import lesson_09 as lesson

        if process == 1:
            lesson.die()
        Path(folder, "waiting").touch()
        time.sleep(300)

    code = "from helpers import processes\n\n" + inspect.cleandoc("\n" + inspect.getsource(one_dies))
    manager, client = start_new_kernel(
        kernel_name="python3", startup_timeout=300, cwd=str(tmp_path), env=dict(os.environ, PYTHONPATH=str(ROOT))
    )
    try:
        client.execute_interactive(code, timeout=300)

        def press():
            while not waiting.exists():
                time.sleep(0.05)
            time.sleep(0.5)
            manager.interrupt_kernel()

        threading.Thread(target=press, daemon=True).start()
        run = f"processes.run(one_dies, 2, 200, check=False, arguments={{'folder': {str(tmp_path)!r}}})"
        start = time.monotonic()
        reply = client.execute_interactive(run, timeout=300, output_hook=lambda _: None)
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert time.monotonic() - start < 150
        assert not psutil.Process(manager.provisioner.pid).children(recursive=True)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


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
    assert run.failures[1].startswith("the process was ended by SIGKILL" if hasattr(signal, "SIGKILL") else "")
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not list(tmp_path.iterdir())
