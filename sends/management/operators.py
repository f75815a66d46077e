"""Who is at the command line, as the audit log names them."""

import getpass


def at_the_command_line() -> str:
    try:
        return f"{getpass.getuser()} at the command line"
    except (KeyError, OSError):  # a user without a name, as in some containers
        return "the command line"
