"""Learning from a run: what was seen is enough to run again, and not for more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.learned import (
    environment,
    fresh,
    learn,
    osguard_learn,
)

from democrai_osguard_launcher import kernel

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.learned import Again

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")


def test_each_rule_says_how_often_for_what_and_for_whom(home: Path) -> None:
    work = fresh(home, "at", lambda at: [(at / name).write_text(name) for name in "abcde"])
    learned = learn(home, "cat", *"abcdeabc", cwd=work)
    (entry,) = [each for each in learned.entries if each["target"] == str(work)]
    assert (entry["operation"], entry["count"]) == ("read", 8)
    assert entry["examples"] == [str(work / name) for name in "abc"]
    assert [os.path.basename(str(each)) for each in entry["programs"]] == ["cat"]  # type: ignore[attr-defined]
    assert f"filesystem read {work}: 8 times, such as {work / 'a'}" in learned.said


MOVES = {
    "into a folder that the run made": "mkdir made && mv file made/",
    "into a folder in a folder": "mkdir -p a/b && mv file a/b/ && mv a/b/file a/again",
    "out of a folder that the run made": "mkdir made && echo x > made/new && mv made/new .",
    "a whole folder": "mkdir made && echo x > made/new && mv made held/",
    "to where more is allowed": "mv file held/ && cat held/* > all && mv all held/ && rm held/file",
    "a second name": "ln file held/second && echo more >> held/second",
    "with slashes": "mkdir made/ && mv held/ moved/ && rmdir moved/ && echo x > file",
    "away with all of it": "mkdir held/a && echo x > held/a/b && rm -r held/ && echo x > file",
    "through a link to nothing": "ln -s new link && echo x > link",
    "through a link that was there": "echo x > dangling && touch -h linked",
    "a file that is only locked": "flock lock true && echo x > out",
}


@pytest.mark.parametrize("case", MOVES)
def test_a_shell_moves_things_about(case: str, home: Path, again: Again) -> None:
    def fill(at: Path) -> None:
        (at / "held").mkdir()
        (at / "file").write_text("content\n")
        (at / "dangling").symlink_to("made")
        (at / "linked").symlink_to("file")

    def left(at: Path) -> dict[str, str]:
        return {str(each.relative_to(at)): each.read_text() for each in at.rglob("*") if
                each.is_file()}  # fmt: skip

    command = ("sh", "-ec", MOVES[case])
    learned = learn(home, *command, cwd=fresh(home, "at", fill))
    expected = left(home / "at")
    assert expected not in ({}, {"file": "content\n"})
    work = fresh(home, "at", fill)
    done = again(learned, *command, cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert left(work) == expected


TEMPORARY = {
    "with a name": "with tempfile.NamedTemporaryFile('w+', dir='.') as file: use(file)",
    "without a name": "with tempfile.TemporaryFile('w+', dir='.') as file: use(file)",
    "in a folder": """with tempfile.TemporaryDirectory(dir='.') as at:
    with open(at + '/x', 'w+') as file: use(file)""",
}


@pytest.mark.parametrize("case", TEMPORARY)
def test_a_temporary_file_has_another_name_the_next_time(
    case: str, home: Path, again: Again
) -> None:
    use = "import tempfile\ndef use(file): print(file.write('x'))\n"
    command = (sys.executable, "-I", "-c", use + TEMPORARY[case])
    work = fresh(home, "at", lambda at: (at / "file").write_text("content"))
    learned = learn(home, *command, cwd=work)
    done = again(learned, *command, cwd=work)
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert os.listdir(work) == ["file"]


def test_a_rule_stands_where_there_was_a_folder_before(home: Path) -> None:
    work = fresh(home, "at", lambda at: (at / "file").write_text("content"))
    learned = learn(home, "sh", "-ec", "mkdir made && mv file made/", cwd=work)
    assert {("create", str(work)), ("delete", str(work))} <= learned.rules
    assert str(work / "made") not in {target for _, target in learned.rules}


def test_secrets_and_broad_roots_are_marked(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/id_rsa").write_text("key")
    work = fresh(home, "at", lambda at: (at / "own").write_text("own"))
    learned = learn(home, "sh", "-c", "cat ../.ssh/id_rsa own; ls /", cwd=work)
    assert learned.marks(home / ".ssh/id_rsa") == ["secret"]
    assert learned.marks("/") == ["broad"]
    assert learned.marks(work / "own") == []
    assert "[SECRET]" in learned.said


def test_a_manifest_that_is_enough_lacks_nothing(home: Path) -> None:
    work = fresh(home, "at", lambda at: (at / "own").write_text("own"))
    learned = learn(home, "cat", "own", cwd=work)
    assert learned.rules == {("read", str(work / "own"))}
    words = ["learn", "--json", "--manifest", str(learned.manifest), "--", "cat", "own"]
    more = subprocess.run(
        [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *words],
        cwd=work, env=environment(home), capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert json.loads(more.stdout[more.stdout.index("{") :])["access"] == []


SOCKETS = {
    "listening": ("own = socket.socket(); own.bind(('127.0.0.1', 0))", "to listen on a network"),
    "abstract": (
        ("a, b = (socket.socket(socket.AF_UNIX) for _ in 'ab'); a.bind(b'\\0' + name)\n"
        "a.listen(); b.connect(b'\\0' + name)"), "an abstract unix socket",
    ),
    "its own": (
        ("a, b = (socket.socket(socket.AF_UNIX) for _ in 'ab'); a.bind('own'); a.listen()\n"
        "b.connect('own')"), "a unix socket that is made in the run itself",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SOCKETS)
def test_what_no_rule_can_say_is_said(case: str, home: Path) -> None:
    if case != "listening" and kernel.landlock_abi() >= 9:
        pytest.skip("this kernel tells unix sockets apart")
    script, words = SOCKETS[case]
    start = "import os, socket\nname = b'learnt-%d' % os.getpid()\n"
    done = osguard_learn(home, sys.executable, "-I", "-c", start + script)
    assert words in done.stderr
    access = json.loads(done.stdout[done.stdout.index("{") :])["access"]
    assert "modify" not in {rule["operation"] for rule in access}
    assert (done.returncode == 0) is (case != "listening")


def test_a_file_that_is_open_by_number_is_no_rule(home: Path, again: Again) -> None:
    script = (
        "import os\nheld = os.open('file', os.O_RDWR)\n"
        "try:\n    os.link(f'/proc/self/fd/{held}', 'other')\nexcept OSError as error:\n"
        "    print(error.errno)\n"
        "for name in 'abcd':\n    open(name, 'a').write('x')\n"
    )

    def fill(at: Path) -> None:
        for name in ("file", *"abcd"):
            (at / name).write_text("x")

    work = fresh(home, "at", fill)
    learned = learn(home, sys.executable, "-I", "-c", script, cwd=work)
    assert not {target for _, target in learned.rules if str(target).startswith("/proc/")}
    work = fresh(home, "at", fill)
    done = again(learned, sys.executable, "-I", "-c", script, cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
