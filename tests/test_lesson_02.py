"""helpers.lessons.lesson_02: the benchmark must see what is wrong, and measure what is asked."""

import numpy as np
import pyopencl as cl
import pytest

from helpers.devices import opencl
from helpers.judge import checks, opencl_recorder
from helpers.lessons import lesson_02, lesson_02_clock, lesson_02_tiles
from helpers.lessons.lesson_02 import MULTIPLY
from helpers.measure import published, records, timing


@pytest.fixture(scope="module")
def bench(queue):
    return lesson_02.MatmulBenchmark(queue, 64)


def launch_of(bench, source=MULTIPLY):
    kernel = cl.Kernel(opencl.build(bench.queue.context, source), "multiply")

    def launch(a, b, c, m, n, k):
        kernel(bench.queue, (n, m), None, a, b, c, np.int32(m), np.int32(n), np.int32(k))

    return launch


def test_speed_is_operations_over_time(bench):
    bench.measure({"naive": launch_of(bench)}, repeats=3)
    assert bench.gflops("naive") == pytest.approx(2 * 64**3 / bench.runs["naive"].median / 1e9)
    table = bench.tabulate("02")
    ((naive, here, middle, recorded),) = table.rows
    assert (naive, here) == ("naive", f"{bench.gflops('naive'):.3g} GFLOP/s")
    low, high = (2e-9 * 64**3 / seconds for seconds in reversed(bench.runs["naive"].quartiles))
    assert middle == f"{low:.3g} to {high:.3g}"
    assert bench.device in table.below[0]
    assert recorded.endswith(" GFLOP/s") and "NVIDIA H100" in table.below[1]


def test_what_is_measured_is_noted_for_a_record(bench, monkeypatch, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    bench.runs.clear()
    bench.measure({"naive": launch_of(bench)}, repeats=3)
    lesson_02.measure_peak(bench.queue, steps=10)
    lesson_02.measure_bandwidth(bench.queue, 2**10)
    naive, peak, bandwidth = records.read_notes(tmp_path / "notes", "02")
    assert (naive.value, naive.unit) == (pytest.approx(bench.gflops("naive")), "GFLOP/s")
    assert (naive.label, naive.amount, naive.device) == ("naive", "64 x 64", bench.device)
    assert (peak.label, peak.unit, bandwidth.label, bandwidth.unit) == ("peak", "GFLOP/s", "bandwidth", "GB/s")


def test_bandwidth_is_the_bytes_of_both_arrays_over_the_fastest_time_of_any_way(bench, monkeypatch, capsys):
    def measure(ways, device, **_):
        for way in ways.values():
            way()
        return {
            label: lesson_02.timing.Measurement(label, "a device", (0.5 + number,) * 3)
            for number, label in enumerate(reversed(ways))
        }

    monkeypatch.setattr(lesson_02.timing, "measure_interleaved", measure)
    assert lesson_02.measure_bandwidth(bench.queue, 2**16) == pytest.approx(8 * 2**16 / 0.5 / 1e9)
    assert "GB/s, read and written" in capsys.readouterr().out


@pytest.fixture
def half_a_second(monkeypatch):
    """Every run of a kernel lasts half a second, the first one less, on a device of this name."""
    named = {"device": "a device"}

    def measure(launch, **_):
        launch()
        return lesson_02.timing.Measurement("a kernel", named["device"], (0.5, 0.6, 0.6))

    monkeypatch.setattr(lesson_02.timing, "measure", measure)
    return named


def compute_peak(bench, items, steps, seconds):
    device = bench.queue.device
    width = max(4, device.preferred_vector_width_float, device.native_vector_width_float)
    return pytest.approx(2 * 8 * width * steps * items / seconds / 1e9)


def test_the_peak_is_the_operations_of_all_vectors_over_the_fastest_time(bench, half_a_second):
    assert lesson_02.measure_peak(bench.queue, 2**14, 1000) == compute_peak(bench, 2**14, 1000, 0.5)


@pytest.mark.parametrize(("last", "factor", "fastest"), [(0.043, 64, 0.043), (0.045, 16, 0.011)])
def test_the_peak_takes_more_work_items_until_they_gain_little(bench, monkeypatch, last, factor, fastest):
    # Half the width in the same time; then four times the work in the same time, in little more, in four times.
    seconds = iter((0.010, 0.010, 0.010, 0.011, last))
    tried = []

    def measure(launch, **_):
        launch()
        tried.append(next(seconds))
        return lesson_02.timing.Measurement("a kernel", "a device", (tried[-1],) * 3)

    monkeypatch.setattr(lesson_02.timing, "measure", measure)
    first = bench.queue.device.max_compute_units * lesson_02.ITEMS_PER_UNIT[False]
    assert lesson_02.measure_peak(bench.queue, steps=10) == compute_peak(bench, factor * first, 10, fastest)
    assert len(tried) == 5


def test_the_peak_takes_narrower_vectors_where_they_are_faster(bench, monkeypatch):
    def measure(queue, width, items, steps):
        widths.append(width)
        return lesson_02.timing.Measurement("a kernel", "a device", (0.4 if len(widths) == 2 else 1.0,) * 3)

    widths = []
    monkeypatch.setattr(lesson_02, "_time_multiply_adds", measure)
    assert lesson_02.measure_peak(bench.queue, 64, 10) == pytest.approx(2e-9 * 8 * widths[1] * 10 * 64 / 0.4)
    assert widths[1] == widths[0] / 2


def test_more_than_the_data_sheet_promises_is_refused(bench, half_a_second, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    sheet = published.DataSheet("any", 1e-6, 1e-6, "nobody")
    monkeypatch.setattr(published, "find_data_sheet", lambda device: sheet)
    assert np.isnan(lesson_02.measure_peak(bench.queue, 64, 10))
    assert np.isnan(lesson_02.measure_bandwidth(bench.queue, 2**10))
    assert capsys.readouterr().out.count("refused") == 2
    assert records.read_notes(tmp_path / "notes", "02") == []


FIRST = "column] : 0;\n        barrier(CLK_LOCAL_MEM_FENCE);", "column] : 0;"
SECOND = "        }\n        barrier(CLK_LOCAL_MEM_FENCE);", "        }"


@pytest.mark.parametrize(
    ("pair", "named"),
    [
        (FIRST, "first wait is missing"),
        (SECOND, "second wait is missing"),
        (("CLK_LOCAL_MEM_FENCE", "CLK_GLOBAL_MEM_FENCE"), "orders global memory"),
    ],
)
def test_each_barrier_that_does_not_hold_is_named(pair, named):
    source = lesson_02.write_tiled(16)
    assert pair[0] in source
    with pytest.raises(checks.NotYet, match=named):
        lesson_02.judge_tiled(source.replace(*pair))


def test_a_race_over_a_wrong_place_names_no_barrier():
    source = lesson_02.write_tiled(16).replace("a_tile[y][x] =", "a_tile[y][0] =")
    with pytest.raises(checks.NotYet) as refused:
        lesson_02.judge_tiled(source)
    assert "wait is missing" not in str(refused.value)


LEADER_ADDS = (
    "for (int i = 0; i < T; i++) {\n            sum += a_tile[y][i] * b_tile[i][x];\n        }",
    "for (int e = 0; x == 0 && y == 0 && e < T * T; e++)\n"
    "            for (int i = 0; i < T; i++) sums[e] += a_tile[e / T][i] * b_tile[i][e % T];",
)


def test_a_leader_that_adds_for_its_group_is_refused():
    source = lesson_02.write_tiled(16).replace(*LEADER_ADDS)
    source = source.replace("b_tile[T][T];", "b_tile[T][T], sums[T * T];").replace("] = sum;", "] = sums[y * T + x];")
    source = source.replace("float sum = 0;", "sums[y * T + x] = 0;")
    with pytest.raises(checks.NotYet, match="add its own sum"):
        lesson_02.judge_tiled(source)


def test_wrong_loads_are_told_the_counts_of_a_round(capsys):
    lesson_02.check_loads(lambda T: 2 / T**2)
    assert "load 16 numbers of A and 16 of B, and each does 4 multiplications" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_right_kernel_is_used_further_on(monkeypatch):
    monkeypatch.setattr(checks, "_right", {})
    monkeypatch.setattr(checks, "judge_in_subprocess", lambda judge, source: "tried")
    lesson_02.check_multiply("mine")
    assert checks.find_right("multiply", MULTIPLY) == "mine"


def test_tiles_are_tried_in_other_sizes_than_the_learners():
    source = lesson_02.write_tiled(16)
    with pytest.raises(checks.NotYet, match=r"with T = 4.*The kernel says 16"):
        lesson_02.judge_tiled(source.replace("start += T", "start += 16"))
    with pytest.raises(checks.NotYet, match="#define T 16"):
        lesson_02.judge_tiled(source.replace("#define T 16", "enum { T = 16 };"))


TRANSPOSED_A, TRANSPOSED_B = ("a[row * k + i]", "a[i * m + row]"), ("b[i * n + column]", "b[column * k + i]")


@pytest.mark.parametrize(
    ("pair", "named"),
    [
        (TRANSPOSED_A, "A's columns, not its rows"),
        (TRANSPOSED_B, "B's columns, not its rows"),
        (("c[row * n + column]", "c[column * m + row]"), "C's columns, not its rows"),
        (("sum +=", "sum ="), "only the last product"),
        (("] * b[", "] + b["), None),
    ],
)
def test_a_known_mistake_in_the_product_is_named(pair, named):
    assert pair[0] in MULTIPLY
    with pytest.raises(checks.NotYet, match=r"expected .* came") as refused:
        lesson_02.judge_multiply(MULTIPLY.replace(*pair))
    assert named in str(refused.value) if named else "as if" not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("        int in_a", "        sum = 0;\n        int in_a", "anew in each round"),
        ("a_tile[y][i]", "a_tile[i][y]", "of A's tile were swapped"),
        ("b_tile[i][x]", "b_tile[x][i]", "of B's tile were swapped"),
        ("a_tile[y][i] * b_tile[i][x]", "b_tile[y][i] * a_tile[i][x]", "swap the tiles"),
        ("a[row * k + start + x]", "a[y * k + start + x]", "the local id is not the row"),
        ("n + column] : 0", "n + x] : 0", "the local id is not the column"),
        ("a[row * k + start + x]", "a[row * k + x]", "the same tile of A"),
        ("b[(start + y) * n", "b[y * n", "the same tile of B"),
        ("row = get_global_id(1)", "row = get_local_id(1)", "C's row comes from a local id"),
        ("c[row * n + column]", "c[y * n + x]", "C's place comes from a local id"),
    ],
)
def test_a_known_mistake_in_the_tiles_is_named(old, new, named):
    source = lesson_02.write_tiled(16)
    assert old in source
    with pytest.raises(checks.NotYet, match=named):
        lesson_02.judge_tiled(source.replace(old, new))


def swap_ids(source):
    for kind in ("global", "local"):
        source = source.replace(f"get_{kind}_id(0)", "FIRST").replace(f"get_{kind}_id(1)", f"get_{kind}_id(0)")
        source = source.replace("FIRST", f"get_{kind}_id(1)")
    return source


@pytest.mark.parametrize(
    ("judge", "source"),
    [(lesson_02.judge_multiply, MULTIPLY), (lesson_02.judge_tiled, lesson_02.write_tiled(16))],
)
def test_swapped_ids_are_named(judge, source):
    with pytest.raises(checks.NotYet, match="The ids are swapped"):
        judge(swap_ids(source))


def record_tiled(source, n=8, tile=4):
    arguments = [*np.zeros((3, n * n), np.float32), *[np.int32(n)] * 3]
    return opencl_recorder.record(opencl.Kernel(source, "tiled"), (n, n), (tile, tile), arguments)


def test_strided_loads_are_remarked():
    source = lesson_02.write_tiled(4)
    assert lesson_02_tiles.describe_strides(record_tiled(source)) == ""
    ids = "in_b = start + y < k && column < n", "in_b = start + x < k && column - x + y < n"
    load = (
        "b_tile[y][x] = in_b ? b[(start + y) * n + column]",
        "b_tile[x][y] = in_b ? b[(start + x) * n + column - x + y]",
    )
    strided = source.replace(*ids).replace(*load)
    assert strided.count("- x + y") == 2
    assert "numbers of b " in lesson_02_tiles.describe_strides(record_tiled(strided))


@pytest.mark.parametrize("tile", [2, 4, 8])
def test_reads_are_counted_in_both_memories(tile):
    of_a, of_b, of_tiles = lesson_02_tiles.count_reads(record_tiled(lesson_02.write_tiled(tile), 8, tile))
    assert (of_a, of_b, of_tiles) == (8**3 / tile, 8**3 / tile, 2 * 8**3)


LABELS = "naive, same groups", "rounds alone", "no tiles", "tiled, T = 16", "tiled, once more"


@pytest.mark.parametrize(("twin", "others", "claims"), [(1.01, 0.5, True), (1.5, 0.1, False), (1.01, 0.9, False)])
def test_a_gain_is_claimed_beside_a_twin_that_agrees_if_other_programs_do_not_explain_it(
    bench, monkeypatch, capsys, twin, others, claims
):
    runs = {
        label: timing.Measurement(label, "a device", tuple(median * (1 + n / 100) for n in range(-4, 5)))
        for label, median in zip(LABELS, (3.0, 3.0, 1.0, 1.0, twin), strict=True)
    }
    monkeypatch.setattr(bench, "runs", runs)
    monkeypatch.setattr(bench, "others", others)
    lesson_02_clock.compare_gain(None, bench, *LABELS)
    said = capsys.readouterr().out
    assert ("measured: at least 1.5 times as fast" in said, "measured: no claim" in said) == (claims, not claims)
    assert "against no tiles: no claim" in said
    assert "H200" in said and "1.23 times as fast" in said  # the recorded gain stands there in any case
