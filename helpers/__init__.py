"""The small package behind the lessons and the commands; importing it loads nothing heavy."""
