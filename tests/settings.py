"""The settings under test: the real ones, in an environment that holds nothing of the machine's."""

import os
import tempfile

for name in [name for name in os.environ if name.startswith("OUTBOX_") and "TEST" not in name]:
    del os.environ[name]

# One folder per process, so that neither workers of one run nor two runs at once meet.
os.environ["OUTBOX_DATA_DIR"] = tempfile.mkdtemp(prefix="outbox-tests-")
os.environ["OUTBOX_URL"] = "http://localhost:8025"
os.environ["OUTBOX_SECRET_KEY"] = "only-for-tests-" + "0" * 40
if "OUTBOX_TEST_DATABASE_URL" in os.environ:
    os.environ["OUTBOX_DATABASE_URL"] = os.environ["OUTBOX_TEST_DATABASE_URL"]

from outbox_admin.settings import *  # noqa: E402, F403
