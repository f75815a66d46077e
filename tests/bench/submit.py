"""How fast `manage.py submit` takes files in, and what memory it needs, in one run.

    python -m tests.bench.submit                     SQLite
    OUTBOX_DATABASE_URL=postgres://… python -m …     an empty PostgreSQL database

Prints emails per second and peak memory for .eml files, for JSON lines, for the same lines once
more, and the peak for a mailbox of which no email is taken, however large it is.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
EMAIL = """\
From: Support <support@mail.example.com>
To: Jo <jo@example.org>
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?= {number}
Message-ID: <{number}@bench.example.com>
MIME-Version: 1.0
Content-Type: multipart/alternative; boundary=b

--b
Content-Type: text/plain; charset=utf-8

{text}
--b
Content-Type: text/html; charset=utf-8

<p>{text}</p>
--b--
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emails", type=int, default=2_000)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=1_000)
    given = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as name:
        folder = Path(name)
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "outbox_admin.settings",
            "OUTBOX_DATA_DIR": name,
            "OUTBOX_LOG_LEVEL": "WARNING",
        }
        set_up()
        measure("eml files", write_emails(folder / "eml", given.emails), given.emails)
        lines = write_lines(folder / "lines.jsonl", given.lines)
        measure("JSON lines", lines, given.lines)
        measure("replayed", lines, given.lines)
        count = write_mailbox(folder / "large.mbox", given.megabytes)
        measure(f"{given.megabytes} MB mbox", folder / "large.mbox", count)


def set_up() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from tests.factories import make_account, make_agent, make_sender, make_tenant

    make_agent(make_sender(make_account(make_tenant()), address="support@mail.example.com"))


def measure(what: str, path: Path, count: int) -> None:
    """A process of its own for each, so that its peak is its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(ROOT / "manage.py"), str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said, peak = done.stdout.splitlines()[0], done.stderr.splitlines()[-1]
    print(f"{what:14} {count / seconds:7.0f}/s {count / cpu:7.0f}/s of CPU, {peak} MB  {said}")


PEAK = """\
import resource, subprocess, sys
done = subprocess.run([sys.executable, sys.argv[1], "submit", sys.argv[2]], stderr=subprocess.PIPE)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=sys.stderr)
"""


def write_emails(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        text = EMAIL.format(number=number, text="A line of words. " * 40)
        (folder / f"{number}.eml").write_text(text, encoding="utf-8")
    return folder


def write_lines(path: Path, count: int) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            intent = {
                "action_key": f"line-{number}",
                "to": ["jo@example.org"],
                "subject": f"Your order {number}",
                "text": "A line of words. " * 40,
            }
            file.write(json.dumps(intent) + "\n")
    return path


def write_mailbox(path: Path, megabytes: int) -> int:
    """Emails of 100 kB from a sender that there is not: read whole, and refused."""
    text = EMAIL.replace("support@", "nobody@").format(
        number=0, text=("A line of words. " * 4 + "\n") * 700
    )
    message = f"From a Mon Nov 30 10:00:00 2026\n{text}\n"
    count = megabytes * 1_000_000 // len(message)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            file.write(message)
    return count


if __name__ == "__main__":
    main()
