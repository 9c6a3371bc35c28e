"""MNIST from every source, whole, damaged and stalled; the stand-in; the published figures.

The mirrors are a real server on this machine. The arrays are small ones of our own, with their own checksums, so that
every test runs without MNIST; the tests at the end repeat the main paths on the real one.
"""

import csv
import gzip
import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import sample_lesson
from pytest_httpserver import HTTPServer
from werkzeug import Response

from helpers.commands import execute
from helpers.errors import WorkshopError
from helpers.measure import published
from helpers.training import data

REAL = os.environ.get("ANYGPU_MNIST", "")
needs_mnist = pytest.mark.skipif(not REAL, reason="ANYGPU_MNIST is not set, so there is no real MNIST here")


def small_arrays():
    """Arrays that stand for MNIST: random, so that they do not compress, and large enough for several chunks."""
    rng = np.random.default_rng(1)
    sizes = {"x_train": (120, 28, 28), "y_train": (120,), "x_test": (20, 28, 28), "y_test": (20,)}
    return {name: rng.integers(0, 10 if len(size) == 1 else 256, size, np.uint8) for name, size in sizes.items()}


ARRAYS = small_arrays()


def npz(path, **arrays):
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return path


def packed(tmp_path, **changes):
    return npz(tmp_path / "packed.npz", **{**ARRAYS, **changes}).read_bytes()


def idx_files(arrays):
    def idx(array):
        return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()

    return {f"/mnist/{data.IDX_FILES[name]}": gzip.compress(idx(array), 1) for name, array in arrays.items()}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Empty caches, a mirror that nobody reaches, no variable, and small arrays in MNIST's stead."""
    monkeypatch.delenv("ANYGPU_MNIST", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(data, "CACHE", tmp_path / "data" / "cache")
    monkeypatch.setattr(data, "MIRRORS", ("http://127.0.0.1:9/mnist.npz",))  # nobody answers
    expected = {name: (array.shape, hashlib.sha256(array.tobytes()).hexdigest()) for name, array in ARRAYS.items()}
    monkeypatch.setattr(data, "EXPECTED", expected)
    return tmp_path


class Mirror(HTTPServer):
    """A server on this machine; `answers` maps a path to bytes, a status, or what answers as badly as it likes."""

    def __init__(self):
        super().__init__("127.0.0.1", threaded=True)
        self.answers, self.asked, self.ending, self.half_sent = {}, [], threading.Event(), threading.Event()

    def dispatch(self, request):
        self.asked.append(request.path)
        answer = self.answers.get(request.path, 404)
        if callable(answer):
            return answer()
        return Response(status=answer) if isinstance(answer, int) else Response(answer)

    def slowly(self, payload, first, piece, pause):
        """Answer with the first bytes at once, then pieces with a pause before each, until the test ends."""

        def pieces():
            yield payload[:first]
            self.half_sent.set()
            for start in range(first, len(payload), piece):
                if self.ending.wait(pause):
                    return
                yield payload[start : start + piece]

        return lambda: Response(pieces(), headers={"Content-Length": str(len(payload))})


@pytest.fixture
def mirror(place, monkeypatch):
    with Mirror() as server:
        monkeypatch.setattr(data, "MIRRORS", (server.url_for("/mnist.npz"), server.url_for("/mnist/")))
        yield server
        server.ending.set()


def is_mnist(dataset):
    assert dataset.name == "MNIST"
    assert all(np.array_equal(getattr(dataset, name), array) for name, array in ARRAYS.items())
    assert all(getattr(dataset, name).dtype == np.uint8 for name in ARRAYS)
    return True


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- The file that ANYGPU_MNIST names --------------------------------------------------------------------------------


def test_the_named_file_is_used_and_said_in_one_line_without_its_path(place, monkeypatch, capsys):
    monkeypatch.setenv("ANYGPU_MNIST", str(npz(place / "own.npz", **ARRAYS)))
    dataset = data.load_mnist()
    assert is_mnist(dataset) and dataset.source == "the file that ANYGPU_MNIST names"
    assert capsys.readouterr() == (
        "MNIST: 120 images to train and 20 to test (from the file that ANYGPU_MNIST names)\n",
        "",
    )


def pickled(path):
    arrays = {**ARRAYS, "y_test": np.array([{"no": "pickle"}] * 20, object)}
    with path.open("wb") as file:
        np.savez(file, **arrays)


def wrong_bytes(path):
    changed = ARRAYS["x_test"].copy()
    changed[3, 4, 5] ^= 1
    npz(path, **{**ARRAYS, "x_test": changed})


BAD_FILES = {  # how to make it, and a fact that the message names
    "missing": (lambda path: None, "no such file"),
    "text": (lambda path: path.write_text("<html>Not found, please log in</html>"), "no npz"),
    "pickled": (pickled, "allow_pickle=False"),
    "lacks an array": (lambda path: npz(path, **{k: v for k, v in ARRAYS.items() if k != "y_test"}), "y_test"),
    "wrong shape": (lambda path: npz(path, **{**ARRAYS, "x_test": ARRAYS["x_test"][:7]}), "(7, 28, 28)"),
    "wrong bytes": (wrong_bytes, "checksum"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_named_file_is_an_error_with_path_expectation_and_way_out(kind, mirror, place, monkeypatch):
    make, fact = BAD_FILES[kind]
    path = place / "own.npz"
    make(path)
    mirror.answers["/mnist.npz"] = packed(place)
    monkeypatch.setenv("ANYGPU_MNIST", str(path))
    with pytest.raises(WorkshopError) as raised:
        data.load_mnist()
    assert str(path) in raised.value.what and fact in raised.value.what
    assert "x_train" in raised.value.why
    assert "ANYGPU_MNIST" in raised.value.next and "Ctrl-C" in raised.value.next
    assert "unsafely" not in str(raised.value), "NumPy's advice on pickles"
    assert mirror.asked == [], "another source was asked behind the learner's back"


# --- The cache -------------------------------------------------------------------------------------------------------


def test_sources_come_in_their_order(mirror, place, monkeypatch):
    mirror.answers["/mnist.npz"] = packed(place)
    assert data.load_mnist().source == "127.0.0.1, now kept in data/cache"
    assert data.load_mnist().source == "data/cache"
    assert mirror.asked == ["/mnist.npz"]
    monkeypatch.setattr(data, "ROOT", place)  # a relative path is understood from the project, too
    npz(place / "own.npz", **ARRAYS)
    monkeypatch.setenv("ANYGPU_MNIST", "own.npz")
    assert data.load_mnist().source == "the file that ANYGPU_MNIST names"


def test_a_corrupt_cache_is_replaced_and_named_where_nothing_can_replace_it(mirror, place, capsys):
    data.CACHE.mkdir(parents=True)
    (data.CACHE / "mnist.npz").write_bytes(packed(place)[:1000])
    assert data.load_mnist().name == data.STAND_IN
    assert "data/cache/mnist.npz: it is damaged" in capsys.readouterr().out
    mirror.answers["/mnist.npz"] = packed(place)
    assert is_mnist(data.load_mnist())
    assert data.load_mnist().source == "data/cache"
    assert files_below(data.CACHE) == ["mnist.npz"]


def test_a_cache_that_cannot_be_written_costs_nothing_but_another_download(mirror, place, monkeypatch):
    (place / "file").write_text("in the way")
    monkeypatch.setattr(data, "CACHE", place / "file" / "cache")
    mirror.answers["/mnist.npz"] = packed(place)
    dataset = data.load_mnist()
    assert is_mnist(dataset) and dataset.source == "127.0.0.1"


# --- Mirrors ---------------------------------------------------------------------------------------------------------


def test_a_download_shows_its_progress_on_standard_output_and_nothing_on_standard_error(mirror, place, capsys):
    mirror.answers["/mnist.npz"] = mirror.slowly(packed(place), 40_000, 20_000, 0.6)
    assert is_mnist(data.load_mnist())
    output = capsys.readouterr()
    assert "127.0.0.1: " in output.out and "%" in output.out and output.err == ""


BAD_ANSWERS = {  # what the mirror does, and a fact that the message names
    "404": (lambda mirror, good: 404, "404"),
    "error page with status 200": (lambda mirror, good: b"<html>Quota exceeded</html>", "no npz"),
    "stalls in the middle": (lambda mirror, good: mirror.slowly(good, 50_000, 1, 30), "ConnectionError"),
}


@pytest.mark.parametrize("kind", BAD_ANSWERS)
def test_after_a_bad_mirror_the_next_one_serves_and_without_one_the_stand_in(kind, mirror, monkeypatch, capsys):
    make, fact = BAD_ANSWERS[kind]
    if "stalls" in kind:
        monkeypatch.setattr(data, "TIMEOUT", (60.0, 1.0))
    mirror.answers["/mnist.npz"] = make(mirror, packed(data.CACHE.parent.parent))
    both = data.MIRRORS
    monkeypatch.setattr(data, "MIRRORS", both[:1])
    assert data.load_mnist().name == data.STAND_IN
    output = capsys.readouterr()
    assert fact in output.out and output.err == ""
    assert files_below(data.CACHE.parent) == []
    monkeypatch.setattr(data, "MIRRORS", both)
    mirror.answers.update(idx_files(ARRAYS))
    assert is_mnist(data.load_mnist())
    assert capsys.readouterr().err == "" and files_below(data.CACHE) == ["mnist.npz"]


@pytest.mark.parametrize("change", ["truncated", "wrong bytes"])
def test_bad_idx_files_are_refused(change, mirror, capsys):
    files = idx_files(ARRAYS)
    path, raw = next(iter(files.items()))
    plain = gzip.decompress(raw)
    files[path] = {
        "truncated": raw[: len(raw) // 2],
        "wrong bytes": gzip.compress(plain[:-1] + bytes([plain[-1] ^ 1])),
    }[change]
    mirror.answers.update(files)
    assert data.load_mnist().name == data.STAND_IN
    assert "MNIST could not be had" in capsys.readouterr().out
    assert files_below(data.CACHE.parent.parent) == []


def test_without_a_network_the_stand_in_comes_at_once_with_the_way_to_the_real_one(place, monkeypatch, capsys):
    mirrors = (*data.MIRRORS, "http://no-such-host.invalid/mnist/")
    monkeypatch.setattr(data, "MIRRORS", mirrors)
    assert data.load_mnist().name == data.STAND_IN
    text = capsys.readouterr().out
    assert "127.0.0.1" in text and "no-such-host.invalid" in text and mirrors[0] in text
    assert "Accuracies on it are not MNIST's" in text and "set ANYGPU_MNIST" in text and "Ctrl-C" in text
    assert text.endswith(f"{data.STAND_IN}: 1,437 images to train and 360 to test (from data/digits.npz)\n")


# --- Other processes -------------------------------------------------------------------------------------------------

CHILD = """
import json, sys
from pathlib import Path
from helpers.training import data
settings = json.loads(sys.argv[1])
data.CACHE, data.MIRRORS = Path(settings["cache"]), tuple(settings["mirrors"])
data.EXPECTED = {name: (tuple(shape), checksum) for name, (shape, checksum) in settings["expected"].items()}
print(data.load_mnist().source)
"""


def settings():
    return json.dumps({"cache": str(data.CACHE), "mirrors": data.MIRRORS, "expected": data.EXPECTED})


def child():
    command = [sys.executable, "-c", CHILD, settings()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_that_download_at_once_do_no_harm(mirror, place):
    mirror.answers["/mnist.npz"] = mirror.slowly(packed(place), 40_000, 40_000, 0.5)
    children = [child(), child()]
    outputs = [process.communicate(timeout=600) for process in children]
    assert [process.returncode for process in children] == [0, 0], outputs
    assert mirror.asked == ["/mnist.npz"] * 2
    assert files_below(data.CACHE) == ["mnist.npz"]
    assert is_mnist(data.load_mnist())


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send Ctrl-C to one process alone")
def test_ctrl_c_in_the_middle_of_a_download_leaves_nothing(mirror, place):
    mirror.answers["/mnist.npz"] = mirror.slowly(packed(place), 50_000, 1, 0.05)
    process = child()
    assert mirror.half_sent.wait(600)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    assert files_below(place / "data") == []


def test_a_download_inside_a_notebook_writes_nothing_to_standard_error(mirror, place):
    """In a kernel libraries warn of what they would not elsewhere, and standard error looks like a failure there."""
    mirror.answers["/mnist.npz"] = packed(place)
    notebook = sample_lesson.of(f"import sys; sys.argv = ['', {settings()!r}]\n{CHILD}")
    assert execute.execute(notebook, place).failure is None and execute.loud(notebook) == []
    assert "MNIST: 120 images" in execute.text(notebook.cells[0])


# --- Stand-in --------------------------------------------------------------------------------------------------------


def test_the_stand_in_is_fixed_whole_and_never_inflated(place):
    dataset = data._stand_in()
    assert dataset.name == "digits stand-in (not MNIST)"
    assert (dataset.x_train.shape, dataset.x_test.shape) == ((1437, 28, 28), (360, 28, 28))
    assert (dataset.y_train.shape, dataset.y_test.shape) == ((1437,), (360,))
    assert {array.dtype for array in dataset[1:5]} == {np.dtype("uint8")}
    shares = np.bincount(dataset.y_test) / np.bincount(np.concatenate([dataset.y_train, dataset.y_test]))
    assert len(shares) == 10 and (abs(shares - 0.2) < 0.005).all()
    checksum = hashlib.sha256(b"".join(array.tobytes() for array in dataset[1:5])).hexdigest()
    assert checksum == "325e0cddd59f533dc807812600ce858af0c19760c065aa8e7b356e4e53092a56"


# --- Published figures -----------------------------------------------------------------------------------------------


def test_every_published_figure_is_complete_and_judged():
    figures = published.read_figures()
    with published.PUBLISHED.open(encoding="utf-8") as file:
        assert next(csv.reader(file)) == list(published.Figure._fields)
    assert {figure.article for figure in figures} == set("ABCDE")
    for figure in figures:
        assert figure.plausible in {"yes", "no", "unknown"} and figure.what and figure.why
        assert isinstance(figure.value, float) and 2017 <= figure.year <= 2023


def test_what_cannot_be_true_says_so_with_arithmetic_that_holds():
    impossible = [figure for figure in published.read_figures() if figure.plausible == "no"]
    assert {figure.value for figure in impossible} == {13.8, 15.0}
    for figure in impossible:
        needed = 18 * 2 * 10_000**3 / figure.value / 1e12
        assert f"are {needed:.1f} TFLOP/s" in figure.why and needed > 384 * 2 * 1.124e9 / 1e12
    assert round(18 * 2 * 10_000**3 / (384 * 2 * 1.124e9)) == 42


# --- The real MNIST --------------------------------------------------------------------------------------------------


@needs_mnist
def test_the_real_mnist_is_accepted_from_the_named_file(capsys):
    dataset = data.load_mnist()
    assert (dataset.name, dataset.x_train.shape, dataset.x_test.shape) == ("MNIST", (60000, 28, 28), (10000, 28, 28))
    assert dataset.y_train[:5].tolist() == [5, 0, 4, 1, 9] and dataset.y_test[:5].tolist() == [7, 2, 1, 0, 4]
    assert capsys.readouterr().out.startswith("MNIST: 60,000 images to train and 10,000 to test (from the file")


def test_readme_and_code_agree_on_the_checksums():
    readme = (data.ROOT / "data" / "README.md").read_text(encoding="utf-8")
    for name, (_, checksum) in data.EXPECTED.items():
        assert re.search(rf"`{name}`.*`{checksum}`", readme)
    assert all(mirror in readme for mirror in data.MIRRORS)
