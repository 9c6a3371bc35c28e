"""compute.processes on real processes: what travels, what is told of a failure, and that nothing outlives a run."""

import contextlib
import inspect
import io
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import venv
from pathlib import Path

import numpy as np
import psutil
import pytest
from jupyter_client.manager import start_new_kernel
from waiting import alive, in_the_end

from helpers.errors import WorkshopError
from helpers.measure import tables
from helpers.running import processes
from helpers.running.processes import Run
from helpers.running.worker import PlainUnpickler, Script

LONG = 300  # seconds: against a hang; no run of a test takes so long
pytestmark = pytest.mark.skipif(os.name == "nt", reason="written for POSIX signals and groups")


def family(pid=None):
    return {child for child in psutil.Process(pid).children(recursive=True) if alive(child)}


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch, request):
    """After every test: no process, thread, descriptor or temporary file more than before."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before, threads, descriptors = family(), set(threading.enumerate()), psutil.Process().num_fds()
    yield folder
    if "kernel" not in request.fixturenames:  # it stays for the next test
        assert in_the_end(lambda: not set(threading.enumerate()) - threads)
        assert family() <= before
        assert psutil.Process().num_fds() <= descriptors
    assert list(folder.iterdir()) == []


def run(function, *, seconds=LONG, **options):
    return processes.run(function, seconds=seconds, **options)


def refused(function, *words, **options):
    """Run what must be refused or fail, and return the message; it has to hold all the words."""
    with pytest.raises(WorkshopError) as caught:
        run(function, **options)
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
    assert "Next: " in message
    assert "Traceback" not in message
    return message


# ---------------------------------------------------------------------------------------------- what travels


def echo(value):
    return value


def add(a, b=2, *, c=3):
    print("adding")
    return a + b + c


def test_a_function_gets_its_arguments_and_its_result_and_output_come_back():
    made = run(add, arguments={"a": 1, "c": 10})
    assert (made.result, made.results, made.failures) == (13, [13], [""])
    assert (made.stdout, made.stderr) == (["adding\n"], [""])
    assert 0 < made.seconds < LONG


def test_a_function_that_no_lesson_shows_travels_by_its_name():
    assert run("math:hypot_of_none", check=False).failures[0].splitlines()[-1].startswith("AttributeError")
    assert run("shutil:which", arguments={"cmd": sys.executable}).result == sys.executable
    message = refused("helpers.measure.workload:validate", arguments={"name": "huge"})
    assert "in helpers/measure/workload.py, line" in message and "There is no workload called 'huge'." in message
    with pytest.raises(ValueError, match="module:function"):
        run("shutil.which")


OWN = """
import math

HALF, BAD = 0.5, object()

def half(x):
    return HALF * x

def own(numbers):
    return [math.floor(half(x)) for x in numbers]

def bad():
    return BAD
"""


def test_functions_among_the_arguments_travel_with_what_they_use_of_a_notebook():
    def call(numbers, cut, measure):
        return cut(numbers), measure(3, 4)

    own = Script("own", OWN).define()
    assert run(call, arguments={"numbers": [4, 7], "cut": own, "measure": math.hypot}).result == ([2, 3], 5)
    with pytest.raises(WorkshopError, match="`BAD` of this notebook"):
        run(call, arguments={"cut": Script("bad", OWN).define()})


def test_each_process_has_its_number_and_all_the_addresses():
    def who(process, addresses, offset):
        import os
        import sys
        import tempfile
        from pathlib import Path

        print("I am", process)
        mode = Path(tempfile.gettempdir()).stat().st_mode & 0o777
        return process + offset, addresses, os.getpid(), tempfile.gettempdir(), mode, sys.flags.safe_path

    made = run(who, processes=3, arguments={"offset": 10})
    assert [result[0] for result in made.results] == [10, 11, 12]
    assert made.stdout == ["I am 0\n", "I am 1\n", "I am 2\n"]
    assert made.results[0][1] == made.results[1][1] == made.results[2][1]
    assert len({*made.results[0][1]}) == 3
    assert all(address.startswith("127.0.0.1:") for address in made.results[0][1])
    assert len({os.getpid(), *(result[2] for result in made.results)}) == 4
    for *_, folder, mode, safe_path in made.results:
        assert folder != tempfile.gettempdir() and mode == 0o700  # for this account alone
        assert safe_path  # no module is taken from the folder in which a learner works


def test_plain_data_comes_back_as_it_went():
    plain = [None, True, 2**80, 1.5, 2 - 1j, "é", b"\0", (1, [2]), {"a": {1, 2}, 3: ()}, bytearray(b"x")]
    arrays = [
        np.arange(6, dtype=np.int8).reshape(2, 3).T,
        np.zeros((0, 2), ">f4"),
        np.array("ü"),
        np.array(1 + 2j),
        np.array([(1, 2.0)], [("n", "i4"), ("x", "f2")]),
        np.float16(2),
        np.datetime64("2020-01-01"),
        np.bool_(True),
    ]
    result = run(echo, arguments={"value": [plain, arrays, np.dtype("f4")]}).result
    assert result[0] == plain and [*map(type, result[0])] == [*map(type, plain)]
    for actual, expected in zip(result[1], arrays, strict=True):
        assert type(actual) is type(expected)
        assert np.array_equal(actual, expected) and np.asarray(actual).dtype == np.asarray(expected).dtype
    assert result[2] == np.dtype("f4")


def test_what_rebuilds_arrays_is_found_by_numpy_1s_names_and_by_ours():
    reader = PlainUnpickler(io.BytesIO())
    for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer")):
        old, ours = reader.find_class(f"numpy.core.{module}", name), reader.find_class(f"numpy._core.{module}", name)
        assert old is ours and ours.__name__ == name


def give(kind):
    import sys

    import framework
    import ml_dtypes  # JAX's and Keras' short floats
    import numpy as np

    class Evaluated:
        def __reduce__(self):
            return eval, ("1 + 1",)

    short = np.ones(2, ml_dtypes.bfloat16)
    return {"tensor": [framework.Tensor()], "short": short, "evaluated": Evaluated(), "file": sys.stdin}[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("tensor", "something of framework (framework.Tensor)"),
        ("short", "ml_dtypes.bfloat16"),
        ("evaluated", "builtins.eval"),
        ("file", "TextIOWrapper"),
    ],
)
def test_a_result_that_is_no_plain_data_is_refused_and_imports_nothing_here(kind, words, tmp_path, monkeypatch):
    (tmp_path / "framework.py").write_text("class Tensor:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    refused(give, "what give returned", words, "float(x), or numpy.asarray(x", arguments={"kind": kind})
    assert "framework" not in sys.modules


def test_an_argument_that_is_no_plain_data_is_refused():
    refused(echo, "generator", arguments={"value": (x for x in ())})
    refused(echo, "an argument of echo", "pathlib", "numpy.asarray(x", arguments={"value": [Path("x")]})


# ---------------------------------------------------------------------------------------------- where it runs


def test_another_environment_gives_its_packages_alone(tmp_path):
    def look(value):
        import importlib.util
        import sys

        return sys.prefix, [name for name in ("helpers", "numpy", "psutil") if importlib.util.find_spec(name)], value

    venv.create(tmp_path / "other")
    python = str(tmp_path / "other/bin/python")
    assert run(look, python=python, arguments={"value": [1]}).result == (str(tmp_path / "other"), ["helpers"], [1])
    assert "numpy" in run(look, arguments={"value": 0}).result[1]
    refused(echo, "No module named 'numpy'", python=python, arguments={"value": np.arange(3)})
    refused(add, "could not be started", python=str(tmp_path / "none"))


def test_variables_are_set_and_removed_for_the_processes_alone(monkeypatch):
    def read(names):
        import os

        return [os.environ.get(name) for name in names]

    monkeypatch.setenv("ANYGPU_KEPT", "kept")
    monkeypatch.setenv("ANYGPU_GONE", "here")
    before = dict(os.environ)
    names = ["ANYGPU_KEPT", "ANYGPU_GONE", "ANYGPU_NEW"]
    changes = {"ANYGPU_GONE": None, "ANYGPU_NEW": "é 1"}
    assert run(read, variables=changes, arguments={"names": names}).result == ["kept", None, "é 1"]
    assert dict(os.environ) == before
    refused(read, "could not be started", "not int", variables={"A": 1})


# ---------------------------------------------------------------------------------------------- what a function may be


def test_annotations_may_use_names_of_the_caller_and_line_numbers_are_the_functions():
    """TensorFlow's AutoGraph looks for the source of what stands within, too."""

    def work(a: "np.ndarray", *more: Path) -> np.ndarray:
        import inspect

        def inner():
            return "found"

        if a == 3:
            raise ValueError("three")
        return inspect.getsource(inner)

    assert 'return "found"' in run(work, arguments={"a": 1}).result
    refused(work, 'line 8 of work: raise ValueError("three")', arguments={"a": 3})


def test_what_has_no_source_or_is_not_written_with_def_is_refused():
    names = {}
    exec(compile("def made():\n    return 1", "<made>", "exec"), names)  # Python 3.13 finds what `python -c` was given
    for function in (names["made"], lambda: 1, len, Path):
        refused(function, "written with def")


# ---------------------------------------------------------------------------------------------- what a function writes


def test_stdout_is_what_was_printed_and_stderr_what_libraries_and_warnings_wrote():
    def work():
        import ctypes
        import os
        import sys
        import warnings

        print("printed é", "\ud800", end="")
        print()
        ctypes.CDLL(None).printf(b"by compiled code\n")
        os.write(2, b"native\n")
        print("to standard error", file=sys.stderr)
        warnings.warn("a warning", stacklevel=1)
        return sys.stdin.read()

    made = run(work)
    assert (made.result, made.stdout) == ("", ["printed é \\ud800\nby compiled code\n"])
    assert made.stderr[0].startswith("native\nto standard error\n") and "UserWarning: a warning\n" in made.stderr[0]


def test_of_very_much_output_the_beginning_and_the_end_are_kept():
    def work(lines):
        for number in range(lines):
            print(f"line {number} ".ljust(9_999, "."))

    text = run(work, arguments={"lines": 5_000}).stdout[0]
    assert text.startswith("line 0 .")
    assert "\nline 4999 ." in text and text.endswith(".\n")
    left_out = int(text.partition("\n[... ")[2].partition(" bytes left out ...]")[0].replace(",", ""))
    assert 50_000_000 - 4 * processes.KEPT_BYTES < left_out < 50_000_000 - processes.KEPT_BYTES


def test_one_output_is_shown_as_it_is_and_several_side_by_side():
    alone = Run([1], ["first\n  second\n\x1b[1m10%\x1b[0m\r20%\r\n\x1b[32mdone\x1b[0m"], [""], [""], 1.0)
    assert str(alone) == repr(alone) == "first\n  second\n20%\ndone"  # as a terminal leaves it
    two = Run([1, 2], ["short\n", "long " * 20 + "\n<b>"], ["", ""], ["", "it broke"], 1.0)
    lines = str(two).splitlines()
    assert lines[0].split() == ["process", "0", "|", "process", "1"]
    assert lines[-1].endswith("| [failed] it broke") and max(map(len, lines)) <= tables.TEXT_WIDTH
    assert "&lt;b&gt;\n[failed] it broke" in two._repr_html_() and "<b>" not in two._repr_html_()


# ---------------------------------------------------------------------------------------------- failures


def fail(how, process):
    import ctypes
    import os
    import signal

    print("before the end of", process)
    os.write(2, b"a native line\n")
    if process == 1:
        if how == "exception":
            {}["missing"]
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "crash":
            ctypes.string_at(0)
    return process


FAILURES = {  # facts that the message names
    "exception": ['line 10 of fail: {}["missing"]', "KeyError: 'missing'"],
    "killed": ["SIGKILL", "memory"],
    "crash": ["SIGSEGV", "line 14 of fail: ctypes.string_at(0)"],
}


@pytest.mark.parametrize("how", FAILURES)
def test_without_check_a_failure_is_told_and_the_others_go_on(how):
    made = run(fail, processes=3, check=False, arguments={"how": how})
    assert made.results == [0, None, 2]
    assert [bool(failure) for failure in made.failures] == [False, True, False]
    assert all(word in made.failures[1] for word in FAILURES[how])
    assert made.stdout == [f"before the end of {number}\n" for number in range(3)]
    assert made.stderr == ["a native line\n"] * 3


def test_with_check_the_first_failure_ends_all_and_is_told_with_what_was_printed():
    words = ["fail failed in process 1 of 3", "before the end of 1", "a native line", "check=False"]
    refused(fail, *words, *FAILURES["exception"], processes=3, arguments={"how": "exception"})


def test_an_error_says_where_it_happened_and_a_long_one_is_shortened():
    def long():
        raise ValueError("\n".join(f"line {number}" + "." * 1_000 for number in range(50)))

    message = refused(long, "line 2 of long: raise ValueError(", "ValueError: line 0...")
    assert len(message) < 3_000

    def outside():
        return np.arange(3)

    refused(outside, "line 2 of outside: return np.arange(3)", "name 'np' is not defined", "import inside the function")

    def workshop():
        from helpers.errors import WorkshopError

        raise WorkshopError("It is broken.", next="Mend it.")

    assert "\n      It is broken.\n      Next: Mend it." in refused(workshop)


def timed_out(function, printed, **options):
    """Run what does not end without check, with a limit that lets it print so much first, however busy we are."""
    for seconds in (1, 5, 25, LONG):
        made = processes.run(function, seconds=seconds, check=False, **options)
        if all(len(text) >= printed for text in made.stdout):
            break
    return made, seconds


def test_the_time_out_says_where_each_process_was_and_keeps_what_it_printed():
    def work(process):
        import time

        print("waiting", end="")
        if process == 0:
            return "done"
        time.sleep(3600)

    made, seconds = timed_out(work, len("waiting"), processes=3)
    assert (made.results, made.stdout, made.stderr) == (["done", None, None], ["waiting"] * 3, [""] * 3)
    assert made.failures[0] == ""
    for late in made.failures[1:]:
        assert f"{seconds} s" in late and "line 7 of work: time.sleep(3600)" in late
    message = refused(work, f"within {2 * seconds} s in process 1, 2 of 3", "waiting", processes=3, seconds=2 * seconds)
    assert "process 0" not in message


def hold(folder="", process=0):
    """Keep the interpreter's lock inside compiled code, with a child beside it."""
    import ctypes
    import pathlib
    import subprocess
    import sys
    import tempfile

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    tempfile.mkstemp()
    print("holding", child.pid)
    if folder:
        (pathlib.Path(folder) / f"holds-{process}").touch()
    while True:
        ctypes.PyDLL(None).sleep(3600)


def test_a_process_that_hangs_in_compiled_code_ends_at_the_time_out_with_its_child():
    made, seconds = timed_out(hold, len("holding"))
    assert f"{seconds} s" in made.failures[0] and "line 15 of hold: ctypes.PyDLL(None).sleep" in made.failures[0]
    child = int(made.stdout[0].split()[1])
    assert in_the_end(lambda: not alive(child))


# ---------------------------------------------------------------------------------------------- several processes


def test_a_process_that_has_answered_stays_until_all_have_and_leaves_no_child_or_file():
    def work(process, addresses):
        import pathlib
        import socket
        import subprocess
        import sys
        import tempfile
        import time

        address = ("127.0.0.1", int(addresses[0].split(":")[1]))
        if process == 0:
            globals()["kept"] = socket.create_server(address)  # as a framework's own thread would
            (pathlib.Path(tempfile.mkdtemp()) / "left").write_text("x")
            return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True).pid
        time.sleep(0.5)
        while True:
            try:
                socket.create_connection(address).close()
                return addresses
            except ConnectionRefusedError:
                time.sleep(0.02)

    child, addresses = run(work, processes=2).results
    assert in_the_end(lambda: not alive(child))
    with socket.create_server(("127.0.0.1", int(addresses[0].split(":")[1]))):  # it is free again
        pass


# ---------------------------------------------------------------------------------------------- nothing is left

HOLD = f"""
from helpers.running import processes

{inspect.getsource(hold)}

processes.run(hold, processes=2, seconds={LONG}, arguments={{"folder": "."}})
"""


def both_hold(folder):
    return all((folder / f"holds-{number}").exists() for number in range(2))


@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_no_process_outlives_the_caller(how, tmp_path, temporary):
    (tmp_path / "script.py").write_text(f"import signal\nsignal.signal(2, signal.default_int_handler)\n{HOLD}")
    caller = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, env=processes.environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        assert in_the_end(lambda: both_hold(tmp_path))
        workers, everybody = psutil.Process(caller.pid).children(), family(caller.pid)
        assert (len(workers), len(everybody)) == (2, 4)  # each has a child
        caller.send_signal(signal.Signals[how])
        if how == "SIGINT":
            assert "KeyboardInterrupt" in caller.communicate(timeout=LONG)[1]
            assert in_the_end(lambda: not any(map(alive, everybody)))
        assert in_the_end(lambda: not any(map(alive, workers)))
    finally:
        caller.kill()
        caller.communicate()
        for process in everybody:  # a kill of the caller alone does not reach what workers had started
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if how == "SIGKILL":
            shutil.rmtree(next(temporary.iterdir()))


def press_ctrl_c(seconds):
    """Press it after some seconds; the test's fixture waits for the thread that does."""
    threading.Timer(seconds, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()


def sleep():
    import time

    time.sleep(3600)


@pytest.mark.parametrize("delay", [0, 0.1])
def test_an_interrupt_while_it_starts_leaves_nothing(delay):
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c(delay)
        run(sleep, processes=2)


def test_a_second_interrupt_waits_for_the_clean_up_of_the_first(monkeypatch):
    really_end = processes._end

    def end_slowly(workers):
        press_ctrl_c(0.2)
        time.sleep(0.6)
        really_end(workers)

    monkeypatch.setattr(processes, "_end", end_slowly)
    press_ctrl_c(0.3)
    with pytest.raises(KeyboardInterrupt):
        run(sleep, processes=2)
    assert not family()


# ---------------------------------------------------------------------------------------------- a command that may hang

PARENT = """
import os, pathlib, subprocess, sys, time

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
pathlib.Path(sys.argv[1]).with_suffix(".new").write_text(str(child.pid))
pathlib.Path(sys.argv[1]).with_suffix(".new").rename(sys.argv[1])
print("begun", flush=True)
time.sleep(3600)
"""


def gone(pid_file):
    pid = int(pid_file.read_text())
    return in_the_end(lambda: not alive(pid))


def test_a_command_that_ends_says_how():
    code = "import os, sys; print('é'); os.write(2, b'\\xff'); sys.exit(3)"
    done = processes.run_command([sys.executable, "-X", "utf8", "-c", code], LONG)
    assert (done.status, done.stdout, done.stderr) == (3, "é\n", "\ufffd")
    with pytest.raises(OSError):
        processes.run_command(["/no/such/program"], LONG)


def test_a_command_is_killed_with_its_child_when_its_time_is_up(tmp_path):
    for seconds in (1, 5, 25, LONG):
        done = processes.run_command([sys.executable, "-c", PARENT, str(tmp_path / "pid")], seconds)
        if done.stdout:
            break
    assert (done.status, done.stdout) == (None, "begun\n")
    assert gone(tmp_path / "pid")


@pytest.mark.parametrize("how", ["interrupt", "kill_all"])
def test_commands_are_killed_at_an_interrupt_and_by_kill_all(how, tmp_path):
    file = tmp_path / "pid"

    def end():
        in_the_end(file.exists)
        if how == "kill_all":
            processes.kill_all()
        else:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    ender = threading.Thread(target=end)
    ender.start()
    with pytest.raises(KeyboardInterrupt) if how == "interrupt" else contextlib.nullcontext():
        assert processes.run_command([sys.executable, "-c", PARENT, str(file)], LONG).status == -signal.SIGKILL
    ender.join()
    assert gone(file)


# ---------------------------------------------------------------------------------------------- in a notebook


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A real kernel, (manager, client, folder), for all tests that want one."""
    folder = tmp_path_factory.mktemp("kernel")
    variables = processes.environment({"TMPDIR": str(folder)})
    manager, client = start_new_kernel(kernel_name="python3", startup_timeout=LONG, cwd=str(folder), env=variables)
    yield manager, client, folder
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_in_a_notebook_the_output_is_shown_and_the_interrupt_is_one_line(kernel):
    manager, client, folder = kernel
    shown = []
    greet = "def greet():\n    print('<hello>')\nfrom helpers.running import processes\nprocesses.run(greet)"
    reply = client.execute_interactive(greet, output_hook=shown.append, timeout=LONG)
    assert reply["content"]["status"] == "ok"
    data = next(message["content"]["data"] for message in shown if message["msg_type"] == "execute_result")
    assert data["text/plain"] == "<hello>" and "&lt;hello&gt;" in data["text/html"]
    presser = threading.Thread(target=lambda: in_the_end(lambda: both_hold(folder)) and manager.interrupt_kernel())
    presser.start()
    written = []
    reply = client.execute_interactive(HOLD, output_hook=written.append, timeout=LONG)
    presser.join()
    assert (reply["content"]["ename"], len(reply["content"]["traceback"])) == ("KeyboardInterrupt", 1)
    assert [message["msg_type"] for message in written if message["msg_type"] not in ("status", "execute_input")] == [
        "error"
    ]
    assert in_the_end(lambda: not family(manager.provisioner.pid))
    assert not list(folder.glob("anygpu-*"))


def test_no_process_outlives_a_kernel_that_is_restarted(kernel):
    manager, client, folder = kernel
    for file in folder.glob("holds-*"):
        file.unlink()
    client.wait_for_ready(timeout=LONG)
    client.execute(HOLD)
    assert in_the_end(lambda: both_hold(folder))
    everybody = family(manager.provisioner.pid)
    assert len(everybody) == 4  # each has a child
    manager.restart_kernel()
    assert in_the_end(lambda: not any(map(alive, everybody)))
