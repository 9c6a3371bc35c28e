"""Catch what compiled code writes past Python, straight to file descriptor 2."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def caught_stderr() -> Generator[list[str]]:
    """Keep native log lines out of the notebook, and hand them over when the block ends.

    TensorFlow (at import and at the first operation) and PoCL (after a build that failed) write lines to file
    descriptor 2 that no environment variable silences. Nothing is lost: the list that the block
    receives holds the lines afterwards, so that a failure can show them.

    Yields:
        A list, empty inside the block, that holds the caught lines after it.
    """
    lines: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile() as store:
        kept = os.dup(2)
        os.dup2(store.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            store.seek(0)
            lines += store.read().decode(errors="replace").splitlines()
