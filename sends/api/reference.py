"""The agents' door described for people: plain HTML, made from the same description as OpenAPI."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from ninja import NinjaAPI

from sends.api.problems import TITLES


@require_safe
def reference(request: HttpRequest, api: NinjaAPI) -> HttpResponse:
    """Swagger's page needs inline scripts; this one needs none."""
    described = api.get_openapi_schema()
    paths: dict[str, dict[str, Any]] = described["paths"]
    operations = [
        {"method": method.upper(), "path": path, **operation}
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]
    return render(
        request,
        "sends/api/reference.html",
        {"title": described["info"]["title"], "operations": operations, "problems": TITLES},
    )
