"""The doors of the application, each with the addresses it answers."""

from django.urls import path

from sends.health import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
]
