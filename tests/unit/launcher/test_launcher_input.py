"""Options, DEMOCRAI_ACCESS, network targets, environment: everything that comes from outside."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard.targets import normalize_target
from democrai_osguard_launcher import access, endpoints, options, other_words, program
from democrai_osguard_launcher.environment import child_environment, holds_password, looks_secret
from democrai_osguard_launcher.errors import NotExecutable, NotFound, UsageError
from democrai_osguard_launcher.record import Record
from democrai_osguard_launcher.rules import OPERATIONS, Rule, Subject

if TYPE_CHECKING:
    from pathlib import Path

PATHS = st.lists(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)
    .filter(lambda part: part not in {".", ".."}),
    max_size=4,
).map(lambda parts: "/" + "/".join(parts))  # fmt: skip
OPTIONS = set(re.findall(r"(?<!\S)--[a-z-]+", options.HELP))
RULES = st.builds(
    Rule,
    st.just("filesystem"),
    st.sampled_from(OPERATIONS["filesystem"]),
    PATHS,
    st.none() | st.builds(Subject, st.just("tool"), st.text("ab", min_size=1)),
)


@given(rules=st.lists(RULES, max_size=5).map(tuple))
def test_parse_of_dump_is_identity(rules: tuple[Rule, ...]) -> None:
    assert access.parse(access.dump(rules)) == rules


@given(text=st.text(max_size=40))
def test_any_text_is_a_policy_or_a_usage_error(text: str) -> None:
    try:
        rules = access.parse(text)
    except UsageError:
        return
    assert access.parse(access.dump(rules)) == rules


def test_undecodable_bytes_survive() -> None:
    path = os.fsdecode(b"/srv/\xff")
    rules = (Rule("filesystem", "read", path),)
    assert access.parse(access.dump(rules)) == rules


def test_no_variable_is_no_rules() -> None:
    assert access.parse(None) == ()
    assert access.parse("[]") == ()


def test_a_path_is_brought_into_its_normal_form() -> None:
    item = {"resource_type": "filesystem", "operation": "read", "target": "//srv/./a/"}
    assert access.parse(json.dumps([item]))[0].target == "/srv/a"


def test_options_and_command_are_told_apart_by_the_dashes() -> None:
    parsed = options.parse(["--subject", "tool:x", "--", "cmd", "--", "--read"])
    assert parsed.command == ("cmd", "--", "--read")
    assert parsed.subject == Subject("tool", "x")


def test_an_option_takes_its_value_either_way() -> None:
    for words in (["--connect=192.0.2.1:1"], ["--connect", "192.0.2.1:1"]):
        assert options.parse([*words, "--explain"]).rules == (
            Rule("network", "connect", "192.0.2.1:1"),
        )


@given(
    words=st.lists(st.sampled_from(["--read", "--", "x", "--explain", "--json", "", "-", "--x"]))
)
def test_any_words_are_options_or_a_usage_error(words: list[str]) -> None:
    try:
        parsed = options.parse(words)
    except UsageError:
        return
    assert parsed.command or parsed.explain


def test_every_option_is_in_the_help() -> None:
    offered = {*options._SWITCHES, *options._VALUES, *options._REPEATABLE}  # noqa: SLF001
    words = (word.rstrip(":,") for word in options.HELP.split())
    shown = {word for word in words if word.startswith("-")} - {"--"}
    assert offered == shown


GOOD_TARGETS = {
    "https://example.com": ("example.com", 443, True),
    "https://Example.com:8443/v1": ("example.com", 8443, True),
    "example.com": ("example.com", None, True),
    "example.com:22": ("example.com", 22, True),
    "*.example.com:443": ("*.example.com", 443, True),
    "192.0.2.1": ("192.0.2.1", None, False),
    "192.0.2.0/24": ("192.0.2.0/24", None, False),
    "192.0.2.1:53": ("192.0.2.1", 53, False),
    "[2001:db8::1]:443": ("2001:db8::1", 443, False),
    "2001:db8::/32": ("2001:db8::/32", None, False),
    "http://[::1]/": ("::1", 80, False),
    "localhost:80": ("localhost", 80, False),
    "postgresql://db.example.com": ("db.example.com", 5432, True),
}
BAD_TARGETS = [
    "", "a b", "a\\b", "u@h", "https://u:p@h/", "h:0", "h:65536", "h:x", "h:", "*", "*.com",
    "a.*.b", "h/path", "[::1", "[zz]:1", "a..b", "a\nb", "a\0b", "://h", "1:2:3:x", ".", "h:٣",
    "tcp://h", "x-unknown://h/path",
]  # fmt: skip


@pytest.mark.parametrize("target", GOOD_TARGETS)
def test_a_target_is_a_host_and_a_port(target: str) -> None:
    assert endpoints.parse(target)[:3] == GOOD_TARGETS[target]


@pytest.mark.parametrize("target", BAD_TARGETS)
def test_a_target_that_could_be_disputed_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        endpoints.parse(target)


NORMAL_TARGETS = {
    **{
        each: each for each in ("a.com", "a.com:22", "*.a.com", "192.0.2.0/24", "https://a.com/v1/")
    },
    "Example.COM.": "example.com",
    "127.0.0.1:9": "localhost:9",
    "127.0.0.1.": "localhost",
    "127.0.0.0/8": "localhost",
    "[::1]:80": "localhost:80",
    "2001:DB8:0::1": "2001:db8::1",
    "[2001:DB8::1]:0443": "[2001:db8::1]:443",
    "HTTPS://Example.com:443/v1/../v2/": "https://example.com/v2/",
    "https://a.com/./": "https://a.com",
    "http://a.com:443/": "http://a.com:443",
}


@pytest.mark.parametrize("target", NORMAL_TARGETS)
def test_the_command_is_told_a_target_as_the_guard_spells_it(target: str) -> None:
    assert endpoints.normal(target) == NORMAL_TARGETS[target]
    assert normalize_target("network", target) == NORMAL_TARGETS[target]
    rules = (Rule("network", "connect", target),)
    told = json.loads(child_environment({}, rules, None)["DEMOCRAI_ACCESS"])
    assert [each["target"] for each in told] == [NORMAL_TARGETS[target]]


_PIECES = st.sampled_from(
    ["http", "HTTPS", "://", ":", "/", "127.0.0.1", "0x7f", "::1", "::ffff:1.2.3.4", "[", "]", "*.",
     ".", "..", "%2e", "%2F", "A", "com", "é", "443", "080", "/24", "?", "#", "a=b", "~"]
)  # fmt: skip


@given(target=st.lists(_PIECES, max_size=9).map("".join))
def test_another_spelling_never_means_another_place(target: str) -> None:
    try:
        meant = normalize_target("network", target)
        spelt = endpoints.normal(target)
    except ValueError:
        return
    assert normalize_target("network", spelt) == meant
    assert endpoints.normal(spelt) == spelt


@given(text=st.text(max_size=30))
def test_any_text_is_a_target_or_a_value_error(text: str) -> None:
    try:
        found = endpoints.parse(text)
    except ValueError:
        return
    assert found.host
    assert found.port is None or 0 < found.port < 65536


def test_identity_is_passed_on_and_the_operators_variables_are_not() -> None:
    caller = {
        "DEMOCRAI_STATE_DIR": "/x", "DEMOCRAI_SESSION_KEY": "k", "DEMOCRAI_ACCESS": "stale",
        "DEMOCRAI_NETWORK_SUBJECT": "old", "PATH": "/bin", "MY_TOKEN": "t",
    }  # fmt: skip
    assert child_environment(caller, (), Subject("tool", "new")) == {
        "DEMOCRAI_ACCESS": "[]", "DEMOCRAI_NETWORK_SUBJECT": "new",
        "DEMOCRAI_NETWORK_SUBJECT_KIND": "tool", "DEMOCRAI_SESSION_KEY": "k", "PATH": "/bin",
    }  # fmt: skip


SECRET_NAMES = [
    "MYSQL_PWD", "DB_PWD", "dbPwd", "PWD_OF_ROOT", "SECRETKEY", "secretAccessKey", "GH_PAT", "PAT",
    "MONGODB_URI", "MONGO_URL", "PGPASSFILE", "PGPASSWORD", "SSHPASS", "AWS_SECRET_ACCESS_KEY",
    "accessKey", "AWS_ACCESSKEY", "apiKey", "APIKey", "my-api-key", "npm_config__auth",
    "db.password", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_CREDS", "CI_JWT", "MYDB_URL",
    "SQLALCHEMY_DATABASE_URI", "AZURE_STORAGE_CONNECTION_STRING", "githubToken", "LDAPPASSWD",
    "GPG_PASSPHRASE", "KEY", "token", "SLACK_WEBHOOK_URL",
]  # fmt: skip
PLAIN_NAMES = [
    "PWD", "OLDPWD", "OLD_PWD", "INIT_PWD", "INIT_CWD", "PATH", "MANPATH", "PYTHONPATH",
    "LD_LIBRARY_PATH", "PATTERN", "HOME", "LANG", "LC_ALL", "TERM", "COLORTERM", "TZ", "USER",
    "LOGNAME", "SHELL", "SHLVL", "TMPDIR", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY",
    "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "EDITOR", "PAGER", "LESS", "LS_COLORS", "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL", "GIT_ASKPASS", "SSH_ASKPASS", "SSH_CONNECTION", "SSH_TTY", "GPG_TTY",
    "KEYBOARD", "KEYMAP", "MONKEY_PATCH", "COMPASS", "BYPASS_CACHE", "TOKENIZERS_PARALLELISM",
    "COOKIECUTTER_CONFIG", "PASSIVE_FTP", "SECRETARY", "JAVA_HOME", "NODE_ENV", "VIRTUAL_ENV", "CC",
    "CFLAGS", "MAKEFLAGS", "CARGO_HOME", "GOPATH", "GOFLAGS", "DEBIAN_FRONTEND", "ProgramFiles",
    "CommonProgramFiles", "npm_config_cache", "npm_package_name", "OTP_VERSION", "_",
    "PIP_INDEX_URL", "HTTP_PROXY", "no_proxy", "BASE_URL", "DOCKER_HOST", "HOSTNAME", "PS1", "",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_name_of_secrets_is_not_passed_on(name: str) -> None:
    assert looks_secret(name)
    assert name not in child_environment({name: "v"}, (), None)
    assert child_environment({name: "v"}, (), None, keep=[name])[name] == "v"


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_a_name_that_programs_need_is_passed_on(name: str) -> None:
    assert not looks_secret(name)
    assert child_environment({name: "v"}, (), None)[name] == "v"


SECRET_VALUES = [
    "postgresql://user:hunter2@db.example.com/app", "redis://:hunter2@localhost:6379/0",
    "http://user:hunter2@proxy:3128", "https://a.example https://u:hunter2@b.example/",
    "amqp://user:p%40ss@[::1]:5672", "https://u:p@ss@h/", "Server=db;User=sa;Password=hunter2;",
    "host=db password=hunter2", "jdbc:mysql://db/app?user=u&password=hunter2",
]  # fmt: skip
PLAIN_VALUES = [
    "", "/usr/bin:/bin", "https://example.com:8443/path", "https://registry:443/@scope/name",
    "ssh://git@github.com/a/b", "https://user@host/", "https://user:@host/", "a:b@c",
    "http://proxy:3128", "https://h/?to=a:b@c", "unix:path=/run/user/0/bus", "no password here",
    "socks5h://localhost:1080,http://a@b",
]  # fmt: skip


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_password_in_a_value_is_not_passed_on(value: str) -> None:
    assert holds_password(value)
    assert "SERVICE" not in child_environment({"SERVICE": value}, (), None)
    assert child_environment({"SERVICE": value}, (), None, keep=["SERVICE"])["SERVICE"] == value


@pytest.mark.parametrize("value", PLAIN_VALUES)
def test_a_value_without_a_password_is_passed_on(value: str) -> None:
    assert not holds_password(value)
    assert child_environment({"SERVICE": value}, (), None)["SERVICE"] == value


@pytest.mark.parametrize("name", options._VALUES)  # noqa: SLF001
def test_an_option_that_holds_one_value_does_not_stand_twice(name: str) -> None:
    values = {
        "--ask-fd": "1", "--ask-timeout": "1", "--phase": "install", "--require": "full",
        "--subject": "tool:x",
    }  # fmt: skip
    word = f"{name}={values.get(name, '/x')}"
    with pytest.raises(UsageError, match=f"{name} stands twice"):
        options.parse([word, word, "--", "true"])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_who_is_asked_is_not_behind_what_every_command_has(number: int) -> None:
    with pytest.raises(UsageError, match=f"--ask-fd: {number} is one that the command gets"):
        options.parse(["--supervised", f"--ask-fd={number}", "--", "true"])


def test_who_is_asked_is_not_behind_what_the_command_keeps() -> None:
    with open(os.devnull, "rb") as file, open(os.devnull, "rb") as other:
        asking = ["--supervised", f"--ask-fd={file.fileno()}"]
        kept = [f"--keep-fd={each.fileno()}" for each in (other, file)]
        assert options.parse([*asking, kept[0], "--", "true"]).ask_fd == file.fileno()
        with pytest.raises(UsageError, match="is one that the command gets as well"):
            options.parse([*asking, *kept, "--", "true"])


def test_the_chain_is_passed_on_as_long_as_its_subject_acts() -> None:
    caller = {
        "DEMOCRAI_NETWORK_SUBJECT": "reader", "DEMOCRAI_NETWORK_SUBJECT_KIND": "tool",
        "DEMOCRAI_SUBJECT_CHAIN": '["module:notes", "tool:reader"]',
    }  # fmt: skip
    for subject in (None, Subject("tool", "reader")):
        kept = child_environment(caller, (), subject)
        assert kept["DEMOCRAI_SUBJECT_CHAIN"] == caller["DEMOCRAI_SUBJECT_CHAIN"]
    assert "DEMOCRAI_SUBJECT_CHAIN" not in child_environment(caller, (), Subject("tool", "other"))


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_script_brings_its_interpreters(tmp_path: Path) -> None:
    inner = executable(tmp_path / "inner", "#!/bin/sh -e\n")
    outer = executable(tmp_path / "outer", f"#! {inner} argument\n")
    found = program.find(str(outer), None).executables
    assert found[:3] == (str(outer), str(inner), "/bin/sh")
    assert len(found) == 4  # and the loader of the shell


def test_env_in_a_shebang_is_looked_through(tmp_path: Path) -> None:
    script = executable(tmp_path / "script", "#!/usr/bin/env -S FOO=1 sh -e\n")
    found = program.find(str(script), "/usr/bin").executables
    assert "/usr/bin/env" in found
    assert "/usr/bin/sh" in found


def test_scripts_without_end_are_refused(tmp_path: Path) -> None:
    script = executable(tmp_path / "script", f"#!{tmp_path}/script\n")
    with pytest.raises(NotExecutable, match="too many interpreters"):
        program.find(str(script), None)


def test_the_search_passes_over_what_is_not_executable(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/tool").write_text("data")
    (tmp_path / "b/tool").mkdir()
    executable(tmp_path / "c/tool", "#!/bin/sh\n")
    search = ":".join(f"{tmp_path}/{name}" for name in "abc")
    assert program.locate("tool", search) == f"{tmp_path}/c/tool"
    with pytest.raises(NotExecutable):
        program.locate("tool", f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(NotFound):
        program.locate("other", search)


def test_a_link_that_leads_nowhere_is_no_command(tmp_path: Path) -> None:
    (tmp_path / "tool").symlink_to("missing")
    for name in ("tool", str(tmp_path / "tool")):
        with pytest.raises(NotFound):
            program.locate(name, str(tmp_path))


def test_an_empty_path_entry_is_not_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "tool", "#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound):
        program.locate("tool", ":/usr/bin:")


def test_a_python_outside_the_system_brings_its_library(tmp_path: Path) -> None:
    for folder in ("env/bin", "env/lib", "base/bin", "base/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "env/pyvenv.cfg").write_text("")
    executable(tmp_path / "base/bin/python3", "")
    (tmp_path / "env/bin/python").symlink_to(tmp_path / "base/bin/python3")
    found = program.find(str(tmp_path / "env/bin/python"), None).readable
    expected = {"env/lib", "env/pyvenv.cfg", "base/lib"}
    assert set(found) == {str(tmp_path / path) for path in expected}


class Point(Record):
    x: int
    y: int = 2


def test_a_record_is_a_frozen_value() -> None:
    assert Point(1) == Point(x=1, y=2)
    assert Point(1) != (1, 2)
    assert hash(Point(1)) == hash(Point(1, 2))
    assert repr(Point(1)) == "Point(x=1, y=2)"
    assert Point(1).y == 2
    for wrong in ({}, {"z": 1}, {"x": 1, "z": 1}):
        with pytest.raises((TypeError, KeyError)):
            Point(**wrong)


def test_the_readme_shows_the_help_as_it_is(repo: Path) -> None:
    assert f"```text\n{options.HELP}```\n" in (repo / "launcher/README.md").read_text()


def test_the_readme_names_every_file(repo: Path) -> None:
    readme = (repo / "launcher/README.md").read_text()
    package = repo / "launcher/democrai_osguard_launcher"
    unnamed = {file.name for file in package.glob("[!_]*") if f"`{file.name}`" not in readme}
    assert unnamed <= {"py.typed"}


def test_an_option_that_does_not_exist_is_led_to_the_right_one() -> None:
    for word, advice in {
        "--raed": "did you mean --read?",
        "--conect=user:hunter2": "did you mean --connect?",
        "-r": "--help lists them",
        "--frobnicate": "--help lists them",
    }.items():
        name = word.partition("=")[0]
        with pytest.raises(UsageError) as refused:
            options.parse([word, "--", "true"])
        assert str(refused.value) == f"{name}: no such option; {advice}"


def test_the_words_of_other_sandboxes_are_led_to_ours() -> None:
    writing = "writing is --create (new), --modify (existing) and --delete"
    for word, advice in {
        "--write": writing,
        "--allow-write=/srv": writing,
        "--ro": "reading is --read",
        "--ro-bind": "reading is --read",
        "--rw": f"reading is --read; {writing}",
        "--bind": f"reading is --read; {writing}",
        "--net": "reaching the network is --connect HOST:PORT",
        "--allow-net=user:hunter2": "reaching the network is --connect HOST:PORT",
        "--unshare-net": "without --connect there is no network",
        "--exec": "starting programs is --execute",
        "--setenv": "the command inherits variables; --keep-env keeps one that looks like a secret",
        "--allow": "each operation has an option of its own, such as --read; --help lists them",
    }.items():
        name = word.partition("=")[0]
        with pytest.raises(UsageError) as refused:
            options.parse([word, "--", "true"])
        assert str(refused.value) == f"{name}: no such option; {advice}"


def test_no_option_of_ours_is_taken_for_a_word_of_others() -> None:
    assert other_words.ADVICE.keys().isdisjoint(OPTIONS)
    named = {word.strip(";,") for each in other_words.ADVICE.values() for word in each.split()}
    assert {word for word in named if word.startswith("--")} <= OPTIONS


def test_a_mistake_in_a_rule_names_its_option() -> None:
    for words in (["--connect", "localhost:abc"], ["--read", ""], ["--delete", "/a\0b"]):
        with pytest.raises(UsageError, match=f"^{words[0]}: "):
            options.parse([*words, "--", "true"])


def test_a_subject_without_a_kind_is_told_how_one_is_written() -> None:
    with pytest.raises(UsageError, match=r"^--subject: 'notes': a subject is written kind:name$"):
        options.parse(["--subject", "notes", "--", "true"])


def test_help_has_a_short_name_and_is_named_where_nothing_was_asked() -> None:
    assert options.parse(["-h"]).help
    with pytest.raises(UsageError, match=r"--help says more$"):
        options.parse([])
