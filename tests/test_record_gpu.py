"""helpers.commands.record_gpu: each part in a process of its own that ends, each number kept, each reason said."""

import os
import subprocess
import sys
import time

import sample_lesson

from helpers import ROOT
from helpers.commands import record_gpu
from helpers.measure import records, workload


def test_a_statement_that_fails_stops_no_other(tmp_path, monkeypatch, capsys):
    (tmp_path / "notebooks").mkdir()
    cells = [
        sample_lesson.code("before = 1\nimport a_missing_module\nafter = 2"),
        sample_lesson.code("left_out = 3", "exercise"),
        sample_lesson.code("third = before + after"),
    ]
    sample_lesson.save(tmp_path / "notebooks", sample_lesson.notebook(cells))
    monkeypatch.setattr(record_gpu, "ROOT", tmp_path)
    names = record_gpu.execute_cells("01")
    assert names["third"] == 3 and "left_out" not in names
    printed = capsys.readouterr().out
    assert "cell-0, not executed: import a_missing_module" in printed and "ModuleNotFoundError" in printed
    assert "third" not in record_gpu.execute_cells("01", only=("cell-0",))


def test_numbers_are_kept_and_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(record_gpu.PARTS, "WebGPU", record_gpu.PARTS["WebGPU"].__class__(print, 9, "14b", ("nothing",)))
    assert record_gpu.record("mine", tmp_path, 200, "preview", ["atomics", "WebGPU"]) == 0
    printed = capsys.readouterr().out
    assert "skipped: nothing not installed" in printed and "3 numbers in" in printed
    kept = records.read(tmp_path / "mine.json")
    assert [label for _, label in kept.notes] == ["kept by +=", "kept by a gap", "kept by atomic_add"]
    right = kept.notes["12", "kept by atomic_add"]
    assert (right.value, right.unit, right.runs, right.profile) == (64_000, "additions", 10, "preview")
    assert right.edition == records.hash_lesson("12") and kept.machine.device


def test_a_part_whose_seconds_are_over_is_ended_and_so_is_the_whole(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record_gpu, "MACHINE_SECONDS", 0.01)  # no device is found in that time: nvidia-smi is asked
    begin = time.monotonic()
    assert record_gpu.record("mine", tmp_path, 7, "preview", ["providers", "peak"]) == 1
    assert time.monotonic() - begin < 30
    printed = capsys.readouterr().out
    assert "ended after" in printed and "skipped: no time left" in printed and "0 numbers in" in printed


def test_a_part_that_fails_says_how(tmp_path):
    log = tmp_path / "log"
    outcome = record_gpu.run_part("peak", 60, tmp_path, log, "no such profile")  # a folder for its notes
    assert outcome.startswith("failed: ") and "Error" in outcome


def test_all_parts_fit_into_eight_minutes_or_are_cut_by_them():
    bounds = [part.seconds for part in record_gpu.PARTS.values()]
    assert record_gpu.TOTAL_SECONDS <= 480 and max(bounds) <= 90


def test_it_runs_without_what_the_course_installs(tmp_path):
    missing = [
        "psutil",
        "tabulate",
        "IPython",
        "matplotlib",
        "threadpoolctl",
        "clang",
        "nbformat",
        "jupyter_client",
        "tqdm",
        "pooch",
    ]
    code = f"""
import sys
sys.modules |= dict.fromkeys({missing!r})
from helpers.commands import record_gpu
record_gpu.find_machine()
record_gpu.record_atomics()
"""
    file = tmp_path / "noted"
    environment = {**os.environ, records.RECORD: str(file), workload.VARIABLE: "preview"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
    machine, *notes = file.read_text().splitlines()
    assert machine.startswith('{"device"') and len(notes) == 2  # the first note follows the machine on its line
