"""Every address of the dashboard, room by room."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import include, path

from sends.conf import conf
from sends.dashboard.parts import parts


def still_to_come(request: HttpRequest) -> HttpResponse:
    return render(request, "404.html", status=404)


app_name = "dashboard"
urlpatterns = [
    path("", include("sends.dashboard.start")),
    path("", include("sends.dashboard.live")),
    path("", include("sends.dashboard.switches")),
    path("", include("sends.dashboard.preview")),
    path("", include("sends.dashboard.approvals")),
    path("", include("sends.dashboard.editing")),
    path("", include("sends.dashboard.deadletters")),
    # Each room that lands takes the place of its line.
    path("uncertain/", still_to_come, name="uncertain"),
    path("anomalies/", still_to_come, name="anomalies"),
    path("messages/", still_to_come, name="messages"),
    path("runs/", still_to_come, name="runs"),
]
if conf.show_parts:
    urlpatterns.append(path("parts/", parts, name="parts"))
