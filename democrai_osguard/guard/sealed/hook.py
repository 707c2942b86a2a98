"""The second net: what the interpreter itself reports, whoever called and by whichever name.

One table maps each event to its judge. Events that a wrapper has already judged pass at once.
"""

from __future__ import annotations

from _socket import socket as raw_socket
from _thread import LockType, get_ident
from collections.abc import Callable
from gc import disable as stop_collecting
from gc import enable as start_collecting
from gc import isenabled as collecting
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    TracebackType,
)
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed import (
    databases,
    environment,
    events,
    imports,
    network,
    processes,
)
from democrai_osguard.guard.sealed.answers import noted, refusal
from democrai_osguard.guard.sealed.core import (
    ANSWERED,
    MISSING,
    STATES,
    State,
    current,
    get,
    here,
    is_own_look,
    mark,
    text_of,
)
from democrai_osguard.guard.sealed.frames import back, is_hook, leads_to_ours
from democrai_osguard.guard.sealed.integrity import repair_making, watch_over
from democrai_osguard.guard.sealed.opening import as_refusal
from democrai_osguard.guard.sealed.origins import RUNTIME_FILES, is_genuine
from democrai_osguard.guard.sealed.threads import STARTING

if TYPE_CHECKING:
    from types import FrameType

Args = tuple[Any, ...]
Judge = Callable[[State, Args], Warning | None]

# What hands out a frame: the type, the attribute, and how it is read without asking the object.
FRAME_ATTRIBUTES: dict[str, tuple[type, Any]] = {
    "tb_frame": (TracebackType, TracebackType.tb_frame.__get__),
    "gi_frame": (GeneratorType, GeneratorType.gi_frame.__get__),
    "cr_frame": (CoroutineType, CoroutineType.cr_frame.__get__),
    "ag_frame": (AsyncGeneratorType, AsyncGeneratorType.ag_frame.__get__),
}
FUNCTION_ATTRIBUTES = frozenset({"__code__", "__defaults__", "__kwdefaults__"})
_family = raw_socket.family.__get__
# Families and types that are judged where they connect: unix, IPv4 and IPv6; stream and datagram.
_USUAL_SOCKETS = frozenset((family, kind) for family in (1, 2, 10) for kind in (1, 2))
_reading: set[int] = set()  # threads in which we look at a traceback ourselves
_ANSWERING = (  # public code that takes part in an answer about approvals
    "democrai_osguard.access",
    "democrai_osguard.approvals",
    "democrai_osguard.audit",
    "democrai_osguard.permissions",
    "democrai_osguard.policy",
    "democrai_osguard.runtime",
    "democrai_osguard.targets",
)
_SIGNALLING = (
    "democrai_osguard.guard.contexts",
    "democrai_osguard.runtime",
    "democrai_osguard.runtime.contexts",
    "democrai_osguard.runtime.mcp",
)
_NAMELESS = "<lambda>"
_NO_DESCRIPTOR = -1  # what an event says where no folder was named
_INJECTS_INPUT = frozenset({0x5412, 0x541C})  # TIOCSTI, TIOCLINUX


def judge(event: str, args: Args) -> Warning | None:
    """Return the refusal of an event, None where it may go on."""
    if event == "sys._getframe":
        if is_own_look(args[0]):
            return None
    elif event == "object.__getattr__" and args[1] not in FRAME_ATTRIBUTES:
        if args[1] == "__code__" and _is_signal(args[0]):
            watch_over()
            repair_making()
            return None
        # The defaults by name are a dictionary, which a look is enough to change.
        ours = _ANSWERING if args[1] == "__kwdefaults__" else ()
        answer = _protected_function(args, *ours) if args[1] in FUNCTION_ATTRIBUTES else None
        return answer if answer is None else noted(answer)
    token = get(MISSING)
    state = STATES.get(token) if type(token) is LockType else None
    if state is None or state.bypass or ANSWERED:
        state = current()
    answer = None if state is None else JUDGES[event](state, args)
    return answer if answer is None else noted(answer)


def _is_signal(function: Any) -> bool:
    """Tell whether a look at code is how our own says that it is about to make a guard.

    It calls nothing for that, since whatever has a name can be replaced under it.
    """
    if type(function) is not FunctionType or function.__name__ != _NAMELESS:
        return False
    return text_of(function.__globals__.get("__name__")) in _SIGNALLING


def _path(
    operation: str, *, follow: bool = True, position: int = 0, descriptor: int | None = None
) -> Judge:
    """Return the judge of one argument; `descriptor` is where that of a folder beside it stands."""

    def judge_path(state: State, args: Args) -> Warning | None:
        if descriptor is not None and args[descriptor] != _NO_DESCRIPTOR:
            return refusal(state, "sandbox_filesystem_fd_denied", None, "dir_fd")
        return events.event_path(state, operation, args[position], follow=follow)

    return judge_path


def _two(first: Judge, second: Judge) -> Judge:
    def judge_both(state: State, args: Args) -> Warning | None:
        return first(state, args) or second(state, args)

    return judge_both


def _renaming(name: str, from_there: str, to_here: str) -> Judge:
    def judge_gain(state: State, args: Args) -> Warning | None:
        return events.event_gain(state, name, args[0], args[1])

    there = _path(from_there, follow=False, descriptor=2)
    here = _path(to_here, follow=False, position=1, descriptor=3)
    return _two(_two(there, here), judge_gain)


def _never(event: str) -> Judge:
    def judge_never(state: State, _args: Args) -> Warning | None:
        return refusal(state, "sandbox_introspection_denied", None, event)

    return judge_never


def _frames(state: State, args: Args) -> Warning | None:
    """Refuse a look at frames that are ours, or at any while one of ours is on the stack."""
    judge_frame = here()
    hook_frame = None if judge_frame is None else back(judge_frame)
    asking = None if hook_frame is None else back(hook_frame)
    if get_ident() in _reading and asking is not None and asking.f_globals is _frame_of.__globals__:
        return None
    # What is asked for may be over by now, and still leads to what it was called from.
    asked = _frame_of(args[0], args[1]) if len(args) > 1 else None
    if leads_to_ours(asking) or leads_to_ours(asked):
        return refusal(state, "sandbox_introspection_denied", None, "frames")
    return None


def _frame_of(holder: Any, name: str) -> FrameType | None:
    """Return what a look leads to; past the hook itself, which is over where a refusal tells of it.

    An event may be made up by anybody: nothing of an object is asked that is not what hands out
    frames. No finalizer runs meanwhile, because collection is off.
    """
    kind, look = FRAME_ATTRIBUTES[name]
    if type(holder) is not kind:
        return None
    ident, collects = get_ident(), collecting()
    try:
        stop_collecting()
        _reading.add(ident)  # in here: an exception from a signal must not leave the note behind
        frame: FrameType | None = look(holder)
    finally:
        _reading.discard(ident)
        if collects:
            start_collecting()
    return back(frame) if frame is not None and is_hook(frame) else frame


def _protected_function(args: Args, *ours: str) -> Warning | None:
    """Refuse a look into the functions that stand before the originals, or into those of ours."""
    space = getattr(args[0], "__globals__", None)
    name = space.get("__name__") if type(space) is dict else None
    if not isinstance(name, str) or not name.startswith(("democrai_osguard.guard", *ours)):
        return None
    state = current()
    if state is None:
        return None
    return refusal(state, "sandbox_introspection_denied", None, str(args[1]))


def _set_attribute(state: State, args: Args) -> Warning | None:
    if args[1] not in FUNCTION_ATTRIBUTES:
        return None
    changed = _protected_function(args, *_ANSWERING)
    return changed or _new_function(state, args[2:] or (None,))


def _executed(state: State, args: Args) -> Warning | None:
    code = args[0]
    if type(code) is not CodeType:
        return None
    if _is_runtime(code):  # loaded on the subject's behalf, and still the runtime's
        if is_genuine(code):
            return None
        return refusal(state, "sandbox_guard_denied", None, "code under a false name")
    mark(code, state)
    return None


def _is_runtime(code: Any) -> bool:
    name = text_of(code.co_filename) if type(code) is CodeType else None
    return name is not None and name.startswith(RUNTIME_FILES[0])


def _new_function(state: State, args: Args) -> Warning | None:
    """Refuse a function made of code that passes for the runtime's own."""
    if _is_runtime(args[0]):
        return refusal(state, "sandbox_guard_denied", None, "code under a false name")
    if type(args[0]) is CodeType:
        mark(args[0], state)
    return None


def _import(state: State, args: Args) -> Warning | None:
    name = text_of(args[0]) or ""
    if (get_ident(), name) in imports.CREATING:
        imports.CREATING.discard((get_ident(), name))  # once
        return None
    return imports.about_import(state, name) or imports.about_native(state, name, args[1])


def _native(state: State, _args: Args) -> Warning | None:
    return imports.native_call(state)


def _interpreter(state: State, _args: Args) -> Warning | None:
    return refusal(state, "sandbox_module_denied", None, "_interpreters")


def _database(state: State, args: Args) -> Warning | None:
    return events.event_database(state, args[0])


def _opened_database(state: State, args: Args) -> Warning | None:
    return databases.about_opened(state, args[0])


def _extension(state: State, args: Args) -> Warning | None:
    if len(args) > 1 and args[1] is False:
        return None
    return refusal(state, "sandbox_module_denied", None, "sqlite3 extensions")


def _started(entry: str) -> Judge:
    def judge_start(state: State, args: Args) -> Warning | None:
        program = args[0] if args else None
        return processes.event(state, entry, program)

    return judge_start


def _announced(entry: str) -> Judge:
    """Judge a start that only says what follows: its program is judged where it is started."""

    def judge_announcement(state: State, _args: Args) -> Warning | None:
        return processes.event(state, entry)

    return judge_announcement


def _variable(state: State, args: Args) -> Warning | None:
    return environment.about_variable(state, args[0])


def _new_socket(state: State, args: Args) -> Warning | None:
    if type(args[0]) is not raw_socket and args[1:3] in _USUAL_SOCKETS:
        return None
    return network.new_socket(state, args[0], args[1], args[2], raw_socket)


def _address(state: State, args: Args) -> Warning | None:
    family, address = _family(args[0]), args[1]
    if address is None or network.was_reached(state, family, address):
        return None
    try:
        return network.about_address(state, family, address)
    except Warning as error:
        return as_refusal(error, state, "modify")


def _bind(state: State, args: Args) -> Warning | None:
    try:
        return network.bind(state, _family(args[0]), args[1])
    except Warning as error:
        return as_refusal(error, state, "create")


def _lookup(state: State, args: Args) -> Warning | None:
    host = args[0][0] if type(args[0]) is tuple else args[0]
    if type(host) is str and host in state.places:
        return None
    return network.lookup(state, host)


def _reverse(state: State, args: Args) -> Warning | None:
    """Judge the look-up of an address: its name is asked from whoever answers for the address."""
    host = args[0][0] if type(args[0]) is tuple else args[0]
    return network.reverse(state, host)


def _ioctl(state: State, args: Args) -> Warning | None:
    if args[1] in _INJECTS_INPUT:
        return refusal(state, "sandbox_introspection_denied", None, "fcntl.ioctl")
    return None


def _thread(state: State, args: Args) -> Warning | None:
    if any(args[0] is starter for starter in STARTING):
        return None
    return refusal(state, "sandbox_guard_denied", None, "a thread past its wrapper")


_WRITE = _path("modify")
_READ = _path("read")

JUDGES: dict[str, Judge] = {
    "open": lambda state, args: events.event_open(state, args[0], args[1], args[2]),
    "os.listdir": _READ,
    "os.scandir": _READ,
    "os.chdir": _READ,
    "os.getxattr": _READ,
    "os.listxattr": _READ,
    "os.setxattr": _WRITE,
    "os.removexattr": _WRITE,
    "os.chmod": _path("modify", descriptor=2),
    "os.chown": _path("modify", follow=False, descriptor=3),
    "os.utime": _path("modify", descriptor=3),
    "os.truncate": _WRITE,
    "os.mkdir": _path("create", follow=False, descriptor=2),
    "os.rmdir": _path("delete", follow=False, descriptor=1),
    "os.remove": _path("delete", follow=False, descriptor=1),
    "os.rename": _renaming("rename", "delete", "write"),
    "os.link": _renaming("link", "read", "create"),
    "os.symlink": _path("create", follow=False, position=1, descriptor=2),
    "sqlite3.connect": _database,
    "sqlite3.connect/handle": _opened_database,
    "sqlite3.enable_load_extension": _extension,
    "sqlite3.load_extension": _extension,
    "subprocess.Popen": _announced("subprocess.Popen"),
    "_posixsubprocess.fork_exec": _started("_posixsubprocess.fork_exec"),
    "os.posix_spawn": _started("os.posix_spawn"),
    "os.exec": _started("os.exec"),
    "os.spawn": _started("os.spawn"),
    "os.system": _announced("os.system"),
    "os.fork": _started("os.fork"),
    "os.forkpty": _started("os.forkpty"),
    "os.putenv": _variable,
    "os.unsetenv": _variable,
    "import": _import,
    "ctypes.dlopen": _native,
    "ctypes.dlsym": _native,
    "ctypes.dlsym/handle": _native,
    "ctypes.call_function": _native,
    "ctypes.cdata": _native,
    "ctypes.cdata/buffer": _native,
    "ctypes.string_at": _native,
    "ctypes.wstring_at": _native,
    "ctypes.addressof": _native,
    "ctypes.PyObj_FromPtr": _native,
    "ctypes.memoryview_at": _native,
    "cpython.PyInterpreterState_New": _interpreter,
    "cpython.remote_debugger_script": _never("cpython.remote_debugger_script"),
    "sys.remote_exec": _never("sys.remote_exec"),
    "socket.__new__": _new_socket,
    "socket.connect": _address,
    "socket.sendto": _address,
    "socket.sendmsg": _address,
    "socket.bind": _bind,
    "socket.getaddrinfo": _lookup,
    "socket.gethostbyname": _lookup,
    "socket.gethostbyaddr": _reverse,
    "socket.getnameinfo": _reverse,
    "gc.get_objects": _never("gc.get_objects"),
    "gc.get_referrers": _never("gc.get_referrers"),
    "gc.get_referents": _never("gc.get_referents"),
    "sys.settrace": _never("sys.settrace"),
    "sys.setprofile": _never("sys.setprofile"),
    "sys.monitoring.register_callback": _never("sys.monitoring.register_callback"),
    "sys.addaudithook": _never("sys.addaudithook"),
    "sys._current_frames": _never("sys._current_frames"),
    "sys._current_exceptions": _never("sys._current_exceptions"),
    "sys._getframe": _frames,
    "object.__getattr__": _frames,
    "object.__setattr__": _set_attribute,
    "object.__delattr__": _set_attribute,
    "exec": _executed,
    "function.__new__": _new_function,
    "fcntl.ioctl": _ioctl,
    "_thread.start_new_thread": _thread,
    "_thread.start_joinable_thread": _thread,
}
