"""helpers.compute.models: the articles' networks on both backends."""

import pytest
from on_backend import seen  # noqa: F401  (a fixture)


def test_the_networks_are_those_of_the_articles(seen):  # noqa: F811
    networks = seen["networks"]
    assert networks["parameters"] == [669_706, 1_199_882, 669_706]
    assert networks["shapes"] == [[[None, 784], [None, 10]], [[None, 28, 28, 1], [None, 10]]]
    assert networks["dtypes"] == ["uint8", "uint8"]


def test_without_dropout_a_training_repeats_itself_and_learns(seen):  # noqa: F811
    once, again = seen["networks"]["trainings"]
    assert once == pytest.approx(again, rel=1e-6)
    assert len(once) == 4  # a step is an epoch
    assert once[0] == pytest.approx(seen["networks"]["before"], rel=1e-5)  # the loss before the step
    assert min(once[1:]) < once[0]


def test_nothing_is_written_past_python_and_no_warning(seen):  # noqa: F811
    assert seen["err"] == ""
