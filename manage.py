#!/usr/bin/env python3
"""Django's command line, with wrong settings answered in plain sentences."""

import importlib
import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "outbox_admin.settings")
    from django.core.management import execute_from_command_line

    from outbox_admin.env import WrongEnvironment

    try:
        importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
    except WrongEnvironment as wrong:
        sys.exit(str(wrong))
    try:
        execute_from_command_line(sys.argv)
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
