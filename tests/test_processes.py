"""helpers.processes on real processes: what travels, what is refused, and that nothing is left however a run ends."""

import asyncio
import contextlib
import functools
import inspect
import json
import math
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import venv
import warnings
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import psutil
import pytest
import sample_lesson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from helpers import processes, tables
from helpers.commands import execute
from helpers.errors import WorkshopError
from helpers.processes import Run

ROOT = Path(__file__).parent.parent
LONG = 60  # seconds: a limit against hanging, that no run of a test reaches
pytestmark = pytest.mark.skipif(os.name == "nt", reason="written for POSIX signals and groups")


def alive(process):
    """Whether a process still runs; one that only waits to be collected does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def in_the_end(condition, seconds=30):
    """Whether a condition comes true; waits no longer than needed."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch, request):
    """After every test: no process, zombie, thread, descriptor, lent port or temporary file more than before."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    me = psutil.Process()
    children, threads, descriptors = me.children(recursive=True), set(threading.enumerate()), me.num_fds()
    yield folder
    assert in_the_end(lambda: not set(threading.enumerate()) - threads)
    assert [child for child in me.children(recursive=True) if child not in children] == []
    if "notebook" not in request.node.name:  # the kernel's client keeps some for the next kernel
        assert me.num_fds() <= descriptors
    assert list(folder.iterdir()) == []
    assert processes._lent == set()


def refused(function, *words, **options):
    """Run what must be refused or fail, and return the message; it has to hold all the words."""
    with pytest.raises(WorkshopError) as caught:
        processes.run(function, **{"seconds": LONG} | options)
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
    assert "Next: " in message
    assert "Traceback" not in message
    return message


# ---------------------------------------------------------------------------------------------- what travels


def echo(value):
    return value


def add(a, b=2, *, c=3):
    return a + b + c


def test_a_function_gets_its_arguments_and_its_result_comes_back():
    run = processes.run(add, a=1, c=10)
    assert (run.result, run.results, run.failures, run.logs, run.noise) == (13, [13], [""], [""], [""])
    assert 0 < run.seconds < LONG


def test_each_process_has_its_number_and_all_the_addresses():
    def who(process, addresses, offset):
        import os

        print("I am", process)
        return process + offset, addresses, os.getpid()

    run = processes.run(who, processes=3, offset=10)
    assert [result[0] for result in run.results] == [10, 11, 12]
    assert run.logs == ["I am 0\n", "I am 1\n", "I am 2\n"]
    assert run.results[0][1] == run.results[1][1] == run.results[2][1]
    assert len({*run.results[0][1]}) == 3
    assert all(address.startswith("127.0.0.1:") for address in run.results[0][1])
    assert len({os.getpid(), *(result[2] for result in run.results)}) == 4


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
dates = arrays.datetime64_dtypes(endianness="=") | arrays.timedelta64_dtypes(endianness="=")  # NumPy turns others round
numbers = arrays.boolean_dtypes() | arrays.integer_dtypes() | arrays.floating_dtypes() | arrays.complex_number_dtypes()
dtypes = dates | numbers | arrays.byte_string_dtypes() | arrays.unicode_string_dtypes(endianness="=")
numpys = arrays.arrays(
    dtypes | arrays.array_dtypes(numbers, max_size=3), arrays.array_shapes(min_dims=0, min_side=0)
) | dtypes.flatmap(arrays.from_dtype)
hashable = st.integers() | st.text(st.characters(exclude_categories=["Cs"])) | st.booleans()
plain = st.recursive(
    scalars | numpys | st.sets(hashable),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(hashable, inner),
    max_leaves=8,
)


def same(one, other):
    """Equal in value and in every type; a NaN equals itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, np.shape(one), np.asarray(one).tobytes()) == (
            other.dtype,
            np.shape(other),
            np.asarray(other).tobytes(),
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return repr(one) == repr(other) if isinstance(one, float | complex) else one == other


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(plain, min_size=5))
def test_plain_data_comes_back_from_a_process_as_it_went(values):
    assert same(processes.run(echo, value=values).result, values)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(plain)
def test_plain_data_is_packed_and_unpacked_unchanged(value):
    assert same(processes._loads(processes._dumps(value)), value)


def test_an_array_can_be_written_to_when_it_has_come_back():
    result = processes.run(echo, value=np.arange(3)).result
    result[0] = 7
    assert result.tolist() == [7, 1, 2]


def test_a_large_result_and_a_large_argument_come_whole():
    value = np.random.default_rng(0).integers(0, 256, 30_000_000, np.uint8)
    assert np.array_equal(processes.run(echo, value=value).result, value)


def code_of(kind):
    return {
        "function": echo,
        "class": Path,
        "object": Path("x"),
        "module": math,
        "generator": (x for x in ()),
        "array of objects": np.array([Path("x")], object),
        "nested": {"a": [1, (2, Path("x"))]},
        "subclass": type("Special", (dict,), {})(),
        "matrix": np.ma.array([1]),
        "deep": functools.reduce(lambda inner, _: [inner], range(100_000), []),
    }[kind]


KINDS = {
    "function": "echo",
    "class": "Path",
    "object": "pathlib.PosixPath",
    "module": "type module",
    "generator": "type generator",
    "array of objects": "pathlib.PosixPath",
    "nested": "pathlib.PosixPath",
    "subclass": "Special",
    "matrix": "numpy.ma",
    "deep": "RecursionError",
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_argument_that_is_no_plain_data_is_refused_before_anything_starts(kind, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nothing/starts")
    refused(echo, "The argument value cannot travel", KINDS[kind], "numpy.asarray(x)", value=code_of(kind))


def test_a_default_value_that_is_no_plain_data_is_refused():
    def work(where=Path("x")):
        return str(where)

    refused(work, "The argument where cannot travel")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("path", "pathlib.PosixPath"),
        ("function", "inner"),
        ("class", "Fraction"),
        ("named", "Point"),
        ("default", "collections.defaultdict"),
        ("jax", "jaxlib._jax.ArrayImpl"),
        ("bfloat16", "an array of bfloat16, which needs .astype('float32')"),
    ],
)
def test_a_result_that_is_no_plain_data_is_refused_by_its_type(name, words):
    def make(name):
        if name == "path":
            import pathlib

            return {"loss": [pathlib.Path("x")]}
        if name == "function":

            def inner():
                pass

            return inner
        if name == "class":
            from fractions import Fraction

            return Fraction
        if name == "named":
            from collections import namedtuple

            return namedtuple("Point", "x y")(1, 2)
        if name == "default":
            from collections import defaultdict

            return defaultdict(list)
        import jax.numpy as jnp
        import numpy as np

        return jnp.ones(2) if name == "jax" else np.asarray(jnp.ones(2, jnp.bfloat16))

    refused(make, "what make returned cannot travel: it is, or holds, ", words, "numpy.asarray(x)", name=name)


def test_unpacking_calls_nothing_but_what_rebuilds_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Evil:
        def __reduce__(self):
            return os.mkdir, ("made-by-unpacking",)

    with pytest.raises(processes._NotPlain, match=r"posix\.mkdir"):
        processes._loads(pickle.dumps(Evil()))
    assert not (tmp_path / "made-by-unpacking").exists()


def test_arrays_of_numpy_1_are_read_without_its_names():
    packed = (  # pickle.dumps(numpy.float32([1, 2]), 5), by NumPy 1.23.5
        b"\x80\x05\x95{\x00\x00\x00\x00\x00\x00\x00\x8c\x12numpy.core.numeric\x94\x8c\x0b_frombuffer\x94\x93\x94(\x96\x08"
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80?\x00\x00\x00@\x94\x8c\x05numpy\x94\x8c\x05dtype\x94\x93\x94\x8c\x02f4\x94\x89"
        b"\x88\x87\x94R\x94(K\x03\x8c\x01<\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94bK\x02\x85\x94\x8c\x01C\x94t\x94R\x94."
    )
    with warnings.catch_warnings(action="error"):  # NumPy 2 has those names too, and warns of some
        assert same(processes._loads(packed), np.float32([1, 2]))


# ---------------------------------------------------------------------------------------------- another environment


def test_another_environment_gives_its_packages_alone(tmp_path):
    def look(value):
        import importlib.util
        import sys

        return sys.prefix, [name for name in ("helpers", "numpy", "psutil") if importlib.util.find_spec(name)], value

    venv.create(tmp_path / "other")
    run = processes.run(look, python=str(tmp_path / "other/bin/python"), value=[1, "two"], seconds=LONG)
    assert run.result == (str(tmp_path / "other"), ["helpers"], [1, "two"])
    assert "numpy" in processes.run(look, value=0).result[1]


def test_arrays_need_a_numpy_in_the_other_environment(tmp_path):
    venv.create(tmp_path / "other")
    refused(echo, "No module named 'numpy'", python=str(tmp_path / "other/bin/python"), value=np.arange(3))


def test_a_python_that_is_not_there_or_is_none_is_told(tmp_path):
    refused(
        add, "could not be started", f"Look whether {tmp_path / 'none'} is there", python=str(tmp_path / "none"), a=1
    )
    refused(add, "ended with status 1 before the function returned", python=shutil.which("false"), a=1)


# ---------------------------------------------------------------------------------------------- what a function may be


def test_annotations_and_defaults_may_use_names_of_the_caller():
    start = 5

    def work(a: "np.ndarray" = start, b: np.ndarray = start + 1, *more: Path, c: Path | None = None) -> np.ndarray:
        return a + b

    assert processes.run(work).result == 11
    assert processes.run(work, a=1).result == 7


def test_an_indented_function_keeps_its_text_and_its_line_numbers():
    def work():
        text = """first
    second
third"""
        if text != "never":
            raise ValueError(text)

    refused(work, "line 6 of work: raise ValueError(text)", "ValueError: first\n          second\n      third")


def test_what_a_function_needs_for_itself_is_not_from_outside():
    def work(n):
        import math

        global shared
        shared = 2

        class Box:
            size = shared
            twice = size * 2

        def inner(x):
            return x + local + shared

        local = [len(str(x)) for x in range(n)]
        local = sum(local)
        return work(n - 1) if n > 3 else inner(Box.twice) + int(math.sqrt(4)), __name__

    assert processes.run(work, n=4).result[0] == (11, "__script__")


def test_names_from_outside_are_named_all_at_once(monkeypatch):
    def work():
        class Box:
            size = ROOT

        def inner():
            return [json.dumps(x) for x in sys.argv]

        asyncio.run(undefined_anywhere(inner, Box))  # noqa: F821

    monkeypatch.setattr(sys, "executable", "/nothing/starts")
    refused(work, "work uses names from outside of itself: ROOT, asyncio, json, sys, undefined_anywhere.",
            "Import or define them inside the function", "pass their values")  # fmt: skip


def test_values_of_an_enclosing_function_are_names_from_outside():
    rate = 0.1

    def work():
        return rate

    refused(work, "names from outside of itself: rate")


def test_a_name_that_hides_a_builtin_one_is_from_outside(monkeypatch):
    monkeypatch.setitem(globals(), "max", min)

    def work():
        return max(1, 2)

    refused(work, "names from outside of itself: max")


def test_a_recursive_function_within_another_is_no_closure():
    def factorial(n):
        return n * factorial(n - 1) if n else 1

    assert processes.run(factorial, n=5).result == 120


class Thing:
    def method(self):
        pass

    @staticmethod
    def static():
        pass

    def __call__(self):
        pass


def yields():
    yield 1


async def waits():
    pass


async def both():
    yield 1


@functools.lru_cache
def cached():
    pass


def mark(function):
    function.marked = True
    return function


@mark
@mark
def decorated():
    pass


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: 1, "a lambda"),
        (len, "len is not a function written with def"),
        (Thing, "Thing is not a function written with def"),
        (Thing(), "Thing is not a function written with def"),
        (Thing().method, "method is not a function written with def"),
        (Thing.method, "Thing.method is a method"),
        (Thing.static, "Thing.static is a method"),
        (functools.partial(add, 1), "not a function written with def"),
        (cached, "not a function written with def"),
        ("add", "not a function written with def: it is of type str"),
        (None, "not a function written with def"),
        (yields, "yields or is async"),
        (waits, "yields or is async"),
        (both, "yields or is async"),
        (decorated, "decorated has a decorator: @mark, @mark"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_ordinary_function_is_refused_before_anything_starts(function, words, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nothing/starts")
    refused(function, words)


def test_a_function_without_a_source_is_refused():
    names = {}
    exec("def made():\n    return 1", names)
    refused(names["made"], "The source of made cannot be found.", "python -c")
    if sys.version_info >= (3, 13):
        return  # there Python keeps what was typed into -c
    code = "from helpers import processes\ndef typed():\n    return 1\nprocesses.run(typed)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=LONG)
    assert "The source of typed cannot be found." in done.stderr


def test_a_file_that_changed_since_does_not_give_another_function(tmp_path, monkeypatch):
    file = tmp_path / "changing_module.py"
    file.write_text("\n\ndef work():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import changing_module

    assert processes.run(changing_module.work).result == 1
    file.write_text("def first():\n    return 2\n\ndef work():\n    return 1\n")
    refused(changing_module.work, "The source of work cannot be found.", "its file has changed")


# ---------------------------------------------------------------------------------------------- what may be asked for


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing a required argument: 'a'"),
        ({"a": 1, "d": 2}, "unexpected keyword argument 'd'"),
    ],
)
def test_missing_and_unknown_arguments_are_told_with_the_parameters(arguments, words):
    refused(add, "add cannot be called with these arguments", words, "by name: a, b, c", **arguments)


def test_the_parameters_of_run_itself_cannot_be_the_functions():
    def work(seconds=1):
        return seconds

    refused(work, "work has a parameter called seconds", "another name")
    assert set(processes.RESERVED) == {*inspect.signature(processes.run).parameters} - {"arguments"}


def test_process_and_addresses_are_not_the_learners_to_give():
    def work(process):
        return process

    refused(work, "The argument process is not yours to give.", process=3)


@pytest.mark.parametrize("processes", [0, -1, 1.5, 2.0, "2", None, True, math.nan])
def test_a_number_of_processes_that_is_none_is_refused(processes):
    refused(add, "no way to start", "whole number from 1", processes=processes, a=1)


def test_numpys_whole_numbers_count_processes():
    assert len(processes.run(add, processes=np.int64(2), seconds=np.float32(LONG), a=1).results) == 2


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, math.inf, "5", None, True])
def test_a_time_limit_that_is_none_is_refused(seconds):
    refused(add, "cannot be given", "a number above 0", seconds=seconds, a=1)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"A": 1}, "The variable A cannot be 1."),
        ({"A": ["x"]}, "The variable A cannot be ['x']."),
        ({"A": "x\0y"}, "The variable A cannot be"),
        ({"": "x"}, "is no name"),
        ({"A=B": "x"}, "is no name"),
        ({3: "x"}, "is no name"),
    ],
)
def test_variables_that_are_none_are_refused(variables, words):
    refused(add, words, variables=variables, a=1)


def read(names):
    import os

    return {name: os.environ.get(name) for name in names}


def test_variables_are_set_and_removed_for_the_processes_alone(monkeypatch):
    monkeypatch.setenv("ANYGPU_KEPT", "kept")
    monkeypatch.setenv("ANYGPU_GONE", "here")
    before = dict(os.environ)
    names = ["ANYGPU_KEPT", "ANYGPU_GONE", "ANYGPU_NEW", "PYTHONHASHSEED", "TF_CPP_MIN_LOG_LEVEL"]
    got = processes.run(read, variables={"ANYGPU_GONE": None, "ANYGPU_NEW": "é 1"}, names=names).result
    assert got == {**{name: before.get(name) for name in names}, "ANYGPU_GONE": None, "ANYGPU_NEW": "é 1"}
    assert dict(os.environ) == before


def test_a_variable_that_no_system_can_hold_is_told():
    refused(add, "could not be started", variables={"A": "\ud800"}, a=1)


def test_a_folder_of_the_callers_path_is_on_the_processs_path(tmp_path, monkeypatch):
    (tmp_path / "beside_the_script.py").write_text("ANSWER = 42")
    monkeypatch.syspath_prepend(tmp_path)

    def work():
        import beside_the_script

        return beside_the_script.ANSWER

    assert processes.run(work).result == 42


def test_no_free_port_is_told(monkeypatch):
    def work(addresses):
        pass

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        monkeypatch.setattr(processes, "PORTS", range(port, port + 1))
        refused(work, f"not 1 free ports between {port} and {port}")
    assert processes.run(work).failures == [""]
    refused(work, "not 2 free ports", processes=2)


def test_a_port_is_not_lent_twice(monkeypatch):
    pairs = (range(port, port + 2) for port in processes.PORTS)
    monkeypatch.setattr(processes, "PORTS", next(pair for pair in pairs if all(map(processes._free, pair))))
    with processes._ports(1) as one, processes._ports(1) as other:
        assert one != other
        with pytest.raises(WorkshopError, match="not 1 free ports"), processes._ports(1):
            pass
    with processes._ports(2) as both:
        assert sorted(both) == sorted(one + other)


def test_a_python_that_does_not_start_is_told(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    refused(add, "could not be started", "No such file", a=1)


def test_no_room_for_temporary_files_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    refused(add, "could not be started", "No such file or directory", "temporary files", a=1)


def test_processes_that_cannot_all_be_started_leave_none():
    code = (
        "import resource, psutil; from helpers import processes, devices\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))\n"
        "import tests.test_processes as t\n"
        "try:\n    processes.run(t.echo, processes=20, value=1)\n"
        "except processes.WorkshopError as error:\n    print(error)\n"
        "print('left:', psutil.Process().children(recursive=True), psutil.Process().num_fds())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=LONG, env=environment
    )
    assert "could not be started.\nWhy:  [Errno 24] Too many open files" in done.stdout, done.stdout + done.stderr
    assert "left: []" in done.stdout


# ---------------------------------------------------------------------------------------------- what a function says


def test_the_log_is_what_was_printed_and_the_noise_all_else():
    def work():
        import os
        import subprocess
        import sys
        import warnings

        print("printed é", "\ud800", end="")
        print("", flush=True)
        sys.stdout.write("written\n")
        sys.stdout.buffer.write(b"bytes\n")
        os.write(1, b"native 1\n")
        os.write(2, b"native 2\n")
        print("to standard error", file=sys.stderr)
        warnings.warn("a warning", stacklevel=1)
        subprocess.run([sys.executable, "-c", "print('of a child')"], stdout=sys.stdout, check=True)
        return sys.stdin.read(), sys.stdout.isatty()

    run = processes.run(work)
    assert run.logs == ["printed é \\ud800\nwritten\nbytes\n"]
    assert run.result == ("", False)
    wanted = ["native 1\n", "native 2\n", "to standard error\n", "UserWarning: a warning\n", "of a child\n"]
    assert [line for line in wanted if line not in run.noise[0]] == []


def test_what_compiled_code_left_in_its_buffer_is_noise():
    def work():
        import ctypes

        ctypes.CDLL(None).printf(b"from printf\n")

    assert processes.run(work).noise == ["from printf\n"]


def test_lines_of_threads_and_forks_are_not_mixed_up():
    def work():
        import os
        import threading

        def speak(who):
            for number in range(60):
                print(f"{who}{number} " * 150 + "\n", end="")

        if not (child := os.fork()):
            speak("child")
            return "the child's, which nobody wants"
        speakers = [threading.Thread(target=speak, args=(who,)) for who in "ab"]
        for speaker in speakers:
            speaker.start()
        for speaker in speakers:
            speaker.join()
        return os.waitpid(child, 0)[1]

    run = processes.run(work)
    assert run.result == 0
    assert sorted(run.logs[0].splitlines()) == sorted(
        f"{who}{number} " * 150 for who in ("a", "b", "child") for number in range(60)
    )


def test_frames_of_threads_and_forks_are_not_torn(monkeypatch):
    monkeypatch.setattr(processes, "KEPT_BYTES", 10**7)

    def work():
        import os
        import threading

        child = os.fork()
        letters = "ab" if child else "cd"
        speakers = [
            threading.Thread(target=lambda x=x: [print(x * 50_000, end="") for _ in range(20)]) for x in letters
        ]
        for speaker in speakers:
            speaker.start()
        for speaker in speakers:
            speaker.join()
        return os.waitpid(child, 0)[1] if child else None

    run = processes.run(work)
    assert (run.result, {letter: run.logs[0].count(letter) for letter in "abcd"}) == (0, dict.fromkeys("abcd", 10**6))
    assert len(run.logs[0]) == 4 * 10**6


def test_what_is_not_kept_takes_no_memory():
    kept = processes._Kept()
    for _ in range(10_000):
        kept.add(b"x" * 1_000)
        assert len(kept.head) + len(kept.tail) <= 3 * processes.KEPT_BYTES


def test_of_very_much_output_the_beginning_and_the_end_are_kept():
    def work(lines):
        import os

        for number in range(lines):
            print(f"line {number} ".ljust(9_999, "."))
            os.write(2, f"noise {number} ".ljust(9_999, ".").encode() + b"\n")

    run = processes.run(work, lines=5_000)
    for text, word in ((run.logs[0], "line"), (run.noise[0], "noise")):
        assert text.startswith(f"{word} 0 .")
        assert f"\n{word} 4999 ." in text
        assert f"[... {50_000_000 - 2 * processes.KEPT_BYTES:,} bytes left out ...]" in text
        assert len(text) < 2 * processes.KEPT_BYTES + 100


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=300)), st.integers(1, 100))
def test_what_is_kept_is_the_beginning_and_the_end(parts, size):
    whole = b"".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "KEPT_BYTES", size)
        kept = processes._Kept()
        for part in parts:
            kept.add(part)
        text = str(kept)
        assert len(kept.head) + len(kept.tail) <= 3 * size + 300
    if len(whole) <= 2 * size:
        assert text == whole.decode(errors="replace")
    else:
        head, tail = whole[:size].decode(errors="ignore"), whole[-size:].decode(errors="ignore")
        assert text == f"{head}\n[... {len(whole) - 2 * size:,} bytes left out ...]\n{tail}"


def test_one_log_is_shown_as_it_is_and_several_side_by_side():
    one = Run([1], ["first\n  second\n"], [""], [""], 1.0)
    assert str(one) == repr(one) == "first\n  second"
    two = Run([1, 2], ["short\n", "long " * 20 + "\nlast"], ["", ""], ["", ""], 1.0)
    lines = str(two).splitlines()
    assert lines[0].split() == ["process", "0", "|", "process", "1"]
    assert lines[2].startswith("short  ")
    assert " | long long" in lines[2] and lines[-1].endswith("| last") and len(lines) == 6
    assert max(map(len, lines)) <= tables.TEXT_WIDTH
    assert len(str(Run([None] * 9, [""] * 9, [""] * 9, [""] * 9, 1.0)).splitlines()) == 3


def test_a_progress_line_and_colours_are_shown_as_a_terminal_leaves_them():
    run = Run([1], ["\x1b[1m10%\x1b[0m\r20%\r\n\x1b[32mdone\x1b[0m"], [""], [""], 1.0)
    assert str(run) == "20%\ndone"


class Page(HTMLParser):
    def __init__(self, source):
        super().__init__()
        self.open, self.seen, self.texts = [], [], {}
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.setdefault(self.open[-1], []).append(data)


def test_in_a_notebook_the_logs_stand_side_by_side_and_are_escaped():
    logs = ["<script>alert(1)</script> & more", "</pre></td>"]
    page = Page(Run([1, 2], logs, ["", ""], ["", "line 1 of f: <b>"], 1.0)._repr_html_())
    assert page.open == []
    assert page.texts == {"th": ["process 0", "process 1"], "pre": [logs[0], f"{logs[1]}\n[failed] line 1 of f: <b>"]}
    one = Run([1], ["<b>"], [""], [""], 1.0)._repr_html_()
    assert Page(one).seen == ["pre"] and Page(one).texts == {"pre": ["<b>"]}
    assert "color" not in one  # the theme's own, light or dark


# ---------------------------------------------------------------------------------------------- failures


def fail(how, process):
    import ctypes
    import os
    import signal
    import sys

    print("before the end of", process)
    os.write(2, b"a native line\n")
    if process == 1:
        if how == "exception":
            {}["missing"]
        if how == "exit":
            sys.exit("enough")
        if how == "os._exit":
            os._exit(3)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "crash":
            ctypes.string_at(0)
        if how == "group":
            os.killpg(0, signal.SIGKILL)
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "forked":
            if not os.fork():
                signal.pause()
            os._exit(4)
    return process


FAILURES = {
    "exception": "line 11 of fail: {}[\"missing\"]\nKeyError: 'missing'",
    "exit": "line 13 of fail: sys.exit(\"enough\")\nsys.exit('enough') ended it before it returned",
    "os._exit": "the process ended with status 3 before the function returned",
    "killed": "the process was ended by SIGKILL (the system does that when memory runs out)",
    "crash": "the process was ended by SIGSEGV (compiled code crashed); it was in line 19 of fail: ctypes.string_at(0)",
    "interrupt": "line 23 of fail: raise KeyboardInterrupt\nKeyboardInterrupt",
    "forked": "the process ended with status 4 before the function returned",
}


@pytest.mark.parametrize("how", FAILURES)
def test_without_check_the_others_go_on_and_the_failure_is_told(how):
    run = processes.run(fail, processes=3, check=False, how=how)
    assert run.results == [0, None, 2]
    assert run.failures == ["", FAILURES[how], ""]
    assert run.logs == [f"before the end of {number}\n" for number in range(3)]
    assert all(noise.startswith("a native line\n") for noise in run.noise)
    assert str(run).count("[failed]") == 1


@pytest.mark.parametrize("how", FAILURES)
def test_with_check_the_failure_is_raised_with_the_last_words(how):
    message = refused(fail, "fail failed in process 1 of 3.", "It printed last:\n        before the end of 1",
                      "Libraries wrote last:\n        ", "check=False", processes=3, how=how)  # fmt: skip
    assert f"Why:  {FAILURES[how]}".replace("\n", "\n      ") in message


def test_a_process_that_kills_its_whole_group_is_told():
    refused(fail, "fail failed in process", "SIGKILL", processes=2, how="group")


def test_the_first_failure_ends_those_that_wait_for_it():
    def work(process):
        import time

        if process == 2:
            raise RuntimeError("I am out")
        time.sleep(600)

    message = refused(work, "work failed in process 2 of 3", "RuntimeError: I am out", processes=3)
    assert "not end within" not in message


def test_a_long_error_is_shortened_and_says_where_in_a_library():
    def work():
        import json

        def inner(text):
            return json.loads(text)

        try:
            inner("{")
        except ValueError:
            raise ValueError("\n".join(f"line {number}" + "." * 1_000 for number in range(50)))  # noqa: B904

    message = refused(work, "line 10 of work: raise ValueError(", "ValueError: line 0...", "line 4.")
    assert "line 5" not in message and len(message) < 3_000

    def deeper():
        import json

        def inner(text):
            return json.loads(text)

        return inner("{")

    refused(deeper, "line 7 of deeper: return inner(", "line 5 of deeper: return json.loads(text)",
            "in python3.11/json/decoder.py, line ".replace("3.11", f"3.{sys.version_info.minor}"),
            "json.decoder.JSONDecodeError: Expecting property name")  # fmt: skip


def test_a_message_of_the_workshop_is_shown_as_it_is():
    def work():
        from helpers.errors import WorkshopError

        raise WorkshopError("It is broken.", next="Mend it.")

    assert "\n      It is broken.\n      Next: Mend it." in refused(work)


def timed_out(function, printed, **options):
    """Run what does not end without check, with a limit that lets it print so much first, however busy we are."""
    for seconds in (0.5, 2, 10, LONG):
        run = processes.run(function, seconds=seconds, check=False, **options)
        if all(len(log) >= printed for log in run.logs):
            break
    return run, f"it had not ended after {seconds:g} s"


def test_the_time_out_says_where_each_process_was_and_keeps_what_it_printed():
    def work(process):
        import time

        print("waiting", end="")
        if process == 0:
            return "done"
        time.sleep(600)

    run, late = timed_out(work, len("waiting"), processes=2)
    assert run.failures == ["", f"{late}; it was in line 7 of work: time.sleep(600)"]
    assert (run.results, run.logs, run.noise) == (["done", None], ["waiting", "waiting"], ["", ""])


def test_with_check_the_time_out_is_raised_and_names_those_that_are_late():
    def work(process):
        import time

        print("waiting", end="")
        if process == 0:
            return "done"
        time.sleep(600)

    seconds = float(timed_out(work, len("waiting"), processes=3)[1].split()[-2])
    message = refused(work, f"work did not end within {2 * seconds:g} s in process 1, 2 of 3.",
                      "process 1: it had not ended after", "it was in line 7 of work: time.sleep(600)",
                      "It printed last:\n        waiting", processes=3, seconds=2 * seconds)  # fmt: skip
    assert "process 0" not in message


def test_an_endless_loop_that_prints_ends_at_the_time_out():
    def work():
        while True:
            print("again and again")

    run, late = timed_out(work, 1_000)
    assert late in run.failures[0]
    assert run.logs[0].startswith("again and again\nagain")
    assert len(run.logs[0]) < 2 * processes.KEPT_BYTES + 100


def hold(folder="", process=0):
    """Keep the interpreter's lock inside compiled code, with a child beside it."""
    import ctypes
    import pathlib
    import subprocess
    import sys
    import tempfile

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    tempfile.mkstemp()
    print("holding", child.pid)
    if folder:
        (pathlib.Path(folder) / f"holds-{process}").write_text(str(child.pid))
    while True:
        ctypes.PyDLL(None).sleep(600)


def test_a_process_that_hangs_in_compiled_code_ends_at_the_time_out_with_its_child():
    run, late = timed_out(hold, len("holding"))
    assert run.failures == [f"{late}; it was in line 15 of hold: ctypes.PyDLL(None).sleep(600)"]
    child = int(run.logs[0].split()[1])
    assert in_the_end(lambda: not psutil.pid_exists(child) or not alive(psutil.Process(child)))


def test_a_process_that_stopped_itself_ends_at_the_time_out():
    def work():
        import os
        import signal

        print("stopping")
        os.kill(os.getpid(), signal.SIGSTOP)

    run, late = timed_out(work, 1)
    assert run.failures == [late]


# ---------------------------------------------------------------------------------------------- nothing is left


def start_child(alone):
    import subprocess
    import sys

    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    return subprocess.Popen(command, start_new_session=alone).pid


def test_a_child_that_a_process_left_behind_ends_with_the_run():
    child = processes.run(start_child, alone=False).result
    assert in_the_end(lambda: not psutil.pid_exists(child) or not alive(psutil.Process(child)))


def test_a_child_in_a_session_of_its_own_holds_nothing_up():
    child = psutil.Process(processes.run(start_child, alone=True).result)
    assert alive(child)  # as the module says
    child.kill()


def test_a_process_may_use_temporary_files_and_leaves_none():
    def work():
        import pathlib
        import tempfile

        (pathlib.Path(tempfile.mkdtemp()) / "left").write_text("x")
        return tempfile.gettempdir()

    assert not Path(processes.run(work).result).exists()


def test_two_processes_talk_and_their_ports_are_free_again():
    def work(process, addresses):
        import socket
        import time

        host, port = addresses[0].split(":")
        if process == 0:
            with socket.create_server((host, int(port))) as server:
                connection = server.accept()[0]
                connection.sendall(b"from 0")
                return connection.recv(100).decode(), addresses
        for _ in range(1_000):
            try:
                connection = socket.create_connection((host, int(port)))
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        connection.sendall(b"from 1")
        time.sleep(0.2)
        return connection.recv(100).decode(), addresses

    run = processes.run(work, processes=2)
    assert [result[0] for result in run.results] == ["from 1", "from 0"]
    for address in run.results[0][1]:
        with socket.create_server(("127.0.0.1", int(address.split(":")[1]))):
            pass


def test_a_crash_leaves_no_core_file(tmp_path, monkeypatch):
    import resource

    def crash():
        import ctypes
        import resource

        print(resource.getrlimit(resource.RLIMIT_CORE)[0])
        ctypes.string_at(0)

    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    folder = tmp_path / "of the caller"
    folder.mkdir()
    monkeypatch.chdir(folder)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        run = processes.run(crash, seconds=LONG, check=False)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert "SIGSEGV" in run.failures[0]
    assert run.logs == ["0\n"]
    assert list(folder.iterdir()) == []


def test_a_process_that_listens_when_it_is_killed_frees_its_port():
    def work(addresses):
        import socket
        import time

        with socket.create_server(("127.0.0.1", int(addresses[0].split(":")[1]))):
            print(addresses[0])
            time.sleep(600)

    run, _ = timed_out(work, 1)
    with socket.create_server(("127.0.0.1", int(run.logs[0].strip().split(":")[1]))):
        pass


def test_a_process_that_has_answered_stays_until_all_have():
    def work(process, addresses):
        import os
        import socket
        import time

        if process == 0:
            server = socket.create_server(("127.0.0.1", int(addresses[0].split(":")[1])))
            globals()["kept"] = server  # as a framework's own thread would
            return os.getpid()
        time.sleep(0.5)
        for _ in range(1_000):
            try:
                socket.create_connection(("127.0.0.1", int(addresses[0].split(":")[1]))).close()
                return "0 is there"
            except ConnectionRefusedError:
                time.sleep(0.02)

    assert processes.run(work, processes=2).results[1] == "0 is there"


def test_several_runs_at_a_time_do_not_meddle():
    def work(number, addresses):
        import time

        print("run", number)
        time.sleep(0.1)
        return number, addresses

    def start(number):
        return processes.run(work, processes=2, number=number)

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(start, range(6)))
    assert [run.result[0] for run in runs] == list(range(6))
    assert [run.logs for run in runs] == [[f"run {number}\n"] * 2 for number in range(6)]


def test_a_run_within_a_run_ends_with_it():
    def outer():
        import os

        from helpers import processes

        def inner():
            import os
            import time

            os.write(2, f"{os.getpid()}".encode())
            time.sleep(600)

        print(processes.run(inner, seconds=0.3, check=False).failures[0].split(";")[0], end="")
        os.write(2, b"again")
        processes.run(inner)

    run, _ = timed_out(outer, 1)
    assert run.logs == ["it had not ended after 0.3 s"]


def test_a_guard_that_somebody_killed_leaves_nothing_either(tmp_path):
    def work(folder):
        import pathlib
        import time

        (pathlib.Path(folder) / "runs").touch()
        while not (pathlib.Path(folder) / "go").exists():
            time.sleep(0.01)
        return "done"

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(processes.run, work, folder=str(tmp_path))
        assert in_the_end((tmp_path / "runs").exists)
        guards = [p for p in psutil.Process().children(recursive=True) if "_guard()" in " ".join(p.cmdline())]
        assert len(guards) == 2
        max(guards, key=lambda process: process.create_time()).kill()
        for guard in guards:
            guard.kill()
        (tmp_path / "go").touch()
        assert running.result(LONG).result == "done"


PARENT = """
import signal
import sys

from helpers import processes

{hold}

signal.signal(signal.SIGINT, signal.default_int_handler)
processes.run(hold, processes=2, folder=sys.argv[1])
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGINT twice"])
def test_nothing_outlives_the_parent(how, tmp_path, temporary):
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(hold=inspect.getsource(hold)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, script, str(tmp_path)], env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert in_the_end(lambda: all((tmp_path / f"holds-{number}").exists() for number in range(2)))
        started = psutil.Process(parent.pid).children(recursive=True)
        assert len(started) == 6  # the leader and the guard, two workers, a child of each
        assert len(list(temporary.iterdir())) == 1
        for word in [how.split()[0]] * (2 if "twice" in how else 1):
            parent.send_signal(signal.Signals[word])
        error = parent.communicate(timeout=LONG)[1]
    finally:
        parent.kill()
        parent.wait()
    assert parent.returncode == -signal.Signals[how.split()[0]]
    assert ("KeyboardInterrupt" in error) == how.startswith("SIGINT")
    assert in_the_end(lambda: not any(map(alive, started))), started
    assert in_the_end(lambda: not list(temporary.iterdir()))


def test_an_interrupt_ends_the_run_and_is_passed_on(tmp_path):
    def press():
        in_the_end((tmp_path / "holds-1").exists)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        processes.run(hold, processes=2, folder=str(tmp_path))
    presser.join()


@pytest.mark.parametrize("delay", [0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05])
def test_an_interrupt_while_it_starts_leaves_nothing(delay):
    presser = threading.Timer(delay, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        presser.start()
        processes.run(fail, processes=3, how="", check=False)
        time.sleep(LONG)
    presser.join()


# ---------------------------------------------------------------------------------------------- where it is used


def test_a_script_on_the_command_line_uses_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from helpers import processes\n\n\ndef double(n):\n    print('doubling')\n    return 2 * n\n\n\n"
        "if __name__ == '__main__':\n    run = processes.run(double, processes=2, n=21)\n    print(run.results)\n"
        "    print(run)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=LONG, env=environment)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "[42, 42]"
    assert done.stdout.splitlines()[-1].split() == ["doubling", "|", "doubling"]


INTERRUPTED = """
import os, pathlib, signal, threading, time

def press():  # as the button of the notebook does: the kernel's whole group gets the signal
    while not pathlib.Path("holds-0").exists():
        time.sleep(0.02)
    os.killpg(os.getpgrp(), signal.SIGINT)

threading.Thread(target=press).start()
try:
    processes.run(hold, folder=os.getcwd())
except KeyboardInterrupt:
    print("interrupted")
"""
PRESSED = """
pathlib.Path("holds-0").unlink()
threading.Thread(target=press).start()
processes.run(hold, folder=os.getcwd())
"""


def test_a_notebook_uses_it_shows_it_and_interrupts_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    outside = 'HERE = 1\ndef show(n):\n    display(n)\n    with open("x") as file:\n        return HERE'
    made = sample_lesson.of(
        "from helpers import processes",
        "def greet(process):\n    print('<hello>', process)\n    return process / 0 if process > 4 else 7",
        "run = processes.run(greet, processes=2)\nprint(run.results)\nrun",
        inspect.getsource(hold),
        INTERRUPTED,
        "import psutil\nprint(psutil.Process().children(recursive=True))",
        outside,
        "processes.run(show, n=1)",
        "%%time\ndef timed():\n    pass",
        "processes.run(timed)",
        "processes.run(greet, processes=6)",
        PRESSED,
    )
    outcome = execute.execute(made, tmp_path, "preview", cell_seconds=LONG, allow_errors=True)
    assert outcome.failure is None
    shown = [execute.text(cell) for cell in made.cells]
    assert (shown[2], shown[4], shown[5]) == ("[7, 7]\n", "interrupted\n", "[]\n")
    page = next(out.data for out in made.cells[2].outputs if out.output_type == "execute_result")
    assert Page(page["text/html"]).texts["pre"] == ["<hello> 0", "<hello> 1"]
    assert "process 0" in page["text/plain"]
    told = ["\n".join(out.traceback) for cell in made.cells for out in cell.outputs if out.output_type == "error"]
    assert [message.splitlines()[0] for message in told] == [
        "show uses names from outside of itself: HERE, display.",
        "The source of timed cannot be found.",
        "greet failed in process 5 of 6.",
        "Interrupted: the processes of hold have ended. Run the cell again when you like.",
    ]
    assert len(told[3].splitlines()) == 1  # no traceback
    assert "line 3 of greet: return process / 0 if process > 4 else 7" in told[2]


def test_jax_runs_with_two_devices_beside_the_caller():
    def work():
        import jax
        import jax.numpy as jnp

        return jax.device_count(), float(jax.jit(lambda x: (x * x).sum())(jnp.arange(4.0)))

    run = processes.run(work, variables={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"})
    assert run.result == (2, 14.0)


def test_two_jax_processes_work_together_though_one_ends_first():
    def work(process, addresses):
        import time

        import jax
        import numpy as np
        from jax.experimental import multihost_utils

        jax.distributed.initialize(addresses[0], len(addresses), process)
        gathered = multihost_utils.process_allgather(np.float32([process]))
        time.sleep(process)
        return gathered.ravel()

    run = processes.run(work, processes=2, variables={"JAX_PLATFORMS": "cpu"})
    assert [result.tolist() for result in run.results] == [[0, 1], [0, 1]]


def test_autograph_finds_the_source_of_a_tensorflow_function_and_leaves_no_file():
    def work():
        import tensorflow as tf

        @tf.function
        def double_or_turn(x):
            if x > 0:
                return x * 2
            return -x

        graph = double_or_turn.get_concrete_function(tf.constant(1.0)).graph
        kinds = {operation.type for operation in graph.get_operations()}
        return float(double_or_turn(tf.constant(3.0))), float(double_or_turn(tf.constant(-3.0))), sorted(kinds)

    positive, negative, kinds = processes.run(work).result
    assert (positive, negative) == (6.0, 3.0)
    assert "StatelessIf" in kinds or "If" in kinds


def test_importing_it_is_light():
    code = "import sys, helpers.processes; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    heavy = {"numpy", "tensorflow", "jax", "torch", "matplotlib", "IPython", "psutil", "tabulate"}
    assert not heavy & set(done.stdout.split())


def test_a_process_imports_numpy_only_for_arrays():
    def work(process):
        import sys

        return "numpy" in sys.modules

    assert processes.run(work).result is False
