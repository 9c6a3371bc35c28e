"""Lesson 16b's transformer on an OpenCL device: the kernels between the learner's own, and the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import opencl
from helpers.lessons import lesson_16, lesson_16b
from helpers.training.transformer import DEPTH, EPSILON, HEADS, LAYERS, PIECES, WIDTH
from helpers.training.writer import HIDDEN, WORDS

if TYPE_CHECKING:
    import pyopencl as cl

    from helpers.training.transformer import Weights

ROOM = PIECES  # places of the cache for each head
GROUP = 16  # work-items
ASKED = "query", "key", "value"
PARTS = (
    "ask",
    "combine",
    "spread",
    "gather",
)  # of a layer, in the order of their launches; attention comes after the first
# A row is one place of one digit. Work-items: four numbers of a row each (in `begin`, one), then the rows.
KERNELS = (
    f"""
#define WIDTH {WIDTH}
#define D {DEPTH}
#define HEADS {HEADS}
#define PLACES {PIECES}
#define EPSILON {EPSILON}f
"""
    + """
float4 multiply(__global const float *row, __global const float *weights, int inputs, int outputs, int o) {
    float4 sum = 0;
    for (int i = 0; i < inputs; i++) sum += row[i] * vload4(o, weights + i * outputs);
    return sum;
}
// The same for a row that is brought to the mean 0 and the variance 1: scale and shift are in the weights already.
float4 multiply_normal(__global const float *row, __global const float *weights, int outputs, int o) {
    float mean = 0, variance = 0;
    float4 sum = 0;
    for (int i = 0; i < WIDTH; i++) mean += row[i] / WIDTH;
    for (int i = 0; i < WIDTH; i++) variance += (row[i] - mean) * (row[i] - mean) / WIDTH;
    for (int i = 0; i < WIDTH; i++) sum += (row[i] - mean) * vload4(o, weights + i * outputs);
    return sum / sqrt(variance + EPSILON);
}
// Keeps each digit's last word, begins the rows of n places, and lays out the number that decides the next word.
__kernel void begin(__global const int *words, __global int *given, __global const float *table,
                    __global const float *places, __global float *x, __global const float *chances,
                    __global float *chance, int place, int first) {
    int c = get_global_id(0), row = get_global_id(1), digit = get_global_id(2), n = get_global_size(1);
    int is_last = first + row == place, word = is_last ? words[digit] : given[digit * PLACES + first + row];
    if (c == 0 && is_last) {
        given[digit * PLACES + place] = word;
        chance[digit] = chances[digit * PLACES + place];
    }
    x[(digit * n + row) * WIDTH + c] = table[word * WIDTH + c] + places[(first + row) * WIDTH + c];
}
__kernel void ask(__global const float *x, __global const float *weights, __global const float *bias,
                  __global float *q, __global float *k, __global float *v, int n) {
    int o = get_global_id(0), row = get_global_id(1), part = 4 * o / WIDTH, head = 4 * o % WIDTH / D;
    float4 numbers = vload4(o, bias) + multiply_normal(x + row * WIDTH, weights, 3 * WIDTH, o);
    __global float *out = part == 0 ? q : part == 1 ? k : v;
    vstore4(numbers, 0, out + ((row / n * HEADS + head) * n + row % n) * D + 4 * o % D);
}
__kernel void combine(__global const float *answers, __global const float *weights, __global const float *bias,
                      __global float *x, int n) {
    int o = get_global_id(0), row = get_global_id(1);
    float4 sum = vload4(o, bias);
    for (int head = 0; head < HEADS; head++) {
        int first = ((row / n * HEADS + head) * n + row % n) * D;
        sum += multiply(answers + first, weights + head * D * WIDTH, D, WIDTH, o);
    }
    vstore4(vload4(o, x + row * WIDTH) + sum, o, x + row * WIDTH);
}
__kernel void spread(__global const float *x, __global const float *weights, __global const float *bias,
                     __global float *hidden) {
    int o = get_global_id(0), row = get_global_id(1), outputs = 4 * get_global_size(0);
    float4 sum = vload4(o, bias) + multiply_normal(x + row * WIDTH, weights, outputs, o);
    vstore4(fmax(sum, 0.0f), o, hidden + row * outputs);
}
__kernel void gather(__global const float *hidden, __global const float *weights, __global const float *bias,
                     __global float *x, int inputs) {
    int o = get_global_id(0), row = get_global_id(1);
    float4 sum = vload4(o, bias) + multiply(hidden + row * inputs, weights, inputs, WIDTH, o);
    vstore4(vload4(o, x + row * WIDTH) + sum, o, x + row * WIDTH);
}
__kernel void nothing(__global float *x) {
    if (get_global_id(0) == get_global_size(0)) x[0] = 0;  // never
}
// The scores of the word after the last of each digit's n rows.
__kernel void judge(__global const float *x, __global const float *weights, __global const float *bias,
                    __global float *scores, int n) {
    int o = get_global_id(0), digit = get_global_id(1), outputs = 4 * get_global_size(0);
    float4 sum = vload4(o, bias) + multiply_normal(x + (digit * n + n - 1) * WIDTH, weights, outputs, o);
    vstore4(sum, o, scores + digit * outputs);
}
"""
)


class Writer:
    """The network, with room for some digits that are written side by side.

    Attributes:
        launches: kernels that were launched since the last `begin`.
        rows: rows that went through the network since then, of all digits.
        pairs: queries with a key, in one head of one layer, since then, of all digits.

    Args:
        queue: of the device.
        weights: by name.
        digits: how many are written side by side.
        attend_new: kernel of exercise 2, for one new row beside the cache; lesson 16's computes all rows again.
    """

    def __init__(
        self, queue: cl.CommandQueue, weights: Weights, digits: int, attend_new: str = lesson_16b.ATTEND_NEW
    ) -> None:
        import pyopencl as cl

        self.queue, self.digits = queue, digits
        self._context = queue.context  # held: Intel's driver ends one that its queue alone holds
        program = opencl.build(self._context, KERNELS)
        self._kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}
        self._attention = cl.Kernel(opencl.build(self._context, lesson_16.ATTENTION), "attention")
        self._attend_new = cl.Kernel(opencl.build(self._context, attend_new), "attend_new")
        self._weights = {name: self._store(array) for name, array in pack(weights).items()}
        rows = digits * PIECES
        self._x, self._q, self._k, self._v, self._answers = (self._reserve(rows * WIDTH) for _ in range(5))
        self._hidden, self._scores = self._reserve(rows * HIDDEN), self._reserve(digits * WORDS)
        self._caches = [[self._reserve(digits * HEADS * ROOM * DEPTH) for _ in "kv"] for _ in range(LAYERS)]
        self._given, self._chances, self._words, self._chance = map(self._reserve, (rows, rows, digits, digits))
        self.launches = self.rows = self.pairs = 0

    def _reserve(self, numbers: int) -> cl.Buffer:
        return self._store(np.zeros(numbers, np.float32))

    def _store(self, array: np.ndarray) -> cl.Buffer:
        import pyopencl as cl

        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self._context, flags, hostbuf=np.ascontiguousarray(array, np.float32))

    def begin(self, labels: Sequence[int] | np.ndarray, seed: int) -> None:
        """Begin new digits: the first word of each is its label, and nothing is counted yet.

        Args:
            labels: a digit from 0 to 9 for each, of shape (digits,).
            seed: of the random numbers that decide the words.
        """
        import pyopencl as cl

        cl.enqueue_copy(self.queue, self._words, np.asarray(labels, np.int32) + np.int32(WORDS))
        # Multiples of a power of 2 that float32 holds exactly: each is below 1, and stays below if it is multiplied.
        chances = np.random.default_rng(seed).integers(0, 2**20, self.digits * PIECES) / np.float32(2**20)
        cl.enqueue_copy(self.queue, self._chances, chances.astype(np.float32))
        self.launches = self.rows = self.pairs = 0

    def read_words(self) -> np.ndarray:
        """Return the words of each digit, int32 of shape (digits, 49)."""
        import pyopencl as cl

        given, last = np.empty((self.digits, PIECES), np.int32), np.empty((self.digits, 1), np.int32)
        cl.enqueue_copy(self.queue, given, self._given)
        cl.enqueue_copy(self.queue, last, self._words)
        return np.concatenate([given[:, 1:], last], axis=1)

    def read_scores(self) -> np.ndarray:
        """Return the scores of each digit's next word, float32 of shape (digits, 64)."""
        import pyopencl as cl

        scores = np.empty((self.digits, WORDS), np.float32)
        cl.enqueue_copy(self.queue, scores, self._scores)
        return scores

    def count_cache_bytes(self) -> int:
        """Return the bytes of the buffers that hold the keys and values of one digit, in all layers."""
        return sum(buffer.size for layer in self._caches for buffer in layer) // self.digits

    def recompute(self, place: int) -> None:
        """Compute the scores of the word after the one at a place, from all rows up to there.

        Args:
            place: of the last word, from 0, where the label is.
        """
        self._run(place, 0, self._attend_again)

    def extend(self, place: int) -> None:
        """Compute the same from one new row and the cache, which holds what the rows before it left there."""
        self._run(place, place, self._attend_beside_cache)

    def launch_nothing(self) -> None:
        """Launch as many kernels as the scores of a piece take; these do nothing."""
        for _ in range(2 + LAYERS * (1 + len(PARTS))):
            self._launch("nothing", (GROUP,), self._x)

    def choose(self, kernel: cl.Kernel, temperature: float) -> None:
        """Let a kernel choose each digit's next word by its scores.

        Args:
            kernel: `choose` of exercise 1.
            temperature: above 0.
        """
        given = self._scores, self._chance, self._words, np.float32(temperature)
        kernel(self.queue, (WORDS * self.digits,), (WORDS,), *given)
        self.launches += 1

    def _run(self, place: int, first: int, attend: Callable[[int, int], None]) -> None:
        w, x, n, rows = self._weights, self._x, place + 1 - first, self.digits * (place + 1 - first)
        given = self._words, self._given, w["words"], w["places"], x, self._chances, self._chance
        self._launch("begin", (WIDTH, n, self.digits), *given, place, first)
        for layer in range(LAYERS):
            ask, combine, spread, gather = ((w[f"{layer}{part}"], w[f"{layer}{part} bias"]) for part in PARTS)
            self._launch("ask", (3 * WIDTH // 4, rows), x, *ask, self._q, self._k, self._v, n)
            attend(layer, place)
            self._launch("combine", (WIDTH // 4, rows), self._answers, *combine, x, n)
            self._launch("spread", (HIDDEN // 4, rows), x, *spread, self._hidden)
            self._launch("gather", (WIDTH // 4, rows), self._hidden, *gather, x, HIDDEN)
        self._launch("judge", (WORDS // 4, self.digits), x, w["scores"], w["scores bias"], self._scores, n)
        self.rows += rows

    def _attend_again(self, _: int, place: int) -> None:
        """Compute causal attention for all rows up to a place by lesson 16's kernel."""
        n = place + 1
        given = self._q, self._k, self._v, self._answers, np.int32(n), np.int32(True)
        self._attention(self.queue, (n, HEADS * self.digits), None, *given)
        self._count(n * (n + 1) // 2)

    def _attend_beside_cache(self, layer: int, place: int) -> None:
        """Compute attention for the row at a place, which the kernel keeps in the cache of its layer."""
        given = self._q, self._k, self._v, *self._caches[layer], self._answers, np.int32(place), np.int32(ROOM)
        self._attend_new(self.queue, (HEADS * self.digits,), None, *given)
        self._count(place + 1)

    def _count(self, pairs: int) -> None:
        self.launches += 1
        self.pairs += self.digits * HEADS * pairs

    def _launch(self, name: str, items: tuple[int, ...], *arguments: cl.Buffer | int) -> None:
        given = [np.int32(each) if isinstance(each, int) else each for each in arguments]
        # Groups of one size: PoCL compiles a kernel again for each size, and would choose others for other rows.
        self._kernels[name](self.queue, items, (GROUP, *(1 for _ in items[1:])), *given)
        self.launches += 1


def pack(weights: Weights) -> dict[str, np.ndarray]:
    """Return the weights as the kernels read them: queries, keys and values side by side, normalizations multiplied in.

    Args:
        weights: by name.
    """

    def fold(normal: str, kernel: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a dense layer that also scales and shifts its row as a normalization does."""
        scale, shift = weights[f"{normal}.gamma"], weights[f"{normal}.beta"]
        return scale[:, None] * kernel, shift @ kernel + bias

    packed = {"words": weights["words.kernel"], "places": weights["words.bias"]}
    for number in range(LAYERS):
        layer = f"layer{number}_"
        asked = [(weights[f"{layer}{part}.kernel"], weights[f"{layer}{part}.bias"]) for part in ASKED]
        kernel = np.concatenate([each.reshape(WIDTH, WIDTH) for each, _ in asked], axis=1)
        bias = np.concatenate([each.reshape(WIDTH) for _, each in asked])
        found = {
            "ask": fold(layer + "before", kernel, bias),
            "combine": (weights[f"{layer}mix.kernel"], weights[f"{layer}mix.bias"]),
            "spread": fold(layer + "between", weights[f"{layer}hidden.kernel"], weights[f"{layer}hidden.bias"]),
            "gather": (weights[f"{layer}back.kernel"], weights[f"{layer}back.bias"]),
        }
        for part, (kernel, bias) in found.items():
            packed |= {f"{number}{part}": kernel, f"{number}{part} bias": bias}
    packed["scores"], packed["scores bias"] = fold("after", weights["scores.kernel"], weights["scores.bias"])
    return packed
