"""The doors of the application, each with the addresses it answers."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from sends.health import healthz
from sends.webhooks import receive

urlpatterns = [
    path("api/v1/", include("sends.api.urls")),
    path("", include("sends.dashboard.urls")),
    path("login/", LoginView.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("healthz", healthz, name="healthz"),
    path("webhooks/<slug:account>", receive, name="webhook"),
]
