"""Binder without Docker: its files as repo2docker reads them, and every lesson on one processor and in 2 GB."""

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import nbformat
import numpy as np
import pytest
import requests
import websocket
from packaging.utils import canonicalize_name
from test_dependencies import LINUX, machine, pins, requirements, wanted

from helpers import ROOT
from helpers.commands import files, lesson_files
from helpers.compute import data, host

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Binder runs on Linux")

IMAGE = ROOT / "requirements/binder-image.in"
LOCK = ROOT / "requirements/binder.txt"
TABLE = ROOT / "build" / "binder.md"
PYTHON = machine(LINUX, "3.12")
LIMIT = 2_000_000_000  # bytes: a little less than the 2 GiB that mybinder.org gives
LONG = 1800  # seconds: against hanging alone
NOT_COPIED = (
    ".git",
    ".venv*",
    ".uv",
    ".plaidml*",
    ".classroom*",
    "build",
    "cache",
    "models",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
)


# ------------------------------------------------------------------------------------------------- what is installed


def test_the_lock_has_no_torch_and_nothing_of_nvidias():
    names = {canonicalize_name(item.name) for item in requirements(LOCK)}
    assert "tensorflow-cpu" in names and len(names) > 30
    assert not {name for name in names if name.startswith(("torch", "nvidia", "cuda", "jax-cuda")) or name == "triton"}
    assert "tensorflow" not in names, "it would overwrite tensorflow-cpu, and is twice the download"


def test_the_lock_leaves_out_what_the_image_has_and_together_they_are_what_the_project_asks_for():
    locked, there = pins(LOCK, PYTHON), pins(IMAGE, PYTHON)
    assert {"jupyterlab", "notebook", "ipykernel", "jupyterhub"} <= set(there)
    assert not set(locked) & set(there)
    for item in wanted("cpu", PYTHON):
        assert item.specifier.contains((locked | there)[canonicalize_name(item.name)]), item


def test_what_the_image_does_not_decide_is_of_the_versions_that_the_lessons_were_tested_with():
    cpu = pins(ROOT / "requirements/cpu.txt", PYTHON)
    assert {name: version for name, version in pins(LOCK, PYTHON).items() if cpu[name] != version} == {}


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="no apt-cache: the names of packages are not checked")
def test_debian_has_the_packages_of_the_system():
    """Ubuntu takes them over from Debian under the same names; Ubuntu's own list is not asked."""
    lines = (ROOT / "binder/apt.txt").read_text(encoding="utf-8").splitlines()
    names = [name for line in lines if (name := line.partition("#")[0].strip())]
    assert "pocl-opencl-icd" in names and "mesa-vulkan-drivers" in names
    if subprocess.run(["apt-cache", "show", "bash"], capture_output=True, check=False).returncode:
        pytest.skip("apt has no lists here (apt-get update): the names of packages are not checked")
    done = subprocess.run(["apt-cache", "show", *names], capture_output=True, text=True, check=False)
    assert set(re.findall(r"^Package: (\S+)", done.stdout, re.MULTILINE)) == set(names), done.stderr


def test_the_readmes_address_opens_the_first_lesson():
    (address,) = set(re.findall(r"https://mybinder\.org/v2/gh/[^\s`)]+", (ROOT / "README.md").read_text("utf-8")))
    assert address.endswith(f"/{host.LESSONS_ON_BINDER}")
    opened = address.partition("urlpath=lab/tree/")[2]
    assert (ROOT / opened).is_file() and Path(opened).name.startswith("00-")


@pytest.mark.slow
def test_repo2docker_accepts_the_folder_and_its_image_has_what_we_leave_out(tmp_path):
    made = uv("venv", tmp_path / "env", "--python", sys.executable)
    made = made or uv("pip", "install", "--python", tmp_path / "env/bin/python", "jupyter-repo2docker>=2026.1")
    if made:
        pytest.skip(f"repo2docker cannot be installed here: {made[-300:]}")
    done = subprocess.run(
        [tmp_path / "env/bin/repo2docker", "--no-build", "--debug", copy_of_the_project(tmp_path / "project")],
        cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Building conda environment for python=3.12" in done.stderr
    assert re.search(r"^FROM \S+:24\.04$", done.stdout, re.MULTILINE), "apt.txt is for Ubuntu 24.04"
    for part in (
        "mesa-vulkan-drivers pocl-opencl-icd",
        'env update -p ${NB_PYTHON_PREFIX} --file "binder/environment.yml"',
        "RUN ./binder/postBuild",
        'ENV R2D_ENTRYPOINT="${REPO_DIR}/binder/start"',
    ):
        assert part in done.stdout
    (path,) = (tmp_path / "env").rglob("conda/environment.py-3.12-linux-64.lock")
    assert in_the_image(path.read_text()) == {str(item) for item in requirements(IMAGE)}, f"update {IMAGE.name}"


def in_the_image(lock):
    """The Python packages of repo2docker's own lock under pip's names, as name==version."""
    renamed = {"nbconvert-core": "nbconvert", "jupyterhub-base": "jupyterhub", "brotli-python": "brotli"}
    renamed |= {"python-fastjsonschema": "fastjsonschema"}
    parts = {"cpython", "_python_abi3_support", "cached_property"}  # of Python itself; no use of its own since 3.8
    found = re.findall(r"/([^/\s]+)-([^-/\s]+)-(py[^-/\s]*)\.(?:conda|tar\.bz2)", lock)
    return {f"{canonicalize_name(renamed.get(n, n))}=={version}" for n, version, _ in found if n not in parts}


def uv(*arguments):
    """What uv said if it failed, else nothing."""
    program = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    if not program:
        return "no uv here"
    done = subprocess.run(
        [program, "--quiet", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.stderr + "?" if done.returncode else ""


def copy_of_the_project(folder):
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    return folder


# ------------------------------------------------------------------------------------------------ postBuild and start


def variables(home, python, **more):
    """What a build or a launch finds: a home of its own, its Python first on the path, none of ours."""
    ours = (
        "ANYGPU_",
        "GLIBC_",
        "JUPYTER",
        "KERAS_",
        "MPL",
        "OCL_",
        "OPENBLAS_",
        "POCL_",
        "PYTHON",
        "VIRTUAL_ENV",
        "XDG_",
    )
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    return theirs | {"HOME": str(home), "PATH": path, "BINDER_LAUNCH_HOST": "https://mybinder.org/"} | more


def environment_beside_ours(folder):
    """A Python that has our packages, and a folder of its own for what is installed with it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "ours.pth").write_text(str(Path(np.__file__).parent.parent), encoding="utf-8")
    return folder / "bin/python"


def post_build(project, python, home):
    done = subprocess.run(
        [project / "binder/postBuild"], cwd=project, env=variables(home, python),
        capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    if done.returncode and "uv_build" in done.stderr and "o matching distribution found" in done.stderr:
        pytest.skip("pip reaches no packages here: postBuild installs the project with one")
    return done


def real_mnist(path):
    """Write MNIST where the copy finds it, and say whether it is real."""
    dataset = data.load_mnist()
    if dataset.name != "MNIST":
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{name: getattr(dataset, name) for name in data.EXPECTED})
    return True


def with_mirror(project, address):
    """Let the copy ask one mirror alone."""
    path = project / "helpers/compute/data.py"
    text, replaced = re.subn(
        r"(?<=MIRRORS: tuple\[str, \.\.\.\] = )\(.*?\n\)", f'("{address}",)', path.read_text("utf-8"), flags=re.DOTALL
    )
    assert replaced == 1
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("network", ["a mirror", "no network", "a mirror that breaks"])
def test_post_build_installs_the_project_and_bakes_mnist_in_if_it_can(tmp_path, httpserver, network):
    project, home = copy_of_the_project(tmp_path / "project"), tmp_path / "home"
    if network == "a mirror":
        if not real_mnist(tmp_path / "mnist.npz"):
            pytest.skip("MNIST is not to be had here")
        httpserver.expect_request("/mnist.npz").respond_with_data((tmp_path / "mnist.npz").read_bytes())
    elif network == "a mirror that breaks":
        httpserver.expect_request("/mnist.npz").respond_with_data(b"PK, and then nothing", status=200)
    with_mirror(
        project, "http://127.0.0.1:9/mnist.npz" if network == "no network" else httpserver.url_for("/mnist.npz")
    )
    python = environment_beside_ours(tmp_path / "env")
    done = post_build(project, python, home)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
    baked = project / "data/cache/mnist.npz"
    name = "MNIST" if network == "a mirror" else data.STAND_IN
    assert name in done.stdout.splitlines() and baked.is_file() == (network == "a mirror")

    # A session: started by binder/start, in notebooks/, with no mirror.
    httpserver.clear()
    code = "import helpers; from helpers import data, workload; print(helpers.__file__, workload.current());"
    code += "assert data.load_mnist().name == " + repr(name)
    told = subprocess.run(
        [project / "binder/start", "python", "-c", code], cwd=project / "notebooks", env=variables(home, python),
        capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"{project / 'helpers/__init__.py'} preview\n")
    assert ("(from data/cache)" in told.stdout) == (network == "a mirror")


def test_post_build_fails_where_the_project_cannot_be_installed(tmp_path):
    (tmp_path / "python").write_text('#!/bin/sh\necho "$@"\nexit 1\n', encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    done = subprocess.run(
        [ROOT / "binder/postBuild"], cwd=tmp_path, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and done.stdout == "-m pip install --no-cache-dir --no-deps -e .\n"


def test_start_becomes_what_it_is_given():
    started = subprocess.Popen(
        [ROOT / "binder/start", "sh", "-c", 'echo "$$,$1"; exit 7', "sh", "two  words"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.communicate(timeout=60)[0] == f"{started.pid},two  words\n" and started.returncode == 7


NAMES = """
import os, pathlib
names = [path.read_text().strip() for path in pathlib.Path(f"/proc/{os.getpid()}/task").glob("*/comm")]
print({names.count(NAME)})
"""
ONE_THREAD = {
    "NumPy": """
import numpy, scipy.linalg, sklearn, threadpoolctl
print({pool["num_threads"] for pool in threadpoolctl.threadpool_info()})
""",
    "JAX": "import jax.numpy as j; (j.ones((500, 500)) @ j.ones((500, 500))).block_until_ready()"
    + NAMES.replace("NAME", "'tf_XLAEigen'"),
    "PoCL": """
import pyopencl as cl
pocl = [platform for platform in cl.get_platforms() if "Portable" in platform.name]
print({device.max_compute_units for platform in pocl for device in platform.get_devices()} or {1})
""",
}


@pytest.mark.parametrize("library", ONE_THREAD)
def test_start_lets_a_library_have_one_thread(tmp_path, library):
    python = Path(sys.executable)
    told = subprocess.run(
        [ROOT / "binder/start", python, "-c", ONE_THREAD[library]], env=variables(tmp_path, python),
        cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert told.stdout == "{1}\n", told.stderr


# ------------------------------------------------------------------------------- every lesson: one processor and 2 GB


class Cgroup:
    """A cgroup, version 1 or 2, below the one of this process, whose processes together get LIMIT bytes."""

    def __init__(self):
        at = {}
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            at |= {name: path for name in controllers.split(",")}
        if "memory" in at:  # version 1
            base = Path("/sys/fs/cgroup/memory")
            above = base / at["memory"].lstrip("/")
            above = above if above.is_dir() else base  # in a container, where the path is the host's
            self.names = {"peak": "memory.max_usage_in_bytes", "events": "memory.oom_control"}
            limits = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        else:  # version 2: the nearest one whose children have the controller
            base = Path("/sys/fs/cgroup")
            own = base / at.get("", "/").lstrip("/")
            above = next(
                (
                    place
                    for place in [own, *own.parents]
                    if place.is_relative_to(base)
                    and (place / "cgroup.subtree_control").is_file()
                    and "memory" in (place / "cgroup.subtree_control").read_text().split()
                ),
                None,
            )
            if above is None:
                raise OSError("no cgroup above this process hands the memory's controller down")
            self.names = {"peak": "memory.peak", "events": "memory.events"}
            limits = ["memory.max", "memory.swap.max"]
        self.folder = above / f"any-gpu-workshop-{os.getpid()}-{secrets.token_hex(3)}"
        self.folder.mkdir()
        try:
            (self.folder / limits[0]).write_text(str(LIMIT))
            if (self.folder / limits[1]).is_file():  # no swap: Binder has none
                (self.folder / limits[1]).write_text("0" if limits[0] == "memory.max" else str(LIMIT))
        except OSError:
            self.folder.rmdir()
            raise

    def processes(self):
        return [int(number) for number in (self.folder / "cgroup.procs").read_text().split()]

    def peak(self):
        """The most bytes that were charged, files in the system's cache included; 0 where the kernel does not tell."""
        path = self.folder / self.names["peak"]
        return int(path.read_text()) if path.is_file() else 0

    def killed(self):
        """How many processes the kernel ended because the limit was met."""
        return int(re.search(r"^oom_kill (\d+)$", (self.folder / self.names["events"]).read_text(), re.MULTILINE)[1])

    def close(self):
        until = time.monotonic() + 60
        while found := self.processes():
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            assert time.monotonic() < until, f"processes {found} do not end"
            time.sleep(0.05)
        while True:  # the kernel takes a moment after the last process
            try:
                return self.folder.rmdir()
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)


class Watch(threading.Thread):
    """Samples what all processes of a cgroup have in memory: what they share counts once, wherever it is charged."""

    def __init__(self, cgroup):
        super().__init__(daemon=True)
        self.cgroup, self.bytes, self.over = cgroup, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.2):
            total = 0
            for process in self.cgroup.processes():
                with contextlib.suppress(OSError, TypeError):  # it has ended, or ends
                    rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
                    total += 1024 * int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)[1])
            self.bytes = max(self.bytes, total)

    def close(self):
        self.over.set()
        self.join()


@pytest.fixture(scope="module")
def binder(tmp_path_factory):
    """A clean copy, a Python (3.12 with Binder's packages and postBuild done, or ours), its variables, the table."""
    try:
        Cgroup().close()
    except OSError as refused:
        pytest.skip(f"no cgroup can be made here: {refused}")
    if not shutil.which("taskset"):
        pytest.skip("no taskset here (Debian: util-linux)")
    folder = tmp_path_factory.mktemp("binder")
    project = copy_of_the_project(folder / "project")
    real = real_mnist(project / "data/cache/mnist.npz")
    python = folder / "env/bin/python"
    pyenvs = sorted(Path("~/.pyenv/versions").expanduser().glob("3.12.*/bin/python3.12"))
    failed = uv("venv", folder / "env", "--python", pyenvs[-1] if pyenvs else "3.12", "--no-python-downloads")
    for packages in (IMAGE, LOCK):
        failed = failed or uv("pip", "install", "--python", python, "--no-deps", "--compile-bytecode", "-r", packages)
    failed = failed or uv("pip", "check", "--python", python)
    if failed:  # no Python 3.12, or no network: our packages are the same but for Jupyter's
        python = Path(sys.executable)
        theirs = variables(folder / "home", python, PYTHONPATH=str(project))
    else:
        done = post_build(project, python, folder / "home")
        assert done.returncode == 0, done.stderr
        theirs = variables(folder / "home", python)
    version = subprocess.run([python, "-c", "import platform as p; print(p.python_version())"], capture_output=True)
    which = (
        "the packages of this environment" if failed else "the packages of Binder's image and requirements/binder.txt"
    )
    said = f"Python {version.stdout.decode().strip()}, {which}, {'MNIST' if real else data.STAND_IN}"
    # A slow machine must not fail the test by lesson 09's own limits; with more time it takes no less memory.
    yield project, python, theirs | {"ANYGPU_PATIENCE": "6"}, (said, {})
    shutil.rmtree(folder, ignore_errors=True)


def write_table(said, rows):
    """Write what is known so far."""
    lines = [
        f"One processor and {LIMIT:,} bytes for the server, the kernel and their children; profile preview.",
        f"{said}. The limits of time that lesson 09 sets itself were lifted.",
        "Seconds: by the clock, and of the processor (other programs of the machine lengthen the first).",
        "MiB: the peak that its processes had in memory, and that of the cgroup, with files the system keeps.",
        "",
        "| lesson | seconds | processor's seconds | MiB | cgroup's MiB |",
        "|---|---|---|---|---|",
        *(f"| {number} | {' | '.join(f'{value:.0f}' for value in row)} |" for number, row in sorted(rows.items())),
    ]
    files.write(TABLE, "\n".join(lines) + "\n")


NUMBERS = [path.name[:2] for path in lesson_files.every()]


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_a_lesson_completes_on_one_processor_and_in_2_gb(binder, number, tmp_path):
    project, python, theirs, (said, rows) = binder
    (path,) = (project / "notebooks").glob(f"{number}-*.ipynb")
    cgroup = Cgroup()
    watch = Watch(cgroup)
    try:
        watch.start()
        before = os.times()
        with server(project, python, theirs, cgroup, tmp_path) as (address, token):
            began = time.monotonic()
            failure = run_lesson(address, token, path)
            seconds = time.monotonic() - began
        after = os.times()
        worked = sum(getattr(after, of) - getattr(before, of) for of in ("children_user", "children_system"))
        watch.close()
        killed = cgroup.killed()
        rows[number] = (seconds, worked, watch.bytes / 2**20, cgroup.peak() / 2**20)
        write_table(said, rows)
    finally:
        watch.close()
        cgroup.close()
    assert killed == 0, f"{killed} processes ended for want of memory; {failure}"
    assert failure == ""
    assert 0 < watch.bytes < LIMIT


@pytest.mark.slow
def test_a_lesson_that_takes_more_is_noticed(binder, tmp_path):
    project, python, theirs, _ = binder
    path = project / "notebooks/98-take-too-much.ipynb"
    cells = [nbformat.v4.new_code_cell(code) for code in (f"much = b'1' * {LIMIT}", "print('never here')")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    cgroup = Cgroup()
    try:
        with server(project, python, theirs, cgroup, tmp_path) as (address, token):
            failure = run_lesson(address, token, path)
        assert failure == "cell 0: the kernel died" and cgroup.killed() == 1
    finally:
        cgroup.close()
        path.unlink()


@contextlib.contextmanager
def server(project, python, theirs, cgroup, folder):
    """JupyterLab as Binder starts it, inside the cgroup and on one processor."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token, processor = secrets.token_hex(16), max(os.sched_getaffinity(0))
    command = f"echo $$ > {cgroup.folder}/cgroup.procs && exec taskset --cpu-list {processor} binder/start " + '"$@"'
    lab = [python, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
    lab += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", command, "bash", *lab], cwd=project, env=theirs,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            address, until = f"http://127.0.0.1:{port}", time.monotonic() + LONG
            while True:
                with contextlib.suppress(requests.RequestException):
                    if requests.get(f"{address}/api/status", params={"token": token}, timeout=60).ok:
                        break
                said = (folder / "server.log").read_text(errors="replace")[-2000:]
                assert process.poll() is None and time.monotonic() < until, said
                time.sleep(0.2)
            yield address, token
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_lesson(address, token, path):
    """Open a lesson as JupyterLab does, run all its cells, close it; return what went wrong, empty if nothing did."""
    at, key = f"notebooks/{path.name}", {"token": token}
    opened = requests.get(f"{address}/api/contents/{at}", params=key, timeout=LONG).json()["content"]
    wish = {"path": at, "name": path.name, "type": "notebook", "kernel": {"name": "python3"}}
    session = requests.post(f"{address}/api/sessions", params=key, json=wish, timeout=LONG).json()
    channels = f"ws{address[4:]}/api/kernels/{session['kernel']['id']}/channels?token={token}"
    socket_ = websocket.create_connection(channels, timeout=LONG)
    try:
        for index, cell in enumerate(opened["cells"]):
            if cell["cell_type"] != "code":
                continue
            failure = run_cell(socket_, cell)
            if failure and "raises-exception" not in cell["metadata"].get("tags", []):
                return f"cell {index}: {failure}"
    except (OSError, websocket.WebSocketException) as error:
        return f"cell {index}: the connection to the kernel ended: {error!r}"
    finally:
        socket_.close()
    requests.delete(f"{address}/api/sessions/{session['id']}", params=key, timeout=LONG)
    return ""


def run_cell(socket_, cell):
    """Run a cell over the server's channels; return its error, empty if there is none."""
    identity = uuid.uuid4().hex
    head = {"msg_id": identity, "msg_type": "execute_request", "username": "", "session": "binder", "version": "5.3"}
    content = {"code": "".join(cell["source"]), "silent": False, "store_history": True, "user_expressions": {}}
    content |= {"allow_stdin": False, "stop_on_error": False}
    message = {
        "header": head,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
        "buffers": [],
    }
    socket_.send(json.dumps(message))
    status, failure = set(), ""
    while status != {"reply", "idle"}:
        came = received(socket_.recv())
        kind, state = came["header"]["msg_type"], came["content"].get("execution_state")
        if kind == "status" and state in ("restarting", "dead", "autorestarting"):
            return "the kernel died"
        if came["parent_header"].get("msg_id") != identity:
            continue
        if kind == "execute_reply":
            status.add("reply")
            if came["content"]["status"] != "ok":
                failure = f"{came['content'].get('ename')}: {came['content'].get('evalue')}"
        elif kind == "status" and state == "idle":
            status.add("idle")
    return failure


def received(frame):
    """A message; one with buffers comes as bytes: their number, the offsets, the JSON."""
    if isinstance(frame, bytes):
        start, end = (int.from_bytes(frame[at : at + 4], "big") for at in (4, 8))
        frame = frame[start : end if end else None]
    return json.loads(frame)
