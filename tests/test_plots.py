"""helpers.measure.plots: every figure is a small PNG with an alternative text; tables read well in both forms."""

import io

import IPython.display
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from helpers import errors
from helpers.devices import opencl
from helpers.judge import checks, opencl_recorder
from helpers.lessons import lesson_01, lesson_02, lesson_02_tiles
from helpers.measure import plots, tables, timing

ADD = "__kernel void add(__global const float *a, __global float *c) { int i = get_global_id(0); c[i] = a[i]; }"


@pytest.fixture
def shown(monkeypatch):
    """The figures displayed, as (picture, alternative text)."""
    figures = []

    def keep(image):
        figures.append((Image.open(io.BytesIO(image.data)), image.alt, len(image.data)))

    monkeypatch.setattr(IPython.display, "display", keep)
    return figures


def draw_digits():
    image = np.zeros((28, 28), np.uint8)
    image[4:24, 12:16] = 255
    plots.draw_digits(np.stack([image] * 20), np.ones(20, np.uint8), "ones")


def draw_work_items():
    floats = np.zeros(10, np.float32)
    lesson_01.draw_launch(ADD, "add", 12, 4, [floats, floats])


def draw_rounds():
    kernel = opencl.Kernel(lesson_02.write_tiled(4), "tiled")
    arguments = [*np.zeros((3, 64), np.float32), *[np.int32(8)] * 3]
    recorded = opencl_recorder.record(kernel, (8, 8), (4, 4), arguments)
    lesson_02_tiles.draw_rounds(recorded, 8, (1, 0), "two rounds", (1, 2))


RUNS = {
    "whole": [("CPU:0", "forward", 5.0, 5.4), ("CPU:1", "back", 5.4, 6.0)],
    "parts": [("CPU:0", "forward", 9.0, 9.5), ("CPU:1", "back", 9.25, 9.75), ("CPU:0", "update", 9.5, 9.75)],
}


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (draw_digits, ["ones", "20 handwritten digits"]),
        (draw_work_items, ["12 work-items", "4 accesses lie outside"]),
        (
            lambda: plots.draw_timeline(RUNS, "who waits?"),
            ["who waits?", "whole, CPU:0: busy 40%", "parts, CPU:1: busy 67%"],
        ),
        (draw_rounds, ["two rounds", "Round 1: 32 loads, each used 4 times", "Round 2: 32 loads, each used 4 times"]),
        (
            lambda: plots.show(
                *plots.draw_speeds({"1 x 1": (1, 1.2, 1.3), "6 x 32": (300, 310, 330)}, "sizes", "GFLOP/s")
            ),
            ["sizes", "1 x 1: 1.2", "6 x 32: 310"],
        ),
    ],
)
def test_every_figure_is_small_and_has_an_alternative_text(shown, draw, words):
    draw()
    [(picture, alt, size)] = shown
    assert size < 80_000
    assert 600 <= picture.width <= 1000
    assert len(picture.convert("RGB").getcolors(1 << 20)) > 3  # something is drawn
    assert all(word in alt for word in words)


def test_a_timeline_shows_work_where_it_was_done(shown):
    """The left half of the upper row is blue, the right half of the lower one is not."""
    plots.draw_timeline({"run": [("CPU:0", "a", 0.0, 1.0), ("CPU:1", "b", 1.0, 2.0)]}, "in turn")
    pixels = np.asarray(shown[0][0].convert("RGB")).astype(int)
    blue = np.abs(pixels - [0x00, 0x72, 0xB2]).sum(axis=2) < 30
    orange = np.abs(pixels - [0xE6, 0x9F, 0x00]).sum(axis=2) < 30
    wide = pixels.shape[0] * 5 // 8  # above the legend
    across = [np.flatnonzero(color[:wide].any(axis=0)) for color in (blue, orange)]
    down = [np.flatnonzero(color[:wide].any(axis=1)) for color in (blue, orange)]
    assert across[0].max() <= across[1].min() + 3  # one after the other
    assert down[0].max() < down[1].min()  # the first device above the second


def test_a_table_is_text_and_html():
    table = tables.Table([("47", "a < b")], ["time", "what"])
    assert str(table).splitlines()[0].split() == ["time", "what"]
    assert '<td style="text-align: left">a &lt; b' in table._repr_html_()


@given(st.text("ab -", max_size=400))
def test_a_printed_sentence_breaks_between_words_alone(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("helpers.errors.LINE_WIDTH", 100)
        lines = errors.wrap(f"first\n{text}").split("\n")
    assert lines[0] == "first" and " ".join(lines[1:]).split() == text.split()
    assert all(len(line) <= 100 or len(line.split()) == 1 for line in lines)


def test_verdicts_comparisons_and_errors_break_their_long_lines(monkeypatch, capsys):
    monkeypatch.setattr("helpers.errors.LINE_WIDTH", 40)
    words = "neither one word of this message nor another one is broken"

    @checks.print_verdict
    def check():
        raise checks.NotYet(words)
        yield

    check()
    checks.compare_prediction(None, words)
    slow, fast = (timing.Measurement(label, "a device with a long name", (x,) * 3) for label, x in (("a", 2), ("b", 1)))
    printed = [*capsys.readouterr().out.splitlines(), *timing.compare(slow, fast).splitlines()]
    printed += errors.WorkshopError("No.", words)._render_traceback_()
    assert len(printed) > 6 and max(map(len, printed)) <= 40
