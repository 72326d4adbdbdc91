"""Parse `bitedge VERB ...`, call the verb, and turn what goes wrong into one line and an exit code.

Exit codes: 0 done, 1 a check failed (parity, a benchmark gate), 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from types import ModuleType
from typing import NoReturn

from bitedge.cli.output import note
from bitedge.cli.verbs import EXTRA_OF_PACKAGE, VERBS, Verb


class BadUsage(Exception):
    """The command line itself is wrong; the message is the whole explanation."""


class Parser(argparse.ArgumentParser):
    """An argument parser that fails with one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise BadUsage(f"{self.prog}: {message}; see {self.prog} --help")


def nearest(word: str, known: Sequence[str]) -> str:
    """Suggest the closest known word, as the tail of a sentence."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""


def version() -> str:
    """The installed version of bitedge."""
    try:
        return metadata.version("bitedge")
    except metadata.PackageNotFoundError:
        return "not installed"


def usage() -> str:
    """The help of the whole command, from the table of verbs."""
    rows = "\n".join(f"  {verb.name:10}{verb.help}" for verb in VERBS)
    return (
        "usage: bitedge VERB [options]\n\n"
        "Binarized neural networks, from training to bits on a device.\n\n"
        f"verbs:\n{rows}\n\n"
        "Every verb takes --help, and --json [FILE.json] for output that programs read.\n"
        "bitedge --version prints the version."
    )


def load(verb: Verb) -> ModuleType:
    """Import a verb's module."""
    return importlib.import_module(verb.module)


def explain_missing(error: ModuleNotFoundError, verb: Verb) -> str:
    """Say which extra brings a package that is not installed."""
    package = (error.name or "").split(".")[0]
    extra = EXTRA_OF_PACKAGE.get(package)
    if verb.extra is not None and extra in (None, "image"):  # a verb's own extra brings the images along
        extra = verb.extra
    if package == "bitedge" or extra is None:
        raise error
    return f"bitedge {verb.name}: needs {package}, which is not installed; run: pip install 'bitedge[{extra}]'"


def join_json(words: Sequence[str]) -> list[str]:
    """Write `--json FILE.json` as one word and a bare `--json` as `--json=-`, so that it swallows no other argument."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--json=-" and word.endswith(".json") and not word.startswith("-"):
            joined[-1] = f"--json={word}"
        else:
            joined.append("--json=-" if word == "--json" else word)
    return joined


def run_verb(verb: Verb, words: Sequence[str]) -> int:
    """Parse the words after the verb and carry it out."""
    module = load(verb)
    parser = Parser(prog=f"bitedge {verb.name}", description=(module.__doc__ or verb.help).strip(), allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", metavar="FILE.json", help="print JSON, or write it to FILE.json beside the text")
    module.add_arguments(parser)
    args, rest = parser.parse_known_args(join_json(words))
    if rest:
        known = [option for action in parser._actions for option in action.option_strings]
        parser.error(f"there is no option {rest[0]}{nearest(rest[0].split('=')[0], known)}")
    if args.json not in (None, "-") and not args.json.endswith(".json"):
        raise BadUsage(f"bitedge {verb.name}: --json takes a file that ends in .json, got {args.json}")
    return int(module.run(args))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if words is None else words
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] in ("--version", "-V"):
        print(f"bitedge {version()}")
        return 0
    table = {verb.name: verb for verb in VERBS}
    verb = table.get(words[0])
    if verb is None:
        note(f"bitedge: there is no verb {words[0]}{nearest(words[0], list(table))}; see bitedge --help")
        return 2
    try:
        return run_verb(verb, words[1:])
    except BadUsage as error:
        note(str(error))
    except ModuleNotFoundError as error:
        note(explain_missing(error, verb))
    except KeyboardInterrupt:
        note(f"bitedge {verb.name}: interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        note(f"bitedge {verb.name}: {error.filename or ''}{': ' if error.filename else ''}{error.strerror or error}")
    except Exception as error:
        if not getattr(error, "bad_input", False):
            raise
        note(f"bitedge {verb.name}: {error}")
    return 2


def entry_point() -> NoReturn:
    """The console script."""
    sys.exit(main())
