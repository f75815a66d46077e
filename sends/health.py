"""The answer to "are you up?", for whoever starts or watches this installation."""

import time
from pathlib import Path

from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from sends.conf import conf


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 while this process can read its database; and how long ago the worker last lived.

    `worker_beat_seconds` is null where no worker has run beside this data folder. It says
    nothing against the web server, so it does not change the status.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return JsonResponse({"status": "ok", "worker_beat_seconds": _age(conf.worker_beat)})


def _age(beat: Path) -> float | None:
    try:
        return round(time.time() - beat.stat().st_mtime, 1)
    except FileNotFoundError:
        return None
