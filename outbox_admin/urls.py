"""Every address is one of `sends`."""

from django.urls import include, path

urlpatterns = [path("", include("sends.urls"))]
handler500 = "sends.dashboard.errors.server_error"
