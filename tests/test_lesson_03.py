"""helpers.lessons.lesson_03: what its checks count, and what it prints beside its figures."""

import pytest

from helpers.compute import plaidml
from helpers.lessons import lesson_03

SPLIT = "function (A[M, N]) -> (O) { T[i, r: M, 16] = >(A[i, 16 * q + r]); O[i: M] = >(T[i, r]); }"


@pytest.mark.parametrize(("source", "chain"), [(lesson_03.LARGEST, 1024), (SPLIT, 64)])
def test_the_longest_chain_is_that_of_one_element(source, chain):
    assert lesson_03._longest_chain(source, (2, 1024)) == chain


def test_an_answer_that_follows_from_rules_is_not_called_measured(capsys):
    lesson_03.answer(None, 4)
    lesson_03.answer(3, 4)
    assert capsys.readouterr().out == "no prediction made; answer: 4\nyou predicted: 3\nanswer:        4\n"


def test_every_operation_is_listed_with_its_line():
    table = lesson_03.operations_table()
    assert [row[0] for row in table.rows] == list(plaidml.OPERATIONS)
    row = next(row for row in table.rows if row[0] == "largest of each row")
    assert row[1:3] == ("A: 1152 x 1152", "O[i: M] = >(A[i, j]);")
    assert "one element a work-item" in row[3]
