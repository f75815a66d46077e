"""The addresses of the agents' door, all under /api/v1/."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern, include, path, re_path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from sends.api import allowances, batches, intents, problems, runs, simulations
from sends.api.openapi import DescribedAPI
from sends.api.reference import reference

api = DescribedAPI(
    title="Outbox Admin",
    version="1",
    description="Propose email as an agent, and see what became of it.",
    docs_url=None,  # its page needs inline scripts, which our policy forbids
    openapi_url="/openapi.json",
    docs_decorator=require_safe,
    urls_namespace="api",
)
api.add_router("", intents.router)
api.add_router("", batches.router)
api.add_router("", simulations.router)
api.add_router("", runs.router)
problems.register(api)


def at_the_door(
    view: Callable[..., HttpResponseBase], *, answers: str = "application/json"
) -> Callable[..., HttpResponseBase]:
    """The view, with what holds for all of them before and after it.

    HEAD is answered as GET without its content. `answers` is the type of what goes well.
    """

    @csrf_exempt  # tokens are no cookies: no browser sends one along
    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.headers.get("Accept") and not request.accepts(answers):
            answer: HttpResponseBase = problems.not_acceptable(answers)
        elif request.method == "HEAD":
            request.method = "GET"
            answer = view(request, *args, **kwargs)
            request.method = "HEAD"
        else:
            answer = view(request, *args, **kwargs)
        return _finished(request, answer)

    return answered


def _finished(request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
    if answer.status_code == 405:
        answer = problems.method_not_allowed(request, answer)
    elif answer.status_code == 401 and (refusal := allowances.refuse_failing(request)):
        answer = problems.said(refusal).response()
    if allowance := getattr(request, "allowance", None):
        for name, value in allowances.headers_of(allowance).items():
            answer[name] = value
    answer.headers.setdefault("Cache-Control", "no-store")
    if request.method == "HEAD" and isinstance(answer, HttpResponse):
        answer["Content-Length"] = str(len(answer.content))
        answer.content = b""
    return answer


# Not called `app_name`: Django would take a variable of that name for one of this module.
routes, kind, namespace = api.urls
for route in routes:
    if isinstance(route, URLPattern):
        route.callback = at_the_door(route.callback)

nothing = at_the_door(problems.not_found)
urlpatterns = [
    path("", nothing),  # before ninja's own root, which answers without a word
    path("docs", at_the_door(reference, answers="text/html"), {"api": api}, name="api-reference"),
    path("", include((routes, kind), namespace=namespace)),
    re_path("", nothing),
]
