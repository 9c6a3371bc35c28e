"""Lesson 16b in WGSL: the check of the attention that writes in a web page, and the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from helpers import ROOT
from helpers.devices import opencl, webgpu
from helpers.devices.kernel_text import KernelError, without_comments
from helpers.judge import checks, kernel_checks, wgsl_checks
from helpers.judge.checks import NotDone, NotJudged, NotYet
from helpers.lessons import lesson_14, lesson_16b, web_pages
from helpers.lessons.lesson_16b_faults import Step, name_mistake
from helpers.lessons.lesson_16b_writer import Writer
from helpers.training import writer
from helpers.training.transformer import DEPTH, HEADS, LAYERS, PIECES, WIDTH

if TYPE_CHECKING:
    import wgpu

PAGE = ROOT / "build" / "my-writer.html"
CLOSE = 1e-4
ATTEND = web_pages.read_kernel("attend")
STEPS = (("ask", 3), ("attend", 1), ("combine", 1), ("spread", 4), ("gather", 1))  # of a layer, with workgroups
ROWS, Q, K, ANSWERS, SCORES = 640, 64, 128, 256, 320  # numbers in `rows`, and where some of them begin
CACHE = LAYERS, HEADS, PIECES, DEPTH  # shape of the keys, and of the values
CASES = (0, 0), (0, 1), (1, 5), (0, 20), (1, 47)  # layer and place


class Network:
    """Lesson 16b's network in WGSL on a device.

    Args:
        device: from `webgpu.request_device`.
        attend: the kernel of exercise 3.

    Raises:
        KernelError: WebGPU refuses it.
    """

    def __init__(self, device: wgpu.GPUDevice, attend: str) -> None:
        import wgpu

        self.device, source = device, web_pages.join_writer(attend)
        kinds = ["read-only-storage", "storage", "storage", "storage", "read-only-storage", "uniform"]
        entries = [
            {"binding": number, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for number, kind in enumerate(kinds)
        ]
        names = "begin", *(name for name, _ in STEPS), "judge"
        try:
            module = device.create_shader_module(code=source)
            bound = device.create_bind_group_layout(entries=entries)
            layout = device.create_pipeline_layout(bind_group_layouts=[bound])
            self._pipelines = {
                name: device.create_compute_pipeline(layout=layout, compute={"module": module, "entry_point": name})
                for name in names
            }
        except wgpu.GPUError as error:
            raise KernelError(*webgpu.explain_error(source, str(error))) from None
        weights = web_pages.order_writer()[1].astype(np.float32)
        self.rows, self.cache = np.zeros(ROWS, np.float32), np.zeros((2, *CACHE), np.float32)
        words, chances = np.zeros(PIECES + 2, np.uint32), np.zeros(PIECES, np.float32)
        shared = [webgpu.buffer(device, each) for each in (weights, self.rows, self.cache, words, chances)]
        _, self._rows, self._cache, self._words, _ = shared
        self._groups = []
        for layer in range(LAYERS):
            at = webgpu.buffer(device, np.array([layer, 0, 0, 0], np.uint32))
            bindings = [{"binding": n, "resource": {"buffer": each}} for n, each in enumerate((*shared, at))]
            self._groups.append(device.create_bind_group(layout=bound, entries=bindings))

    def _write(self, buffer: wgpu.GPUBuffer, array: np.ndarray, first: int = 0) -> None:
        self.device.queue.write_buffer(buffer, 4 * first, np.ascontiguousarray(array))

    def _launch(self, steps: list[tuple[str, int, int]]) -> None:
        encoder = self.device.create_command_encoder()
        for name, layer, groups in steps:
            one_pass = encoder.begin_compute_pass()
            one_pass.set_pipeline(self._pipelines[name])
            one_pass.set_bind_group(0, self._groups[layer])
            one_pass.dispatch_workgroups(groups)
            one_pass.end()
        self.device.queue.submit([encoder.finish()])

    def attend(self, rows: np.ndarray, cache: np.ndarray, layer: int, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Launch the learner's kernel alone; return the rows, and the cache, as they are afterwards."""
        self._write(self._rows, rows)
        self._write(self._cache, cache)
        self._write(self._words, np.array([place], np.uint32), PIECES + 1)
        self._launch([("attend", layer, 1)])
        read = webgpu.read(self.device, self._rows, rows)
        return read, webgpu.read(self.device, self._cache, cache)

    def compute_scores(self, given: np.ndarray) -> np.ndarray:
        """Return the scores of the next word at each place, float32 of shape (49, 64).

        Args:
            given: the label's word and the words after it, of shape (49,).
        """
        self._write(self._words, given.astype(np.uint32))
        scores = []
        layers = [(name, layer, groups) for layer in range(LAYERS) for name, groups in STEPS]
        for place in range(PIECES):
            self._write(self._words, np.array([place], np.uint32), PIECES + 1)
            self._launch([("begin", 0, 1), *layers, ("judge", 0, 1)])
            scores.append(webgpu.read(self.device, self._rows, self.rows)[SCORES : SCORES + writer.WORDS])
        return np.stack(scores)


# ---------------------------------------------------------------------------------------------- the check


@checks.print_verdict
def check_attend(source: str) -> Iterator[str]:
    """Exercise 3: exercise 2's attention in WGSL, for a web page."""
    tried = lesson_14.run_judge(judge_attend, source)
    yield checks.keep_right("attend", source, tried)


def judge_attend(source: str) -> str:
    """Judge the kernel of exercise 3, alone and in the whole network; called in a subprocess."""
    adapter = webgpu.pick_adapter()
    if adapter is None:
        raise NotJudged(webgpu.explain_missing())
    plain = without_comments(source)
    if not re.search(r"@workgroup_size\(\s*4u?\s*\)\s*fn\s+attend\b", plain) or plain.count("@compute") != 1:
        raise NotYet("expected one kernel with the line `@compute @workgroup_size(4)` before `fn attend`, as at first.")
    try:
        network = Network(webgpu.request_device(adapter), source)
    except KernelError as error:
        raise NotYet("\n".join(filter(None, (error.what, error.why, wgsl_checks.suggest_fix(error.why))))) from None
    _judge_alone(network)
    away = _compare_digit(network)
    tried = f"{len(CASES)} launches, and a whole 7, its scores at most {away:.0e} from those of OpenCL"
    return f"{tried}, on {webgpu.name(adapter)}"


def _judge_alone(network: Network) -> None:
    """Refuse a kernel that computes wrong answers, or keeps the new key and value wrongly."""
    rng, steps, answers = kernel_checks.make_generator(), [], []
    for layer, place in CASES:
        launch = f"layer {layer}, place {place}"
        print(launch, flush=True)
        rows, cache = _draw_case(layer, place, rng)
        after, held = network.attend(rows, cache, layer, place)
        step = Step(rows[Q : Q + 3 * WIDTH].reshape(3, HEADS, DEPTH), cache[:, layer], place)
        _refuse_wrong_place(cache, held, step.keep_new(), layer, launch)
        if not np.array_equal(after[:Q], rows[:Q]):
            raise NotYet(f"{launch}: the kernel changes other rows than its answers.")
        steps.append(step)
        answers.append(after[ANSWERS : ANSWERS + WIDTH].reshape(HEADS, DEPTH))
    for (layer, place), step, answer in zip(CASES, steps, answers, strict=True):
        where = f"layer {layer}, place {place}"
        lesson_16b.refuse_wrong_answer(answer, step.compute_answer(), where, name_mistake(steps, answers))


def _draw_case(layer: int, place: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and a cache whose unwritten places hold other numbers; the last head's scores lie below -100."""
    rows = rng.normal(size=ROWS).astype(np.float32)
    cache = rng.normal(size=(2, *CACHE)).astype(np.float32)
    last = WIDTH - DEPTH
    rows[Q + last : Q + WIDTH] = 10
    rows[K + last : K + WIDTH] = rows[K + last : K + WIDTH] / 20 - 4
    cache[0, layer, -1] = cache[0, layer, -1] / 20 - 4
    return rows, cache


def _refuse_wrong_place(before: np.ndarray, after: np.ndarray, expected: np.ndarray, layer: int, launch: str) -> None:
    """Refuse a launch that does not keep the new key and value, or not in their place alone.

    Args:
        before, after: the cache, of shape (2, layers, heads, places, 16).
        expected: that of the layer.
        layer: of the launch.
        launch: in words.
    """
    if np.array_equal(before, after):
        raise NotDone(f"the kernel keeps nothing in the cache ({launch}).")
    right = before.copy()
    right[:, layer] = expected
    for which, what in enumerate(("key", "value")):
        if np.array_equal(before[which], after[which]):
            raise NotYet(f"{launch}: the new {what} is not kept in the cache, so no later piece can see it.")
        wrong = np.argwhere(after[which] != right[which])
        if len(wrong):
            in_layer, head, place, c = map(int, wrong[0])
            where = f"layer {in_layer}, head {head}, place {place}, number {c}"
            held = right[which, in_layer, head, place, c]
            came = after[which, in_layer, head, place, c]
            raise NotYet(f"{launch}: the cache of {what}s, {where}: expected {held:.6g}, came {came:.6g}.")


def _compare_digit(network: Network) -> float:
    """Return how far the scores of a digit are at most from those of the same digit in OpenCL; refuse a large gap."""
    import pyopencl as cl

    context = cl.Context([opencl.pick_device()])
    queue = cl.CommandQueue(context)
    choose = cl.Kernel(opencl.build(context, lesson_16b.CHOOSE), "choose")
    labels = np.array([7])
    alone = Writer(queue, writer.load_writer()[1], 1)
    alone.begin(labels, seed=0)
    expected = []
    for place in range(PIECES):
        alone.extend(place)
        expected.append(alone.read_scores()[0])
        alone.choose(choose, 1)
    scores = network.compute_scores(writer.begin(labels, alone.read_words())[0])
    away = np.abs(scores - np.stack(expected)).max(axis=1)
    if not (away < CLOSE).all():
        place = int(np.flatnonzero(~(away < CLOSE))[0])
        raise NotYet(f"a whole 7: at place {place} a score is {away[place]:.2g} away from the one of OpenCL.")
    return float(away.max())


# ---------------------------------------------------------------------------------------------- the page


def build_page(attend: str) -> str:
    """Return a page that writes digits with the kernel of exercise 3, as HTML that needs nothing else."""
    return web_pages.fill("own_writer.html", "gpu", "digit", "reader", "writer", "own_writer", attend=attend)


def write_page(attend: str) -> None:
    """Write the page with the kernel of exercise 3 into PAGE, and print where it is."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(build_page(attend), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT).as_posix()}: {PAGE.stat().st_size / 1e3:.0f} KB")
