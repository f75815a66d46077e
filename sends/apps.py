"""The application `sends`: its tables, and the triggers that guard them."""

from typing import Any

from django.apps import AppConfig
from django.core.management import call_command
from django.db import connections
from django.db.models.signals import post_migrate, pre_migrate


def drop_triggers(using: str, **kwargs: Any) -> None:
    from sends.models import triggers  # models cannot be imported before the apps are ready

    triggers.drop(connections[using])


def install_triggers(using: str, **kwargs: Any) -> None:
    from sends.models import Installation, changes, triggers
    from sends.models.switches import Switch, SwitchKind

    if "sends_sendintent" not in connections[using].introspection.table_names():
        return  # migrated back to zero
    triggers.install(connections[using])
    changes.renumber()
    installation, _ = Installation.objects.using(using).get_or_create(only=True)
    Switch.objects.using(using).get_or_create(pk=installation.pk, kind=SwitchKind.INSTALLATION)


def make_cache_table(using: str, **kwargs: Any) -> None:
    call_command("createcachetable", database=using, verbosity=0)


def sync_schedule(using: str, **kwargs: Any) -> None:
    from sends import schedule

    if "django_q_schedule" in connections[using].introspection.table_names():
        schedule.sync()


class SendsConfig(AppConfig):
    name = "sends"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        pre_migrate.connect(drop_triggers, sender=self)
        post_migrate.connect(install_triggers, sender=self)
        post_migrate.connect(make_cache_table, sender=self)
        post_migrate.connect(sync_schedule, sender=self)
