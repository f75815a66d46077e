"""A worker in a process of its own that stops where a test says; see `stage.Puppet`.

It obeys lines on stdin: "drain" and "tend" do that once. At each point that its arguments name it
says `reached POINT` once and waits for the line "go": there a test can kill it, or stop it and let
it go on later. The product knows nothing of this: its functions are wrapped from outside.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

# From the inside of the claim's transaction up to the moment after the result was committed.
POINTS = ("claiming", "claimed", "dispatched", "answered", "saving", "saved")


class Strings:
    """What the puppet hangs on: where it is to stop, and the one who says when to go on."""

    def __init__(self, points: set[str]) -> None:
        self._points = points
        self._lock = threading.Lock()

    def say(self, *words: object) -> None:
        print(*words, flush=True)  # noqa: T201

    def hear(self) -> str:
        return sys.stdin.readline().strip()

    def stop_at(self, point: str) -> None:
        with self._lock:
            if point not in self._points:
                return
            self._points.remove(point)
        self.say("reached", point)
        if self.hear() != "go":
            os._exit(3)  # who pulled the strings is gone

    def after(self, point: str, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step, and then a stop if anything came of it."""

        def stopping(*args: Any, **options: Any) -> Any:
            result = step(*args, **options)
            if result is None or result:
                self.stop_at(point)
            return result

        return stopping

    def before(self, point: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def stopping(*args: Any, **options: Any) -> Any:
            self.stop_at(point)
            return step(*args, **options)

        return stopping


def main() -> None:
    import django

    django.setup()

    from sends.lifecycle import claim, settle, watchdog, worker

    strings = Strings(set(sys.argv[1:]))
    pieces: list[tuple[Any, str, str, Any]] = [
        (claim, "seal", "claiming", strings.after),
        (worker, "claim", "claimed", strings.after),
        (worker, "submit", "dispatched", strings.before),
        (worker, "submit", "answered", strings.after),
        (settle, "decide", "saving", strings.after),
        (worker, "settle", "saved", strings.after),
    ]
    for module, name, point, where in pieces:
        setattr(module, name, where(point, getattr(module, name)))

    commands = {"drain": worker.drain, "tend": lambda: watchdog.tend(sweep_too=True)}
    strings.say("ready")
    while command := strings.hear():
        strings.say("ended", commands[command]())


if __name__ == "__main__":
    main()
