"""`store` stores what a lesson shows, all of it or none, and the same way each time."""

import re

import pytest
import sample_lesson

from helpers.commands import execute, lesson_files, lesson_rules, store
from helpers.errors import WorkshopError


def refused(path):
    """Try to store; return the message, after making sure that the file stayed as it was."""
    before = path.read_bytes()
    with pytest.raises(WorkshopError) as refusal:
        store.store(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    return str(refusal.value)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = sample_lesson.save(tmp_path_factory.mktemp("lessons"))
    before = sample_lesson.load(path)
    store.store(path)
    return path, before, sample_lesson.load(path)


def test_a_stored_lesson_keeps_the_rules(stored):
    assert lesson_rules.problems(stored[0]) == []


def test_only_outputs_and_counts_change(stored):
    _, before, after = stored
    assert [(cell.id, cell.source, cell.metadata) for cell in after.cells] == [
        (cell.id, cell.source, cell.metadata) for cell in before.cells
    ]
    assert after.metadata == before.metadata == lesson_rules.METADATA
    counts = [cell.execution_count for cell in after.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


def test_storing_again_changes_nothing(stored):
    before = stored[0].read_text()
    store.store(stored[0])
    # A figure's bytes may hold the version of the library that drew it, not the time.
    assert stored[0].read_text() == before


def test_a_lesson_is_stored_from_whole_trainings_as_one_stream(tmp_path):
    source = "import os\nfor name in ('ANYGPU_PROFILE', 'ANYGPU_WHOLE'):\n    print(os.environ[name], flush=True)"
    path = sample_lesson.save(tmp_path, sample_lesson.of(source))
    store.store(path)
    outputs = sample_lesson.load(path).cells[0].outputs
    assert [(out.output_type, out.text) for out in outputs] == [("stream", "lab\n1\n")]


@pytest.mark.parametrize("source", ["1 / 0", "import os; os._exit(3)"])
def test_a_cell_that_fails_is_named_and_nothing_is_lost(tmp_path, source):
    path = sample_lesson.save(tmp_path, sample_lesson.of("1", source))
    assert f"stopped in cell 2 ({source})" in refused(path)


def test_what_must_not_be_stored_is_refused_with_its_cell_and_nothing_is_lost(tmp_path):
    wrong = {
        "import sys; print('x', file=sys.stderr)": "standard error",
        "object()": "an address in memory",
    }
    message = refused(sample_lesson.save(tmp_path, sample_lesson.of(*wrong)))
    for number, (source, fact) in enumerate(wrong.items(), 1):
        assert re.search(rf"cell {number} \({re.escape(source[:50])}\): .*{re.escape(fact)}", message), fact


def test_outputs_of_the_stand_in_are_refused(tmp_path):
    stand_in = "digits stand-in (not MNIST)"
    setup = sample_lesson.SETUP.replace("MNIST of the test", stand_in)
    path = sample_lesson.save(tmp_path, sample_lesson.of(setup, sample_lesson.FIGURE))
    message = refused(path)
    assert stand_in in message and "ANYGPU_MNIST" in message


def test_an_expected_error_is_stored_without_paths_and_colors(tmp_path):
    notebook = sample_lesson.of("import json\njson.loads('nonsense')")
    notebook.cells[0].metadata["tags"] = ["raises-exception"]
    path = sample_lesson.save(tmp_path, notebook)
    store.store(path)
    error = sample_lesson.load(path).cells[0].outputs[0]
    assert lesson_rules.output_problems(sample_lesson.load(path)) == []
    assert error.ename == "JSONDecodeError" and "\x1b" not in "".join(error.traceback)


def test_one_refusal_stops_no_other_lesson(tmp_path, capsys):
    bad = sample_lesson.save(tmp_path, sample_lesson.of("1 / 0"), "01-fail-early")
    good = sample_lesson.save(tmp_path, sample_lesson.of(sample_lesson.FIGURE), "02-draw-line")
    assert store.store_all([bad, good]) == 1
    assert "01-fail-early.ipynb: not stored" in capsys.readouterr().out
    assert sample_lesson.load(good).cells[0].outputs
    assert store.store_all([good]) == 0


@pytest.mark.slow
def test_a_training_lesson_runs_on_jax(monkeypatch):
    """nbval runs every lesson on TensorFlow."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    [path] = lesson_files.find(["04"])
    notebook = lesson_files.read(path)
    outcome = execute.execute(notebook, profile="preview")
    assert outcome.failure is None and execute.loud(notebook) == []
    assert "(JAX, CPU)" in lesson_files.facts(notebook)["device"]
    stored = lesson_files.read(path)
    claims = [i for i, cell in enumerate(stored.cells) if "nbval-check-output" in lesson_files.tags(cell)]
    assert claims
    for index in claims:
        assert execute.text(notebook.cells[index]) == execute.text(stored.cells[index])
