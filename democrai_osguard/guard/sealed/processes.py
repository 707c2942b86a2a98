"""Starting processes: whether at all, which program, and with which environment."""

from __future__ import annotations

from _thread import get_ident
from posix import access as may
from posix import close, posix_spawn, read, waitpid
from typing import Any

from democrai_osguard.guard.sealed.answers import about_path, refusal
from democrai_osguard.guard.sealed.core import State, current, text_of
from democrai_osguard.guard.sealed.environment import LIVE
from democrai_osguard.guard.sealed.opening import O_CLOEXEC, bare, open_passed
from democrai_osguard.guard.sealed.paths import absolute, forget, resolve

ORIGINALS: dict[str, Any] = {}
# Where a program that is granted by its bare name must lie: folders that need root to change.
SYSTEM_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_OWNED = "DEMOCRAI_"
_X_OK = 1
_SHEBANGS = 4
_LINE = 2  # where the line is: after the shell and `-c`
_BLANK = " \t\n"
_SHEBANG_LIMIT = 256  # the kernel reads no more of the first line
PASSING: set[int] = set()  # threads that are starting what has been judged


def starting(entry: str) -> Warning | None:
    """Judge whether a process may be started at all."""
    state = current()
    return None if state is None else may_start(state, entry)


def never(entry: str) -> Warning | None:
    """Judge a call after which paths mean something else, or files are written behind our back."""
    state = current()
    if state is None:
        return None
    return refusal(state, "sandbox_introspection_denied", None, entry)


def may_start(state: State, entry: str) -> Warning | None:
    """Return the refusal of an entry point where this subject starts no processes."""
    if state.subprocess:
        forget()  # what is started may change links
        return None
    return refusal(state, "sandbox_subprocess_denied", "execute", entry)


def about_program(
    state: State, program: Any, path: str | None, start: str | None = None
) -> Warning | None:
    """Judge a program as it is named: by a path, or looked up in PATH.

    `start` is the folder that the child enters first, where it does: relative names begin there.
    """
    text = text_of(program)
    if text is None:
        return refusal(state, "sandbox_filesystem_execute_denied", "execute", "an odd program")
    place = found(text, path, start)
    if place is None:
        return None  # there is nothing to execute; the call itself says so
    for _ in range(_SHEBANGS):
        answer = _about_executable(state, text, place)
        if answer is not None:
            return answer
        interpreter = _shebang(place)
        if interpreter is None:
            return None
        text, place = interpreter, found(interpreter, path, start) or interpreter
    return refusal(state, "sandbox_filesystem_execute_denied", "execute", text, "too many scripts")


def _about_executable(state: State, text: str, place: str) -> Warning | None:
    try:
        real = resolve(absolute(place))
    except Warning as error:
        why = str(error.args[-1])
        return refusal(state, "sandbox_filesystem_execute_denied", "execute", text, why)
    if "/" not in text and text in state.dependencies and place.startswith(SYSTEM_FOLDERS):
        return None
    return about_path(state, "execute", real)


def found(text: str, path: str | None, start: str | None = None) -> str | None:
    """Return where a program is, as the kernel or a look-up in PATH would find it."""
    if "/" in text:
        return _from(start, text)
    folders = path if path is not None else _variable(b"PATH") or _DEFAULT_PATH
    for folder in folders.split(":"):
        place = _from(start, f"{folder or '.'}/{text}")
        if may(place, _X_OK):
            return place
    return None


def _from(start: str | None, path: str) -> str:
    return path if start is None or path.startswith("/") else f"{start}/{path}"


def _variable(name: bytes) -> str | None:
    value = LIVE[0].get(name)
    return None if value is None else value.decode("utf-8", "surrogateescape")


def _shebang(place: str) -> str | None:
    """Return the program that the kernel would really start for a script."""
    try:
        descriptor = open_passed(place, O_CLOEXEC, 0)
    except OSError:
        return None
    line = read(descriptor, _SHEBANG_LIMIT).split(b"\n")[0]
    close(descriptor)
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode("utf-8", "surrogateescape").split()
    if len(words) > 1 and words[0].endswith("/env") and not words[1].startswith("-"):
        return words[1]
    return words[0] if words else None


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
    for key, value in source.items():
        name = _bytes(key)
        if not name.startswith(_OWNED.encode()):
            result[name] = _bytes(value)
    for key, value in owned(state).items():
        result[key.encode()] = value.encode("utf-8", "surrogateescape")
    return result


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def fork_exec(args: tuple[Any, ...]) -> object:
    """Do what `_posixsubprocess.fork_exec` does, for a program that may be executed."""
    state = current()
    original = ORIGINALS["fork_exec"]
    if state is None:
        return original(*args)
    try:
        answer = may_start(state, "_posixsubprocess.fork_exec") or _about_list(state, args)
        if answer is not None:
            return answer
        env = merged(state, _as_mapping(args[5]))
        pairs = [name + b"=" + value for name, value in env.items()]
        try:
            PASSING.add(get_ident())
            return original(*args[:5], pairs, *args[6:])
        finally:
            PASSING.discard(get_ident())
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return bare(error, state)


def _about_list(state: State, args: tuple[Any, ...]) -> Warning | None:
    """Judge the candidates that subprocess made of a program and PATH; the first there counts."""
    candidates = [bytes(item) for item in args[1]]
    start = text_of(args[4])
    if len(candidates) > 1:
        name = candidates[0].rpartition(b"/")[2].decode("utf-8", "surrogateescape")
        folders = b":".join(item.rpartition(b"/")[0] for item in candidates).decode()
        answer = about_program(state, name, folders, start)
        return answer or _about_shell(state, name, args[0], start)
    name = candidates[0].decode("utf-8", "surrogateescape")
    answer = about_program(state, name, None, start)
    return answer or _about_shell(state, name, args[0], start)


def _about_shell(state: State, program: str, argv: Any, start: str | None = None) -> Warning | None:
    """Judge the first word of a line that is handed to a shell."""
    words = [_bytes(item).decode("utf-8", "surrogateescape") for item in argv]
    if program.rpartition("/")[2] not in {"sh", "bash", "dash"} or "-c" not in words[1:2]:
        return None
    word = first_word(words[_LINE]) if len(words) > _LINE else None
    return None if word is None else about_program(state, word, None, start)


def _as_mapping(pairs: Any) -> dict[bytes, bytes] | None:
    if pairs is None:
        return None
    split = (bytes(pair).partition(b"=") for pair in pairs)
    return {name: value for name, _, value in split}


def spawn(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """Do what `posix_spawn` and `execve` do, for a program that may be executed."""
    state = current()
    original = ORIGINALS[name]
    if state is None:
        return original(*args, **kwargs)
    try:
        answer = may_start(state, f"os.{name}") or _about_call(state, name, args)
        if answer is not None:
            return answer
        try:
            PASSING.add(get_ident())
            return original(args[0], args[1], merged(state, args[2]), *args[3:], **kwargs)
        finally:
            PASSING.discard(get_ident())
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return bare(error, state)


def _about_call(state: State, name: str, args: tuple[Any, ...]) -> Warning | None:
    program = args[0]
    if type(program) is int:
        program = f"/proc/self/fd/{program}"
    elif name != "posix_spawnp" and "/" not in str(program):
        program = f"./{program}"  # exec without a look-up means the working directory
    return about_program(state, program, None) or _about_shell(state, str(program), args[1])


def system(command: str) -> object:
    """Do what `os.system` does: a shell, whose first word is judged as well."""
    state = current()
    if state is None:
        return ORIGINALS["system"](command)
    try:
        argv = ["sh", "-c", command]
        answer = may_start(state, "os.system") or about_program(state, "/bin/sh", None)
        answer = answer or _about_shell(state, "sh", argv)
        if answer is not None:
            return answer
        try:
            PASSING.add(get_ident())
            pid = posix_spawn("/bin/sh", argv, merged(state, None))
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
    return about_program(state, program, None)
