"""Each surface's guard has exactly the rules of its manifest and its phase."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from democrai_osguard import ManifestError, Rule, Subject, TargetError, load_manifest, runtime
from democrai_osguard.errors import ContractError
from democrai_osguard.guard import GuardInfo, current_guard, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

READ = {"resource_type": "filesystem", "operation": "read", "target": "/srv/data"}
SEND = {"resource_type": "network", "operation": "send", "target": "https://api.example.com"}
MODULE = {"access": [READ, SEND], "allowed_imports": ["ctypes"]}
PHASES = {"runtime": {"access": [READ]}, "install": {"access": [SEND]}}


def inside(context: AbstractContextManager[object]) -> GuardInfo:
    with context:
        found = current_guard()
    assert found is not None
    return found


def rule(resource_type: str, operation: str, target: str) -> Rule:
    return Rule.of(resource_type, operation, target)


def test_a_module_has_what_it_declares_and_reads_its_own_folder(tmp_path: Path) -> None:
    info = inside(runtime.module_context("notes", MODULE, folder=tmp_path, user_id="7",
                                         organization_id="3", session_key="s-1"))  # fmt: skip
    assert info.subject == Subject.parse("module:notes")
    assert set(info.access) == {
        Rule.of(**READ), Rule.of(**SEND), rule("filesystem", "read", str(tmp_path.resolve())),
    }  # fmt: skip
    assert "ctypes" in info.allowed_imports
    assert "cffi" not in info.allowed_imports
    assert info.allow_subprocess is False
    assert (info.user_id, info.organization_id, info.session_key) == ("7", "3", "s-1")


def test_a_relative_target_is_relative_to_the_module_s_folder(tmp_path: Path) -> None:
    manifest = {"access": [{**READ, "target": "inbox"}]}
    info = inside(runtime.module_context("notes", manifest, folder=tmp_path))
    inbox = rule("filesystem", "read", f"{tmp_path.resolve()}/inbox")
    assert inbox in info.subject_allow_chain[-1]


def test_a_task_has_its_module_s_rules_with_and_without_a_session() -> None:
    info = inside(runtime.task_context("notes", MODULE, user_id="7"))
    assert info.subject_kind == "task"
    assert set(info.access) == {Rule.of(**READ), Rule.of(**SEND)}
    assert info.session_key is None
    assert inside(runtime.task_context("notes", MODULE, session_key="s")).session_key == "s"


@pytest.mark.parametrize("context", [runtime.engine_context, runtime.extractor_context])
def test_a_phase_has_its_own_rules(context: type) -> None:
    at_runtime = inside(context("whisper", PHASES))
    assert set(at_runtime.access) == {Rule.of(**READ)}
    assert at_runtime.allow_subprocess is False
    installing = inside(context("whisper", PHASES, phase="install"))
    assert Rule.of(**SEND) in installing.access
    assert Rule.of(**READ) not in installing.access
    assert installing.allow_subprocess is True
    assert any(each.operation == "receive" for each in installing.access)


def test_configured_urls_may_be_received_from_and_sent_to() -> None:
    manifest = {"runtime": {"allowed_config_urls": ["base_url", "unset", "number"]}}
    config = {"base_url": "https://llm.example.com:8443/v1/", "number": 5, "other": "https://x.y"}
    info = inside(runtime.engine_context("llm", manifest, config=config))
    assert {(each.operation, each.target) for each in info.access} == {
        ("receive", "https://llm.example.com:8443/v1/"),
        ("send", "https://llm.example.com:8443/v1/"),
    }


def test_an_mcp_server_has_its_endpoint_and_inherits_nothing() -> None:
    with runtime.module_context("notes", MODULE):
        info = inside(runtime.mcp_context("search", "https://mcp.example.com/mcp"))
    assert {each.target for each in info.access} == {"https://mcp.example.com/mcp"}
    assert {str(each.operation) for each in info.access} == {"connect", "receive", "send"}
    assert info.allow_subprocess is False


def test_assets_narrow_and_silent_ones_change_nothing() -> None:
    own = [rule("filesystem", "read", "/srv/data/in"), rule("filesystem", "read", "/etc")]
    with runtime.module_context("notes", MODULE), runtime.pipeline_context("p"):
        silent = inside(runtime.agent_context("a"))
        narrowed = inside(runtime.tool_context("t", own))
    assert set(silent.access) == {Rule.of(**READ), Rule.of(**SEND)}
    assert set(narrowed.access) == {rule("filesystem", "read", "/srv/data/in")}


def test_media_may_be_received_from_its_url_only() -> None:
    info = inside(runtime.media_context("proxy", "https://media.example.com/a.mp4"))
    assert info.access == (rule("network", "receive", "https://media.example.com/a.mp4"),)


def test_the_chain_goes_on_across_await_and_threads() -> None:
    seen: list[str] = []

    def note() -> None:
        info = current_guard()
        seen.append("" if info is None else " > ".join(map(str, info.subject_chain)))

    async def work() -> None:
        with runtime.pipeline_context("p"), runtime.agent_context("a"), runtime.tool_context("t"):
            await asyncio.sleep(0)
            await asyncio.to_thread(note)
            thread = threading.Thread(target=note)
            thread.start()
            thread.join()

    with runtime.module_context("notes", MODULE):
        asyncio.run(work())
    assert seen == ["module:notes > pipeline:p > agent:a > tool:t"] * 2


@pytest.mark.parametrize(
    "manifest",
    [
        {"runtime": {}},
        {"acess": []},
        {"access": [{**READ, "operation": "write"}]},
        {"access": [{**READ, "target": "inbox"}]},
    ],
)
def test_a_manifest_that_does_not_fit_opens_no_guard(manifest: dict[str, object]) -> None:
    with pytest.raises(ManifestError):
        runtime.module_context("notes", manifest)


def test_an_unknown_phase_opens_no_guard() -> None:
    with pytest.raises(ManifestError):
        runtime.engine_context("whisper", PHASES, phase="build")


@pytest.mark.parametrize(
    ("kind", "phase"),
    [("engine", "install"), ("extractor", "runtime"), ("extractor", "install"), ("module", None)],
)
def test_a_manifest_of_another_phase_or_kind_opens_no_guard(kind: str, phase: str | None) -> None:
    document: Mapping[str, object] = PHASES if phase else MODULE
    other = load_manifest(document, kind, phase)
    with pytest.raises(ManifestError, match="this is the manifest of"):
        runtime.engine_context("whisper", other)
    own = load_manifest(PHASES, "engine", "runtime")
    assert set(inside(runtime.engine_context("whisper", own)).access) == {Rule.of(**READ)}


@pytest.mark.parametrize(
    "context", [runtime.tool_context, runtime.agent_context, runtime.pipeline_context]
)
def test_an_asset_that_declares_more_is_narrowed_and_that_is_said(
    context: type, caplog: pytest.LogCaptureFixture
) -> None:
    beyond = rule("filesystem", "read", "/etc")
    with runtime.module_context("notes", MODULE):
        info = inside(context("asset", [beyond, rule("filesystem", "read", "/srv/data/in")]))
    assert set(info.access) == {rule("filesystem", "read", "/srv/data/in")}
    (record,) = caplog.records
    assert f"declares {beyond}, which module:notes does not allow" in record.getMessage()


@pytest.mark.parametrize("url", ["https://u:p@x.example.com", "http://x.example.com\\@y", " "])
def test_a_configured_url_that_is_none_opens_no_guard(url: str) -> None:
    manifest = {"runtime": {"allowed_config_urls": ["base_url"]}}
    with pytest.raises(TargetError):
        runtime.engine_context("llm", manifest, config={"base_url": url})


ASSETS = [runtime.tool_context, runtime.agent_context, runtime.pipeline_context]


@pytest.mark.parametrize("context", ASSETS)
def test_an_asset_declares_rules_as_objects_or_as_a_manifest_writes_them(context: type) -> None:
    inner = {**READ, "target": "/srv/data/in/"}
    forms: list[Any] = [[Rule.of(**inner)], (inner,), iter([inner]), {"access": [inner]}]
    forms += [[{**inner, "subject": {"type": "module", "name": "notes"}}]]
    for declared in forms:
        with runtime.module_context("notes", MODULE):
            assert inside(context("asset", access=declared)).access == (
                rule("filesystem", "read", "/srv/data/in"),
            )
    nothing: tuple[Any, ...] = (None, (), [], {})
    for silent in nothing:
        with runtime.module_context("notes", MODULE):
            assert set(inside(context("asset", silent)).access) == {
                Rule.of(**READ),
                Rule.of(**SEND),
            }


@pytest.mark.parametrize("context", ASSETS)
def test_a_manifest_of_an_asset_that_declares_nothing_at_all_leaves_nothing(context: type) -> None:
    kind = context.__name__.removesuffix("_context")
    own = load_manifest({"access": [READ]}, kind)
    with runtime.module_context("notes", MODULE):
        assert inside(context("asset", own)).access == (Rule.of(**READ),)
        assert inside(context("asset", {"access": []})).access == ()
        assert inside(context("asset", load_manifest({}, kind))).access != ()  # it is silent


@pytest.mark.parametrize("declared", [READ, "/srv", [("filesystem", "read", "/srv")], [{}], [5]])
def test_what_is_no_list_of_rules_is_an_error_that_says_so(declared: Any) -> None:  # noqa: ANN401 - nonsense
    with pytest.raises((ContractError, ManifestError)):
        runtime.tool_context("asset", declared)


def test_a_broader_declaration_is_narrowed_to_what_both_allow_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with runtime.module_context("notes", MODULE):
        info = inside(runtime.tool_context("t", [{**READ, "target": "/srv"}]))
    assert info.access == (Rule.of(**READ),)
    (record,) = caplog.records
    assert "tool:t declares filesystem read /srv" in record.getMessage()


def test_a_subject_is_a_name_or_a_subject_of_that_kind() -> None:
    notes = Subject.parse("module:notes")
    assert inside(runtime.module_context(notes, MODULE)).subject == notes
    assert inside(process_guard_context(notes)).subject == notes
    assert inside(process_guard_context(notes, "module")).subject == notes
    with pytest.raises(ContractError, match="module:notes is no tool"):
        runtime.tool_context(notes)
    for name in (None, "", 5, " x"):
        with pytest.raises(ContractError):
            runtime.module_context(name)  # type: ignore[arg-type] # nonsense


def test_who_asks_may_be_numbers_and_is_nothing_else() -> None:
    info = inside(runtime.module_context("notes", user_id=21, organization_id=3, task_id=4))
    assert (info.user_id, info.organization_id, info.task_id) == (21, 3, 4)
    strange: Any = ({"user_id": True}, {"organization_id": 1.5}, {"session_key": 5},
                  {"session_key": ""}, {"session_key": "a\nb"}, {"task_id": []})  # fmt: skip
    for wrong in strange:
        with pytest.raises(ContractError):
            runtime.module_context("notes", **wrong)


SURFACES: list[tuple[Any, tuple[str, ...]]] = [
    (runtime.module_context, ()), (runtime.task_context, ()), (runtime.engine_context, ()),
    (runtime.extractor_context, ()), (runtime.mcp_context, ("https://x.example.com",)),
    (runtime.tool_context, ()), (runtime.agent_context, ()), (runtime.pipeline_context, ()),
    (runtime.media_context, ("https://x.example.com",)),
]  # fmt: skip


@pytest.mark.parametrize(("context", "more"), SURFACES)
@pytest.mark.parametrize("word", ["allow_subprocess", "allowed_paths", "sesion_key"])
def test_a_surface_has_no_arguments_but_its_own(
    context: Any, more: tuple[str, ...], word: str  # noqa: ANN401 - any surface
) -> None:  # fmt: skip
    with pytest.raises(TypeError, match=word):
        context("name", *more, **{word: True})


def test_media_is_one_url_with_or_without_a_name() -> None:
    info = inside(runtime.media_context("https://media.example.com/a.mp4"))
    assert str(info.subject) == "core:media"
    for nothing in (("proxy",), ("proxy", "")):
        with pytest.raises(TargetError, match="network_target_missing"):
            runtime.media_context(*nothing)


def test_a_phase_may_be_given_by_place() -> None:
    assert inside(runtime.engine_context("whisper", PHASES, "install")).allow_subprocess
    assert inside(runtime.extractor_context("yolo", PHASES, "install")).allow_subprocess


@pytest.mark.parametrize("context", ASSETS)
def test_an_asset_s_manifest_may_be_a_file_and_starts_at_its_folder(
    context: type, tmp_path: Path
) -> None:
    file = tmp_path / "tool.json"
    file.write_text(json.dumps({"access": [{**READ, "target": "in"}]}))
    here = rule("filesystem", "read", f"{tmp_path.resolve()}/in")
    for place in (file, str(file)):
        with process_guard_context("notes", "module", [rule("filesystem", "read", "/")]):
            assert inside(context("asset", place)).access == (here,)


@pytest.mark.parametrize("context", [runtime.module_context, runtime.task_context, *ASSETS])
def test_a_broad_root_is_accepted_and_the_log_says_so(
    context: type, caplog: pytest.LogCaptureFixture
) -> None:
    info = inside(context("asset", {"access": [{**READ, "target": "/home"}]}))
    assert info.access == (rule("filesystem", "read", "/home"),)
    (record,) = caplog.records
    assert "access[0].target: /home is broad" in record.getMessage()
