"""The browser that the tests drive."""

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """The path of a Chromium, or of what is built from one."""
    return next(filter(None, map(shutil.which, NAMES)), None)
