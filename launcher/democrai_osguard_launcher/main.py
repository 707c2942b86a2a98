"""`democrai-launch`: reads what is asked, makes the plan, gives rights up, becomes the command."""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

import os
import sys

from . import options as command_line
from . import program
from .environment import child_environment
from .errors import Exit, LaunchError, NotEnforced, NotExecutable, NotFound, one_line
from .facts import gather, is_root
from .plan import Inheritance, make_plan, with_inheritance, with_notes, with_questions

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn

    from .confinement import Ready
    from .options import Options
    from .plan import Plan
    from .rules import Rule
    from .supervision import Companion
else:
    import _signal as signal  # built in; `signal` itself would import `enum`

_STANDARD_STREAMS = 3


def run() -> NoReturn:
    """Do what the command line says, and exit with the code that says how it went."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _hold_standard_places()
        _launch(command_line.parse(sys.argv[1:]))
    except LaunchError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - a code of 1 would look like the command's own
        _say(f"refused: {type(error).__name__}: {error}")
        sys.exit(Exit.NOT_ENFORCED)
    sys.exit(0)


def _launch(options: Options) -> None:
    if options.help or options.version:
        _print(command_line.HELP if options.help else _version())
        return
    rules = (*_given_rules(options), *options.rules)
    search_path = os.environ.get("PATH")
    command = program.find(options.command[0], search_path) if options.command else None
    facts = gather(rules, command, search_path)
    plan = make_plan(rules, facts, stat_as_read=options.stat_as_read)
    environment = child_environment(os.environ, rules, options.subject, options.keep_env)
    if command is None or options.explain:
        _explain(_whole(plan, options, environment), as_json=options.json)
        return
    companion: Companion | None = None
    if options.trace or options.observe:
        from . import observation

        plan, rules, companion = observation.prepare(plan, rules, options, command)
        environment = child_environment(os.environ, rules, options.subject, options.keep_env)
    elif options.supervised:
        from . import asking

        companion = asking.start(options)
        plan = with_questions(plan)
    plan = _whole(plan, options, environment)
    check_level(plan, "none" if options.observe else options.require, quiet=bool(options.observe))
    from .confinement import make_ready
    from .enforcement import enforce_always

    enforce_always(has_seccomp=plan.seccomp)
    ready = make_ready(plan, facts.objects, companion)
    if ready.restrictions.vanished:
        gone = ", ".join(ready.restrictions.vanished)
        _say(f"these paths are gone since and open nothing: {gone}")
    become(command.path, options, environment, ready)


def _whole(plan: Plan, options: Options, environment: dict[str, str]) -> Plan:
    """Add what the command inherits, for those who will read it."""
    if options.limits:
        from .limits import notes

        plan = with_notes(plan, notes(options.limits, root=is_root()))
    if not options.explain and not options.receipt:
        return plan
    from .environment import names_of
    from .facts import inherited_descriptors

    kept = {0, 1, 2, *options.keep_fds}
    closed = (each for each in inherited_descriptors() if each not in kept)
    names = names_of(os.environ, environment)
    return with_inheritance(
        plan, Inheritance(tuple(sorted(kept)), tuple(closed), *names, limits=options.limits)
    )


def _given_rules(options: Options) -> tuple[Rule, ...]:
    if options.manifest is None:
        text = os.environ.get("DEMOCRAI_ACCESS")
        if text is None:
            return ()
        from .access import parse

        return parse(text)
    from .manifest import rules_of

    kind = options.subject.type if options.subject else None
    rules, warnings = rules_of(options.manifest, kind, options.phase)
    for warning in warnings:
        _say(warning)
    return rules


def become(path: str, options: Options, environment: dict[str, str], ready: Ready) -> None:
    """Confine this process and become the command; raise LaunchError when that fails."""
    from .confinement import confine

    confine(ready, options, environment)
    # Python ignores these two, and an ignored signal would stay ignored in the command.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(path, options.command, environment)  # noqa: S606 - no shell is the point
    except FileNotFoundError as error:
        raise NotFound(f"{options.command[0]}: {error.strerror}") from error
    except OSError as error:
        raise NotExecutable(f"{options.command[0]}: {error.strerror}") from error


def check_level(plan: Plan, required: str, *, quiet: bool = False) -> None:
    """Refuse below the required level; above it, still say what is not held."""
    levels = command_line.LEVELS
    if levels.index(plan.level) > levels.index(required):
        raise NotEnforced(
            f"refused: enforcement would be {plan.level}, not {required}: {'; '.join(plan.missing)}"
        )
    for line in () if quiet else (*plan.missing, *plan.notes):
        _say(line)


def _explain(plan: Plan, *, as_json: bool) -> None:
    from . import explain

    if not as_json:
        _print(explain.as_text(plan))
        return
    import json

    _print(json.dumps(explain.as_document(plan), indent=2) + "\n")


def _version() -> str:
    from importlib.metadata import version

    return f"democrai-launch {version('democrai-osguard')}\n"


def _hold_standard_places() -> None:
    """Put nothing where a standard stream is closed, so that no file of ours takes its place.

    The command finds it closed, as it was.
    """
    for number in range(_STANDARD_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open("/dev/null", os.O_PATH | os.O_CLOEXEC)  # takes the lowest number that is free


def _print(text: str) -> None:
    """Write what was asked for; raise LaunchError when nobody can have got it."""
    rest = text.encode(errors="backslashreplace")
    try:
        while rest:
            rest = rest[os.write(1, rest) :]
    except OSError as error:
        raise LaunchError(f"standard output: {error.strerror}") from error


def _say(line: str) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # where exec has failed it was the command's
    try:
        os.write(2, f"democrai-launch: {one_line(line)}\n".encode())
    except OSError:
        return  # nobody listens, which changes neither what runs nor the exit code
