"""The environment variables, read into typed values."""

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

T = TypeVar("T")

YES = {"1", "true", "yes", "on"}
NO = {"0", "false", "no", "off"}
UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class WrongEnvironment(ImproperlyConfigured):
    """One sentence for each variable that cannot be used, a line each."""


@dataclass(frozen=True)
class MailServer:
    """Where to hand over mail, and as whom; false where there is none."""

    sender: str
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    is_tls: bool = False  # from the first byte
    starts_tls: bool = False

    def __bool__(self) -> bool:
        return bool(self.host)


class Environment:
    """Reads variables and remembers what was wrong, so that all of it can be said at once.

    A reader takes a variable's name and its default; text without a default is required. A
    variable that is set but empty counts as not set. After a wrong one the reader goes on with
    the default: call `complain` before using any value.
    """

    def __init__(self, variables: Mapping[str, str] = os.environ) -> None:
        self.variables = variables
        self.wrong: list[str] = []

    def complain(self) -> None:
        """Raise WrongEnvironment if any variable read so far was wrong."""
        if self.wrong:
            raise WrongEnvironment("\n".join(self.wrong))

    def text(self, name: str, default: str | None = None) -> str:
        if default is None and not self.variables.get(name, "").strip():
            self.wrong.append(f"{name} is not set; it has no default.")
        return self._read(name, default or "", str)

    def secret(self, name: str, default: str | None = None, *, least: int = 0) -> str:
        """Text that may also stand in a file, named by the variable NAME_FILE.

        `least` is how many characters it must have, if it is set at all.
        """
        text = self._secret(name, default)
        if text and len(text) < least:
            self.wrong.append(
                f"{name} has {len(text)} characters; give {least} or more, at random."
            )
        return text

    def flag(self, name: str, default: bool) -> bool:
        return self._read(name, default, _flag)

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        def parse(text: str) -> int:
            if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
                raise ValueError(f"give a whole number from {least} to {most}")
            return int(text)

        return self._read(name, default, parse)

    def duration(self, name: str, default: timedelta, *, least: timedelta) -> timedelta:
        def parse(text: str) -> timedelta:
            span = _duration(text)
            if span < least:
                raise ValueError(f"give at least {least.total_seconds():g}s")
            return span

        return self._read(name, default, parse)

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        def parse(text: str) -> str:
            if text.upper() not in allowed:
                raise ValueError(f"give one of {', '.join(allowed)}")
            return text.upper()

        return self._read(name, default, parse)

    def words(self, name: str, default: Sequence[str] = ()) -> list[str]:
        """A list, its parts separated by commas."""
        return self._read(
            name, list(default), lambda text: [w.strip() for w in text.split(",") if w.strip()]
        )

    def folder(self, name: str, default: Path) -> Path:
        """The absolute path of a folder that may be written; made, for its owner, if missing."""
        path = self._read(name, default, Path).expanduser().absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            self.wrong.append(
                f"{name} is {path}, where nothing can be written: {error.strerror}."
                f" Give another folder, as in {name}=/some/folder"
            )
        return path

    def web_address(self, name: str, default: str) -> str:
        """`http://host[:port]` or `https://host[:port]`, without a path."""
        return self._read(name, default, _web_address)

    def database(self, name: str, default: str) -> dict[str, Any]:
        """Django's ENGINE, NAME, USER, PASSWORD, HOST and PORT, from a URL.

        The URL holds a password, so it may also be given by NAME_FILE and is never repeated
        in a complaint.
        """
        url = self.secret(name, default)
        try:
            return _database(url)
        except ValueError as error:
            self.wrong.append(f"{name} is not a database address: {error}.")
            return _database(default)

    def mail_server(self, name: str, *, default_sender: str) -> MailServer:
        """`smtp://user:password@host:port?from=address`, or `smtps://…`.

        Its password is treated as that of a database.
        """
        url = self.secret(name, "")
        try:
            return _mail_server(url, default_sender) if url else MailServer(default_sender)
        except ValueError as error:
            self.wrong.append(f"{name} is not the address of a mail server: {error}.")
            return MailServer(default_sender)

    def _read(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        text = self.variables.get(name, "").strip()
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.wrong.append(f'{name} is "{text}"; {error}.')
            return default

    def _secret(self, name: str, default: str | None) -> str:
        named = self.variables.get(f"{name}_FILE", "")
        if not named:
            return self.text(name, default)
        if self.variables.get(name):
            self.wrong.append(f"{name} and {name}_FILE are both set; set only one of them.")
            return default or ""
        return self._from_file(name, named) or default or ""

    def _from_file(self, name: str, path: str) -> str:
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            self.wrong.append(f'{name}_FILE is "{path}", which cannot be read: {why}.')
            return ""
        if not text:
            self.wrong.append(f'{name}_FILE is "{path}", which is empty.')
        return text


def _flag(text: str) -> bool:
    if text.lower() in YES:
        return True
    if text.lower() in NO:
        return False
    raise ValueError("give 1, true, yes or on, or 0, false, no or off")


def _duration(text: str) -> timedelta:
    parts = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h|d)", text)
    if parts is None:
        raise ValueError("give a number with its unit: 250ms, 30s, 15m, 2h or 7d")
    return timedelta(**{UNITS[parts[2]]: float(parts[1])})


def _web_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("give an address such as https://outbox.example.com")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("give scheme, host and port only, as in https://outbox.example.com")
    _port(parts)
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _port(parts: Any) -> int | None:
    try:
        port: int | None = parts.port
    except ValueError:
        raise ValueError("its port is not a number from 1 to 65535") from None
    return port


def _mail_server(url: str, default_sender: str) -> MailServer:
    parts = urlsplit(url)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise ValueError("give smtp://user:password@mail.example.com:587, or smtps://…")
    if parts.path not in ("", "/"):
        raise ValueError("after the port there may only be ?from=address")
    is_tls = parts.scheme == "smtps"
    return MailServer(
        sender=parse_qs(parts.query).get("from", [default_sender])[0],
        host=parts.hostname,
        port=_port(parts) or (465 if is_tls else 587),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        is_tls=is_tls,
        # A server on this machine is reached over no network, and has no certificate for it.
        starts_tls=not is_tls and parts.hostname not in ("localhost", "127.0.0.1", "::1"),
    )


def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    name = unquote(parts.path)
    if parts.scheme == "sqlite":
        if parts.netloc or not name.startswith("//") or name.endswith("/"):
            raise ValueError("give sqlite:////absolute/path.sqlite3, with four slashes")
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": name[1:]}
    if parts.scheme not in ("postgres", "postgresql"):
        raise ValueError("it must begin with sqlite:// or postgres://")
    if not name.strip("/"):
        raise ValueError("give postgres://user:password@host:port/name, or ?host=/socket/folder")
    socket = parse_qs(parts.query).get("host", [""])[0]
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name.strip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": socket or parts.hostname or "",
        "PORT": str(_port(parts) or ""),
    }
