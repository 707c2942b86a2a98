"""Child processes of the SDK: the program is judged, the policy is the guard's own.

With the operating system's layers on, the warm launcher starts them; otherwise they are started
as they are. Nothing here runs code that guarded code could have changed: the request is written
with C functions, and the settings were read before any guard was entered.
"""

from __future__ import annotations

from _json import encode_basestring_ascii as quoted
from _socket import MSG_WAITALL, SCM_RIGHTS, SOL_SOCKET, socketpair
from _stat import S_ISLNK
from _thread import allocate_lock, get_ident
from posix import (
    POSIX_SPAWN_DUP2,
    close,
    getpid,
    listdir,
    lstat,
    pipe,
    posix_spawn,
    read,
    strerror,
    waitpid,
)
from posix import kill as signal_process
from types import SimpleNamespace
from typing import Any

from democrai_osguard.guard.sealed import processes
from democrai_osguard.guard.sealed.answers import PROTECTED, about_path
from democrai_osguard.guard.sealed.core import State, current, text_of, unguarded
from democrai_osguard.guard.sealed.environment import LIVE
from democrai_osguard.guard.sealed.opening import bare
from democrai_osguard.guard.sealed.paths import absolute, resolve

# From the settings: enabled, helper socket, landlock, seccomp, read paths, write paths, level.
SETTINGS: list[tuple[Any, ...]] = []
PYTHON: list[str] = []  # the interpreter that runs the launcher
FAILED = "failed"
_MODULE = "democrai_osguard_launcher.warm"
_HELPER = b"DEMOCRAI_OS_HELPER_SOCKET"
_WRITES = ("create", "modify", "delete")
_TOO_LITTLE = "enforcement would be "
_NOT_ENFORCED = 125
_PID_BYTES = 8
_STANDARD = 3
_PIECE = 65_536
_KILL = 9
_warm: list[SimpleNamespace] = []
_lock = allocate_lock()


def start_task(command: Any, env: Any, folder: Any, descriptors: Any) -> object:
    """Start a program under the active guard's policy; None where no guard is active.

    Returns its number and what the operating system does not hold, or why it was not started.
    """
    state = current()
    if state is None:
        return None
    try:
        _check_plain(command, env, descriptors)
        words = [text_of(word) or "" for word in command]
        folder = text_of(folder)
        place = None if folder is None else resolve(absolute(folder))
        variables = processes.merged(state, env)
        answer = _about(state, words, place, variables)
        if answer is not None:
            return answer
        return unguarded(state, _started, state, words, place, variables, tuple(descriptors))
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return bare(error, state)


def _check_plain(command: Any, env: Any, descriptors: Any) -> None:
    """Raise TypeError where something has methods of its own, which would run in here."""
    lists = type(command) is list and type(descriptors) is list
    if lists and command and len(descriptors) == _STANDARD and type(env) in {dict, type(None)}:
        words = [*command, *([] if env is None else [*env, *env.values()])]
        plain = [type(word) is str for word in words] + [type(each) is int for each in descriptors]
        if all(plain):
            return
    raise TypeError("a command is a list of words, with plain variables and descriptors")


def _about(
    state: State, words: list[str], place: str | None, variables: dict[bytes, bytes]
) -> Warning | None:
    if place is not None:
        answer = about_path(state, "read", place)
        if answer is not None:
            return answer
        if "/" in words[0] and not words[0].startswith("/"):
            words[0] = f"{place}/{words[0]}"  # as the child would find it
    path = variables.get(b"PATH")
    text = None if path is None else path.decode("utf-8", "surrogateescape")
    return processes.about_program(state, words[0], text)


def _started(
    state: State,
    words: list[str],
    place: str | None,
    variables: dict[bytes, bytes],
    standard: tuple[int, ...],
) -> tuple[Any, ...]:
    if not SETTINGS[0][0]:
        return _plain(words, place, variables, standard)
    required = SETTINGS[0][6]
    document = _document(state, words, place, variables)
    result = _launched(document, "full", standard)
    if result[0] != FAILED or required == "full" or _TOO_LITTLE not in result[2]:
        return result
    # This kernel or host holds less than everything; the settings say that this is enough.
    missing = tuple(result[2].partition(": ")[2].partition(": ")[2].split("; "))
    result = _launched(document, required, standard)
    return result if result[0] == FAILED else (result[0], missing)


def _document(
    state: State, words: list[str], place: str | None, variables: dict[bytes, bytes]
) -> str:
    """Return a request of the launcher without its level."""
    pairs = (
        f"{quoted(_decoded(name))}: {quoted(_decoded(value))}" for name, value in variables.items()
    )
    rules = (
        f'{{"resource_type": {quoted(resource)}, "operation": {quoted(operation)},'
        f' "target": {quoted(target)}}}'
        for resource, operation, target in _rules(state)
    )
    subject = f'{{"type": {quoted(state.kind)}, "name": {quoted(state.subject)}}}'
    return (
        f'"command": [{", ".join(map(quoted, words))}], "environment": {{{", ".join(pairs)}}},'
        f' "folder": {"null" if place is None else quoted(place)}, "access": [{", ".join(rules)}],'
        f' "subject": {subject}, "limits": {{}}, "keep": []'
    )


def _rules(state: State) -> list[tuple[str, str, str]]:
    """Return what the child may touch: the chain's rules, its own folders, the settings' paths."""
    _, _, _, _, reads, writes, _ = SETTINGS[0]
    rules = list(state.flat)
    for operation in ("read", *_WRITES):
        own = state.runtime.get("create", frozenset())
        rules += [("filesystem", operation, path) for path in sorted(own)]
    rules += [("filesystem", "read", path) for path in reads]
    rules += [
        ("filesystem", operation, path) for path in writes for operation in ("read", *_WRITES)
    ]
    found: dict[tuple[str, str, str], None] = {}
    for rule in rules:
        if rule[0] == "filesystem":
            found.update(dict.fromkeys((rule[0], rule[1], path) for path in _apart(rule[2])))
        else:
            found[rule] = None
    return list(found)


def _apart(path: str) -> list[str]:
    """Return a path, or what lies in it, without what belongs to the guard: no rule takes away."""
    inside = [each for each in PROTECTED[0] if path == "/" or f"{each}/".startswith(f"{path}/")]
    if path.startswith(PROTECTED[0]):
        return []
    if not inside:
        return [path]
    try:
        names = sorted(listdir(path))
    except OSError:
        return []
    front = "" if path == "/" else path
    places = [f"{front}/{name}" for name in names]
    return [below for place in places if not _is_link(place) for below in _apart(place)]


def _is_link(place: str) -> bool:
    """Tell whether a name leads elsewhere: what it leads to is judged where it really is."""
    try:
        return S_ISLNK(lstat(place).st_mode)
    except OSError:
        return True


def _launched(document: str, level: str, standard: tuple[int, ...]) -> tuple[Any, ...]:
    text = f'{{{document}, "require": {quoted(level)}}}'.encode()
    news, bad_news = pipe()
    try:
        pid = _sent(text, (*standard, bad_news))
    finally:
        close(bad_news)
    complaint = _drained(news)
    if not complaint:
        return pid, ()
    if pid:
        waitpid(pid, 0)
    code, _, line = complaint.decode("utf-8", "surrogateescape").partition(" ")
    return FAILED, int(code), line


def _sent(text: bytes, descriptors: tuple[int, ...]) -> int:
    numbers = b"".join(number.to_bytes(4, "little") for number in descriptors)
    ancillary = [(SOL_SOCKET, SCM_RIGHTS, numbers)]
    with _lock:
        warm = _running()
        try:
            warm.connection.sendmsg([len(text).to_bytes(4, "little")], ancillary)
            warm.connection.sendall(text)
            answer = warm.connection.recv(_PID_BYTES, MSG_WAITALL)
        except OSError:
            answer = b""
        if len(answer) < _PID_BYTES:
            # Whether it had forked is unknown, so that trying again could run twice.
            _forget()
            raise OSError(71, "the launcher ended unexpectedly")
    return int.from_bytes(answer, "little", signed=True)


def _running() -> SimpleNamespace:
    if _warm and (_warm[0].owner != getpid() or _has_ended(_warm[0])):
        _forget()
    if not _warm:
        ours, theirs = socketpair()
        words = [PYTHON[0], "-I", "-m", _MODULE, *_left_out()]
        dup = [(POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
        pid = posix_spawn(PYTHON[0], words, _own_environment(), file_actions=dup)
        theirs.close()
        _warm.append(SimpleNamespace(connection=ours, pid=pid, owner=getpid()))
    return _warm[0]


def _left_out() -> list[str]:
    layers = (("landlock", SETTINGS[0][2]), ("seccomp", SETTINGS[0][3]))
    return [f"--without-{name}" for name, wanted in layers if not wanted]


def _own_environment() -> dict[bytes, bytes]:
    helper = SETTINGS[0][1]
    more = {} if helper is None else {_HELPER: helper.encode("utf-8", "surrogateescape")}
    return {**LIVE[0], **more}


def _has_ended(warm: SimpleNamespace) -> bool:
    try:
        return waitpid(warm.pid, 1)[0] != 0
    except ChildProcessError:
        return True


def _forget() -> None:
    """Let go of a launcher that has ended, is out of step, or belongs to the process before us."""
    warm = _warm.pop()
    warm.connection.close()
    if warm.owner == getpid():
        try:
            signal_process(warm.pid, _KILL)
            waitpid(warm.pid, 0)
        except (ChildProcessError, ProcessLookupError):
            pass


def _plain(
    words: list[str],
    place: str | None,
    variables: dict[bytes, bytes],
    standard: tuple[int, ...],
) -> tuple[Any, ...]:
    """Start a program without the launcher."""
    path = variables.get(b"PATH")
    program = processes.found(words[0], None if path is None else _decoded(path))
    if program is None:
        return FAILED, 127, f"{words[0]}: {strerror(2)}"
    news, bad_news = pipe()
    pairs = [name + b"=" + value for name, value in variables.items()]
    encoded = [word.encode("utf-8", "surrogateescape") for word in words]
    processes.PASSING.add(get_ident())
    try:
        pid = processes.ORIGINALS["fork_exec"](
            encoded, (program.encode("utf-8", "surrogateescape"),), True, (bad_news,), place, pairs,  # noqa: FBT003 - by position, as it takes them
            standard[0], -1, -1, standard[1], -1, standard[2], news, bad_news,
            True, False, -1, None, None, None, -1, None, True,  # noqa: FBT003 - likewise
        )  # fmt: skip
    finally:
        processes.PASSING.discard(get_ident())
        close(bad_news)
    complaint = _drained(news).split(b":")
    if len(complaint) < 3:  # noqa: PLR2004 - type, number and where
        return pid, ("the operating system's layers are switched off",)
    waitpid(pid, 0)
    number = int(complaint[1], 16)
    return FAILED, 127 if number == 2 else 126, f"{words[0]}: {strerror(number)}"  # noqa: PLR2004 - ENOENT


def _drained(descriptor: int) -> bytes:
    pieces = b""
    while piece := read(descriptor, _PIECE):
        pieces += piece
    close(descriptor)
    return pieces


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
