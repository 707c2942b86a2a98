"""`sdk.tasks`: group, session and descriptors of a child are those that subprocess gives it."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from sdk.test_child_processes import IN_THE_KERNEL, SHELL, either, programs

from democrai_osguard.errors import ContractError

if TYPE_CHECKING:
    from sdk.host import Host

pytestmark = [IN_THE_KERNEL, pytest.mark.usefixtures("either")]
assert either.__name__  # the fixture: with the launcher, and without it

RUN = """
import asyncio, os
from democrai_osguard import sdk

async def run(command, options):
    process = await sdk.tasks.run_subprocess(
        *command, stdin=sdk.tasks.PIPE, stdout=sdk.tasks.PIPE, **options)
    first = await process.stdout.readline()
    seen = process.pid, os.getpgid(process.pid), os.getsid(process.pid)
    rest, _ = await process.communicate(b"done\\n")
    return seen, (first + rest).decode()

def main(*command, **options):
    return asyncio.run(run(command, options))
"""
# A shell's `read` needs no other program; it waits until it was looked at.
SHOW = ("sh", "-c", "read line < /proc/$$/stat; echo $line; read line")


def run(host: Host, *command: str, **options: object) -> Any:  # noqa: ANN401 - what it returns
    main = host.load(RUN)
    with host.guard(access=programs(*SHELL, "bash")):
        return main(*command, **options)


def bonds(child: int, group: int, session: int) -> tuple[str, str]:
    ours = {os.getpgrp(): "ours", os.getsid(0): "ours"}
    return {**ours, child: "its own"}[group], {**ours, child: "its own"}[session]


def shown(child: int, line: str) -> tuple[str, str]:
    words = line.rpartition(")")[2].split()
    return bonds(child, int(words[2]), int(words[3]))


@pytest.mark.needs("landlock-scopes")
@pytest.mark.parametrize("options", [{}, {"process_group": 0}, {"start_new_session": True}])
def test_group_and_session_are_those_that_subprocess_gives(
    host: Host, options: dict[str, Any]
) -> None:
    with subprocess.Popen(SHOW, stdin=-1, stdout=-1, text=True, **options) as control:
        assert control.stdout is not None
        expected = shown(control.pid, control.stdout.readline())
        assert bonds(control.pid, os.getpgid(control.pid), os.getsid(control.pid)) == expected
        control.communicate("done\n")
    (child, *seen), line = run(host, *SHOW, **options)
    assert bonds(child, *seen) == expected
    assert shown(child, line) == expected


def test_a_child_is_in_the_group_that_the_application_is_in_now(host: Host) -> None:
    assert shown(*_last(run(host, *SHOW))) == ("ours", "ours")
    os.setsid()
    assert shown(*_last(run(host, *SHOW))) == ("ours", "ours")


def _last(found: tuple[tuple[int, int, int], str]) -> tuple[int, str]:
    return found[0][0], found[1]


def test_another_group_can_be_joined_and_one_that_is_not_there_cannot(host: Host) -> None:
    with subprocess.Popen(["sleep", "20"], process_group=0) as leader:
        (_, group, _), _ = run(host, *SHOW, process_group=leader.pid)
        leader.kill()
    assert group == leader.pid
    with pytest.raises(PermissionError):
        run(host, "true", process_group=1 << 21)
    with pytest.raises(PermissionError):
        run(host, "true", process_group=0, start_new_session=True)


def test_a_group_of_its_own_can_be_ended_with_all_that_is_in_it(host: Host) -> None:
    code = """
    import asyncio, os
    from democrai_osguard import sdk

    async def run():
        process = await sdk.tasks.run_subprocess(
            "sh", "-c", "sleep 9.21 & sleep 0.3; echo; wait",
            stdout=sdk.tasks.PIPE, start_new_session=True)
        await process.stdout.readline()
        os.killpg(process.pid, 9)
        await process.stdout.read()
        return await process.wait()

    def main():
        return asyncio.run(asyncio.wait_for(run(), 6))
    """
    main = host.load(code)
    with host.guard(access=programs(*SHELL)):
        assert main() == -9


def test_descriptors_are_passed_on_at_their_numbers_and_no_others(host: Host) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    other = os.open(host.outside / "file", os.O_RDONLY)
    os.set_inheritable(other, True)
    look = f"[ -e /proc/self/fd/{other} ] && echo open || echo closed"
    script = f"echo given >&{writer}; {look}; read line"  # dash knows small numbers only
    _, text = run(host, "bash", "-c", script, pass_fds=(writer,))
    assert (os.read(reader, 100), text) == (b"given\n", "closed\n")
    _, text = run(host, "bash", "-c", script, pass_fds=[writer, other])
    assert text == "open\n"


WRONG: dict[str, tuple[dict[str, object], type[Exception], str]] = {
    "a closed descriptor": ({"pass_fds": (400,)}, OSError, "Bad file descriptor"),
    "a word": ({"pass_fds": ("x",)}, TypeError, "pass_fds"),
    "a group that is a word": ({"process_group": "x"}, TypeError, "process_group"),
    "less than no group": ({"process_group": -2}, ContractError, "process_group"),
    "code of its own": ({"preexec_fn": print}, TypeError, "preexec_fn.*before it is confined"),
    "a shell": ({"shell": True}, TypeError, "shell"),
    "another user": ({"user": 0}, TypeError, "user=0 is not possible"),
    "a wider umask": ({"umask": 0}, TypeError, "umask=0"),
    "text": ({"text": True}, TypeError, "text"),
    "what nobody knows": ({"colour": 1}, TypeError, "colour"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_child_cannot_have_is_refused_in_a_line(host: Host, name: str) -> None:
    options, kind, line = WRONG[name]
    with pytest.raises(kind, match=line) as caught:
        run(host, "true", **options)
    assert "\n" not in str(caught.value)


def test_what_says_nothing_else_is_taken(host: Host) -> None:
    nothing = {"close_fds": True, "umask": -1, "user": None, "preexec_fn": None, "shell": False}
    assert run(host, *SHOW, **nothing)[0]


def test_too_many_words_are_the_error_that_subprocess_has(host: Host) -> None:
    for words in (["x" * (1 << 18)], ["x" * 100_000] * 60, ["x" * 100_000] * 200):
        with pytest.raises(OSError, match="Argument list too long") as caught:
            run(host, "true", *words)
        with pytest.raises(OSError, match="Argument list too long") as control:
            subprocess.run(["true", *words], check=True)
        assert caught.value.errno == control.value.errno == errno.E2BIG


def test_a_name_and_a_value_may_be_bytes_as_with_subprocess(host: Host) -> None:
    env = {b"PATH": os.environb[b"PATH"], b"OWN": b"caf\xe9"}
    _, text = run(host, "sh", "-c", "[ ${#OWN} -gt 3 ] && echo $FOO long; read line", env=env)
    assert text == "long\n"


def test_the_way_to_the_launcher_is_not_passed_on(host: Host) -> None:
    """Whoever has it could have anything started, under rules of its own choice."""
    before = _sockets()
    run(host, *SHOW)
    one, other = socket.socketpair()
    with one, other:
        assert run(host, *SHOW, pass_fds=(one.fileno(),))[1]
        ways = _sockets() - before - {one.fileno(), other.fileno()}
    if os.environ.get("DEMOCRAI_SANDBOX_OS_ENABLED") != "false":
        assert ways
    for way in ways:
        for descriptor in (way, os.dup(way)):
            with pytest.raises(PermissionError, match="launcher"):
                run(host, *SHOW, pass_fds=(descriptor,))


def _sockets() -> set[int]:
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    return {each for each in numbers if _leads_to(each).startswith("socket:")}


def _leads_to(number: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""
