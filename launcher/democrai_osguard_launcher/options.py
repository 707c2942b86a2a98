"""The command line, read by hand: an argument parser would cost more than the whole launch."""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

import os

from .errors import UsageError
from .record import Record
from .rules import FILESYSTEM, NETWORK, OPERATIONS, Rule, Subject, check_target, make_subject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

LEVELS = ("full", "partial", "none")
# What says nothing without another option.
_NEEDS = {
    "json": "explain",
    "phase": "manifest",
    "ask_timeout": "supervised",
    "ask_fd": "supervised",
}
_STANDARD = (0, 1, 2)  # what every command has
_ALIKE = 0.8  # what is less so is no slip of the finger
_MOST_DIGITS = 9  # of a descriptor or of seconds: an int of the kernel's holds them

HELP = """\
Usage: democrai-launch [options] -- command [argument ...]

Runs the command with the rights of DEMOCRAI_ACCESS and of the options, and with no others.

Rules, each repeatable; no operation implies another:
  --read PATH        read files and list folders at PATH and beneath it
  --create PATH      create what does not exist yet
  --modify PATH      change what exists
  --delete PATH      remove what is beneath PATH
  --execute PATH     start programs
  --connect TARGET   open connections to host, host:port, address or URL
  --receive TARGET   likewise: the kernel only knows connections
  --send TARGET      likewise

  --manifest FILE    take the rules of a manifest instead of DEMOCRAI_ACCESS
  --phase PHASE      with --manifest: runtime (default) or install

What the command inherits:
  --keep-env NAME        a variable that looks like a secret; * keeps them all
  --keep-fd N            a descriptor above 2
  --limit NAME=NUMBER    cpu, files, fsize, memory, nproc or stack; 512m is 512 MiB

Who and how strictly:
  --subject KIND:NAME    the subject that the command acts for
  --require LEVEL        refuse below this enforcement: full (default), partial or none
  --best-effort          run with whatever this kernel can hold, and say what it cannot
  --supervised           ask a person about what no rule allows; the act waits
  --ask-timeout SECONDS  with --supervised: without an answer it is no (default 120)
  --ask-fd N             with --supervised: the socket of who is asked
  --stat-as-read         sizes, times, links and attributes only of what may be read; slower
  --receipt FILE         write down, as JSON, what was enforced and what was tried
  --trace FILE           write down each refusal and the rule that was missing; slower
  --observe FILE         allow everything, and write down which rules that took; slower

Instead of running:
  --explain    print what each layer will enforce for each rule
  --json       with --explain: for machines
  -h, --help   print this
  --version    print the version

Exit codes: the command's own, or 64 usage, 125 refused to run it unprotected,
126 not executable, 127 not found.
"""


class Options(Record):
    """What was asked for, checked."""

    command: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    manifest: str | None = None
    phase: str = "runtime"
    subject: Subject | None = None
    require: str = "full"
    keep_fds: tuple[int, ...] = ()
    keep_env: tuple[str, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    receipt: str | None = None
    supervised: bool = False
    ask_timeout: str = "120"
    ask_fd: int | None = None
    stat_as_read: bool = False
    trace: str | None = None
    observe: str | None = None
    explain: bool = False
    json: bool = False
    help: bool = False
    version: bool = False


def parse(arguments: Sequence[str]) -> Options:
    """Read the arguments after the program's name; raise UsageError for what is not an option."""
    values: dict[str, object] = {}
    seen: set[str] = set()
    rest = list(reversed(arguments))
    while rest:
        word = rest.pop()
        if word == "--":
            values["command"] = tuple(reversed(rest))
            break
        name, equals, value = word.partition("=")
        if name in _SWITCHES and not equals:
            values.update(_SWITCHES[name])
        elif name in _VALUES:
            key, read = _VALUES[name]
            _note(name, seen)
            values[key] = read(name, value if equals else _next(rest, name))
        elif name in _REPEATABLE:
            key, read = _REPEATABLE[name]
            found = read(name, value if equals else _next(rest, name))
            values[key] = (*values.get(key, ()), found)  # type: ignore[misc]
        else:
            raise UsageError(_unknown(word))
    _check_company(values)
    return _checked(Options(**values))  # type: ignore[arg-type]


def _note(name: str, seen: set[str]) -> None:
    if name in seen:  # one of the two would be passed over
        raise UsageError(f"{name} stands twice")
    seen.add(name)


def _check_company(given: Collection[str]) -> None:
    for key, needed in _NEEDS.items():
        if key in given and needed not in given:
            raise UsageError(f"{_as_option(key)} goes with {_as_option(needed)}")


def _checked(options: Options) -> Options:
    if sum((options.supervised, bool(options.trace), bool(options.observe))) > 1:
        raise UsageError("--supervised, --trace and --observe each go without the others")
    if options.observe and options.stat_as_read:
        raise UsageError("--stat-as-read: with --observe everything is allowed")
    if options.ask_fd is not None and options.ask_fd in (*_STANDARD, *options.keep_fds):
        raise UsageError(f"--ask-fd: {options.ask_fd} is one that the command gets as well")
    runs_nothing = options.explain or options.help or options.version
    if not options.command and not runs_nothing:
        raise UsageError("no command: democrai-launch [options] -- command ...; --help says more")
    return options


def _as_option(key: str) -> str:
    return "--" + key.replace("_", "-")


def _unknown(word: str) -> str:
    if not word.startswith("-"):
        return f"{word}: put -- before the command"
    from difflib import get_close_matches

    from .other_words import ADVICE

    name = word.partition("=")[0]  # its value may be a secret
    near = get_close_matches(name, (*_SWITCHES, *_VALUES, *_REPEATABLE), n=1, cutoff=_ALIKE)
    otherwise = f"did you mean {near[0]}?" if near else "--help lists them"
    return f"{name}: no such option; {ADVICE.get(name, otherwise)}"


def _next(rest: list[str], name: str) -> str:
    if not rest or rest[-1] == "--":
        raise UsageError(f"{name} needs a value")
    return rest.pop()


def _path_rule(name: str, value: str) -> Rule:
    # A person typed it: relative to where they stand, and links lead where they lead.
    try:
        target = os.path.realpath(value) if value and "\0" not in value else value
    except FileNotFoundError as error:
        raise UsageError(f"{name}: {value!r} is relative to a folder that is gone") from error
    return Rule(FILESYSTEM, name.removeprefix("--"), check_target(FILESYSTEM, target, at=name))


def _network_rule(name: str, value: str) -> Rule:
    return Rule(NETWORK, name.removeprefix("--"), check_target(NETWORK, value, at=name))


def _subject(name: str, value: str) -> Subject:
    kind, colon, own_name = value.partition(":")
    if not colon:
        raise UsageError(f"{name}: {value!r}: a subject is written kind:name")
    return make_subject(kind, own_name, at=name)


def _one_of(choices: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(name: str, value: str) -> str:
        if value not in choices:
            raise UsageError(f"{name}: {value!r} is none of {', '.join(choices)}")
        return value

    return read


def _text(name: str, value: str) -> str:
    if not value or "\0" in value:
        raise UsageError(f"{name} needs a value")
    return value


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _descriptor(name: str, value: str) -> int:
    if not _is_number(value):
        raise UsageError(f"{name}: {value!r} is not the number of a descriptor")
    try:
        os.fstat(int(value))
    except OSError as error:
        raise UsageError(f"{name}: {value} is not open") from error
    return int(value)


def _seconds(name: str, value: str) -> str:
    if not _is_number(value) or not int(value):
        raise UsageError(f"{name}: {value!r} is not a number of seconds")
    return value


def _limit(_name: str, value: str) -> tuple[str, int]:
    from .limits import parse as parse_limit

    return parse_limit(value)


_SWITCHES: dict[str, dict[str, object]] = {
    "--best-effort": {"require": "none"},
    "--explain": {"explain": True},
    "--json": {"json": True},
    "--stat-as-read": {"stat_as_read": True},
    "--supervised": {"supervised": True},
    "--help": {"help": True},
    "-h": {"help": True},
    "--version": {"version": True},
}
_VALUES: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "--ask-fd": ("ask_fd", _descriptor),
    "--ask-timeout": ("ask_timeout", _seconds),
    "--manifest": ("manifest", _text),
    "--observe": ("observe", _text),
    "--phase": ("phase", _one_of(("runtime", "install"))),
    "--receipt": ("receipt", _text),
    "--require": ("require", _one_of(LEVELS)),
    "--subject": ("subject", _subject),
    "--trace": ("trace", _text),
}
_REPEATABLE: dict[str, tuple[str, Callable[[str, str], object]]] = {
    **{f"--{operation}": ("rules", _path_rule) for operation in OPERATIONS[FILESYSTEM]},
    **{f"--{operation}": ("rules", _network_rule) for operation in OPERATIONS[NETWORK]},
    "--keep-env": ("keep_env", _text),
    "--keep-fd": ("keep_fds", _descriptor),
    "--limit": ("limits", _limit),
}
