"""Every address is one of `sends`."""

from django.urls import include, path

urlpatterns = [path("", include("sends.urls"))]
