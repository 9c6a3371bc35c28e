"""helpers.commands.record_gpu: each part in a process of its own that ends, each number kept, each reason said."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import sample_lesson

from helpers import ROOT
from helpers.commands import gpu_cells, record_gpu
from helpers.devices import clblast, opencl
from helpers.lessons import lesson_02b_gpu
from helpers.measure import limits, records, workload


def test_a_statement_that_fails_stops_no_other(tmp_path, monkeypatch, capsys):
    (tmp_path / "notebooks").mkdir()
    cells = [
        sample_lesson.code("before = 1\nimport a_missing_module\nafter = 2"),
        sample_lesson.code("left_out = 3", "exercise"),
        sample_lesson.code("third = before + after"),
    ]
    sample_lesson.save(tmp_path / "notebooks", sample_lesson.notebook(cells))
    monkeypatch.setattr(gpu_cells, "ROOT", tmp_path)
    names = gpu_cells.execute_cells("01")
    assert names["third"] == 3 and "left_out" not in names
    printed = capsys.readouterr().out
    assert "cell-0, not executed: import a_missing_module" in printed and "ModuleNotFoundError" in printed
    assert "third" not in gpu_cells.execute_cells("01", only=("cell-0",))


def test_numbers_are_kept_and_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(record_gpu.PARTS, "WebGPU", record_gpu.PARTS["WebGPU"].__class__(print, 9, "14b", ("nothing",)))
    assert record_gpu.record("mine", tmp_path, 200, "preview", ["atomics", "WebGPU"]) == 0
    printed = capsys.readouterr().out
    assert "skipped: nothing not installed" in printed and "3 numbers in" in printed
    kept = records.read(tmp_path / "mine.json")
    assert [label for _, label in kept.notes] == [
        "kept by +=",
        "kept by a gap",
        "kept by atomic_add",
    ]
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


H100 = "NVIDIA H100 80GB HBM3 (NVIDIA CUDA, OpenCL, GPU)"


def note(label, value, unit="GFLOP/s", device="a GPU", lesson="02"):
    return records.Note(label, value, unit, device, lesson=lesson)


@pytest.mark.parametrize(
    ("notes", "refused"),
    [
        ([note("peak", 100), note("tiled", 105), note("naive", 9)], []),
        ([note("peak", 100), note("tiled", 120), note("naive", 9)], ["tiled"]),
        ([note("peak", 50), note("peak, 16 work-items", 100), note("tiled", 105)], []),
        ([note("tiled", 120)], []),  # nothing to compare it with
        ([note("peak", 100), note("NumPy", 500, device="a processor")], []),
        ([note("peak", 100), note("tiled", 120, "s"), note("copy", 500, "GB/s")], []),
        ([note("bandwidth", 100, "GB/s"), note("copy", 120, "GB/s", lesson="01b")], ["copy"]),
        # Of these GPUs a data sheet says what they can reach: 67,000 GFLOP/s and 3,350 GB/s.
        ([note("peak", 60_000, device=H100), note("tiled", 70_000, device=H100)], ["tiled"]),
        ([note("peak", 15_700, device=H100), note("cuBLAS", 45_000, device=H100)], ["peak"]),
        ([note("tiled", 70_000, device=H100)], ["tiled"]),
        ([note("peak", 15_700, device=H100), note("tiled", 70_000, device=H100)], ["tiled"]),
        ([note("bandwidth", 2_600, "GB/s", H100), note("copy", 4_000, "GB/s", H100)], ["copy"]),
    ],
)
def test_what_no_measurement_can_reach_is_refused(notes, refused):
    reasons = limits.find_impossible(notes)
    assert [label for _, label in reasons] == refused and all(reasons.values())


def test_what_is_refused_is_kept_out_of_the_record(tmp_path):
    path, here = tmp_path / "mine.json", records.Machine("a GPU", "gpu", "1", "Linux", {})
    peak, naive, tiled = (
        replace(each, date="2026-11-27") for each in (note("peak", 100), note("naive", 9), note("tiled", 120))
    )
    recording = record_gpu.Recording(path, here)
    recording.add([peak, naive])
    assert not recording.refused and recording.count() == 2
    recording.add([tiled])
    assert list(recording.refused) == [("02", "tiled")] and recording.count() == 2
    assert [label for _, label in records.read(path).notes] == ["peak", "naive"]
    recording.add([replace(peak, value=130)])  # measured at a better moment
    assert not recording.refused and recording.count() == 3
    recording.add([replace(peak, value=90)])
    assert records.read(path).notes["02", "peak"].value == 130
    later = record_gpu.Recording(path, here)
    later.add([replace(peak, value=125)])
    assert later.count() == 1 and [note.value for note in records.read(path).notes.values()] == [125, 9, 120]


def test_a_limit_is_measured_again_before_a_number_is_refused(tmp_path, monkeypatch, capsys):
    peaks = iter((100, 130))

    def run_part(title, _seconds, notes, _log, _profile):
        if title == "machine":
            return "not found"
        value = next(peaks) if title == "peak" else 120
        monkeypatch.setenv(records.RECORD, str(notes))
        records.add_note(records.Note(title, value, "GFLOP/s", "a device"))
        return record_gpu.DONE

    monkeypatch.setattr(record_gpu, "run_part", run_part)
    assert record_gpu.record("mine", tmp_path, 100, "preview", ["peak", "product"]) == 0
    assert [note.value for note in records.read(tmp_path / "mine.json").notes.values()] == [130, 120]
    peaks = iter((100, 105))
    assert record_gpu.record("other", tmp_path, 100, "preview", ["peak", "product"]) == 0
    assert [note.value for note in records.read(tmp_path / "other.json").notes.values()] == [105]
    assert "refused: lesson 02, product: 120 GFLOP/s is more than" in capsys.readouterr().out


@pytest.mark.slow  # eight shapes are compiled, and CLBlast
def test_the_product_for_a_gpu_is_noted_in_each_shape_and_its_best_again(tmp_path):
    assert record_gpu.record("mine", tmp_path, 200, "preview", ["GPU product"]) == 0
    notes = records.read(tmp_path / "mine.json").notes
    device = opencl.pick_device()
    for shape in lesson_02b_gpu.list_shapes(device):
        kept = notes["02b", f"{shape}, 128 x 128"]
        assert (kept.unit, kept.amount, kept.runs) == ("GFLOP/s", "128 x 128, 16 products a run", 13)
    assert (("02b", "CLBlast, 128 x 128") in notes) == (clblast.load_library() is not None)


def test_all_parts_fit_into_ten_minutes_or_are_cut_by_them():
    bounds = [part.seconds for part in record_gpu.PARTS.values()]
    assert record_gpu.TOTAL_SECONDS <= 600 and max(bounds) <= 90


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
from helpers.commands import gpu_parts
gpu_parts.find_machine()
gpu_parts.record_atomics()
"""
    file = tmp_path / "noted"
    environment = {**os.environ, records.RECORD: str(file), workload.VARIABLE: "preview"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
    machine, *notes = file.read_text().splitlines()
    assert machine.startswith('{"device"') and len(notes) == 2  # the first note follows the machine on its line
