"""The application that a WSGI server runs; `manage.py serve` is the one that comes with it."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "outbox_admin.settings")

application = get_wsgi_application()
