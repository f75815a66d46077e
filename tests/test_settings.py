"""The environment variables: how each is read, and what a wrong one is answered."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from outbox_admin.env import Environment, MailServer, WrongEnvironment
from outbox_admin.kept import kept_secret


def read(reader: Callable[[Environment], Any], text: str) -> Any:
    env = Environment({"OUTBOX_X": text})
    value = reader(env)
    env.complain()
    return value


def flag(env: Environment) -> bool:
    return env.flag("OUTBOX_X", False)


def number(env: Environment) -> int:
    return env.number("OUTBOX_X", 3, least=1, most=64)


def duration(env: Environment) -> timedelta:
    return env.duration("OUTBOX_X", timedelta(seconds=5), least=timedelta(seconds=1))


def choice(env: Environment) -> str:
    return env.choice("OUTBOX_X", "FULL", ("FULL", "NORMAL"))


def words(env: Environment) -> list[str]:
    return env.words("OUTBOX_X")


def address(env: Environment) -> str:
    return env.web_address("OUTBOX_X", "http://localhost:8025")


def database(env: Environment) -> dict[str, Any]:
    return env.database("OUTBOX_X", "sqlite:////tmp/outbox.sqlite3")


def mail_server(env: Environment) -> MailServer:
    return env.mail_server("OUTBOX_X", default_sender="outbox@example.com")


POSTGRES = {"ENGINE": "django.db.backends.postgresql"}
NOBODY = {"USER": "", "PASSWORD": "", "PORT": ""}


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        (flag, "1", True),
        (flag, "Yes", True),
        (flag, "off", False),
        (flag, "", False),
        (number, "64", 64),
        (number, " 7 ", 7),
        (number, "", 3),
        (duration, "30s", timedelta(seconds=30)),
        (duration, "1500ms", timedelta(seconds=1.5)),
        (duration, "1.5h", timedelta(minutes=90)),
        (duration, "7 d", timedelta(days=7)),
        (choice, "normal", "NORMAL"),
        (words, "a.example.com, b.example.com,", ["a.example.com", "b.example.com"]),
        (address, "https://Outbox.Example.com/", "https://outbox.example.com"),
        (address, "http://[::1]:8025", "http://[::1]:8025"),
        (
            database,
            "sqlite:////srv/a%20b/outbox.sqlite3",
            {"ENGINE": "django.db.backends.sqlite3", "NAME": "/srv/a b/outbox.sqlite3"},
        ),
        (
            database,
            "postgres://me:p%40ss@db.example.com:5433/outbox",
            {
                **POSTGRES,
                "NAME": "outbox",
                "USER": "me",
                "PASSWORD": "p@ss",
                "HOST": "db.example.com",
                "PORT": "5433",
            },
        ),
        (
            database,
            "postgresql:///outbox?host=/var/run/postgresql",
            {**POSTGRES, **NOBODY, "NAME": "outbox", "HOST": "/var/run/postgresql"},
        ),
        (database, "postgres:///outbox", {**POSTGRES, **NOBODY, "NAME": "outbox", "HOST": ""}),
    ],
)
def test_a_variable_becomes_a_typed_value(
    reader: Callable[[Environment], Any], text: str, value: Any
) -> None:
    assert read(reader, text) == value


@pytest.mark.parametrize(
    ("reader", "text", "said"),
    [
        (flag, "maybe", 'OUTBOX_X is "maybe"; give 1, true, yes or on, or 0, false, no or off.'),
        (number, "ten", 'OUTBOX_X is "ten"; give a whole number from 1 to 64.'),
        (number, "65", 'OUTBOX_X is "65"; give a whole number from 1 to 64.'),
        (number, "-1", 'OUTBOX_X is "-1"; give a whole number from 1 to 64.'),
        (number, "٣", 'OUTBOX_X is "٣"; give a whole number from 1 to 64.'),
        (duration, "30", "give a number with its unit: 250ms, 30s, 15m, 2h or 7d."),
        (duration, "9999999d", "give a number with its unit"),
        (duration, "10ms", "give at least 1s."),
        (choice, "OFF", "give one of FULL, NORMAL."),
        (address, "outbox.example.com", "give an address such as https://outbox.example.com."),
        (address, "https://a.example.com/x", "give scheme, host and port only"),
        (address, "https://a.example.com:99999", "its port is not a number from 1 to 65535."),
        (database, "mysql://db/outbox", "it must begin with sqlite:// or postgres://."),
        (database, "sqlite:///outbox.sqlite3", "give sqlite:////absolute/path.sqlite3"),
        (database, "postgres://me@db.example.com", "give postgres://user:password@host:port/name"),
        (database, "postgres://db:port/outbox", "its port is not a number from 1 to 65535."),
    ],
)
def test_a_wrong_variable_is_named_with_what_it_accepts(
    reader: Callable[[Environment], Any], text: str, said: str
) -> None:
    with pytest.raises(WrongEnvironment) as wrong:
        read(reader, text)
    assert said in str(wrong.value)
    assert str(wrong.value).startswith("OUTBOX_X")


def test_every_wrong_variable_is_named_at_once() -> None:
    env = Environment({"OUTBOX_A": "x", "OUTBOX_B": "y"})
    env.flag("OUTBOX_A", True)
    env.number("OUTBOX_B", 1, least=1, most=2)
    env.text("OUTBOX_C")
    with pytest.raises(WrongEnvironment) as wrong:
        env.complain()
    assert [line.split()[0] for line in str(wrong.value).splitlines()] == [
        "OUTBOX_A",
        "OUTBOX_B",
        "OUTBOX_C",
    ]


def test_a_database_address_that_is_refused_does_not_show_its_password() -> None:
    with pytest.raises(WrongEnvironment) as wrong:
        read(database, "mysql://me:hunter2@db.example.com/outbox")
    assert "hunter2" not in str(wrong.value)


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from the file\n")
    env = Environment({"OUTBOX_X_FILE": str(tmp_path / "key")})
    assert env.secret("OUTBOX_X") == "from the file"
    env.complain()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OUTBOX_X_FILE": "/nowhere/key"}, "cannot be read: No such file or directory."),
        ({"OUTBOX_X_FILE": "/dev/null"}, "which is empty."),
        ({"OUTBOX_X": "a", "OUTBOX_X_FILE": "/dev/null"}, "are both set; set only one of them."),
        ({}, "OUTBOX_X is not set; it has no default."),
    ],
)
def test_a_secret_that_cannot_be_had_is_refused(variables: dict[str, str], said: str) -> None:
    env = Environment(variables)
    env.secret("OUTBOX_X")
    with pytest.raises(WrongEnvironment, match=said):
        env.complain()


@pytest.mark.parametrize("text", ["x" * 49, "x" * 50])
def test_a_secret_that_is_too_short_is_refused_without_showing_it(text: str) -> None:
    env = Environment({"OUTBOX_X": text})
    env.secret("OUTBOX_X", "", least=50)
    said = ["OUTBOX_X has 49 characters; give 50 or more, at random."]
    assert env.wrong == (said if len(text) < 50 else [])


def test_a_kept_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    made = kept_secret(tmp_path, "key")
    assert len(made) > 50
    assert kept_secret(tmp_path, "key") == made
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_folder_is_made_where_there_is_none(tmp_path: Path) -> None:
    env = Environment({"OUTBOX_X": str(tmp_path / "new" / "var")})
    assert env.folder("OUTBOX_X", tmp_path).is_dir()
    env.complain()
    assert stat.S_IMODE((tmp_path / "new" / "var").stat().st_mode) == 0o700


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "var").touch()
    env = Environment({"OUTBOX_X": str(tmp_path / "var")})
    env.folder("OUTBOX_X", tmp_path)
    with pytest.raises(WrongEnvironment, match="where nothing can be written: File exists"):
        env.complain()


def settings_with(tmp_path: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a process whose environment holds only these variables of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    env = kept | {"OUTBOX_DATA_DIR": str(tmp_path), **variables}
    env["DJANGO_SETTINGS_MODULE"] = "outbox_admin.settings"
    command = [sys.executable, "-c", f"from django.conf import settings as s\n{code}"]
    return subprocess.run(
        command, env=env, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=60
    )


def test_with_no_variable_set_it_serves_this_machine_only(tmp_path: Path) -> None:
    done = settings_with(
        tmp_path,
        "assert not s.DEBUG\n"
        "assert s.ALLOWED_HOSTS == ['localhost', '127.0.0.1', '[::1]']\n"
        "assert len(s.SECRET_KEY) > 50\n"
        "assert not s.SESSION_COOKIE_SECURE and not s.SECURE_SSL_REDIRECT\n",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("port", "name"), [("", "session"), ("9000", "session_9000")])
def test_a_second_one_on_this_machine_signs_nobody_out_of_the_first(
    tmp_path: Path, port: str, name: str
) -> None:
    done = settings_with(
        tmp_path,
        f"assert s.SESSION_COOKIE_NAME == 'outbox_{name}', s.SESSION_COOKIE_NAME",
        PORT=port,
    )
    assert done.returncode == 0, done.stderr


def test_a_public_address_turns_on_what_tls_makes_possible(tmp_path: Path) -> None:
    done = settings_with(
        tmp_path,
        "assert s.ALLOWED_HOSTS == ['outbox.example.com', 'web']\n"
        "assert s.CSRF_TRUSTED_ORIGINS == ['https://outbox.example.com']\n"
        "assert s.SESSION_COOKIE_SECURE and s.CSRF_COOKIE_SECURE and s.SECURE_SSL_REDIRECT\n"
        "assert s.SECURE_HSTS_SECONDS == 365 * 24 * 3600\n",
        OUTBOX_URL="https://outbox.example.com",
        OUTBOX_ALLOWED_HOSTS="web",
        OUTBOX_SECRET_KEY="x" * 60,
    )
    assert done.returncode == 0, done.stderr


def test_how_long_browsers_insist_on_tls_can_be_set(tmp_path: Path) -> None:
    done = settings_with(
        tmp_path,
        "assert s.SECURE_HSTS_SECONDS == 3600",
        OUTBOX_URL="https://outbox.example.com",
        OUTBOX_SECRET_KEY="x" * 60,
        OUTBOX_HSTS_FOR="1h",
    )
    assert done.returncode == 0, done.stderr


def test_a_public_address_needs_a_secret_key(tmp_path: Path) -> None:
    done = settings_with(tmp_path, "s.DEBUG", OUTBOX_URL="https://outbox.example.com")
    assert "OUTBOX_SECRET_KEY is not set; it has no default." in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_sqlite_waits_instead_of_failing_and_syncs_as_asked(
    tmp_path: Path, synchronous: str
) -> None:
    done = settings_with(
        tmp_path,
        "from django.db import connection as c\n"
        "pragma = lambda name: c.cursor().execute(f'PRAGMA {name}').fetchone()[0]\n"
        "assert pragma('journal_mode') == 'wal'\n"
        f"assert pragma('synchronous') == {2 if synchronous == 'FULL' else 1}\n"
        "assert pragma('foreign_keys') == 1\n"
        "assert pragma('busy_timeout') == 20_000\n"
        "assert c.transaction_mode == 'IMMEDIATE'\n",
        OUTBOX_SQLITE_SYNCHRONOUS=synchronous,
    )
    assert done.returncode == 0, done.stderr


def test_a_wrong_variable_ends_every_command_with_one_sentence(
    process_env: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env=process_env | {"OUTBOX_WORKER_THREADS": "many"},
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr == 'OUTBOX_WORKER_THREADS is "many"; give a whole number from 1 to 512.\n'


# The mail server

SENDER = "outbox@example.com"


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("", MailServer(SENDER)),
        ("smtp://127.0.0.1:25", MailServer(SENDER, "127.0.0.1", 25)),
        (
            "smtp://jo%40example.com:p%2Fw@mail.example.com",
            MailServer(SENDER, "mail.example.com", 587, "jo@example.com", "p/w", starts_tls=True),
        ),
        (
            "smtps://mail.example.com?from=people@example.com",
            MailServer("people@example.com", "mail.example.com", 465, is_tls=True),
        ),
    ],
)
def test_a_mail_server_is_read_from_its_address(text: str, server: MailServer) -> None:
    assert read(mail_server, text) == server


@pytest.mark.parametrize(
    "text", ["mail.example.com", "http://mail.example.com", "smtp://", "smtp://x/y"]
)
def test_what_is_no_mail_server_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(WrongEnvironment, match="OUTBOX_X is not the address of a mail server"):
        read(mail_server, text)
    with pytest.raises(WrongEnvironment) as caught:
        read(mail_server, "smtp://jo:geheim@mail.example.com:port")
    assert "geheim" not in str(caught.value)
