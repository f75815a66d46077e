"""Every address of the dashboard, room by room."""

from django.urls import URLPattern, URLResolver, include, path

from sends.conf import conf
from sends.dashboard.parts import parts

app_name = "dashboard"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("sends.dashboard.start")),
    path("", include("sends.dashboard.live")),
    path("", include("sends.dashboard.switches")),
    path("", include("sends.dashboard.preview")),
    path("", include("sends.dashboard.approvals")),
    path("", include("sends.dashboard.editing")),
    path("", include("sends.dashboard.messages")),
    path("", include("sends.dashboard.message")),
    path("", include("sends.dashboard.followups")),
    path("", include("sends.dashboard.uncertain")),
    path("", include("sends.dashboard.deadletters")),
    path("", include("sends.dashboard.runs")),
    path("", include("sends.dashboard.anomalies")),
    path("", include("sends.dashboard.audit")),
    path("", include("sends.dashboard.people")),
    path("", include("sends.dashboard.tokens")),
]
if conf.show_parts:
    urlpatterns.append(path("parts/", parts, name="parts"))
