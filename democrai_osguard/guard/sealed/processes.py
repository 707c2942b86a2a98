"""Starting processes: whether at all, which program, and with which environment."""

from __future__ import annotations

from _thread import get_ident
from fcntl import fcntl
from posix import POSIX_SPAWN_DUP2, POSIX_SPAWN_OPEN, close, posix_spawn, waitpid
from typing import Any

from democrai_osguard.directories import SHARED
from democrai_osguard.guard.sealed.answers import refusal
from democrai_osguard.guard.sealed.core import State, current, text_of
from democrai_osguard.guard.sealed.environment import LIVE
from democrai_osguard.guard.sealed.opening import (
    O_CLOEXEC,
    as_refusal,
    bare,
    exact,
    open_judged,
    plainly,
)
from democrai_osguard.guard.sealed.own_folders import temp_folder
from democrai_osguard.guard.sealed.paths import forget
from democrai_osguard.guard.sealed.programs import judged, judged_first

ORIGINALS: dict[str, Any] = {}
_OWNED = "DEMOCRAI_"
_TEMP = b"TMPDIR"
_LINE = 2  # where the line is: after the shell and `-c`
_BLANK = " \t\n"
_F_DUPFD_CLOEXEC = 1030
_PREPARATION = 21  # where `fork_exec` has a function that runs in the child, before the program
PASSING: set[int] = set()  # threads that are starting what has been judged


def starting(entry: str) -> Warning | None:
    """Judge whether a process may be started at all."""
    state = current()
    return None if state is None else may_start(state, entry)


def may_start(state: State, entry: str) -> Warning | None:
    """Return the refusal of an entry point where this subject starts no processes."""
    if state.subprocess:
        forget()  # what is started may change links
        return None
    return refusal(state, "sandbox_subprocess_denied", "execute", entry)


def first_word(line: str) -> str | None:
    """Return the program that a shell line starts with, past assignments."""
    for word in line.strip(_BLANK).split():
        name, equals, _ = word.partition("=")
        if equals and name.isidentifier():
            continue
        return word.strip("\"'();&|")
    return None


def owned(state: State) -> dict[str, str]:
    """Return the variables that every child of this subject gets, whatever its caller says."""
    return dict(state.variables())


def merged(state: State, env: Any) -> dict[bytes, bytes]:
    """Return the environment of a child: the caller's, with the runtime's own put in place."""
    source = LIVE[0] if env is None else env
    result = {}
    for key, value in source.copy().items():  # other threads change theirs meanwhile
        name = _bytes(key)
        if not name.startswith(_OWNED.encode()):
            result[name] = _bytes(value)
    for key, value in owned(state).items():
        result[key.encode()] = value.encode("utf-8", "surrogateescape")
    if env is None and _text(result.get(_TEMP, b"/tmp")) in SHARED:
        _keep_apart(state, result)
    return result


def _keep_apart(state: State, variables: dict[bytes, bytes]) -> None:
    """Name the application's own folder for temporary files, where the child may use it."""
    folder = temp_folder()
    if folder is not None and folder in state.runtime.get("create", ()):
        variables[_TEMP] = _bytes(folder)


def path_of(env: dict[bytes, bytes]) -> str | None:
    """Return the PATH among variables."""
    value = env.get(b"PATH")
    return None if value is None else _text(value)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def fork_exec(args: tuple[Any, ...]) -> object:
    """Do what `_posixsubprocess.fork_exec` does, for a program that may be executed."""
    state = current()
    original = ORIGINALS["fork_exec"]
    if state is None:
        return original(*args)
    try:
        answer = may_start(state, "_posixsubprocess.fork_exec")
        if answer is not None:
            return answer
        plainly((*args[:_PREPARATION], *args[_PREPARATION + 1 :]))
        env = merged(state, _as_mapping(args[5]))
        program = _of_list(state, args, env)
        pairs = [name + b"=" + value for name, value in env.items()]
        try:
            PASSING.add(get_ident())
            return original(args[0], (_bytes(program),), *args[2:5], pairs, *args[6:])
        finally:
            PASSING.discard(get_ident())
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return bare(error, state)


def _of_list(state: State, args: tuple[Any, ...], env: dict[bytes, bytes]) -> str:
    """Judge the candidates that subprocess made of a program and PATH; return the one that counts.

    The C function would go on to the next where one does not start.
    """
    candidates = [_text(item) for item in args[1]]
    start, inner = text_of(args[4]), path_of(env)
    if len(candidates) > 1:
        program, _ = judged_first(state, candidates, start, inner)
    else:
        program, _ = judged(state, _as_path(candidates[0]), None, start, inner)
    _check_shell(state, candidates[0], args[0], start, inner)
    return program


def _check_shell(
    state: State, program: str, argv: Any, start: str | None, inner: str | None
) -> None:
    """Raise the refusal of the first word of a line that is handed to a shell."""
    words = [_text(item) for item in argv]
    if program.rpartition("/")[2] not in {"sh", "bash", "dash"} or "-c" not in words[1:2]:
        return
    word = first_word(words[_LINE]) if len(words) > _LINE else None
    if word is None:
        return
    try:
        judged(state, word, inner, start, inner)
    except OSError:
        return  # there is nothing to execute; the shell itself says so


def _as_mapping(pairs: Any) -> dict[bytes, bytes] | None:
    if pairs is None:
        return None
    split = (bytes(pair).partition(b"=") for pair in pairs)
    return {name: value for name, _, value in split}


def spawn(
    name: str, entry: str, args: tuple[Any, ...], kwargs: dict[str, Any], actions: Any
) -> object:
    """Do what `posix_spawn` and `execve` do, for a program that may be executed."""
    state = current()
    if state is None:
        more = kwargs if actions is None else {**kwargs, "file_actions": actions}
        return ORIGINALS[name](*args, **more)
    held: list[int] = []
    try:
        answer = may_start(state, entry)
        if answer is not None:
            return answer
        plainly((*args[:2], *(() if actions is None else actions)))
        env = merged(state, args[2])
        program = _of_call(state, name, args, env)
        if actions is not None:
            kwargs["file_actions"] = _opened(state, actions, held)
        # A look-up in PATH has been done: the library's own could find another file.
        original = ORIGINALS["execve" if name == "execve" else "posix_spawn"]
        try:
            PASSING.add(get_ident())
            return original(program, args[1], env, **kwargs)
        finally:
            PASSING.discard(get_ident())
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return bare(error, state)
    finally:
        for descriptor in held:
            close(descriptor)


def _of_call(state: State, name: str, args: tuple[Any, ...], env: dict[bytes, bytes]) -> str:
    program, inner = args[0], path_of(env)
    text = f"/proc/self/fd/{program}" if type(program) is int else _text(program)
    if name != "posix_spawnp":
        text = _as_path(text)
    found, _ = judged(state, text, path_of(LIVE[0]), None, inner)
    _check_shell(state, text, args[1], None, inner)
    return found


def _opened(state: State, actions: Any, held: list[int]) -> list[tuple[Any, ...]]:
    """Return what a child does to its descriptors, with files opened here, where they are judged.

    They are held at numbers that no action names, so that none of these closes them before.
    """
    floor = 1 + max((max(_numbers(action)) for action in actions), default=0)
    done = []
    for action in actions:
        if action[0] != POSIX_SPAWN_OPEN:
            done.append(action)
            continue
        _, number, path, flags, mode = action
        exact(path)
        descriptor = open_judged(state, path, flags | O_CLOEXEC, mode)
        try:
            held.append(fcntl(descriptor, _F_DUPFD_CLOEXEC, floor))
        finally:
            close(descriptor)
        done.append((POSIX_SPAWN_DUP2, held[-1], number))
    return done


def _numbers(action: tuple[Any, ...]) -> tuple[int, ...]:
    return action[1:3] if action[0] == POSIX_SPAWN_DUP2 else action[1:2]


def _as_path(text: str) -> str:
    """Return a program that is started without a look-up: a bare name is one of this folder."""
    return text if "/" in text else f"./{text}"


def system(command: str) -> object:
    """Do what `os.system` does: a shell, whose first word is judged as well."""
    state = current()
    if state is None:
        return ORIGINALS["system"](command)
    try:
        answer = may_start(state, "os.system")
        if answer is not None:
            return answer
        argv, env = ["sh", "-c", command], merged(state, None)
        shell, _ = judged(state, "/bin/sh", None, None, path_of(env))
        _check_shell(state, "sh", argv, None, path_of(env))
        try:
            PASSING.add(get_ident())
            pid = posix_spawn(shell, argv, env)
        finally:
            PASSING.discard(get_ident())
        return waitpid(pid, 0)[1]
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return bare(error, state)


def event(state: State, entry: str, program: object = None) -> Warning | None:
    """Judge a start that no wrapper has seen: the hook's side."""
    if get_ident() in PASSING:
        return None
    answer = may_start(state, entry)
    if answer is not None or not isinstance(program, (str, bytes)) or not program:
        return answer
    path = path_of(LIVE[0])
    try:
        judged(state, text_of(program) or "", path, None, path)
    except Warning as error:
        return as_refusal(error, state)
    except OSError:
        return None  # there is nothing to execute; the call itself says so
    return None
