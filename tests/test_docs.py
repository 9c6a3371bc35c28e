"""The pages under docs/, the README and the lessons as they stand: links, commands, blocks that can be copied."""

import argparse
import ast
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

import workshop
from helpers import ROOT, commands, doctor
from helpers.commands import lesson_files
from helpers.compute import frameworks
from helpers.compute.device import preference
from helpers.doctor import amd
from helpers.errors import WorkshopError
from helpers.maintain import docs, on_gpu, rules

PAGES = docs.pages()
OTHERS = (
    "platforms.md",
    "failures.md",
    "scaling.md",
    "ranking.md",
    "teaching.md",
    "verified.md",
)  # pages that are about no platform
PLATFORMS = [page for page in PAGES if page.name not in OTHERS]
FILES = docs.every_file()
OWN_PAGES = [ROOT / "README.md", *PAGES]
SECTIONS = ["What works today", "Install", "Verify", "Known failures", "Sources"]
NOT_RUN = re.compile(r"not run here|never run", re.IGNORECASE)
FAILURES = ROOT / "docs" / "failures.md"
SHELLS = ("sh", "powershell", "console", "bash")


def id_of(path):
    return path.name


@functools.cache
def read(path):
    return path.read_text(encoding="utf-8")


def blocks(path):
    """Return (language, code, whether the paragraph above says that it is not run here) of each block of a page."""
    found, before = [], ""
    for token in docs.tokens(read(path)):
        if token["type"] == "block_code":
            language = (token.get("attrs") or {}).get("info", "")
            found.append((language, token["raw"], bool(NOT_RUN.search(before))))
        elif token["type"] in ("paragraph", "block_text", "heading"):
            before = docs.text_of(token)
    return found


# ------------------------------------------------------------------------------------------------------ the lessons


@pytest.mark.parametrize("lesson", lesson_files.every(), ids=id_of)
def test_every_lesson_as_it_stands_passes_the_format_check(lesson):
    assert [str(problem) for problem in rules.problems(lesson) if problem.serious] == []


# -------------------------------------------------------------------------------------------------------- the links


@pytest.mark.parametrize("path", FILES, ids=id_of)
def test_every_link_inside_leads_somewhere(path):
    assert docs.broken(path) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n## A `b` (c)?\n\n## One\n\n[1](#one) [2](#one-1) [3](#a-b-c) [4](other.md) [5](other.md#here)\n\n"
        "```sh\n[no](link.md)\n```\n\n| [6](gone.md) |\n|---|\n| [7](#gone) |\n\n<a href='away.md'>8</a>\n",
        encoding="utf-8",
    )
    (tmp_path / "other.md").write_text("<a id='here'></a>\n", encoding="utf-8")
    wrong = docs.broken(page)
    assert [re.search(r"to (\S+),", one)[1] for one in wrong] == ["gone.md", "#gone", "away.md"]


def test_outside_links_are_addresses_of_pages():
    found = docs.outside()
    assert len(found) > 40
    assert [url for url in found if not re.fullmatch(r"https://[\w.-]+\.[a-z]+(/[^\s<>]*)?", url)] == []


def test_an_outside_link_is_asked_for(httpserver):
    httpserver.expect_request("/there").respond_with_data("page")
    httpserver.expect_request("/gone").respond_with_data("", status=404)
    httpserver.expect_request("/closed").respond_with_data("", status=403)
    httpserver.expect_request("/no-head", method="HEAD").respond_with_data("", status=405)
    httpserver.expect_request("/no-head", method="GET").respond_with_data("page")
    httpserver.expect_request("/moved").respond_with_data("", status=301, headers={"Location": "/there"})
    said = {
        place: docs.ask(httpserver.url_for(place), 10) for place in ("/there", "/gone", "/closed", "/no-head", "/moved")
    }
    assert said["/there"] == said["/no-head"] == said["/moved"] == ""
    assert said["/gone"].startswith("gone") and said["/closed"].startswith("unclear")


def test_without_a_network_the_links_are_not_called_dead():
    with pytest.raises(WorkshopError, match="None of the outside links"):
        docs.ask_all({"http://127.0.0.1:9/": ["page.md"]})


# ------------------------------------------------------------------------------------------------- the pages' form


@pytest.mark.parametrize("page", PLATFORMS, ids=id_of)
def test_a_page_has_its_parts_and_is_short(page):
    headings = re.findall(r"^## (.*)$", read(page), re.MULTILINE)
    assert [section for section in SECTIONS if section in headings] == SECTIONS
    assert re.search(r"\*\*(Verified on|Never run)", read(page)), "say whether it was verified on hardware"
    assert len(docs.BLOCK.sub("", read(page)).splitlines()) <= 120
    assert read(page).count("<!-- findings -->\n") == read(page).count("<!-- end of findings -->\n") == 1


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_the_doctors_findings_on_a_page_are_those_of_the_doctor(page):
    assert docs.with_findings(page, read(page)) == read(page), "python -m helpers docs brings it up to date"


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_the_table_of_lessons_on_a_page_is_the_one_of_the_code(page):
    assert docs.with_lessons(page, read(page)) == read(page), "python -m helpers docs brings it up to date"
    wanted = page.stem in {on_gpu.EVERY_ROW, *(row.page for row in on_gpu.ROWS)}
    assert bool(docs.LESSONS.search(read(page))) == wanted


def code_of(number):
    (path,) = (ROOT / "notebooks").glob(f"{number}-*.ipynb")
    return "\n".join(cell.source for cell in lesson_files.read(path).cells if cell.cell_type == "code")


def test_the_table_says_what_the_lessons_do():
    codes = {number: code_of(number) for number in ("06", "08", "10", "11")}
    ours = {way: [number for number in numbers if number <= "14"] for way, numbers in on_gpu.lessons().items()}
    assert ours == {
        "OpenCL": ["01", "02", "03", "12"], "WebGPU": ["14"], "Keras": ["04", "05"], "TensorFlow": ["07", "08"],
    }  # fmt: skip
    assert 'os.environ["KERAS_BACKEND"] = "tensorflow"' in codes["08"] and "CUT_ONE_GPU" in codes["08"]
    assert "take_device_of_lesson_01()" in codes["06"]  # tinygrad
    assert 'compile_model(file, "CPU"' in codes["10"] and '"CoreML"' in codes["10"]
    assert "bench.measure" in codes["11"] and "11 measures each framework" in " ".join(on_gpu.NOTE.split())
    assert on_gpu.head()[1].startswith("OpenCL: 01, 02, 03, 12") and len(on_gpu.head()) == len(on_gpu.Row._fields) - 1


@pytest.mark.parametrize("page", OWN_PAGES, ids=id_of)
def test_no_page_lists_the_lessons_on_opencl_by_hand(page):
    """A new lesson would make it old; teaching.md's ways through the lessons are chosen, the simulator's were run."""
    lines = docs.LESSONS.sub("", read(page)).splitlines()
    lists = [line for line in lines if re.search(r"\b01(, 02| to 0[23])", line)]
    assert [line for line in lists if not line.startswith("| kernels |") and "Oclgrind" not in line] == []


@pytest.mark.parametrize("lesson", lesson_files.every(), ids=id_of)
def test_readme_has_a_lessons_title_and_minutes(lesson):
    title, _, minutes = docs.HEAD.match(lesson_files.read(lesson).cells[0].source).groups()
    rows = [row for row in docs.ROW.findall(read(ROOT / "README.md")) if row == lesson.name[:2]]
    row = rf"\| {lesson.name[:2]} \| \[{re.escape(title)}\]\(notebooks/{lesson.name}\) \|.*\| {minutes} \|"
    draft = rules.author_notes(lesson_files.read(lesson))
    assert (draft and not rows) or re.search(row, read(ROOT / "README.md")), "mend its row in README's table of lessons"


def test_a_new_lessons_row_stands_at_its_place_and_others_stay_as_they_are():
    text = read(ROOT / "README.md")
    (row,) = re.findall(r"^\| 04 \| .*\n", text, re.MULTILINE)
    made = docs.with_rows(text.replace(row, ""))
    assert docs.with_rows(text) == text == docs.with_rows(text.replace(row, row + row.replace("| 04 |", "| 98 |")))
    assert made.replace("your first network, judge", "a network, judge") == text


@pytest.mark.parametrize(("page", "others"), [
    ("amd-windows", "NVIDIA|GeForce|Tesla|Arc|Apple"), ("apple", "NVIDIA|GeForce|Tesla|Radeon|Arc"),
    ("intel", "NVIDIA|GeForce|Tesla|Radeon|Apple"), ("nvidia", "Radeon|Arc|Apple"),
])  # fmt: skip
def test_the_titles_of_failures_show_the_pages_own_maker(page, others):
    shown = docs.BLOCK.search(read(ROOT / "docs" / f"{page}.md"))[0]
    assert re.findall(rf"^.*(?:{others}|CUDA_ERROR_UNKNOWN|libcudnn\.so\.9: cannot).*$", shown, re.MULTILINE) == (
        [] if page != "nvidia" else re.findall(r"^.*(?:CUDA_ERROR_UNKNOWN|libcudnn).*$", shown, re.MULTILINE)[:2]
    )


@pytest.mark.parametrize("failure", [
    "opencl-gpu-missing", "opencl-no-device", "packages-import-fails", "webgpu-no-adapter",
    "webgpu-no-such-adapter", "devices-late", "webgpu-does-not-compute",
])  # fmt: skip
def test_a_failure_that_every_system_has_says_what_to_do_on_each(failure):
    text = docs.entry(doctor.KNOWN[failure])
    assert re.search(r"Next, [^*]*Windows", text) and re.search(r"Next, [^*]*macOS", text)


@pytest.mark.parametrize("failure", ["devices-fails", "devices-no-amd-code"])
def test_on_windows_a_failing_pytorch_leads_back_to_tensorflow_on_the_processor(failure):
    text = docs.entry(doctor.KNOWN[failure])
    (part,) = re.findall(r"\*\*Next, Windows:\*\*\n(.*?)(?=\n\*\*Next|\nPages:)", text, re.DOTALL)
    assert '$env:KERAS_BACKEND = "tensorflow"' in part and "CUDA_VISIBLE_DEVICES" not in part and '"jax"' not in part


def test_what_is_typed_on_windows_is_typed_in_powershell():
    for language, code, _ in blocks(FAILURES):
        if language == "powershell":
            assert not re.search(r"^(unset|export|python3|sudo|rm) ", code, re.MULTILINE), code


def test_what_is_typed_on_a_mac_is_there():
    parts = re.findall(r"\*\*Next, [^*]*macOS[^*]*:\*\*\n(.*?)(?=\n\*\*Next|\nPages:)", read(FAILURES), re.DOTALL)
    assert len(parts) > 6 and not [part for part in parts if re.search(r"sudo|apt |rocminfo|HSA_", part)]


def test_in_wsl_a_variable_is_set_as_on_linux():
    assert "```sh\nexport HSA_ENABLE_DXG_DETECTION=1\n```" in docs.entry(doctor.KNOWN["amd-wsl"])


def test_the_table_of_names_of_radeon_cards_is_the_doctors():
    rows = re.findall(r"^\| \**(RX [^|]*) \| (`gfx[^|]*) \|$", read(ROOT / "docs" / "amd-linux.md"), re.MULTILINE)
    shown = {}
    for cards, names in rows:
        pairs = zip(
            cards.split("; "), re.findall(r"gfx\w+", names), strict=False
        )  # behind a ; also cards that are no RX
        shown |= {name: set(re.findall(r"\b\d{4}\b", group)) for group, name in pairs}
    assert shown == {target: set(numbers.split()) for target, numbers in amd.BY_NUMBER.items()}


def test_every_page_that_a_failure_names_is_there():
    there = {page.stem for page in PAGES}
    assert {name for failure in docs.failures() for name in failure.pages} - there == set()


def test_the_readme_and_the_table_lead_to_every_page():
    for start in (ROOT / "README.md", ROOT / "docs" / "platforms.md"):
        linked = {Path(target.partition("#")[0]).name for target in docs.links(read(start))}
        missing = {page.name for page in PLATFORMS} - linked
        assert missing == set(), f"{start.name} has no link to them"


def rows_of_the_table():
    first, _, _ = read(ROOT / "docs" / "platforms.md").partition("\n## ")
    lines = [line for line in first.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_says_what_the_set_up_does():
    assert len(rows_of_the_table()) > 12
    for _, _, _, call, _, python, packages, download in rows_of_the_table():
        family = packages.strip("`")
        if family in workshop.FAMILIES:
            newest = f"3.{workshop.FAMILIES[family].newest[1]}"
            assert download == workshop.FAMILIES[family].download
            assert python == "3.12" or (python.startswith("3.11 ") and python.endswith(newest))
            assert f"--accel {family}" in call if family in ("cuda", "metal") else "--accel" not in call
    assert {row[6].strip("`") for row in rows_of_the_table()} >= set(workshop.FAMILIES)


@pytest.mark.parametrize(
    ("system", "gpu", "page"),
    [("Windows", "RX 6600 XT", "amd-windows.md"), ("macOS", "Intel", "apple.md#intel-mac"),
     ("Linux", "RX 6600 XT", "amd-linux.md"), ("Windows", "NVIDIA", "nvidia.md#windows")],
)  # fmt: skip
def test_a_learner_finds_one_row(system, gpu, page):
    found = [row[2] for row in rows_of_the_table() if row[0] == system and gpu in row[1]]
    assert len(found) == 1 and page in found[0]


def test_of_a_macs_two_gpus_the_card_is_taken_as_its_page_says():
    """What clinfo tells of a MacBook Pro with a Radeon Pro 560X: https://github.com/xmrig/xmrig/issues/1394."""
    import pyopencl as cl

    def listed(name, kind, gib, shares_memory):
        told = {"name": name, "type": kind, "global_mem_size": gib * 2**30, "host_unified_memory": shares_memory}
        platform = types.SimpleNamespace(version="OpenCL 1.2 (Aug 30 2020 23:06:50)")
        return frameworks.describe_opencl(types.SimpleNamespace(platform=platform, vendor="", **told))

    cpu = listed("Intel(R) Core(TM) i7-8750H CPU @ 2.20GHz", cl.device_type.CPU, 16, True)
    intel = listed("Intel(R) UHD Graphics 630", cl.device_type.GPU, 1.5, True)
    radeon = listed("AMD Radeon Pro 560X Compute Engine", cl.device_type.GPU, 4, False)
    assert min([cpu, intel, radeon], key=preference) == radeon
    assert "the Radeon is taken without a variable" in read(ROOT / "docs" / "apple.md")


# --------------------------------------------------------------------------------- commands: do they exist, do they run


def typed(text):
    """Return the arguments of each call of the workshop in a text: after `workshop.py` or `-m helpers`."""
    calls = re.findall(r"(?:(?:python3?|py) workshop\.py|-m helpers)[ \t]+([^`\n#|)(;]*)", text)
    return [shlex.split(call) for call in calls if call.strip()]


def check_call(arguments):
    """Let the real parsers read the arguments of a call of the workshop."""
    own = workshop.own_options()
    own.exit_on_error = False
    _, rest = own.parse_known_args(arguments)
    if not rest or rest[0] in ("-h", "--help", "COMMAND"):
        return
    assert rest[0] in commands.COMMANDS, f"there is no command {rest[0]}"
    module = commands.load(rest[0])
    parser = argparse.ArgumentParser(allow_abbrev=False)
    module.add_arguments(parser)
    _, unknown = parser.parse_known_args(rest[1:])
    assert getattr(module, "PASSES_ON", False) or unknown == [], f"{rest[0]} does not take {unknown}"


@pytest.mark.parametrize("page", OWN_PAGES, ids=id_of)
def test_every_command_and_option_that_a_page_names_exists(page):
    for arguments in typed(read(page)):
        words = [word.replace("COMMAND", "doctor").replace("NN", "01") for word in arguments]
        words = [word for word in words if not word.startswith("[")]
        try:
            check_call([word.strip(",.:") for word in words if re.match(r"[\w./-]", word)])
        except SystemExit:
            pytest.fail(f"{page.name}: workshop.py {' '.join(arguments)} is not understood")


def ran(line):
    """Run a line of a shell block as far as a test can; return what came, None if it is none that a test can run."""
    words = shlex.split(line)
    changes = dict(words.pop(0).split("=", 1) for _ in list(words) if re.match(r"[A-Z_]+=", words[0]))
    program, *arguments = words
    if program in ("python3", "py") and arguments[:1] == ["workshop.py"]:
        check_call(arguments[1:])
        if arguments[-2:] == ["--accel", "rocm"]:
            command = [sys.executable, *arguments]  # it prints the commands, and installs nothing
        elif arguments[1] in ("doctor", "devices") and len(arguments) == 2:
            command = [sys.executable, "-m", "helpers", arguments[1]]
        else:
            command = [sys.executable, "-m", "helpers", arguments[1], "--help"]
    elif program == ".venv/bin/python" and arguments[0] == "-c":
        command = [sys.executable, *arguments]
    else:
        return None
    return once(tuple(command), tuple(changes.items()))


@functools.cache
def once(command, changes):
    variables = {**os.environ, "ANYGPU_PROFILE": "preview", **dict(changes)}
    return subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pages say that a test ran them on Linux")
@pytest.mark.parametrize("page", [*PLATFORMS, ROOT / "docs" / "platforms.md"], ids=id_of)
def test_every_block_is_run_or_says_that_it_was_not(page):
    for language, code, not_run in blocks(page):
        assert language, f"name the language of the block that begins with {code.splitlines()[0]!r}"
        if not_run or language not in SHELLS:
            assert not_run or language in ("text", "python"), f"{page.name}: {code}"
            continue
        for line in code.strip().splitlines():
            done = ran(line)
            assert done is not None, f"{page.name}: {line!r} is neither run by this test nor marked as not run here"
            good = (0, 2) if "rocm" in line else (0,)
            assert done.returncode in good and "Traceback" not in done.stderr, f"{line}: {done.stdout}{done.stderr}"


def test_the_page_shows_the_commands_that_the_workshop_prints_for_rocm():
    page = read(ROOT / "docs" / "amd-linux.md")
    first, _, _ = workshop.ROCM.partition("TensorFlow for")
    for line in re.findall(r"^  (\S.*)$", first, re.MULTILINE):
        assert line.replace("gfx1201", "gfx1032") in page, line
    versions = re.search(r"\"(tensorflow-rocm==(2\.\d+)\S*)\"", workshop.ROCM)
    assert f"TensorFlow {versions[2]}" in page


def test_the_pages_for_windows_type_what_the_doctor_says():
    advice = doctor.KNOWN["windows-tensorflow"].shown(docs.WINDOWS).next
    said = [line.strip() for line in advice.splitlines() if "whl" in line]
    assert len(said) == 3
    for line, page in zip(said, ("nvidia.md", "amd-windows.md", "intel.md"), strict=True):
        assert line in read(ROOT / "docs" / page), f"{page} types something else than the doctor: {line}"


def test_versions_of_our_packages_are_those_of_the_locks():
    def pinned(lock, package):
        return set(re.findall(rf"^{package}==([\d.]+)", read(ROOT / "requirements" / lock), re.MULTILINE))

    assert pinned("cpu.txt", "tensorflow") == {"2.21.0"} and "TensorFlow 2.21" in read(ROOT / "docs" / "cpu.md")
    assert pinned("cpu.txt", "keras") == {"3.15.1"} and "Keras 3.15" in read(ROOT / "docs" / "cpu.md")
    assert pinned("cuda.txt", "tensorflow") == {"2.21.0"} and "TensorFlow 2.21" in read(ROOT / "docs" / "nvidia.md")
    apple = read(ROOT / "docs" / "apple.md")
    assert pinned("metal.txt", "tensorflow-metal") == {"1.2.0"} and "tensorflow-metal 1.2.0" in apple
    assert pinned("metal.txt", "tensorflow") == {"2.19.1"} and "2.19 with our packages" in apple
    assert pinned("intel-mac.txt", "tensorflow") == {"2.16.2"} and pinned("intel-mac.txt", "jax") == {"0.4.34"}
    assert "2.16.2, the last one" in apple and "CPU, 0.4.34" in apple
    assert pinned("cpu.txt", "onnxruntime") == {"1.31.1"} and "1.31.1" in read(ROOT / "docs" / "directml.md")


def test_what_apples_page_says_of_intel_macs_is_what_the_locks_say():
    apple = read(ROOT / "docs" / "apple.md")
    for lock in ("tinygrad", "openvino"):
        pins = re.findall(r"^[a-z-]+==.*;(.*)$", read(ROOT / "requirements" / f"{lock}.txt"), re.MULTILINE)
        assert pins and all("x86_64" not in pin and "darwin' and" not in pin for pin in pins), "Intel Macs get it"
    assert "`--with tinygrad` and `--with openvino` add nothing here" in apple
    torch = re.search(r"\"torch==([\d.]+); sys_platform == 'darwin' and", read(ROOT / "pyproject.toml"))
    assert f"PyTorch {torch[1]}, the last one" in apple
    assert workshop.FAMILIES["intel-mac"].newest == workshop.FAMILIES["metal"].newest == (3, 12)


# ----------------------------------------------------------------------------------------------- Colab's first cell

FIRST_CELL = next(code for language, code, _ in blocks(ROOT / "docs" / "hosted.md") if language == "python")
STUB = """
import numpy
class Array:
    def __init__(self, a): self.a = a
    def __matmul__(self, other): return Array(self.a @ other + {error})
    def __array__(self, *_, **__): return self.a
    def devices(self): return ["{device}"]
class numpy_like:
    asarray = Array
numpy = numpy_like
"""


def tool(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def run_cell(tmp_path, name, value, device="TFRT_CPU_0", error="0", smi="exit 9"):
    """Run the cell as a service would: in a folder that git fills, with fake frameworks, tools and variables."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "jax.py").write_text(STUB.format(device=device, error=error), encoding="utf-8")
    for other in ("tensorflow", "torch"):
        (tmp_path / "modules" / f"{other}.py").write_text("raise RuntimeError('no kernel image')", encoding="utf-8")
    tools = tmp_path / "tools"
    tools.mkdir()
    fill = 'mkdir -p "$folder/notebooks"; touch "$folder/workshop.py"'
    tool(tools, "git", f'for folder; do :; done; {fill}; ln -s "{ROOT}/helpers" "$folder"')
    tool(tools, "nvidia-smi", smi)
    (tmp_path / "content").mkdir()
    variables = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path / "modules"),
        "HOME": os.environ.get("HOME", str(tmp_path)),
        name: value,
    }
    after = "\nimport helpers\nprint(os.getcwd(), helpers.__file__, os.environ.get('KERAS_BACKEND'))"
    return subprocess.run(
        [sys.executable, "-c", FIRST_CELL + after],
        cwd=tmp_path / "content", env=variables, capture_output=True, text=True, timeout=300, check=True,
    ).stdout  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="Colab and Kaggle run on Linux")
@pytest.mark.parametrize(
    ("name", "value", "given", "expected"),
    [
        ("COLAB_RELEASE_TAG", "release-colab", {}, "no GPU here.*Runtime, Change runtime type"),
        ("KAGGLE_KERNEL_RUN_TYPE", "Interactive", {}, "no GPU here.*Settings, Accelerator"),
        ("COLAB_RELEASE_TAG", "x", {"device": "cuda:0", "smi": "echo 'GPU 0: Tesla T4'"},
         "GPU computes, with JAX.*Tesla T4"),
        ("KAGGLE_KERNEL_RUN_TYPE", "Batch", {"device": "cuda:0", "error": "1", "smi": "echo 'GPU 0: Tesla P100'"},
         "nothing computes on it.*Settings"),
    ],
)  # fmt: skip
def test_the_first_cell_gives_a_verdict(tmp_path, name, value, given, expected):
    said = run_cell(tmp_path, name, value, **given)
    assert re.search(f"VERDICT: .*{expected}", said), said
    assert said.count("VERDICT") == 1 and "PyTorch: failed: RuntimeError: no kernel image" in said
    assert ("JAX: " + ("TFRT_CPU_0 right" if not given else "cuda:0 ")) in said
    place, found, backend = said.splitlines()[-1].split()
    assert place == str(tmp_path / "content" / "any-gpu-workshop" / "notebooks")
    assert Path(found).resolve() == ROOT / "helpers" / "__init__.py"
    assert backend == ("jax" if "computes, with" in said else "None")


def test_the_first_cell_proves_the_real_frameworks():
    """The three small programs themselves, on whatever is installed here."""
    start = FIRST_CELL[: FIRST_CELL.index("good = []")]
    start = start[start.index("proofs = {") :]
    names = {"os": os}
    exec(compile(start, "cell", "exec"), names)
    for framework, module in (("TensorFlow", "tensorflow"), ("JAX", "jax"), ("PyTorch", "torch")):
        if not importlib.util.find_spec(module):
            continue
        code = names["start"] + names["proofs"][framework] + names["end"]
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
        assert re.search(r"^PROOF \S*cpu\S* right$", done.stdout, re.IGNORECASE | re.MULTILINE), done.stderr


def test_the_first_cell_installs_what_the_lessons_import():
    given = set(ast.literal_eval(re.search(r"^modules = (\{.*?\})$", FIRST_CELL, re.MULTILINE)[1]))
    given |= set(ast.literal_eval(re.search(r"for name in (\(.*?\))", FIRST_CELL)[1]))
    theirs = {"jupyterlab", "ipykernel", "nbclient", "nbconvert", "nbformat", "numpy", "matplotlib", "keras", "jax"}
    theirs |= {"tqdm", "scikit-learn", "packaging"}  # Colab's image has them
    project = read(ROOT / "pyproject.toml")
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)[1]
    needed = set(re.findall(r"^ +\"([a-z0-9-]+)", listed, re.MULTILINE))
    names = {"pocl-binary-distribution": "pyopencl", "libclang": "clang"}
    assert {names.get(one, one) for one in needed - theirs} - given == set()


# ------------------------------------------------------------------------------------------------------- the containers

COMPOSE = ROOT / "compose.yaml"


def test_compose_has_a_profile_for_each_kind_and_keeps_the_work():
    services = yaml.safe_load(read(COMPOSE))["services"]
    assert set(services) == {"cpu", "nvidia", "amd"}
    for name, service in services.items():
        assert service["profiles"] == [name]
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert {volume.split(":")[0] for volume in service["volumes"]} == {"notebooks", "data"}
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), "from this computer only"
        assert "no-new-privileges:true" in service["security_opt"] and "privileged" not in service
    assert services["amd"]["devices"] == ["/dev/kfd", "/dev/dri"] and len(services["amd"]["group_add"]) == 2
    (gpu,) = services["nvidia"]["deploy"]["resources"]["reservations"]["devices"]
    assert gpu == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    for name, backend in (("cpu", workshop.FAMILIES["cpu"].backend), ("nvidia", workshop.FAMILIES["cuda"].backend)):
        assert services[name]["environment"]["KERAS_BACKEND"] == backend


@pytest.mark.skipif(os.name != "posix", reason="the images are for Linux")
@pytest.mark.parametrize("name", ["Dockerfile", "amd.Dockerfile"])
def test_an_image_runs_as_a_learner_and_not_as_root(name):
    text = read(ROOT / "docker" / name)
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE)[-1] == "learner"
    assert 'CMD ["docker/start"]' in text and os.access(ROOT / "docker" / "start", os.X_OK)
    assert subprocess.run(["bash", "-n", ROOT / "docker" / "start"], check=False).returncode == 0


def test_the_page_explains_every_flag_of_the_article():
    page = read(ROOT / "docs" / "docker.md")
    for flag in (
        "--device=/dev/kfd",
        "--device=/dev/dri",
        "--group-add",
        "seccomp=unconfined",
        "SYS_PTRACE",
        "--ipc=host",
        "--network=host",
    ):
        assert f"| `{flag}" in page or flag in page, flag


@pytest.mark.skipif(not shutil.which("docker-compose"), reason="no docker-compose here")
@pytest.mark.parametrize("profile", ["cpu", "nvidia", "amd"])
def test_compose_itself_understands_the_file(profile):
    command = ["docker-compose", "--profile", profile, "config"]
    environment = {**os.environ, "RENDER_GID": "992", "VIDEO_GID": "44"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and yaml.safe_load(done.stdout)["services"]["amd"]["group_add"] == ["44", "992"]
