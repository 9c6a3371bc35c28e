"""A JupyterHub for a room: the configuration that teachers get, started for real, and ten students at work in it."""

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
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import nbformat
import psutil
import pytest
import requests
import room
import websocket
from test_binder import NOT_COPIED, received, variables
from traitlets.config.loader import PyFileConfigLoader

from helpers import ROOT
from helpers.commands import execute, files, lesson_files
from helpers.compute import host

pytestmark = pytest.mark.skipif(os.name == "nt", reason="JupyterHub needs Linux or macOS")

CONFIGURATION = ROOT / "classroom/jupyterhub_config.py"
TABLE = ROOT / "build" / "hub.md"
LESSON = "any-gpu-workshop/notebooks/01-add-vectors-with-opencl.ipynb"
# Fewer than ten where somebody works at this test.
STUDENTS = [f"student{number:02}" for number in range(1, int(os.environ.get("ANYGPU_TEST_STUDENTS", "10")) + 1)]
PROXY = "configurable-http-proxy"
LONG = 900  # seconds: against hanging alone
MARK = "ANYGPU_TEST_ROOM"  # a variable that every process of the test's hub inherits

# For the test alone: students without accounts and passwords, on this machine alone, on ports that are free.
OVERRIDES = """
load_subconfig({shipped!r})
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = set({students!r})
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r}
c.Spawner.environment[{mark!r}] = {room!r}
c.JupyterHub.services[0]["environment"] = {{{mark!r}: {room!r}}}
c.Spawner.args.append("--allow-root")
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}"
c.JupyterHub.hub_port = {ports[1]}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[2]}"
"""
MADE_UP_NAMES = "c.Authenticator.post_auth_hook = None\n"


# ------------------------------------------------------------------------------------------------- the configuration


def shipped():
    """Return the configuration as JupyterHub reads it."""
    return PyFileConfigLoader(CONFIGURATION.name, path=str(CONFIGURATION.parent)).load_config()


def test_a_students_server_has_binders_limits_of_threads_and_its_workload():
    exports = re.findall(r"^export (.*?)(?:  #.*)?$", (ROOT / "binder/start").read_text("utf-8"), re.MULTILINE)
    binder = dict(pair.split("=", 1) for line in exports for pair in line.split())
    assert len(binder) > 8 and shipped().Spawner.environment.items() >= binder.items()


def test_students_read_one_mnist_if_the_teacher_has_it(tmp_path):
    course = tmp_path / "course"
    shutil.copytree(CONFIGURATION.parent, course / "classroom")
    loader = PyFileConfigLoader(CONFIGURATION.name, path=str(course / "classroom"))
    assert "ANYGPU_MNIST" not in loader.load_config().Spawner.environment
    (course / "data/cache").mkdir(parents=True)
    (course / "data/cache/mnist.npz").touch()
    assert loader.load_config().Spawner.environment["ANYGPU_MNIST"] == str(course / "data/cache/mnist.npz")


def test_after_log_in_a_student_gets_the_course_and_lesson_00():
    link = urlsplit(shipped().JupyterHub.default_url)
    assert link.path == "/hub/user-redirect/git-pull"
    asked = {name: value for name, (value,) in parse_qs(link.query).items()}
    folder = asked.pop("targetpath")
    assert asked.pop("urlpath").removeprefix(f"lab/tree/{folder}/") == host.LESSONS_ON_BINDER.partition("lab/tree/")[2]
    assert asked == {"repo": f"file://{ROOT}", "branch": "main"}


def test_the_guides_link_is_one_that_nbgitpuller_reads():
    (link,) = set(
        re.findall(r"https://\S+/git-pull\?\S+(?=\n)", (ROOT / "docs/teaching.md").read_text(encoding="utf-8"))
    )
    parts = urlsplit(link)
    asked = {name: value for name, (value,) in parse_qs(parts.query, strict_parsing=True).items()}
    assert parts.path == "/hub/user-redirect/git-pull" and asked.keys() == {"repo", "targetpath", "branch", "urlpath"}
    page, tree, folder, lesson = asked["urlpath"].split("/", 3)
    assert (page, tree) == ("lab", "tree") and folder == asked["targetpath"] and (ROOT / lesson).is_file()
    assert lesson == host.LESSONS_ON_BINDER.partition("lab/tree/")[2]


# ---------------------------------------------------------------------------------------------------------- a real hub


def free_ports(count):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def answers(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The teacher's clone of the course: what stands here, in a git repository of its own."""
    try:
        subprocess.run([PROXY, "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"no {PROXY} that starts: npm install --global {PROXY} (needs Node 20 or newer)")
    folder = tmp_path_factory.mktemp("teacher") / "course"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder)
    yield folder
    shutil.rmtree(folder)


def git(folder, *arguments):
    author = ("-c", "user.name=Teacher", "-c", "user.email=teacher@example.org")
    subprocess.run(["git", "-C", folder, *author, *arguments], check=True)


def commit(folder):
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=Course")


class Hub:
    """JupyterHub with its proxy on this machine alone, in a folder of its own, started and stopped at will."""

    def __init__(self, folder, course, more=""):
        self.folder, self.homes, self.room, self.process = folder, folder / "homes", secrets.token_hex(8), None
        self.ports = free_ports(3)  # of the proxy, of the hub, of the proxy's own interface
        self.address = f"http://127.0.0.1:{self.ports[0]}"
        self.homes.mkdir()
        text = OVERRIDES.format(
            shipped=str(course / "classroom/jupyterhub_config.py"), students=STUDENTS, mark=MARK, room=self.room,
            homes=f"{self.homes}/{{username}}", ports=self.ports,
        )  # fmt: skip
        (folder / "jupyterhub_config.py").write_text(text + more, encoding="utf-8")

    def log(self):
        return (self.folder / "hub.log").read_text(encoding="utf-8", errors="replace")

    def start(self):
        python = room.programs() / "python"
        with (self.folder / "hub.log").open("ab") as log:
            self.process = subprocess.Popen(
                [python, "-m", "jupyterhub", "--config", "jupyterhub_config.py"], cwd=self.folder,
                env=variables(self.folder, python, **{MARK: self.room}),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        until = time.monotonic() + LONG
        while True:
            with contextlib.suppress(requests.RequestException):
                if requests.get(f"{self.address}/hub/health", timeout=60).ok:
                    return
            assert self.process.poll() is None and time.monotonic() < until, self.log()[-3000:]
            time.sleep(0.2)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)

    def processes(self):
        """Return all processes of this hub that run, by whose they are: a student's, or "" for the hub's own."""
        found = defaultdict(list)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                if environment.get(MARK) == self.room and process.status() != psutil.STATUS_ZOMBIE:
                    found[environment.get("JUPYTERHUB_USER", "")].append(process)
        return found

    def close(self):
        """End whatever still runs, if a test has failed."""
        if self.process.poll() is None:
            self.stop()
        for processes in self.processes().values():
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    process.kill()


@contextlib.contextmanager
def hub(folder, course, more=""):
    started = Hub(folder, course, more)
    try:
        started.start()
        yield started
    finally:
        started.close()


class Watch(threading.Thread):
    """Samples what the processes of each student have in memory; what processes share counts in parts."""

    def __init__(self, watched):
        super().__init__(daemon=True)
        self.hub, self.peaks, self.most, self.over = watched, defaultdict(int), 0, threading.Event()

    def run(self):
        while not self.over.wait(1):
            now = defaultdict(int)
            for name, processes in self.hub.processes().items():
                for process in processes:
                    with contextlib.suppress(psutil.Error):
                        now[name] += execute._memory(process)
            self.most = max(self.most, sum(now.values()))
            for name, memory in now.items():
                self.peaks[name] = max(self.peaks[name], memory)

    def close(self):
        self.over.set()
        self.join()


class Student:
    """One student's browser: cookies, and what JupyterLab's page would ask the server for."""

    def __init__(self, room_hub, name):
        self.hub, self.name, self.browser, self.seconds = room_hub, name, requests.Session(), {}
        self.own = f"{room_hub.address}/user/{name}"

    def xsrf(self, path):
        return next(one.value for one in self.browser.cookies if one.name == "_xsrf" and one.path == path)

    def ask(self, method, address, expected=(200, 201, 204), **more):
        """Send a request as a page does, and return the answer."""
        path = "/hub/" if "/hub/" in address else f"/user/{self.name}/"
        headers = {"X-XSRFToken": self.xsrf(path)}
        answer = self.browser.request(method, address, headers=headers, timeout=LONG, **more)
        assert answer.status_code in expected, f"{self.name}: {method} {address}: {answer.status_code} {answer.text}"
        return answer

    def log_in(self):
        """Log in, and return the page on which that ends."""
        self.browser.get(f"{self.hub.address}/hub/login", timeout=LONG)
        form = {"username": self.name, "password": "", "_xsrf": self.xsrf("/hub/")}
        return self.browser.post(f"{self.hub.address}/hub/login", data=form, timeout=LONG)

    def open_course(self):
        """Log in, wait for the own server, and let nbgitpuller fetch the course as its page does."""
        began = time.monotonic()
        page = self.log_in()
        assert page.ok, page.text
        until = time.monotonic() + LONG
        while "data-repo=" not in page.text:  # nbgitpuller's page; until then one of the hub's, which asks again
            assert time.monotonic() < until, f"{page.url}: {page.text[-1000:]}"
            time.sleep(0.5)
            page = self.browser.get(self.hub.address, timeout=LONG)
        self.seconds["from log-in to server"] = time.monotonic() - began
        asked = {name: value for name, (value,) in parse_qs(urlsplit(page.url).query).items()}
        pulled = self.ask("GET", f"{self.own}/git-pull/api", params=asked).text
        assert json.loads(pulled.strip().splitlines()[-1].removeprefix("data: "))["phase"] == "finished", pulled
        assert self.browser.get(f"{self.own}/{asked['urlpath']}", timeout=LONG).ok
        self.seconds["from log-in to lesson"] = time.monotonic() - began

    def lesson(self):
        return nbformat.from_dict(self.ask("GET", f"{self.own}/api/contents/{LESSON}").json()["content"])

    def work(self, answer):
        """Open the lesson, answer its first exercise, run all cells in an own kernel, save."""
        began = time.monotonic()
        notebook = self.lesson()
        notebook.cells[lesson_files.exercises(notebook)[0].cell].source = answer
        wish = {"path": LESSON, "name": Path(LESSON).name, "type": "notebook", "kernel": {"name": "python3"}}
        self.kernel = self.ask("POST", f"{self.own}/api/sessions", json=wish).json()["kernel"]["id"]
        self.run(notebook)
        content = {"type": "notebook", "format": "json", "content": notebook}
        self.ask("PUT", f"{self.own}/api/contents/{LESSON}", json=content)
        self.seconds["lesson 01, from opening to saving"] = time.monotonic() - began

    def run(self, notebook):
        """Run all cells of a notebook, and put what they show into it."""
        request = requests.Request("GET", f"{self.own}/")
        cookies = requests.cookies.get_cookie_header(self.browser.cookies, request.prepare())
        address = f"ws{self.own[4:]}/api/kernels/{self.kernel}/channels?_xsrf={self.xsrf(f'/user/{self.name}/')}"
        channels = websocket.create_connection(address, timeout=LONG, cookie=cookies)
        with contextlib.closing(channels):
            for cell in notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs, cell.execution_count = [], None
                    self.run_cell(channels, cell)

    def run_cell(self, channels, cell):
        identity = uuid.uuid4().hex
        head = {"msg_id": identity, "msg_type": "execute_request", "username": self.name, "session": identity}
        content = {"code": cell.source, "silent": False, "store_history": True, "user_expressions": {}}
        content |= {"allow_stdin": False, "stop_on_error": False}
        request = {"header": head | {"version": "5.3"}, "parent_header": {}, "metadata": {}, "content": content}
        channels.send(json.dumps(request | {"channel": "shell", "buffers": []}))
        while True:
            came = received(channels.recv())
            kind, said = came["header"]["msg_type"], came["content"]
            assert said.get("execution_state") not in ("restarting", "dead"), f"{self.name}: the kernel died"
            if came["channel"] != "iopub" or came["parent_header"].get("msg_id") != identity:
                continue
            if said.get("execution_state") == "idle":
                return
            if kind == "execute_input":
                cell.execution_count = said["execution_count"]
            elif kind == "clear_output":
                cell.outputs.clear()
            elif kind in ("stream", "display_data", "execute_result", "error"):
                cell.outputs.append(nbformat.v4.output_from_msg(came))

    def recall(self, code):
        """Run a line in the kernel that still stands, and return what it prints."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        self.run(notebook)
        return execute.text(notebook.cells[0]).strip()


def problems(notebook):
    """Return what is wrong with a lesson that was run: cells that were not run, errors, lines on standard error."""
    found = []
    for index, cell in enumerate(notebook.cells):
        at = lesson_files.label(notebook, index)
        if cell.cell_type == "code" and cell.execution_count is None:
            found.append(f"{at} was not run")
        if "raises-exception" not in lesson_files.tags(cell):
            found += [f"{at}: {error.evalue}" for error in execute.errors(cell)]
        if stderr := execute.text(cell, "stderr"):
            found.append(f"{at} wrote to standard error: {stderr}")
    return found


UPDATE = "The teacher adds this sentence."


def update(course):
    """Change the lesson as a teacher does, during the course."""
    path = course / "notebooks" / Path(LESSON).name
    notebook = nbformat.read(path, 4)
    notebook.cells[0].source += f"\n\n{UPDATE}"
    nbformat.write(notebook, path)
    commit(course)


def state(course):
    return {path: path.stat().st_mtime_ns for path in course.rglob("*") if ".git" not in path.parts}


@pytest.mark.slow
def test_students_work_at_once_and_keep_their_work_when_the_hub_restarts(tmp_path, course, capsys):
    lesson = lesson_files.read(ROOT / "notebooks" / Path(LESSON).name)
    exercise = lesson_files.exercises(lesson)[0]
    untouched = state(course)
    with hub(tmp_path, course, MADE_UP_NAMES) as started, ThreadPoolExecutor(len(STUDENTS)) as at_once:
        students = [Student(started, name) for name in STUDENTS]
        mine = {student.name: f"{exercise.solution}\n# {student.name}, {started.room}" for student in students}
        watch = Watch(started)
        watch.start()
        began = time.monotonic()
        list(at_once.map(Student.open_course, students))
        list(at_once.map(lambda student: student.work(mine[student.name]), students))
        seconds = time.monotonic() - began
        watch.close()

        for student in students:
            saved = student.lesson()
            assert problems(saved) == []
            assert saved.cells[exercise.cell].source == mine[student.name]
            assert execute.text(saved.cells[exercise.check]).startswith("right")
            own = started.homes / student.name
            assert nbformat.read(own / LESSON, 4).cells[exercise.cell].source == mine[student.name]
            helpers = student.recall("import helpers, os; print(helpers.__file__, os.environ['ANYGPU_PROFILE'])")
            assert helpers == f"{own}/any-gpu-workshop/helpers/__init__.py preview"
            assert re.search(r'"disabledExtensions": *\[[^]]*"@jupyterlab/apputils-extension:announcements"',
                             student.ask("GET", f"{student.own}/lab").text)  # fmt: skip
        assert state(course) == untouched

        before = started.processes()
        assert sorted(before) == ["", *STUDENTS]
        assert any("jupyterhub_idle_culler" in process.cmdline() for process in before[""])
        listening = {one.laddr.ip for all_ in before.values() for process in all_
                     for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN}  # fmt: skip
        assert listening == {"127.0.0.1"}
        nobody_sees_anothers_work(students, mine)

        # The hub ends, and its proxy with it; the students' servers and kernels live on.
        started.stop()
        between = started.processes()
        assert {name: set(between[name]) for name in STUDENTS} == {name: set(before[name]) for name in STUDENTS}
        assert not between[""] and not any(answers(port) for port in started.ports)
        started.start()
        for student in students:
            assert student.lesson().cells[exercise.cell].source == mine[student.name]
            assert student.recall("print(helpers.__file__)").startswith(str(started.homes / student.name))
        nobody_sees_anothers_work(students, mine)

        # A server that is stopped leaves the student's work where it was; the next log-in finds it, and an update.
        list(at_once.map(stop_server, students))
        assert not [name for name in started.processes() if name]
        update(course)
        again = Student(started, STUDENTS[0])
        again.open_course()
        merged = again.lesson()
        assert UPDATE in merged.cells[0].source and problems(merged) == []
        assert merged.cells[exercise.cell].source == mine[again.name]
        stop_server(again)
        started.stop()
        assert not started.processes() and not any(answers(port) for port in started.ports)
        for name in STUDENTS:
            kept = nbformat.read(started.homes / name / LESSON, 4)
            assert kept.cells[exercise.cell].source == mine[name] and problems(kept) == []
    with capsys.disabled():
        print("\n" + table(students, watch, seconds))


def stop_server(student):
    address = f"{student.hub.address}/hub/api/users/{student.name}/server"
    until = time.monotonic() + LONG
    while student.ask("DELETE", address, (202, 204)).status_code == 202 or student.hub.processes()[student.name]:
        assert time.monotonic() < until
        time.sleep(0.5)


def nobody_sees_anothers_work(students, mine):
    for student, other in zip(students, students[1:] + students[:1], strict=True):
        for path in (f"api/contents/{LESSON}", f"files/{LESSON}", f"lab/tree/{LESSON}", "api/kernels"):
            came = student.browser.get(f"{other.own}/{path}", timeout=LONG)
            assert came.status_code in (403, 404) and mine[other.name] not in came.text, f"{path}: {came.status_code}"


def table(students, watch, seconds):
    """Return what was measured, and keep it."""
    peaks = [watch.peaks[student.name] for student in students]
    left = [(size, size * 1e9 - 2e9 - watch.peaks[""]) for size in (8, 16, 32, 64)]
    lines = [
        f"{date.today()}, {host.cpu_name()}, {os.cpu_count()} processors, Python {sys.version.split()[0]}: "
        f"{len(students)} students at once in lesson 01 under `preview`. The machine did other work, too.",
        "",
        "| measured | fastest or smallest student | slowest or largest |",
        "|---|---|---|",
        *(
            f"| seconds {what} | {min(of):.0f} | {max(of):.0f} |"
            for what in students[0].seconds
            for of in [[student.seconds[what] for student in students]]
        ),
        f"| seconds from the first log-in until all have saved | | {seconds:.0f} |",
        f"| MB of a student's server, kernel and their children, at the peak | {min(peaks) / 1e6:.0f} "
        f"| {max(peaks) / 1e6:.0f} |",
        f"| MB of hub, proxy and idle culler, at the peak | | {watch.peaks[''] / 1e6:.0f} |",
        f"| MB of all of it at one moment | | {watch.most / 1e6:.0f} |",
        "",
        "| memory of the machine | students in lesson 01 | students with 2 GB each |",
        "|---|---|---|",
        *(f"| {size} GB | {room // max(peaks):.0f} | {room // 2e9:.0f} |" for size, room in left),
        "",
        "In both columns 2 GB are left to the system, and what the hub itself takes.",
    ]
    files.write(TABLE, "\n".join(lines) + "\n")
    return TABLE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_made_up_names_are_refused(tmp_path, course):
    with hub(tmp_path, course) as started:
        page = Student(started, STUDENTS[0]).log_in()
        assert page.status_code == 403 and "DummyAuthenticator is refused" in page.text
        assert sorted(started.processes()) == [""] and not list(started.homes.iterdir())


@pytest.mark.slow
def test_who_is_not_named_gets_no_server(tmp_path, course):
    with hub(tmp_path, course, MADE_UP_NAMES) as started:
        page = Student(started, "stranger").log_in()
        assert page.status_code == 403 and sorted(started.processes()) == [""]
