"""helpers.measure.records: what a lesson notes is kept, and stands beside the learner's numbers with its origin."""

import json

import pytest

from helpers import ROOT
from helpers.measure import records
from helpers.measure.records import Machine, Note
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement

GPU = Machine("A GPU", "gpu", "1.2", "Linux x86_64", {"Python": "3.12.3"})
ROWS = [("naive", "3.9"), ("tiled", "5.2")]


@pytest.fixture(autouse=True)
def _forget():
    records.read_all.cache_clear()
    yield
    records.read_all.cache_clear()


def make_note(label, value=1.0, **more):
    return Note(label, value, "GFLOP/s", **{"lesson": "02", "date": "2026-11-23", "profile": "lab", **more})


def test_nothing_is_noted_unless_a_run_is_recorded(tmp_path, monkeypatch):
    monkeypatch.delenv(records.RECORD, raising=False)
    records.add_note(Note("naive", 1, "GFLOP/s"))
    assert records.read_notes(tmp_path / "missing", "02") == []


def test_a_measurement_is_noted_as_a_speed_with_its_quartiles(tmp_path, monkeypatch):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    records.add_run(Measurement("naive", "A GPU", (1.0, 2.0, 4.0)), "GFLOP/s", 8.0, "2 x 2")
    records.add_run(Measurement("step", "A GPU", (1.0, 2.0, 4.0)), label="a step")
    speed, seconds = records.read_notes(tmp_path / "notes", "02")
    assert (speed.label, speed.value, speed.low, speed.high, speed.runs) == ("naive", 4, 8 / 3, 16 / 3, 3)
    assert (speed.lesson, speed.edition, speed.amount) == ("02", records.hash_lesson("02"), "2 x 2")
    assert (seconds.label, seconds.value, seconds.unit, seconds.low) == ("a step", 2, "s", 1.5)


def test_a_record_keeps_the_newest_note_of_each_label(tmp_path):
    path = tmp_path / "results" / "gpu.json"
    records.write(path, GPU, [make_note("naive", 1), make_note("NumPy", 2, device="a processor")])
    records.write(path, GPU, [make_note("naive", 3, device="A GPU"), make_note("naive", 4, lesson="02b")])
    kept = records.read(path)
    assert kept.machine == GPU
    assert kept.notes["02", "naive"] == make_note("naive", 3)  # the record's own device is not repeated
    assert kept.notes["02", "NumPy"].device == "a processor"
    assert kept.notes["02b", "naive"].value == 4


def test_a_column_holds_what_was_recorded_and_says_where_it_comes_from(tmp_path):
    records.write(tmp_path / "gpu.json", GPU, [make_note("naive", 4361, amount="1,152 x 1,152", remark="it differed")])
    (tmp_path / "other.json").write_text("{}")
    shown = records.add_column(Table(ROWS, ("kernel", "GFLOP/s here"), ("below",)), "02", tmp_path)
    assert shown.headers == ("kernel", "GFLOP/s here", "recorded")
    assert shown.rows == [("naive", "3.9", "4,360 GFLOP/s"), ("tiled", "5.2", "not recorded")]
    assert shown.below == (
        "below",
        "recorded: A GPU, 23 November 2026; 1,152 x 1,152.",
        "naive, recorded: it differed.",
    )


def test_the_gpu_with_the_most_numbers_is_shown_and_no_processor(tmp_path):
    records.write(tmp_path / "a.json", GPU, [make_note("naive")])
    other = Machine("Another GPU", "gpu", "", "", {})
    records.write(tmp_path / "b.json", other, [make_note("naive", 2), make_note("tiled", 3)])
    processor = Machine("a processor", "cpu", "", "", {})
    records.write(tmp_path / "c.json", processor, [make_note(label) for label in ("naive", "tiled", "peak")])
    column = records.find_column("02", ("naive", "tiled", "peak"), tmp_path)
    assert column.cells == ["2 GFLOP/s", "3 GFLOP/s", "not recorded"]
    assert column.below == ["recorded: Another GPU, 23 November 2026."]


def test_of_two_gpus_with_as_many_numbers_the_last_is_shown(tmp_path):
    records.write(tmp_path / "a.json", GPU, [make_note("naive")])
    records.write(tmp_path / "b.json", Machine("Another GPU", "gpu", "", "", {}), [make_note("naive", 2)])
    assert records.find_column("02", ("naive",), tmp_path).device == "Another GPU"
    assert records.find_column("02", ("tiled",), tmp_path).device == ""


@pytest.mark.parametrize(("edition", "says"), [("", False), ("00000000", True), (records.hash_lesson("02"), False)])
def test_an_earlier_edition_is_told_as_such(tmp_path, edition, says):
    records.write(tmp_path / "gpu.json", GPU, [make_note("naive", edition=edition)])
    below = records.find_column("02", ("naive",), tmp_path).below
    assert ("earlier edition" in " ".join(below)) == says


def test_an_edition_follows_the_code_and_the_kernels_but_no_exercise(tmp_path):
    for folder in ("notebooks", "helpers/lessons"):
        (tmp_path / folder).mkdir(parents=True)
    module = tmp_path / "helpers" / "lessons" / "lesson_02.py"
    second = tmp_path / "helpers" / "lessons" / "lesson_02b.py"
    program = tmp_path / "helpers" / "lessons" / "programs" / "02b-gpu.cl"
    program.parent.mkdir()

    def find(code, exercise="", kernel="__kernel void f() {}", second_kernel="", whole=""):
        tagged = {"cell_type": "code", "source": [exercise], "metadata": {"tags": ["exercise"]}}
        plain = {"cell_type": "code", "source": [code], "metadata": {}}
        (tmp_path / "notebooks" / "02b-a-b.ipynb").write_text(json.dumps({"cells": [plain, tagged]}))
        module.write_text(f'"""A module."""\nKERNEL = """{kernel}"""\n')
        second.write_text(f'"""A module."""\nKERNEL = """{second_kernel}"""\n')
        program.write_text(whole)
        return records.hash_lesson("02b", tmp_path)

    assert find("a = 1") == find("a = 1", "b = 2") != ""
    assert len({find("a = 1"), find("a = 2"), find("a = 1", kernel="__kernel void g() {}")}) == 3
    assert len({find("a = 1"), find("a = 1", second_kernel="__kernel g() {}"), find("a = 1", whole="g")}) == 3
    assert records.hash_lesson("03", tmp_path) == ""


def test_the_records_of_the_course_can_be_read():
    for record in records.read_all():
        for (lesson, label), note in record.notes.items():
            assert (note.lesson, note.label) == (lesson, label)
            assert list(ROOT.glob(f"notebooks/{lesson}-*.ipynb")), lesson
            assert note.value > 0 and note.unit and note.date
            assert note.edition or note.remark, f"{lesson}, {label}: which edition was measured?"
