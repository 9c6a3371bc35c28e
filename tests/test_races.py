"""helpers.races: races are found whatever one run returns, and right kernels are left in peace."""

import numpy as np
import pytest

from helpers import opencl, races
from helpers.errors import WorkshopError

TREE = """
__kernel void group_sums(__global const int *x, __global int *sums, const int n) {
    __local int part[8];
    int i = get_global_id(0), me = get_local_id(0);
    part[me] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // a comment with barrier(x) and part[99]
    for (int step = 4; step > 0; step /= 2) {
        if (me < step) {
            part[me] += part[me + step];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) {
        sums[get_group_id(0)] = part[0];
    }
}
"""


def find(source, n=14):
    x, sums = np.arange(n, dtype=np.int32), np.zeros(2, np.int32)
    return races.find(source, "group_sums", 2, 8, [x, sums, np.int32(n)])


def changed(old, new):
    assert TREE.count(old) == 1
    return TREE.replace(old, new)


def test_a_right_kernel_has_no_race_and_all_work_items_meet_all_barriers():
    found = find(TREE)
    assert (found.races, found.outside) == ([], [])
    assert str(found) == "no two work-items race"
    assert found.barriers.tolist() == [4] * 16
    assert found.accesses.max() == 2 + 2 * 3 + 2  # x and part; two parts in each of three steps; part[0] and sums


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (": 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", ": 0;", "work-items 0 and 4 both touch part[4]"),
        ("        }\n        barrier(CLK_LOCAL_MEM_FENCE);\n", "        }\n", "work-items 0 and 1 both touch part[1]"),
        ("if (me == 0) ", "", "work-items 0 and 1 both touch sums[0]"),
        ("sums[get_group_id(0)] = ", "sums[0] = ", "work-items 0 and 8 both touch sums[0]"),
        ("part[me] += part[me + step]", "part[0] += part[me + step]", "both touch part[0]"),
    ],
)
def test_a_race_is_found_without_luck(old, new, sentence):
    for _ in range(3):
        assert any(sentence in race for race in find(changed(old, new)).races)


@pytest.mark.parametrize("add", ["total[0] += x[i]", "total[0] = total[0] + x[i]", "total[0]++", "++total[0]"])
def test_every_way_of_adding_to_one_element_is_a_race(add):
    source = f"__kernel void add_up(__global const int *x, __global int *total) {{ int i = get_global_id(0); {add}; }}"
    found = races.find(source, "add_up", 2, 4, [np.ones(8, np.int32), np.zeros(1, np.int32)])
    expected = "work-items 0 and 1 both touch total[0], at least one writes it, and no barrier lies between"
    assert found.races == [expected]


@pytest.mark.parametrize("total", ["total", "&total[0]"])
def test_atomics_are_no_race_and_neither_is_reading_together(total):
    source = f"""__kernel void add_up(__global const int *x, __global int *total) {{
        if (x[0] > 0 && x[1] > 0) atomic_add({total}, x[get_global_id(0)]);
    }}"""
    found = races.find(source, "add_up", 2, 4, [np.ones(8, np.int32), np.zeros(1, np.int32)])
    assert found.races == []
    assert found.accesses.tolist() == [3] * 8


def test_a_barrier_orders_one_group_and_not_two():
    source = """__kernel void pass_on(__global int *x, __global int *out) {
        int i = get_global_id(0);
        x[i] = i;
        barrier(CLK_GLOBAL_MEM_FENCE);
        out[i] = x[SOURCE];
    }"""
    arrays = [np.zeros(8, np.int32), np.zeros(8, np.int32)]
    own = races.find(source.replace("SOURCE", "4 * get_group_id(0)"), "pass_on", 2, 4, arrays)
    others = races.find(source.replace("SOURCE", "0"), "pass_on", 2, 4, arrays)
    assert own.races == []
    assert [race[:40] for race in others.races] == ["work-items 0 and 4 both touch x[0], at l"]


def test_accesses_outside_are_told_and_do_no_harm():
    found = find(changed("i < n ? x[i] : 0", "x[i]"))
    assert found.outside[0] == "work-item 14 touches x[14], which does not exist"
    assert len(found.outside) == 2
    local = find(changed("part[me + step]", "part[me + 2 * step]"))
    assert "work-item 0 touches part[8], which does not exist" in local.outside


def test_at_most_three_sentences_are_shown():
    assert str(find(changed(": 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", ": 0;"))).splitlines()[-1] == "... and 5 more"


def test_a_mistake_is_shown_in_the_lines_of_the_learner():
    with pytest.raises(opencl.KernelError, match=r"line 3: .*float3x"):
        races.find("\n__kernel void f(__global int *x) {\n float3x y; }", "f", 1, 1, [np.zeros(1, np.int32)])


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        ("barrier(CLK_LOCAL_MEM_FENCE);", ""),
        ("if (i < n) { x[i] = 1; } barrier(CLK_LOCAL_MEM_FENCE);", ""),
        ("for (int k = 0; k < 3; k++) { if (i < n) { x[i] = 1; } barrier(CLK_LOCAL_MEM_FENCE); }", ""),
        ("// if (i < n) {\n barrier(CLK_LOCAL_MEM_FENCE);", ""),
        ("/* if (i) */ barrier(CLK_LOCAL_MEM_FENCE);", ""),
        ("if (i < n) { x[i] = 1; barrier(CLK_LOCAL_MEM_FENCE); }", "if (i < n)"),
        ("if (i < n)\n        barrier(CLK_LOCAL_MEM_FENCE);", "if (i < n)"),
        ("if (i < n) { x[i] = 1; } else { barrier(CLK_LOCAL_MEM_FENCE); }", "else"),
        ("if (i < n) x[i] = 1; else barrier(CLK_LOCAL_MEM_FENCE);", "else"),
        ("if (i < n) { for (int k = 0; k < 3; k++) { barrier(CLK_LOCAL_MEM_FENCE); } }", "if (i < n)"),
        ("if (i < n) { { x[i] = 1; } barrier (CLK_LOCAL_MEM_FENCE); }", "if (i < n)"),
    ],
)
def test_a_barrier_in_a_branch_is_seen(body, condition):
    assert races.barrier_in_branch(f"__kernel void f(__global int *x, int n) {{ int i = 0; {body} }}") == condition


def test_a_barrier_in_a_branch_is_refused_before_it_can_hang_or_crash():
    source = """
__kernel void turn(__global int *x) {
    if (get_local_id(0) < 4) { barrier(CLK_LOCAL_MEM_FENCE); x[0] = 1; }
}"""
    with pytest.raises(WorkshopError, match="A barrier stands under `if"):
        races.find(source, "turn", groups=1, group_size=8, arguments=[np.zeros(8, np.int32)])
