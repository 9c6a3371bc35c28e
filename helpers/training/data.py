"""MNIST, always verified and always named: a file of your own, the cache, the mirrors, or the built-in stand-in.

What is verified is each array's shape, dtype and SHA-256, so a repacked file is accepted and a damaged one refused.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from helpers import ROOT, variables
from helpers.errors import WorkshopError

CACHE = ROOT / "data" / "cache"
VARIABLE = variables.MNIST
# A kernel has the variables of the terminal that the workshop was started in, so a new kernel alone changes nothing.
AGAIN = "stop the workshop with Ctrl-C, set or unset the variable in that terminal, and start the workshop again there"
DIGITS = ROOT / "data" / "digits.npz"
STAND_IN = "digits stand-in (not MNIST)"

# An address that ends in .npz is one file with all arrays; any other is a folder with the four original idx files.
MIRRORS: tuple[str, ...] = (
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
IDX_FILES = {
    "x_train": "train-images-idx3-ubyte.gz",
    "y_train": "train-labels-idx1-ubyte.gz",
    "x_test": "t10k-images-idx3-ubyte.gz",
    "y_test": "t10k-labels-idx1-ubyte.gz",
}
# Shape and SHA-256 of the bytes of each array of MNIST, all uint8, in the order and layout of keras.datasets.mnist.
EXPECTED: dict[str, tuple[tuple[int, ...], str]] = {
    "x_train": ((60000, 28, 28), "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757"),
    "y_train": ((60000,), "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13"),
    "x_test": ((10000, 28, 28), "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161"),
    "y_test": ((10000,), "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5"),
}
TIMEOUT = (5.0, 15.0)  # seconds: to reach a mirror, and without a byte from it


class Dataset(NamedTuple):
    """Images of handwritten digits and what they show; every array is uint8."""

    name: str  # `MNIST`, or `digits stand-in (not MNIST)`
    x_train: np.ndarray  # images (n, 28, 28), 0 is paper and 255 is ink
    y_train: np.ndarray  # labels (n,), 0 to 9
    x_test: np.ndarray
    y_test: np.ndarray
    source: str  # where the arrays came from, in words


class _RefusedError(Exception):
    """A source cannot give MNIST; the text says why."""


def load_mnist() -> Dataset:
    """Return MNIST, or the stand-in when no source of MNIST can be had, and print one line that says which.

    Looks at the file that ANYGPU_MNIST names, then data/cache, then the mirrors. A verified download is kept in
    data/cache. Ctrl-C during a download leaves nothing behind.

    Returns:
        Arrays of dtype uint8: for MNIST 60,000 images to train and 10,000 to test, for the stand-in 1,437 and 360.

    Raises:
        WorkshopError: ANYGPU_MNIST names something that is not MNIST; no other source is then asked.
    """
    dataset = _named_file() or _load_or_download() or _stand_in()
    sizes = f"{len(dataset.x_train):,} images to train and {len(dataset.x_test):,} to test"
    print(f"{dataset.name}: {sizes} (from {dataset.source})")
    return dataset


# --- Files -----------------------------------------------------------------------------------------------------------


def _verify(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays if they are MNIST's own, otherwise say in a _RefusedError which is not."""
    for name, (shape, checksum) in EXPECTED.items():
        array = arrays[name]
        if array.dtype != np.uint8 or array.shape != shape:
            raise _RefusedError(f"{name} is {array.dtype} of shape {array.shape}, not uint8 of shape {shape}")
        if hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() != checksum:
            raise _RefusedError(f"{name} has the right shape, but its checksum is not MNIST's")
    return arrays


def _read_npz(file: Path) -> dict[str, np.ndarray]:
    """Return MNIST's four arrays from an npz, never unpickling anything."""
    if not zipfile.is_zipfile(file):  # such as the page of a network's login; NumPy would speak of pickles
        raise _RefusedError("it is damaged or no npz")
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in EXPECTED}
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds for a damaged file
        what, *_ = str(error).splitlines() or [type(error).__name__]
        raise _RefusedError(f"it is damaged ({what})") from error
    return _verify(arrays)


def _named_file() -> Dataset | None:
    """Return MNIST from the file that ANYGPU_MNIST names, None if it is unset or empty."""
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    # A kernel starts in notebooks/, but people give a path as it is seen from the project's root.
    places = [Path(name).expanduser(), ROOT / name]
    path = next((place for place in places if place.is_file()), places[0]).absolute()
    try:
        if not path.exists():
            raise _RefusedError("there is no such file")
        arrays = _read_npz(path)
    except _RefusedError as refused:
        raise WorkshopError(
            f"{VARIABLE} names {path}, and that is not MNIST: {refused}.",
            f"Expected: an npz file with MNIST's own uint8 arrays {', '.join(EXPECTED)}.",
            f"Set {VARIABLE} to the full path of a whole mnist.npz, or unset it so that the workshop looks elsewhere: "
            f"{AGAIN}.",
        ) from None
    return Dataset("MNIST", **arrays, source=f"the file that {VARIABLE} names")


# --- The cache and the mirrors ---------------------------------------------------------------------------------------


def _load_or_download() -> Dataset | None:
    """Return MNIST from data/cache, or from the first mirror that gives it and keep it there; None if none does."""
    failures = []
    if (CACHE / "mnist.npz").is_file():
        try:
            return Dataset("MNIST", **_read_npz(CACHE / "mnist.npz"), source="data/cache")
        except _RefusedError as refused:  # the next download replaces it
            failures.append(f"  data/cache/mnist.npz: {refused}")
    for mirror in MIRRORS:
        with _scratch() as folder:
            try:
                arrays = _from_mirror(mirror, Path(folder))
            except _RefusedError as refused:
                failures.append(f"  {_host(mirror)}: {refused}")
                continue
            kept = ""
            with contextlib.suppress(OSError):  # a folder that cannot be written to: it is downloaded again next time
                (Path(folder) / "mnist.npz").replace(CACHE / "mnist.npz")  # in one step: nobody sees half of it
                kept = ", now kept in data/cache"
        return Dataset("MNIST", **arrays, source=_host(mirror) + kept)
    print(
        "MNIST could not be had:",
        *failures,
        "The stand-in takes its place: 1,797 smaller digits, drawn to MNIST's size.",
        "Accuracies on it are not MNIST's.",
        "Next: try again with a network. Without one, download this file with a browser on another machine:",
        f"  {MIRRORS[0]}",
        f"copy it to this one, and set {VARIABLE} to its full path:",
        f"{AGAIN}.",
        sep="\n",
    )
    return None


def _scratch() -> tempfile.TemporaryDirectory:
    """Return a folder that goes with what is in it; beside the cache, so that a move from it is one step."""
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=CACHE, prefix="download-")
    except OSError:
        return tempfile.TemporaryDirectory()


def _from_mirror(mirror: str, folder: Path) -> dict[str, np.ndarray]:
    """Return the verified arrays of one mirror, and leave them in `folder` as mnist.npz."""
    npz = folder / "mnist.npz"
    if mirror.endswith(".npz"):
        return _read_npz(_fetch(mirror, npz))
    arrays = {}
    for name, file in IDX_FILES.items():
        raw, shape = _fetch(mirror + file, folder / file).read_bytes(), EXPECTED[name][0]
        try:  # the numbers follow a head: 4 bytes, and 4 for each dimension (http://yann.lecun.com/exdb/mnist)
            arrays[name] = np.frombuffer(bytearray(gzip.decompress(raw)), np.uint8)[4 + 4 * len(shape) :].reshape(shape)
        except Exception as error:  # gzip and zlib raise several kinds
            raise _RefusedError(f"{file} is damaged ({type(error).__name__})") from error
    _verify(arrays)
    np.savez_compressed(
        npz,
        x_train=arrays["x_train"],
        y_train=arrays["y_train"],
        x_test=arrays["x_test"],
        y_test=arrays["y_test"],
    )
    return arrays


def _fetch(url: str, file: Path) -> Path:
    """Download `url` to `file`, with a progress bar on standard output, and return the file."""
    from tqdm import tqdm

    with warnings.catch_warnings(action="ignore"):  # in a notebook pooch's import warns that ipywidgets is not there
        import pooch

    pooch.get_logger().setLevel("ERROR")  # it would advise a checksum: what is verified is the arrays
    bar = tqdm(desc=_host(url), total=1, unit="B", unit_scale=True, file=sys.stdout, leave=False, delay=0.5)
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT, progressbar=bar, headers={"Accept-Encoding": "identity"})
    try:
        # pooch's class and its Protocol for downloaders call their parameters differently, hence the ignored complaint.
        return Path(pooch.retrieve(url, None, file.name, file.parent, downloader=downloader))  # ty: ignore[invalid-argument-type]
    except OSError as error:  # those of requests too; their texts are long, their names say what happened
        status = getattr(getattr(error, "response", None), "status_code", "")
        raise _RefusedError(f"no download ({type(error).__name__} {status}".rstrip() + ")") from error
    finally:
        bar.close()


def _host(url: str) -> str:
    return urlsplit(url).hostname or url


# --- Stand-in --------------------------------------------------------------------------------------------------------


def _stand_in() -> Dataset:
    """Return UCI's 1,797 digits of 8x8, drawn as MNIST draws its own: a box of 20x20 in the middle of 28x28.

    Every fifth image of each digit is for testing, which makes 1,437 to train and 360 to test, always the same.
    """
    from scipy.ndimage import zoom

    with np.load(DIGITS) as digits:
        images, y = digits["images"].astype(float), digits["labels"]
    boxes = zoom(images, (1, 2.5, 2.5), order=1, mode="nearest", grid_mode=True)
    # Rounded twice, so that the last bit of a product cannot tip a half to the other side on another processor.
    boxes = np.rint(np.round(boxes * (255 / 16), 6)).astype(np.uint8)
    x = np.pad(boxes, ((0, 0), (4, 4), (4, 4)))
    test = np.zeros(len(y), bool)
    test[np.argsort(y, kind="stable")[::5]] = True
    return Dataset(STAND_IN, x[~test], y[~test], x[test], y[test], "data/digits.npz")
