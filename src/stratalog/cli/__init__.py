"""The command line: `stratalog COMMAND ...`.

Each command is a module with

    HELP = "one line for the list"
    def arguments(parser: argparse.ArgumentParser) -> None: ...
    def run(args: argparse.Namespace) -> int: ...

and is imported when it is named, so that `stratalog --help` is there at once.  What goes wrong is one line on standard
error that says what, where and what to do, and exit code 1 (2 for a wrong command line); a stack trace is a bug, or
`STRATALOG_TRACE=1`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from stratalog import __version__

COMMANDS: Final = {
    "serve": ("run a broker", "run it"),
    "format": ("prepare data directories for a new cluster", "run it"),
    "topic": ("list, create, describe, change and delete topics", "talk to a cluster"),
    "produce": ("write records from files or standard input", "talk to a cluster"),
    "consume": ("read records, follow a topic", "talk to a cluster"),
    "group": ("list, describe, reset and delete consumer groups", "talk to a cluster"),
    "config": ("show and change configuration", "talk to a cluster"),
    "cluster": ("brokers, quorum, log directories, features", "talk to a cluster"),
    "dump": ("print any file of a data directory", "open the log"),
    "verify": ("audit a partition or a whole data directory", "open the log"),
    "why": ("why a segment is still here, why a log is not cleaned", "open the log"),
    "compact": ("clean a partition offline", "open the log"),
    "spark": ("compact, export, profile, verify and replay with Spark", "open the log"),
    "demo": ("the tour: broker, stream, Spark jobs, in about a minute", "run it"),
    "protocol": ("print the codecs of a message", "look inside"),
    "completions": ("completions for bash, zsh and fish", "look inside"),
}
"""Name to (help, group)."""


WHERE_TO_LOOK: Final = {
    "UNKNOWN_TOPIC_OR_PARTITION": "stratalog topic list shows what there is",
    "GROUP_ID_NOT_FOUND": "stratalog group list shows what there is",
}
"""What to do about an error of the broker, by its name."""


class UsageError(Exception):
    """A wrong command line; the text names the argument, its value and what is allowed."""


class CommandError(Exception):
    """What the command wanted cannot be done; the text says why and what to do."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line: what is wrong, what would do, where the help is.  Subcommands are too."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())} ({self.prog} --help)\n")


def at_least(low: int) -> Callable[[str], int]:
    """A type for arguments: whole numbers from `low` on."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed, it takes a whole number, at least {low}")
        return value

    return parse


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point."""
    return _guarded(list(sys.argv[1:] if argv is None else argv))


def _run(arguments: list[str]) -> int:
    parser = _parser()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(parser.format_help())
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(f"stratalog {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"stratalog: there is no command {name!r}{hint} (stratalog --help lists them)", file=sys.stderr)
        return 2
    command = importlib.import_module(f"stratalog.cli.{name}")
    sub = Parser(
        prog=f"stratalog {name}",
        description=(command.__doc__ or COMMANDS[name][0]).strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.arguments(sub)
    return int(command.run(_parsed(sub, arguments[1:])) or 0)


def _parsed(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """What the words say.  argparse takes a list of files that may be empty for empty as soon as an option stands
    before it; what is left over then is parsed once more, options first."""
    if parser._subparsers is not None:  # which argparse cannot parse in that way
        return parser.parse_args(words)
    args, rest = parser.parse_known_args(words)
    return parser.parse_intermixed_args(words) if rest else args


def _guarded(arguments: list[str]) -> int:
    try:
        try:
            return _run(arguments)
        finally:
            _flush_output()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0  # the reader of our output has gone, as `head` does
    except UsageError as error:
        print(f"stratalog: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if os.environ.get("STRATALOG_TRACE"):
            raise
        print(f"stratalog: {one_line(error)}", file=sys.stderr)
        return 1


def _flush_output() -> None:
    """Write what is still buffered.  That it cannot be written is told as any other failure, help texts included; left
    to Python it would be a complaint of the interpreter at exit."""
    try:
        if sys.stdout is not None:  # as it is where the shell closed it
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries once more
        error.filename = "standard output"
        raise


def one_line(error: BaseException) -> str:
    """An error in one line, with the path where the system knows one."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    if isinstance(error, AssertionError):
        return f"a bug in stratalog (set STRATALOG_TRACE=1 for where): {error or 'an assertion failed'}"
    text = " ".join(str(error).split()) or type(error).__name__
    hint = WHERE_TO_LOOK.get(getattr(error, "name", None) or "")
    return f"{text}: {hint}" if hint else text


def _parser() -> argparse.ArgumentParser:
    groups: dict[str, list[str]] = {}
    for name, (text, group) in COMMANDS.items():
        groups.setdefault(group, []).append(f"  {name:<12} {text}")
    listing = "\n\n".join(f"{group}:\n" + "\n".join(lines) for group, lines in groups.items())
    return argparse.ArgumentParser(
        prog="stratalog",
        usage="stratalog COMMAND [ARGUMENTS]   (stratalog COMMAND --help for each)",
        description=f"The Kafka log that you can open.\n\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
