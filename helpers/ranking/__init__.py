"""The workshop's benchmark (lesson 11): measure this machine, score it, and place it in the gallery of data/results.

    result = ranking.measure()
    ranking.score(result)
    ranking.draw_gallery(result)

docs/ranking.md says how the score is defined, and what its limits are.
"""

from __future__ import annotations

from helpers.ranking.figures import draw_gallery, draw_tasks
from helpers.ranking.files import compare, gallery, problems_of, read, reference, save
from helpers.ranking.measuring import measure
from helpers.ranking.results import EDITION, Ceiling, Machine, Result, Row, best
from helpers.ranking.scoring import Best, Score, comparable, score
from helpers.ranking.tasks import SCORED, TASKS, Task

__all__ = [
    "EDITION", "SCORED", "TASKS", "Best", "Ceiling", "Machine", "Result", "Row", "Score", "Task", "best", "comparable",
    "compare", "draw_gallery", "draw_tasks", "gallery", "measure", "problems_of", "read", "reference", "save", "score",
]  # fmt: skip
