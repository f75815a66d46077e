"""The page for what went wrong on our side."""

import logging
import secrets
import sys

from django.http import HttpRequest, HttpResponse, HttpResponseServerError
from django.template import loader

logger = logging.getLogger(__name__)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answers with a reference by which the log's traceback is found."""
    reference = secrets.token_hex(4)
    failed = sys.exc_info()
    logger.error("reference %s: %s %s", reference, request.method, request.path, exc_info=failed)
    page = loader.get_template("500.html")
    try:
        said = page.render({"reference": reference}, request)
    except Exception:
        # The frame asks the database, and that may be what fails: then the page stands alone.
        logger.exception("reference %s: no frame around the error page either", reference)
        said = page.render({"reference": reference})
    return HttpResponseServerError(said)
