"""The application `sends`."""

from django.apps import AppConfig


class SendsConfig(AppConfig):
    name = "sends"
    default_auto_field = "django.db.models.BigAutoField"
