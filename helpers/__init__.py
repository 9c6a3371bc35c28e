"""The small package behind the lessons and the commands; importing it loads nothing heavy."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # the workshop's folder
