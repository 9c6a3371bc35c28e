"""helpers.devices.clblast: what it calls is right, and what is missing is said."""

import numpy as np
import pyopencl as cl
import pytest

from helpers.devices import clblast
from helpers.errors import WorkshopError


def multiply(queue, m, n, k):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, size).astype(np.float32) for size in ((m, k), (k, n)))
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(queue.context, flags, hostbuf=each) for each in (a, b, np.full((m, n), np.nan, np.float32))]
    clblast.multiply(queue, *buffers, m, n, k)
    product = np.empty((m, n), np.float32)
    cl.enqueue_copy(queue, product, buffers[2])
    return product, a @ b


INSTALLED = pytest.mark.skipif(clblast.load_library() is None, reason="CLBlast is missing: apt install libclblast1")


@pytest.mark.slow  # it compiles its kernels first
@INSTALLED
def test_it_multiplies_rows_by_columns(queue):
    for sizes in ((5, 7, 11), (64, 32, 128)):
        product, expected = multiply(queue, *sizes)
        np.testing.assert_array_equal(product, expected)


@pytest.mark.slow
@INSTALLED
def test_what_it_refuses_is_an_error(queue):
    buffers = [cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * 16) for _ in range(3)]
    with pytest.raises(WorkshopError, match="did not multiply"):
        clblast.multiply(queue, *buffers, 0, 4, 4)  # no rows


def test_a_missing_library_is_said(queue, monkeypatch):
    monkeypatch.setattr(clblast, "load_library", lambda: None)
    with pytest.raises(WorkshopError, match="not installed"):
        multiply(queue, 2, 2, 2)


def test_a_library_that_cannot_be_loaded_counts_as_missing(monkeypatch, tmp_path):
    broken = tmp_path / "lib" / "libclblast.so"
    broken.parent.mkdir()
    broken.write_text("no library")
    monkeypatch.setattr(clblast.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(clblast.ctypes.util, "find_library", lambda name: None)
    assert clblast.load_library.__wrapped__() is None
