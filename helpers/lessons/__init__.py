"""One file a lesson: the checks of its exercises, its own figures, its own machinery."""
