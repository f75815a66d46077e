"""`make test`: every test, on PostgreSQL where there is one, and on SQLite.

The run on SQLite is the last and the complete one: what needs no database runs there alone, and
its closing lines say what was left out of both. Arguments are handed on to pytest;
`--nothing-left-out` refuses to run with anything missing.
"""

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests import browsers

SERVER_HOMES = Path("/usr/lib/postgresql").glob("*/bin")
LOCAL_SERVERS = ("postgres:///postgres", "postgres://postgres@127.0.0.1:5432/postgres")


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` stops the server
    left_out = []
    with postgresql() as url:
        if url is None:
            left_out.append("PostgreSQL (no initdb here and no server on this machine answers)")
        if browsers.chromium() is None:
            left_out.append("the browser tests (no Chromium on the path)")
        if "--nothing-left-out" in arguments:
            arguments.remove("--nothing-left-out")
            if left_out:
                sys.exit(f"Not run: {'; '.join(left_out)} would be left out.")
        said = {"OUTBOX_TEST_LEFT_OUT": "; ".join(left_out)}
        if url is not None:
            say("On PostgreSQL: what needs a database")
            failed = pytest(arguments, {"OUTBOX_TEST_DATABASE_URL": url})
            if failed:
                return failed
    say("On SQLite: everything")
    return pytest(arguments, said)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def pytest(arguments: list[str], variables: dict[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", "-n", "auto", *arguments]
    return subprocess.run(command, env=os.environ | variables, check=False).returncode


@contextmanager
def postgresql() -> Iterator[str | None]:
    """The address of a server that may be used: the one named, a private one, or the local one."""
    if named := os.environ.pop("OUTBOX_TEST_DATABASE_URL", None):
        yield named
    elif initdb := _initdb():
        with _private_server(initdb.parent) as url:
            yield url
    else:
        yield next(filter(_answers, LOCAL_SERVERS), None)


def _initdb() -> Path | None:
    if on_path := shutil.which("initdb"):
        return Path(on_path)
    return max((home / "initdb" for home in SERVER_HOMES), default=None)


@contextmanager
def _private_server(programs: Path) -> Iterator[str]:
    """A server reached by a socket in a folder of its own, gone at the end.

    It does not sync: it is thrown away, and no test takes the power from it.
    """
    folder = Path(tempfile.mkdtemp(prefix="outbox-pg-"))
    data = folder / "data"
    owner = _owner()
    if owner:
        shutil.chown(folder, owner)
    options = (
        f"-k {folder} -c listen_addresses='' -c fsync=off -c full_page_writes=off"
        " -c max_connections=300"
    )
    try:
        _as(owner, programs / "initdb", "-D", data, "-U", "outbox", "-A", "trust", "-E", "UTF8")
        log = folder / "server.log"
        _as(owner, programs / "pg_ctl", "-D", data, "-o", options, "-l", log, "-w", "start")
        yield f"postgres://outbox@/postgres?host={folder}"
    finally:
        if (data / "postmaster.pid").exists():
            _as(owner, programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def _owner() -> str:
    """Who the server runs as: we, or where we are root, which it refuses, somebody else."""
    if os.geteuid() != 0:
        return ""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _as(owner: str, *command: str | Path) -> None:
    words = [str(word) for word in command]
    if owner:
        words = ["runuser", "-u", owner, "--", *words]
    done = subprocess.run(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, cwd="/"
    )
    if done.returncode:
        sys.exit(f"{shlex.join(words)} failed: {done.stderr.strip()}")


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
