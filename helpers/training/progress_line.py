"""How far a training is, in one line, and the seconds that it may take; `training.progress` hands it to Keras."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras

REDRAW = 0.5  # seconds between two looks at a training that runs


class Line:
    """One line of output that is replaced in its place in a notebook; elsewhere only its end is printed.

    Args:
        text: what it says at first.
    """

    def __init__(self, text: str) -> None:
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        self._handle = None
        if hasattr(shell, "kernel"):
            from IPython.display import display

            self._handle = display({"text/plain": text}, raw=True, display_id=True)

    def show(self, text: str) -> None:
        """Replace what the line says."""
        if self._handle:
            self._handle.update({"text/plain": text}, raw=True)

    def end(self, text: str) -> None:
        """Replace what the line says for the last time."""
        self.show(text)
        if not self._handle:
            print(text, flush=True)


class Progress:
    """Shows one line while a network trains, and stops the training when its budget of seconds is spent.

    Keras calls the methods `on_...`. The class does not name Keras' own as its base, for importing that takes seconds:
    `training.progress` puts the two together.

    Args:
        title: what is trained.
        budget: seconds that the training may take after its first step, which builds the computation, too.
        others: what the lesson calls the images of `validation_data`.
    """

    model: keras.Model  # Keras sets it, and `params`
    params: dict[str, Any]  # "epochs", and the "steps" of one: None where the data come from a generator
    _line: Line

    def __init__(self, title: str, budget: float, others: str) -> None:
        super().__init__()
        self.title, self.budget, self.others = title, budget, others
        self.epochs = 0.0  # how many have been trained; not always a whole number
        self.epoch_seconds = 0.0  # how long one takes here, validation included
        self.seconds = 0.0  # how long the training has taken
        self.out_of_time = False  # whether the budget has ended it
        self._began = self._drawn = 0.0
        self._epoch = 0  # the one that runs, from 0
        self._first: tuple[float, float] | None = None  # seconds and epochs at the end of the first step

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Begin anew: one object may serve several trainings."""
        self.epochs = self.epoch_seconds = self.seconds = 0.0
        self.out_of_time, self._first = False, None
        self._began = self._drawn = time.perf_counter()
        self._line = Line(f"{self.title}: gets ready")

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Remember which epoch runs."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Stop a training whose budget is spent; otherwise draw the line from time to time."""
        steps = self.params["steps"]
        self._measure(self._epoch + min((batch + 1) / steps, 1) if steps else self._epoch)
        if self._counted > self.budget and self.epochs < self.params["epochs"]:
            self._stop()
        elif self._began + self.seconds - self._drawn > REDRAW:
            self._drawn = self._began + self.seconds
            step = f"step {batch + 1} of {steps}" if steps else f"step {batch + 1}"
            self._show(f", {step}")

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Draw the line, and stop a training whose budget has no room for another epoch."""
        if self.model.stop_training:
            return
        self._measure(epoch + 1)
        self._show(self._results(logs))
        if self.epochs < self.params["epochs"] and self._counted + self.epoch_seconds > self.budget:
            self._stop()

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        """Say for the last time how far the training came, and why no further."""
        self.seconds = time.perf_counter() - self._began
        wanted, took, kept = self.params["epochs"], f"{self.seconds:.1f} s", ""
        epochs = "1 epoch" if wanted == 1 else f"{wanted} epochs"
        if self.out_of_time:
            done = f"{self.epochs:.3g} of {epochs} in {took}: one takes {self.epoch_seconds:.3g} s after the start"
        elif self.epochs < wanted:
            done = f"stopped by you after {self.epochs:.3g} of {epochs} and {took}"
            kept = " | what was learned until then is kept"
        else:
            done = f"{epochs} in {took}"
        self._line.end(f"{self.title}: {done}{self._results(logs)}{kept}")

    def _measure(self, epochs: float) -> None:
        """Note how far the training is, and how long an epoch takes without the first step, which compiles, too."""
        self.epochs, self.seconds = epochs, time.perf_counter() - self._began
        since, already = self._first or (0.0, 0.0)
        if epochs > already:
            self.epoch_seconds = (self.seconds - since) / (epochs - already)
            self._first = self._first or (self.seconds, epochs)

    @property
    def _counted(self) -> float:
        """The seconds since the end of the first step, which the budget counts."""
        return self.seconds - (self._first[0] if self._first else 0.0)

    def _stop(self) -> None:
        """End the training after this step."""
        self.model.stop_training = self.out_of_time = True

    def _show(self, where: str) -> None:
        """Draw the line, with the seconds that are left."""
        wanted = self.params["epochs"]
        left = min(self.epoch_seconds * (wanted - self.epochs), self.budget - self._counted)
        self._line.show(f"{self.title}: epoch {self._epoch + 1} of {wanted}{where} | {max(left, 0):.0f} s left")

    def _results(self, logs: dict[str, float] | None) -> str:
        """Say how many images are classified right, as far as Keras knows."""
        text = ""
        for name, images in (("accuracy", "training images"), ("val_accuracy", self.others)):
            if logs and name in logs:
                text += f" | {images} {100 * logs[name]:.2f} %"
        return text
