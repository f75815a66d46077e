"""The web server."""

import threading
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser, call_command
from django.core.wsgi import get_wsgi_application
from django.db import connections
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from sends.conf import conf
from sends.lifecycle import beats
from sends.management.ports import require_free_port
from sends.models import Program


class Command(BaseCommand):
    help = (
        "Serve the dashboard, the API and the webhooks. SIGTERM lets what is being answered "
        "finish. It speaks no TLS: on the internet it belongs behind a proxy that does."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--bind", default="127.0.0.1", metavar="ADDRESS", help="default: %(default)s"
        )
        parser.add_argument(
            "--port", default=conf.port, type=int, help="default: PORT, or %(default)s"
        )

    def handle(self, *args: Any, bind: str, port: int, **options: Any) -> None:
        require_free_port(bind, port, "Give another one with --port or PORT=.")
        # At each start, so that no release can go on serving the files of the one before.
        try:
            call_command("collectstatic", interactive=False, clear=True, verbosity=0)
        except OSError as error:
            raise CommandError(f"The static files cannot be copied: {error}.") from None
        connections.close_all()  # none may be shared with the processes that are forked now

        def say(server: Any) -> None:
            self.stdout.write(f"listening on http://{bind}:{port}")
            self.stdout.flush()  # before the fork, or each process would say it at its end

        _Server(
            {
                "bind": f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}",
                "worker_class": "gthread",
                "workers": conf.web_workers,
                "threads": conf.web_threads,
                "timeout": 60,
                "graceful_timeout": 10,
                "keepalive": 5,
                "loglevel": "warning",
                "logger_class": _Log,
                "proc_name": "outbox-web",
                "when_ready": say,
                "post_worker_init": _show_life,
                "control_socket_disable": True,  # its default path is one for all installations
                "forwarded_allow_ips": "",  # Django alone reads what a proxy says
            }
        ).run()


def _show_life(worker: Any) -> None:
    threading.Thread(target=beats.keep_beating, args=[Program.WEB], daemon=True).start()


class _Log(Logger):
    """gunicorn's lines among ours."""

    def setup(self, cfg: Any) -> None:
        self.error_log.propagate = True
        self.error_log.setLevel(cfg.loglevel.upper())


class _Server(BaseApplication):
    """gunicorn inside this process, with our settings and no file or variable of its own."""

    def __init__(self, choices: dict[str, Any]) -> None:
        self.choices = choices
        super().__init__()

    def load_config(self) -> None:
        for name, value in self.choices.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return get_wsgi_application()
