"""Starts the sandbox provider: python -m sends.sandbox --port 8026 --data DIR."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from .contract import Contract
from .journal import Journal, JournalInUseError
from .server import Server
from .settings import Settings, WrongSettingError, changed


def main() -> None:
    options = read_options()
    try:
        settings = settings_of(options)
        journal = Journal(options.data, sync=options.sync == "full")
    except (WrongSettingError, JournalInUseError, OSError) as problem:
        sys.exit(f"sandbox: {problem}")
    try:
        asyncio.run(serve(Server(journal, settings), options.host, options.port))
    except OSError as problem:
        sys.exit(f"sandbox: {problem}; give another --port or --host.")
    finally:
        journal.close()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sends.sandbox", description="An email provider that mails nobody."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the journal")
    parser.add_argument("--contract", choices=list(Contract), default=Contract.REPLAY)
    parser.add_argument(
        "--window", type=float, default=86_400.0, help="seconds a key is remembered"
    )
    parser.add_argument("--lookup", choices=["on", "off"], default="on")
    parser.add_argument("--webhook", metavar="URL")
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument("--webhook-secret", metavar="SECRET")
    secret.add_argument("--webhook-secret-file", metavar="PATH", type=Path)
    parser.add_argument("--deliver-after", type=float, default=1.0, help="seconds")
    parser.add_argument(
        "--sync", choices=["full", "off"], default="full", help="off: not safe from power loss"
    )
    return parser.parse_args()


def settings_of(options: argparse.Namespace) -> Settings:
    secret = options.webhook_secret
    if options.webhook_secret_file:
        secret = options.webhook_secret_file.read_text().strip()
    given = {
        "contract": options.contract,
        "window": options.window,
        "lookup": options.lookup == "on",
        "webhook": options.webhook,
        "webhook_secrets": [secret] if secret else [],
        "deliver_after": options.deliver_after,
    }
    return changed(Settings(), given)


async def serve(server: Server, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT, then leave at once: what was answered is in the journal."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listener = await asyncio.start_server(server.connected, host, port, backlog=512)
    sender = asyncio.create_task(server.sender.run())
    address = listener.sockets[0].getsockname()
    sys.stdout.write(f"sandbox listening on http://{address[0]}:{address[1]}\n")
    sys.stdout.flush()
    stopped = asyncio.create_task(stop.wait())
    # A sender that failed must be seen: a sandbox without events is a false witness.
    await asyncio.wait([stopped, sender], return_when=asyncio.FIRST_COMPLETED)
    listener.close()
    if sender.done():
        sender.result()


if __name__ == "__main__":
    main()
