"""The small package behind the lessons and the commands; importing it loads nothing heavy."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # the workshop's folder

# JAX and TensorFlow take nearly all of a GPU's memory at their start, and each open notebook is a process of its own:
# the second one would find none. https://docs.jax.dev/en/latest/gpu_memory_allocation.html and
# https://www.tensorflow.org/guide/gpu
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
