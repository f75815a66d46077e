"""Every address is one of `sends`."""

from django.urls import include, path

urlpatterns = [path("", include("sends.urls"))]
handler400 = "sends.errors.bad_request"
handler500 = "sends.errors.server_error"
