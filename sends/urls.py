"""The doors of the application, each with the addresses it answers."""

from django.urls import include, path

from sends.health import healthz
from sends.webhooks import receive

urlpatterns = [
    path("api/v1/", include("sends.api.urls")),
    path("", include("sends.dashboard.urls")),
    path("", include("sends.signin.urls")),
    path("healthz", healthz, name="healthz"),
    path("webhooks/<slug:account>", receive, name="webhook"),
]
