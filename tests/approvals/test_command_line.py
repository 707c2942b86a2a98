"""`requests`, `approvals` and `audit` as a person and a script use them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read, receive
from approvals.command import COMMAND, osguard
from approvals.hostile import HOSTILE_PATHS, HUGE, RAW

from democrai_osguard.access import Subject, SubjectType
from democrai_osguard.approvals import ApprovalService, Origin, Resume, open_service
from democrai_osguard.approvals.covering import encoded
from democrai_osguard.approvals.sql_store import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the folder that the commands keep their state in."""
    return tmp_path / "state"


@pytest.fixture
def service(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApprovalService]:
    """Return the service on the same state."""
    monkeypatch.setenv("DEMOCRAI_STATE_DIR", str(state))
    made = open_service()
    yield made
    made.close()


def test_an_empty_list_says_so(state: Path) -> None:
    assert osguard(state, "requests", "list").stdout == "no request is open\n"
    assert osguard(state, "approvals", "list").stdout == "nothing was decided\n"


def test_the_table_shows_what_the_contract_wants_shown(
    state: Path, service: ApprovalService
) -> None:
    chain = (Subject(SubjectType.AGENT, "planner"), Subject(SubjectType.MODULE, "notes"))
    asked = service.register(read("/srv/a", None), Origin(21), chain=chain)
    title, row = osguard(state, "requests", "list").stdout.splitlines()
    assert title.split() == [
        "ID", "SUBJECT", "WHAT", "TARGET", "CHAIN", "SESSION", "RESUMES", "ASKED", "LAST", "STATE",
    ]  # fmt: skip
    shown = "agent:planner > module:notes"
    for word in (asked.id, "module:notes", "Filesystem read", "/srv/a", shown, "no", "pending"):
        assert word in row


def test_show_tells_all_of_one_request(state: Path, service: ApprovalService) -> None:
    resume = Resume("a", {"password": "hunter2"})
    origin = Origin(21, None, "sess-secret", "task-123")
    asked = service.register(read("/srv/data/a", "sess-secret"), origin, resume=resume)
    text = osguard(state, "requests", "show", asked.id[:6]).stdout
    for words in (
        "module:notes wants to read /srv/data/a; asked once.",
        "session key     yes",
        "resumable       yes",
        "would store     filesystem read /srv/data/a",
        "everything in /srv/data for read, now and later",
    ):
        assert words in text
    shown = text + osguard(state, "requests", "show", asked.id, "--json").stdout
    assert "hunter2" not in shown
    assert "sess-secret" not in shown


@pytest.mark.parametrize("scope", ["session", "permanent"])
def test_approving(state: Path, service: ApprovalService, scope: str) -> None:
    asked = service.register(read("/srv/data/a"))
    done = osguard(state, "requests", "approve", asked.id, "--scope", scope)
    assert (done.returncode, done.stderr) == (0, "")
    said, how = done.stdout.splitlines()
    assert said == f"done: module:notes may filesystem read /srv/data/a ({scope})"
    assert how == "  to take it back: democrai-osguard approvals revoke 1"
    assert service.check(read("/srv/data/a")).code == f"{scope}_approval"


ASK = ("explain", "--subject", "module:notes", "filesystem", "read", "/srv/data/a")


def test_explain_knows_what_was_approved_for_good(state: Path, service: ApprovalService) -> None:
    service.approve_permanently(service.register(read("/srv/data/a")).id, ADA)
    done = osguard(state, *ASK)
    assert (done.returncode, done.stderr) == (0, "")
    assert "approved permanently: filesystem read /srv/data/a" in done.stdout
    document = json.loads(osguard(state, *ASK, "--json").stdout)
    assert (document["decision"], document["code"]) == ("allow", "permanent_approval")


def test_explain_knows_what_was_denied(state: Path, service: ApprovalService) -> None:
    service.deny(service.register(read("/srv/data/a")).id, ADA)
    done = osguard(state, *ASK)
    assert done.returncode == 1
    assert "an operator denied filesystem read /srv/data/a" in done.stdout


def test_explain_counts_an_approval_of_a_session_in_that_session_alone(
    state: Path, service: ApprovalService
) -> None:
    service.approve_for_session(service.register(read("/srv/data/a", "sess-1")).id, ADA)
    own = osguard(state, *ASK, "--session", "sess-1", "--json")
    assert (own.returncode, json.loads(own.stdout)["code"]) == (0, "session_approval")
    assert osguard(state, *ASK, "--session", "sess-2").returncode == 2
    assert osguard(state, *ASK).returncode == 2


def test_explain_asks_the_store_that_it_is_told_of(
    state: Path, tmp_path: Path, service: ApprovalService
) -> None:
    service.deny(service.register(read("/srv/data/a")).id, ADA)
    url = f"sqlite://{state}/approvals/approvals.sqlite3"
    assert osguard(tmp_path / "other", *ASK, "--store", url).returncode == 1
    assert osguard(tmp_path / "other", *ASK, "--store", "sqlite://here").returncode == 64


def test_explain_makes_no_store(state: Path) -> None:
    assert osguard(state, *ASK).returncode == 2
    assert not state.exists()


def test_widening_says_what_it_opens(state: Path, service: ApprovalService) -> None:
    asked = service.register(receive("https://api.example.com/v1/x?a=b"))
    words = ("requests", "approve", asked.id, "--scope", "permanent", "--widen")
    tried = osguard(state, *words, "--dry-run")
    opens = "this opens every path of https://api.example.com for receive, not only this URL"
    assert tried.stdout.splitlines() == [
        "would store: module:notes may network receive https://api.example.com (permanent)",
        f"  {opens}",
        "nothing was stored",
    ]
    would = json.loads(osguard(state, *words, "--dry-run", "--json").stdout)
    assert would["would_store"]["resource"]["target"] == "https://api.example.com"
    assert service.list_decisions() == []
    assert opens in osguard(state, *words).stdout
    assert service.list_decisions()[0].rule.target == "https://api.example.com"


def test_what_cannot_be_widened_is_an_error(state: Path, service: ApprovalService) -> None:
    asked = service.register(read("/home/alice"))
    done = osguard(state, "requests", "approve", asked.id, "--scope", "permanent", "--widen")
    assert done.returncode == 64
    assert "external_access_not_widenable" in done.stderr
    assert service.get(asked.id).state == "pending"


def test_deciding_otherwise_than_somebody_before_exits_with_1(
    state: Path, service: ApprovalService
) -> None:
    asked = service.register(read("/srv/a"))
    service.deny(asked.id, ADA)
    words = ("requests", "approve", asked.id, "--scope", "permanent")
    done = osguard(state, *words)
    assert done.returncode == 1
    assert done.stdout == "nothing changed: ada already decided: denied\n"
    assert osguard(state, "requests", "deny", asked.id).returncode == 0
    assert osguard(state, *words, "--overrule").returncode == 0
    assert service.check(read("/srv/a")).code == "permanent_approval"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("requests", "show", "none"), "external_access_request_unknown"),
        (("requests", "deny", "none"), "external_access_request_unknown"),
        (("requests", "approve", "none", "--scope", "forever"), "forever"),
        (("approvals", "revoke", "7"), "external_access_decision_unknown"),
        (("requests", "list", "--store", "mysql://x"), "external_access_store_refused"),
    ],
)
def test_bad_words_are_one_line_and_exit_code_64(
    state: Path, words: tuple[str, ...], code: str
) -> None:
    done = osguard(state, *words)
    assert done.returncode == 64
    assert code in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_start_of_an_id_that_is_too_short_is_said_to_be(
    state: Path, service: ApprovalService
) -> None:
    asked = service.register(read("/srv/a"))
    assert asked is not None
    done = osguard(state, "requests", "show", asked.id[:3])
    assert done.returncode == 64
    assert done.stderr.endswith(
        f"'{asked.id[:3]}' is too short: an id is named by 4 characters or more\n"
    )


def test_a_session_approval_without_a_session_is_an_error(
    state: Path, service: ApprovalService
) -> None:
    asked = service.register(read("/srv/a", None))
    done = osguard(state, "requests", "approve", asked.id)
    assert done.returncode == 64
    assert "external_access_session_key_required" in done.stderr


def test_json_for_machines(state: Path, service: ApprovalService) -> None:
    asked = service.register(read("/srv/a"))
    (listed,) = json.loads(osguard(state, "requests", "list", "--json").stdout)
    assert listed["resource"] == {"type": "filesystem", "operation": "read", "target": "/srv/a"}
    outcome = json.loads(osguard(state, "requests", "deny", asked.id, "--json").stdout)
    assert outcome["applied"] is True
    (standing,) = json.loads(osguard(state, "approvals", "list", "--json").stdout)
    assert standing["scope"] == "denied"
    gone = json.loads(osguard(state, "approvals", "revoke", str(standing["id"]), "--json").stdout)
    assert gone["act"] == "revoke"
    assert service.list_decisions() == []


def test_hostile_targets_cannot_steer_a_terminal(state: Path, service: ApprovalService) -> None:
    asked = [service.register(read(path)) for path in HOSTILE_PATHS]
    huge = service.register(read("/srv/huge"))
    assert isinstance(service.store, SqlStore)
    with service.store.database.write() as transaction:
        transaction.change(
            "UPDATE approval_requests SET target = ? WHERE id = ?", (encoded(HUGE), huge.id)
        )
    texts = [osguard(state, "requests", "list").stdout]
    assert max(map(len, texts[0].splitlines())) < 250
    texts += [osguard(state, "requests", "show", each.id).stdout for each in (*asked[2:5], huge)]
    texts += [osguard(state, "requests", "list", "--json").stdout]
    service.approve_permanently(asked[3].id, ADA)
    texts += [osguard(state, "approvals", "list").stdout]
    for text in texts:
        assert [char for char in RAW if char in text] == []
        assert "Traceback" not in text
    assert "\\x1b" in texts[0]
    assert "\\u202e" in texts[0]


def test_watch_prints_a_line_for_each_change(state: Path, service: ApprovalService) -> None:
    asked = service.register(read("/srv/a"))
    watching = subprocess.Popen(
        [*COMMAND, "requests", "watch", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DEMOCRAI_STATE_DIR": str(state)},
    )
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["id"] == asked.id
    service.deny(asked.id, ADA)
    assert json.loads(watching.stdout.readline())["state"] == "denied"
    watching.kill()
    watching.communicate()


def test_watch_in_plain_words_shows_what_every_interface_shows(
    state: Path, service: ApprovalService
) -> None:
    chain = (Subject(SubjectType.AGENT, "planner"), Subject(SubjectType.MODULE, "notes"))
    resume = Resume("a", {"password": "hunter2"})
    first = service.register(receive("https://a.com/v1"), chain=chain, resume=resume)
    second = service.register(read("/srv/a", None))
    watching = subprocess.Popen(
        [*COMMAND, "requests", "watch"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DEMOCRAI_STATE_DIR": str(state)},
    )
    assert watching.stdout is not None
    lines = [watching.stdout.readline() for _ in range(2)]
    watching.kill()
    watching.communicate()
    said = (
        f"{first.id}  pending  Network receive  module:notes wants to receive data from"
        " https://a.com/v1, on behalf of agent:planner; asked once."
        "  (chain agent:planner > module:notes; session key yes; resumable yes)\n"
    )
    also = (
        f"{second.id}  pending  Filesystem read  module:notes wants to read /srv/a; asked once."
        "  (chain module:notes; session key no; resumable no)\n"
    )
    assert sorted(lines) == sorted((said, also))


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self._screen = pty.fork()
        if self.pid == 0:
            os.execv(COMMAND[0], [*COMMAND, *arguments])  # noqa: S606 - the tests' own command
        self.text = ""

    def wait_for(self, words: str) -> None:
        """Read until the words are on the screen."""
        until = time.monotonic() + 15
        while words not in self.text:
            assert time.monotonic() < until, self.text[-2000:]
            if select.select([self._screen], [], [], 0.2)[0]:
                self.text += os.read(self._screen, 65536).decode("utf-8", "replace")

    def press(self, key: str) -> None:
        os.write(self._screen, key.encode())

    def end(self) -> int:
        self.press("q")
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._screen)
        return code


def test_watch_in_a_terminal_is_live_and_decides_with_keys(service: ApprovalService) -> None:
    first = service.register(read("/srv/first\x1b[31m"))
    terminal = Terminal("requests", "watch")
    terminal.wait_for("1 open request")
    assert "\x1b[31m" not in terminal.text
    second = service.register(read("/srv/second"))
    terminal.wait_for("2 open requests")
    time.sleep(0.6)  # until keys count again
    terminal.press("j")
    terminal.press("p")
    terminal.wait_for(f"{second.id}: permanent")
    assert service.get(second.id).state == "approved"
    assert service.get(first.id).state == "pending"
    terminal.press("u")
    terminal.wait_for("taken back")
    assert service.get(second.id).state == "pending"
    assert terminal.end() == 0


def test_a_recorded_denial_is_explained_with_the_way_back(
    state: Path, service: ApprovalService
) -> None:
    service.deny(service.register(read("/srv/other")).id, ADA)
    service.deny(service.register(read("/srv/data")).id, ADA)
    act = ("--subject", "module:notes", "filesystem", "read", "/srv/data/a")
    denied = osguard(state, "explain", *act)
    assert denied.returncode == 1
    way_back = denied.stdout.partition("To take it back: ")[2].strip()
    assert way_back == "democrai-osguard approvals revoke 2"
    in_json = json.loads(osguard(state, "explain", "--json", *act).stdout)
    assert in_json["hint"].endswith(way_back)
    assert osguard(state, *way_back.split()[1:]).returncode == 0
    assert osguard(state, "explain", *act).returncode == 2


def test_a_store_that_cannot_be_made_is_led_to_the_option_that_named_it(tmp_path: Path) -> None:
    words = ("requests", "list", "--store", "sqlite:///proc/nobody/a.sqlite3")
    named = osguard(tmp_path, *words)
    assert named.returncode == 64
    assert named.stderr.endswith("; --store or DEMOCRAI_APPROVALS_STORE names another place\n")
    by_itself = osguard(Path("/proc/nobody"), *words[:2])
    assert by_itself.stderr.endswith("; DEMOCRAI_STATE_DIR names another place\n")


def test_audit_verify_names_the_record(state: Path, service: ApprovalService) -> None:
    for name in "abc":
        service.deny(service.register(read(f"/srv/{name}")).id, ADA)
    assert osguard(state, "audit", "verify").returncode == 0
    log = state / "audit" / "audit.jsonl"
    log.write_text(log.read_text().replace("/srv/b", "/srv/x"))
    done = osguard(state, "audit", "verify")
    assert done.returncode == 1
    assert "record 2 was changed" in done.stdout
    assert f"{state}/audit: 1 flaw; 2 records, 1 to 3" in done.stdout
    report = json.loads(osguard(state, "audit", "verify", "--json").stdout)
    assert (report["sound"], report["flaws"][0]["kind"]) == (False, "changed")


def test_keys_are_rotated(state: Path, service: ApprovalService) -> None:
    service.register(read("/srv/a"), resume=Resume("a", {}))
    done = osguard(state, "approvals", "rotate-keys", "--drop-old")
    assert "1 stored context sealed anew" in done.stdout
