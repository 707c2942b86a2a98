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
    fstat,
    getpgid,
    getpid,
    getsid,
    listdir,
    lstat,
    pipe,
    posix_spawn,
    read,
    strerror,
    waitpid,
)
from posix import kill as signal_process
from sys import version_info
from types import SimpleNamespace
from typing import Any

from democrai_osguard.guard.sealed import processes
from democrai_osguard.guard.sealed.answers import PROTECTED, without_denied
from democrai_osguard.guard.sealed.core import State, current, text_of, unguarded
from democrai_osguard.guard.sealed.opening import bare, check, place_of
from democrai_osguard.guard.sealed.programs import judged

# From the settings: enabled, helper socket, landlock, seccomp, read paths, write paths, level, age
# of a name.
SETTINGS: list[tuple[Any, ...]] = []
PYTHON: list[str] = []  # the interpreter that runs the launcher
ENVIRONMENT: list[dict[bytes, bytes]] = []  # its variables: as they were before any guard
FAILED = "failed"
_MODULE = "democrai_osguard_launcher.warm"
_HELPER = b"DEMOCRAI_OS_HELPER_SOCKET"
_REFRESH = b"DEMOCRAI_SANDBOX_OS_REFRESH_SECONDS"
_WRITES = ("create", "modify", "delete")
_TOO_LITTLE = "enforcement would be "
# Whether vfork may be used, which fork_exec no longer asks from 3.14 on.
_QUICKLY = (True,) if version_info < (3, 14) else ()
_NOT_ENFORCED = 125
_OFF = "sandbox.os.enabled switches the operating system's layers off"
_NOBODY_WAITS = "refused: without the operating system's layers no act can wait for a person"
_GLOBS = "what these globs of its profile match"
_LARGEST = 1 << 24  # of a request: more than the kernel takes as arguments and variables
_PID_BYTES = 8
_STANDARD = 3
_PIECE = 65_536
_KILL = 9
_NEW_SESSION = -1
Plain = tuple[str, str, str]
_warm: list[SimpleNamespace] = []
_lock = allocate_lock()


def start_task(  # noqa: PLR0913, PLR0917 - all that a child is started with; doors go by place
    command: Any,
    env: Any,
    folder: Any,
    descriptors: Any,
    patience: Any = None,
    keep: Any = (),
    group: Any = None,
) -> object:
    """Start a program under the active guard's policy; None where no guard is active.

    With `patience`, in seconds, a person is asked about what no rule allows, while it waits. The
    child gets the descriptors in `keep`, too, and joins a group; -1 is a session of its own.
    Returns its number and what the operating system does not hold, or why it was not started.
    """
    state = current()
    if state is None:
        return None
    try:
        _check_plain(command, env, descriptors, patience)
        _check_places(keep, group)
        words = [text_of(word) or "" for word in command]
        folder = text_of(folder)
        place = None if folder is None else place_of(state, "read", folder)
        variables = processes.merged(state, env)
        program = _program(state, words[0], place, variables)
        child = (program, words, place, variables, (*descriptors, *keep), group)
        return unguarded(state, _started, state, patience, child)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return bare(error, state)


def ready() -> None:
    """Start the launcher now, where this process is now; refused inside a guard, as None."""
    if current() is None and SETTINGS[0][0]:
        with _lock:
            _running()


def _check_plain(command: Any, env: Any, descriptors: Any, patience: Any) -> None:
    """Raise TypeError where something has methods of its own, which would run in here."""
    lists = type(command) is list and type(descriptors) is list
    if lists and command and len(descriptors) == _STANDARD and type(env) in {dict, type(None)}:
        words = [*command, *([] if env is None else [*env, *env.values()])]
        plain = [type(word) is str for word in words] + [type(each) is int for each in descriptors]
        if all(plain) and type(patience) in {float, type(None)}:
            return
    raise TypeError("a command is a list of words, with plain variables and descriptors")


def _check_places(keep: Any, group: Any) -> None:
    numbers = [*keep] if type(keep) is tuple else [None]
    if not all(type(each) is int for each in numbers) or type(group) not in {int, type(None)}:
        raise TypeError("descriptors and a process group are plain numbers")


def _program(
    state: State, name: str, place: str | None, variables: dict[bytes, bytes]
) -> tuple[str, str]:
    """Return the file to start as the child would find it, and where; raise as `judged` does."""
    if place is not None:
        check(state, ("read",), place)
    path = processes.path_of(variables)
    return judged(state, name, path, place, path)


def _started(state: State, patience: Any, child: tuple[Any, ...]) -> tuple[Any, ...]:
    required, passed = SETTINGS[0][6], child[4]
    if not SETTINGS[0][0]:
        return _without_layers(required, patience, child)
    _check_passed(passed)
    rules, unheld = _rules(state)
    if unheld and required == "full":
        return FAILED, _NOT_ENFORCED, f"refused: {_TOO_LITTLE}partial: {unheld[0]}", 0
    document = _document(state, child, patience, rules)
    result = _launched(document, "full", passed)
    if result[0] == FAILED and required != "full" and _TOO_LITTLE in result[2]:
        # This kernel or host holds less than everything; the settings say that this is enough.
        missing = tuple(result[2].partition(": ")[2].partition(": ")[2].split("; "))
        result = _launched(document, required, passed)
        unheld = (*missing, *unheld)
    return result if result[0] == FAILED else (result[0], (*result[1], *unheld))


def _without_layers(required: str, patience: Any, child: tuple[Any, ...]) -> tuple[Any, ...]:
    """Start a child that nothing below Python holds, unless something must."""
    if required != "none":
        line = f"refused: {_TOO_LITTLE}none, not {required}: {_OFF}"
        return FAILED, _NOT_ENFORCED, line, 0
    return _plain(*child) if patience is None else (FAILED, _NOT_ENFORCED, _NOBODY_WAITS, 0)


def _check_passed(descriptors: tuple[int, ...]) -> None:
    """Raise OSError for a descriptor that is closed, or that is ours to the launcher."""
    ours = {
        (seen.st_dev, seen.st_ino) for seen in (fstat(each.connection.fileno()) for each in _warm)
    }
    for each in descriptors:
        seen = fstat(each)
        if (seen.st_dev, seen.st_ino) in ours:
            raise PermissionError(1, "a descriptor of the launcher is not passed on")


def _document(state: State, child: tuple[Any, ...], patience: Any, access: list[Plain]) -> str:
    """Return a request of the launcher without its level."""
    (program, called), words, place, variables, passed, group = child
    keep = ", ".join(map(str, passed[_STANDARD:]))
    pairs = (
        f"{quoted(_decoded(name))}: {quoted(_decoded(value))}" for name, value in variables.items()
    )
    rules = (
        f'{{"resource_type": {quoted(resource)}, "operation": {quoted(operation)},'
        f' "target": {quoted(target)}}}'
        for resource, operation, target in access
    )
    subject = f'{{"type": {quoted(state.kind)}, "name": {quoted(state.subject)}}}'
    chain = ", ".join(map(quoted, state.chain))
    asks = "null" if patience is None else f'{{"seconds": {patience!r}, "chain": [{chain}]}}'
    return (
        f'"program": {quoted(program)}, "called": {quoted(called)},'
        f' "command": [{", ".join(map(quoted, words))}], "environment": {{{", ".join(pairs)}}},'
        f' "folder": {"null" if place is None else quoted(place)}, "access": [{", ".join(rules)}],'
        f' "subject": {subject}, "limits": {{}}, "keep": [{keep}], "asks": {asks},'
        f' "group": {"null" if group is None else group}'
    )


def _rules(state: State) -> tuple[list[Plain], tuple[str, ...]]:
    """Return what the child may touch, and what of it cannot be held.

    That is the chain's rules, its own folders and the settings' paths, without what is denied.
    """
    reads, writes = SETTINGS[0][4:6]
    rules = list(state.flat)
    for operation in ("read", *_WRITES):
        own = state.runtime.get("create", frozenset())
        rules += [("filesystem", operation, path) for path in sorted(own)]
    rules += [("filesystem", "read", path) for path in reads]
    rules += [
        ("filesystem", operation, path) for path in writes for operation in ("read", *_WRITES)
    ]
    left, beneath, globs = without_denied(state, tuple(rules))
    found: dict[Plain, None] = {}
    for rule in left:
        if rule[0] == "filesystem":
            closed = tuple(path for _, verb, path in beneath if verb == rule[1])
            places = _apart(rule[2], closed)
            found.update(dict.fromkeys((rule[0], rule[1], path) for path in places))
        else:
            found[rule] = None
    return list(found), (f"{_GLOBS}: {', '.join(globs)}",) if globs else ()


def _apart(path: str, closed: tuple[str, ...] = ()) -> list[str]:
    """Return a path, or what lies in it, without what is closed: no rule takes away."""
    off = (*PROTECTED[0], *closed)
    if path.startswith(PROTECTED[0]) or any(f"{path}/".startswith(f"{each}/") for each in closed):
        return []
    if not any(path == "/" or f"{each}/".startswith(f"{path}/") for each in off):
        return [path]
    try:
        names = sorted(listdir(path))
    except OSError:
        return []
    front = "" if path == "/" else path
    places = [f"{front}/{name}" for name in names]
    return [below for place in places if not _is_link(place) for below in _apart(place, closed)]


def _is_link(place: str) -> bool:
    """Tell whether a name leads elsewhere: what it leads to is judged where it really is."""
    try:
        return S_ISLNK(lstat(place).st_mode)
    except OSError:
        return True


def _launched(document: str, level: str, passed: tuple[int, ...]) -> tuple[Any, ...]:
    text = f'{{{document}, "require": {quoted(level)}}}'.encode()
    if len(text) > _LARGEST:
        raise OSError(7, strerror(7))
    news, bad_news = pipe()
    try:
        pid = _sent(text, (*passed[:_STANDARD], bad_news, *passed[_STANDARD:]))
    finally:
        close(bad_news)
    complaint = _drained(news)
    if not complaint:
        return pid, ()
    if pid:
        waitpid(pid, 0)
    code, number, line = complaint.decode("utf-8", "surrogateescape").split(" ", 2)
    return FAILED, int(code), line, int(number)


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
    # The group is the one that children are in.
    place = getpid(), getpgid(0), getsid(0)
    if _warm and (_warm[0].place != place or _has_ended(_warm[0])):
        _forget()
    if not _warm:
        ours, theirs = socketpair()
        words = [PYTHON[0], "-I", "-m", _MODULE, *_left_out()]
        dup = [(POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
        pid = posix_spawn(PYTHON[0], words, _own_environment(), file_actions=dup)
        theirs.close()
        _warm.append(SimpleNamespace(connection=ours, pid=pid, place=place))
    return _warm[0]


def _left_out() -> list[str]:
    layers = (("landlock", SETTINGS[0][2]), ("seccomp", SETTINGS[0][3]))
    return [f"--without-{name}" for name, wanted in layers if not wanted]


def _own_environment() -> dict[bytes, bytes]:
    helper = SETTINGS[0][1]
    more = {} if helper is None else {_HELPER: helper.encode("utf-8", "surrogateescape")}
    # Not those of now: the loader of a program heeds some, and guarded code may set them.
    return {**ENVIRONMENT[0], **more, _REFRESH: str(SETTINGS[0][7]).encode()}


def _has_ended(warm: SimpleNamespace) -> bool:
    try:
        return waitpid(warm.pid, 1)[0] != 0
    except ChildProcessError:
        return True


def _forget() -> None:
    """Let go of a launcher that has ended, is out of step, or belongs to the process before us."""
    warm = _warm.pop()
    warm.connection.close()
    if warm.place[0] == getpid():
        try:
            signal_process(warm.pid, _KILL)
            waitpid(warm.pid, 0)
        except (ChildProcessError, ProcessLookupError):
            pass


def _plain(  # noqa: PLR0913, PLR0917 - all that a child is started with
    program: tuple[str, str],
    words: list[str],
    place: str | None,
    variables: dict[bytes, bytes],
    passed: tuple[int, ...],
    group: int | None,
) -> tuple[Any, ...]:
    """Start a program without the launcher."""
    news, bad_news = pipe()
    pairs = [name + b"=" + value for name, value in variables.items()]
    encoded = [word.encode("utf-8", "surrogateescape") for word in words]
    keep, joined = tuple(sorted({bad_news, *passed[_STANDARD:]})), -1 if group is None else group
    processes.PASSING.add(get_ident())
    try:
        pid = processes.ORIGINALS["fork_exec"](
            encoded, (program[0].encode("utf-8", "surrogateescape"),), True, keep, place, pairs,  # noqa: FBT003 - by position, as it takes them
            passed[0], -1, -1, passed[1], -1, passed[2], news, bad_news,
            True, group == _NEW_SESSION, joined, None, None, None, -1, None, *_QUICKLY,  # noqa: FBT003 - likewise
        )  # fmt: skip
    finally:
        processes.PASSING.discard(get_ident())
        close(bad_news)
    complaint = _drained(news).split(b":")
    if len(complaint) < 3:  # noqa: PLR2004 - type, number and where
        return pid, ("the operating system's layers are switched off",)
    waitpid(pid, 0)
    number = int(complaint[1], 16)
    code = 127 if number == 2 else 126  # noqa: PLR2004 - ENOENT
    return FAILED, code, f"{words[0]}: {strerror(number)}", number


def _drained(descriptor: int) -> bytes:
    pieces = b""
    while piece := read(descriptor, _PIECE):
        pieces += piece
    close(descriptor)
    return pieces


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
