"""The course's own environment variables, what each means, its default; docs/commands.md has those that people set."""

from __future__ import annotations

from typing import NamedTuple

PROFILE = "ANYGPU_PROFILE"
MNIST = "ANYGPU_MNIST"
PATIENCE = "ANYGPU_PATIENCE"
GRADE = "ANYGPU_GRADE"
WHOLE = "ANYGPU_WHOLE"
OPENCL_PROOFS = "ANYGPU_OPENCL_PROOFS"
RECORD = "ANYGPU_RECORD"
KEY = "ANYGPU_KEY"
JUDGE_IN_SAME_PROCESS = "ANYGPU_JUDGE_IN_SAME_PROCESS"


class Variable(NamedTuple):
    """What a variable is for."""

    meaning: str
    default: str  # what holds where it is unset
    set_by: str  # you, or what sets it for the processes that it starts


TABLE = {
    PROFILE: Variable("how much work a lesson does: `preview`, `lab`, or `full` (a fast GPU)", "`lab`", "you"),
    MNIST: Variable("a path to `mnist.npz`, if it cannot be downloaded", "a download", "you"),
    PATIENCE: Variable("how many times longer lesson 09's runs may take on a busy machine", "`1`", "you"),
    GRADE: Variable("`1`: a wrong or untouched exercise raises an error", "no", "`run --grade`"),
    WHOLE: Variable("`1`: a lesson trains every epoch, however long it takes", "no", "`store`"),
    OPENCL_PROOFS: Variable("whether each OpenCL device was found to compute right", "none", "a check"),
    RECORD: Variable("the file to which lessons add the numbers that they measure", "none", "`run --record`"),
    KEY: Variable("the secret by which the processes of one run know each other", "none", "lesson 09"),
    JUDGE_IN_SAME_PROCESS: Variable("`1`: kernels are judged in the learner's process", "no", "tests"),
}
