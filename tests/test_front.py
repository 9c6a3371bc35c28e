"""README's first screen: promise, badges, commands, figure, and what is shown is what the project has."""

import re

import pytest
from PIL import Image

from helpers.maintain import front

README = front.README.read_text(encoding="utf-8")
FIRST, REST = README.split("\n## ", 1)


def test_the_figure_is_the_one_that_lesson_00_stored():
    png, alt = front.figure()
    path = front.FOLDER / "busy.png"
    assert path.read_bytes() == png, "lesson 00 was stored anew: .venv/bin/python -m helpers.maintain.front"
    assert f"![{alt}](docs/front/busy.png)" in FIRST
    assert path.stat().st_size < 100_000
    with Image.open(path) as image:
        assert image.width <= 760 and image.height <= 320, "promise, commands and figure fit into one screen"
        assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255), "words are black, also on a dark page"


@pytest.mark.parametrize(("name", "words"), front.badges().items())
def test_a_badge_says_what_the_project_says(name, words):
    assert (front.FOLDER / f"{name}.svg").read_text(encoding="utf-8") == front.badge(*words)
    assert re.search(rf"\[!\[[^\]]+\]\(docs/front/{name}\.svg\)\]\([^)]+\)", FIRST)


def test_no_badge_comes_from_a_service():
    assert not re.search(r"\]\(https?:[^)]*\)\]", FIRST) and "<img" not in FIRST


def test_promise_badges_commands_and_figure_come_in_this_order_and_the_tables_follow():
    order = ["**Whatever", "docs/front/python.svg", "workshop.py lab ", "workshop.py test ", "docs/front/busy.png"]
    assert [FIRST.index(one) for one in order] == sorted(FIRST.index(one) for one in order)
    assert REST.startswith("Lessons\n") and REST.partition("\n## ")[2].startswith("Which packages\n")
