"""What a person or a profile closes stays closed for child processes, whatever is declared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from sdk.host import ANN, Host, rule

from democrai_osguard import Subject, runtime, sdk
from democrai_osguard.access import Identity, Scope
from democrai_osguard.policy.profile import Profile

if TYPE_CHECKING:
    from democrai_osguard.guard import process_guard_context

pytestmark = pytest.mark.needs("landlock", "seccomp")
NOTES = Subject.parse("module:notes")
PROGRAMS = ("cat", "tee", "rm", "printenv")
CODE = """
from democrai_osguard import sdk

def main(*words, **more):
    done = sdk.tasks.run_subprocess_sync(*words, timeout=60, **more)
    return done.returncode, done.stdout.decode()
"""


def guard(host: Host, **identity: str) -> process_guard_context:
    """Return the guard of a module that declares everything in one folder."""
    files = [rule("filesystem", each, host.outside)
             for each in ("read", "create", "modify", "delete")]  # fmt: skip
    programs = [rule("system_dependency", "execute", each) for each in PROGRAMS]
    return host.guard(access=(*files, *programs), **identity)


def deny(host: Host, operation: str, target: object) -> None:
    what: Any = ("module", "notes", "filesystem", operation, str(target), Scope.DENIED)
    host.service.record(Identity(*what), ANN)


def test_what_an_operator_denied_is_not_read_by_a_child(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(CODE)
    (host.outside / "beside").write_text("open")
    secret, beside = str(host.outside / "file"), str(host.outside / "beside")
    with guard(host):
        assert main("cat", secret) == (0, "secret")  # the control
    deny(host, "read", secret)
    with guard(host):
        assert main("cat", secret) == (1, "")
        assert main("cat", beside) == (0, "open")
        assert main("tee", secret, input=b"changed") == (0, "changed")  # another operation
    # The session's own approval lifts the denial, as it does for the guard.
    lifted: Any = ("module", "notes", "filesystem", "read", secret, Scope.SESSION, "s-1")
    host.service.record(Identity(*lifted), ANN)
    with guard(host):
        assert main("cat", secret) == (0, "changed")
    with guard(host, session_key="s-2"):
        assert main("cat", secret) == (1, "")


def test_a_denial_of_a_whole_rule_leaves_it_out_of_what_a_child_inherits(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(CODE)
    deny(host, "delete", host.outside)
    with guard(host):
        assert main("rm", str(host.outside / "file"))[0] == 1
        _, text = main("printenv", "DEMOCRAI_ACCESS")
    operations = {each["operation"] for each in json.loads(text)}
    assert operations == {"read", "create", "modify", "execute"}
    assert (host.outside / "file").read_text() == "secret"


@pytest.mark.parametrize("context", ["module", "task"])
def test_a_read_only_profile_holds_in_children_and_in_tasks(host: Host, context: str) -> None:
    runtime.use_approvals(host.service, profiles={NOTES: Profile.of(read_only=True)})
    main = host.load(CODE)
    write = host.load("def main(path):\n    with open(path, 'w') as file: file.write('new')")
    access = [rule("filesystem", each, host.outside) for each in ("read", "create", "modify")]
    programs = [rule("system_dependency", "execute", each) for each in PROGRAMS]
    surface = getattr(runtime, f"{context}_context")
    with surface("notes", {"access": [*access, *programs]}, folder=host.folder / "notes"):
        with pytest.raises(PermissionError):
            write(str(host.outside / "file"))
        assert main("cat", str(host.outside / "file")) == (0, "secret")
        assert main("tee", str(host.outside / "file"), input=b"new")[0] == 1
        assert main("tee", str(host.outside / "made"), input=b"new")[0] == 1
    assert (host.outside / "file").read_text() == "secret"
    assert not (host.outside / "made").exists()


def test_single_paths_that_a_profile_names_are_closed_to_children(host: Host) -> None:
    keys = host.outside / "keys"
    keys.mkdir()
    (keys / "one").write_text("key")
    profile = Profile.of(deny_read=[str(keys)], deny_write=[str(keys)])
    runtime.use_approvals(host.service, profiles={NOTES: profile})
    main = host.load(CODE)
    with guard(host):
        assert main("cat", str(host.outside / "file")) == (0, "secret")
        assert main("cat", str(keys / "one")) == (1, "")
        assert main("tee", str(keys / "two"), input=b"new")[0] == 1
    what: Any = ("module", "notes", "filesystem", "read", str(keys), Scope.PERMANENT)
    host.service.record(Identity(*what), ANN)
    with guard(host):
        assert main("cat", str(keys / "one")) == (0, "key")


@pytest.mark.parametrize("required", ["none", "full"])
def test_globs_that_no_kernel_holds_are_told_or_refused(
    host: Host, required: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DEMOCRAI_SANDBOX_OS_REQUIRE", required)
    profile = Profile.of(deny_read=["*.pem"])
    runtime.use_approvals(host.service, profiles={NOTES: profile})
    main = host.load(CODE)
    with guard(host):
        if required == "full":
            with pytest.raises(sdk.tasks.LaunchRefused, match=r"\*\.pem"):
                main("cat", str(host.outside / "file"))
        else:
            assert main("cat", str(host.outside / "file")) == (0, "secret")
            assert any("*.pem" in record.getMessage() for record in caplog.records)


def test_a_store_that_cannot_answer_starts_no_child(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(CODE)
    host.service.store.close()
    for file in (host.folder / "state/approvals").iterdir():
        file.write_bytes(b"no database" * 1000)
    with guard(host), pytest.raises(RuntimeError, match="sandbox_external_access_check_failed"):
        main("cat", str(host.outside / "file"))


@pytest.mark.parametrize(
    "attack",
    [
        "del d.Desk.for_child",
        "d.Desk.for_child = lambda self, info, rules: (rules, (), ())",
        "d.Desk._denials = lambda self, subject: ()",
        "d.Desk._may = lambda self, who, rule: True",
        "d._denied = lambda store: {}",
    ],
)
def test_guarded_code_does_not_open_for_a_child_what_is_closed(host: Host, attack: str) -> None:
    runtime.use_approvals(host.service)
    deny(host, "read", host.outside / "file")
    main = host.load(f"""
        import democrai_osguard.runtime.desk as d
        from democrai_osguard import sdk

        def main(path):
            try:
                {attack}
            except Exception:
                pass
            return sdk.tasks.run_subprocess_sync("cat", path, timeout=60).stdout.decode()
    """)
    (host.outside / "beside").write_text("open")
    with guard(host):
        assert main(str(host.outside / "file")) == ""
        assert main(str(host.outside / "beside")) == "open"
