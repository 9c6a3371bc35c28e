"""helpers.plots: every figure is a small PNG with an alternative text; tables read well in both forms."""

import io

import IPython.display
import numpy as np
import pytest
from PIL import Image

from helpers import monitor, opencl, plots
from helpers.timing import Measurement

ADD = "__kernel void add(__global const float *a, __global float *c) { int i = get_global_id(0); c[i] = a[i]; }"


@pytest.fixture
def shown(monkeypatch):
    """The figures displayed, as (picture, alternative text)."""
    figures = []

    def keep(image):
        figures.append((Image.open(io.BytesIO(image.data)), image.alt, len(image.data)))

    monkeypatch.setattr(IPython.display, "display", keep)
    return figures


def run(seconds):
    return Measurement("x", "here", tuple(seconds * (1 + 0.01 * i) for i in range(5)))


def draw_digits():
    image = np.zeros((28, 28), np.uint8)
    image[4:24, 12:16] = 255
    plots.digits(np.stack([image] * 20), np.ones(20, np.uint8), "ones")


def draw_idle_and_busy():
    phases, none = ("idle", "idle", "busy", "busy"), (None,) * 4
    samples = monitor.Samples("test", "a test", (0, 1, 2, 3), phases, (1.0, 2.0, 90.0, None), none, none, none)
    plots.idle_and_busy(samples, "some device")


def draw_work_items():
    floats = np.zeros(10, np.float32)
    plots.work_items(opencl.trace(ADD, "add", (12,), (4,), [floats, floats]), "two too many")


def draw_time_against_size():
    series = {label: [(10**k, run(1e-6 * 10**k)) for k in range(3, 6)] for label in ("NumPy", "device", "kernel")}
    plots.time_against_size(series, "who wins?", "elements")


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (draw_digits, ["ones", "20 handwritten digits"]),
        (draw_idle_and_busy, ["some device", "idle", "busy"]),
        (draw_work_items, ["12 work-items", "4 accesses lie outside"]),
        (lambda: plots.where_time_goes({"copy": 1e-3, "kernel": 2e-3}, "split"), ["copy 1 ms", "kernel 2 ms"]),
        (draw_time_against_size, ["NumPy", "device", "elements"]),
    ],
)
def test_every_figure_is_small_and_has_an_alternative_text(shown, draw, words):
    draw()
    [(picture, alt, size)] = shown
    assert size < 80_000
    assert 600 <= picture.width <= 1000
    assert len(picture.convert("RGB").getcolors(1 << 20)) > 3  # something is drawn
    assert all(word in alt for word in words)


def test_without_samples_the_figure_says_why(capsys, shown):
    plots.idle_and_busy(monitor.Samples("none", "no monitor here, evidence by placement and time only"), "a device")
    assert shown == []
    assert "no monitor here" in capsys.readouterr().out


def test_a_table_is_text_and_html():
    table = plots.Table([("47", "a < b")], ["time", "what"])
    assert str(table).splitlines()[0].split() == ["time", "what"]
    assert '<td style="text-align: left">a &lt; b' in table._repr_html_()
