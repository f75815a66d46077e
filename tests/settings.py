"""The settings under test: the real ones, in an environment that holds nothing of the machine's.

Each process that runs tests has a data folder and a database of its own, so that neither the
workers of one run nor two runs at once can meet. OUTBOX_TEST_DATABASE_URL names a PostgreSQL
server to use instead of SQLite; its database is made for the run and dropped after it.
"""

import os
import tempfile
import uuid

TEST_DATABASE_URL = os.environ.get("OUTBOX_TEST_DATABASE_URL", "")
for name in [name for name in os.environ if name.startswith("OUTBOX_")]:
    if not name.startswith("OUTBOX_TEST_"):
        del os.environ[name]
os.environ |= {
    "OUTBOX_DATA_DIR": tempfile.mkdtemp(prefix="outbox-tests-"),
    "OUTBOX_DATABASE_URL": TEST_DATABASE_URL,
    "OUTBOX_SECRET_KEY": "only-for-tests-" + "0" * 40,
}
os.environ.pop("PORT", None)

from outbox_admin.settings import *  # noqa: E402, F403
from outbox_admin.settings import DATA_DIR, DATABASES, STATIC_ROOT, STORAGES  # noqa: E402

# A file even for SQLite, since tests start real workers in processes of their own.
DATABASES["default"]["TEST"] = {
    "NAME": f"outbox_test_{uuid.uuid4().hex}" if TEST_DATABASE_URL else DATA_DIR / "test.sqlite3"
}
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
STATIC_ROOT.mkdir()  # WhiteNoise warns where there is none
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
SHOW_PARTS = True
