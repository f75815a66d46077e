"""The only reader of django.conf.settings: what this installation is, as one frozen object."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.conf import settings

from sends.rules.limits import Limits


@dataclass(frozen=True)
class Conf:
    url: str  # scheme, host and port, without a slash at the end
    data_dir: Path
    port: int  # of the web server on this machine
    sandbox_port: int
    worker_threads: int  # the most requests that one drain has on the wire
    worker_drains: int
    web_workers: int
    web_threads: int
    limits: Limits
    api_rate: int  # requests of each token a minute, and
    api_burst: int  # at once
    api_failures: int  # of each address a minute, without a valid token
    sends_mail: bool  # to the people who sign in: invitations, links to a new password
    known_for: timedelta  # after showing who one is, before it is asked again
    show_parts: bool  # the page with every part the screens are made of

    @property
    def worker_beat(self) -> Path:
        """Touched while a worker lives: its age says whether one does."""
        return self.data_dir / "worker.beat"

    @property
    def worker_stopping(self) -> Path:
        """There while the worker is asked to stop: its drains claim nothing more."""
        return self.data_dir / "worker.stopping"


conf = Conf(
    url=settings.OUTBOX_URL,
    data_dir=settings.DATA_DIR,
    port=settings.PORT,
    sandbox_port=settings.SANDBOX_PORT,
    worker_threads=settings.WORKER_THREADS,
    worker_drains=settings.WORKER_DRAINS,
    web_workers=settings.WEB_WORKERS,
    web_threads=settings.WEB_THREADS,
    limits=settings.LIMITS,
    api_rate=settings.API_RATE,
    api_burst=settings.API_BURST,
    api_failures=settings.API_FAILURES,
    sends_mail=bool(settings.MAIL),
    known_for=settings.KNOWN_FOR,
    show_parts=settings.SHOW_PARTS,
)
