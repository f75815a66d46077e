"""The addresses of the agents' door, all under /api/v1/."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, include, path, re_path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI

from sends.api import intents, problems, runs
from sends.api.reference import reference

api = NinjaAPI(
    title="Outbox Admin",
    version="1",
    description="Propose email as an agent, and see what became of it.",
    docs_url=None,  # its page needs inline scripts, which our policy forbids
    openapi_url="/openapi.json",
    urls_namespace="api",
)
api.add_router("", intents.router)
api.add_router("", runs.router)
problems.register(api)


def with_problems(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """The view, with a problem where ninja refuses the method by itself, in plain text."""

    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        answer = view(request, *args, **kwargs)
        if answer.status_code == 405:
            return problems.method_not_allowed(request, answer)
        return answer

    return answered


patterns, app_name, namespace = api.urls
for pattern in patterns:
    if isinstance(pattern, URLPattern):
        pattern.callback = with_problems(pattern.callback)

urlpatterns = [
    path("docs", reference, {"api": api}, name="api-reference"),
    path("", include((patterns, app_name), namespace=namespace)),
    re_path("", csrf_exempt(problems.not_found)),
]
