from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from unit.policy.verdict_cases import (
    GET,
    MODULE,
    READ,
    REQUEST,
    RULE,
    declared,
    ledger,
    policy_for,
    silent,
)

from democrai_osguard import Allow, Deny, Policy, RequiresApproval, Rule, TargetError, decide
from democrai_osguard.access import Operation, ResourceType, Scope
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.decision import Decision
from democrai_osguard.policy.profile import Profile
from democrai_osguard.targets.request import access_request

# Each voice of section 2 in its order, with the answer and a word of its reason. A glob is
# overruled by an approval, which the tests below show.
ORDER = (
    ("unsafe", Deny, "denied", "safely"),
    ("read_only", Deny, "denied", "read-only"),
    ("denied", Deny, "denied", "operator"),
    ("glob", RequiresApproval, "not_enabled", "/srv/none/x"),
    ("rules", Allow, "sandbox_allowed", "declares"),
    ("session", Allow, "session_approval", "session"),
    ("permanent", Allow, "permanent_approval", "permanent"),
)
Voice = tuple[str, type[Decision], str, str]


def answer(*voices: str) -> Decision:
    return decide(*policy_for(REQUEST, frozenset(voices)))


@pytest.mark.parametrize("voice", ORDER, ids=lambda voice: voice[0])
def test_each_voice_alone_gives_its_answer_code_and_reason(voice: Voice) -> None:
    name, kind, code, word = voice
    decision = answer(name)
    assert isinstance(decision, kind)
    assert decision.code == code
    assert word in decision.reason


PAIRS = [
    (one, two)
    for one, two in combinations(ORDER, 2)
    if one[0] != "glob" or two[0] not in {"session", "permanent"}
]


@pytest.mark.parametrize(("earlier", "later"), PAIRS, ids=lambda voice: voice[0])
def test_the_earlier_voice_wins(earlier: Voice, later: Voice) -> None:
    decision = answer(earlier[0], later[0])
    assert isinstance(decision, earlier[1])
    assert decision.code == earlier[2]
    assert earlier[3] in decision.reason


@pytest.mark.parametrize(("scope", "code"), [("session", "session_approval"), ("permanent",) * 2])
def test_an_approval_overrules_a_glob(scope: str, code: str) -> None:
    decision = answer("glob", scope, "rules")
    assert isinstance(decision, Allow)
    assert decision.code.startswith(code)


def test_all_voices_at_once_are_a_denial() -> None:
    assert isinstance(answer(*(voice[0] for voice in ORDER)), Deny)


def test_silence_requires_approval() -> None:
    decision = answer()
    assert isinstance(decision, RequiresApproval)
    assert decision.code == "not_enabled"
    assert "module:reports" in decision.reason
    assert decision.request == REQUEST


def test_an_allow_names_the_rule_and_the_subject_that_gave_it() -> None:
    wider = Rule(ResourceType.FILESYSTEM, Operation.MODIFY, "/srv/none")
    decision = decide(REQUEST, Policy(Chain.of(MODULE, [wider])))
    assert decision == Allow("sandbox_allowed", wider, MODULE)
    assert "/srv/none" in decision.reason


def test_a_denial_names_the_rule_that_was_recorded() -> None:
    decision = decide(REQUEST, Policy(declared(REQUEST), verdicts=ledger(REQUEST, Scope.DENIED)))
    assert isinstance(decision, Deny)
    assert decision.rule == RULE
    assert "operator" in decision.hint


def test_an_approval_names_the_rule_that_was_recorded() -> None:
    for scope in (Scope.SESSION, Scope.PERMANENT):
        decision = decide(REQUEST, Policy(silent(REQUEST), verdicts=ledger(REQUEST, scope)))
        assert isinstance(decision, Allow)
        assert decision.rule == RULE


def test_a_target_that_cannot_be_normalised_is_an_error_and_no_denial() -> None:
    with pytest.raises(TargetError) as caught:
        access_request(MODULE, "network", "connect", "")
    assert caught.value.code == "network_target_missing"
    assert not isinstance(caught.value, PermissionError)
    with pytest.raises(TargetError):
        access_request(MODULE, "filesystem", "read", "/srv\0")


def test_an_unsafe_path_is_a_denial_and_no_error() -> None:
    request = access_request(MODULE, "filesystem", "read", "/none/../etc")
    everything = Chain.of(MODULE, [Rule(ResourceType.FILESYSTEM, Operation.READ, "/")])
    decision = decide(request, Policy(everything, verdicts=ledger(request, Scope.PERMANENT)))
    assert isinstance(decision, Deny)
    assert decision.rule is None
    assert "'..'" in decision.reason


def test_a_request_is_made_in_normal_form() -> None:
    request = access_request(MODULE, "network", "receive", "HTTPS://Example.com:443/v1")
    assert request == replace(GET, session_key=None)


@pytest.mark.parametrize("operation", ["create", "modify", "delete"])
def test_a_read_only_profile_denies_each_write(operation: str) -> None:
    request = replace(REQUEST, operation=Operation(operation))
    policy = Policy(declared(request), Profile.of(read_only=True))
    assert isinstance(decide(request, policy), Deny)


@pytest.mark.parametrize("operation", ["read", "execute"])
def test_a_read_only_profile_lets_reads_and_programs_be(operation: str) -> None:
    request = replace(REQUEST, operation=Operation(operation))
    policy = Policy(declared(request), Profile.of(read_only=True))
    assert isinstance(decide(request, policy), Allow)


def test_a_read_only_profile_says_nothing_about_the_network() -> None:
    send = replace(GET, operation=Operation.SEND)
    assert isinstance(decide(send, Policy(declared(send), Profile.of(read_only=True))), Allow)


def test_a_glob_names_itself_and_is_not_lifted_by_a_declaration() -> None:
    policy = Policy(declared(READ), Profile.of(deny_read=["**/x"]))
    decision = decide(READ, policy)
    assert isinstance(decision, RequiresApproval)
    assert "**/x" in decision.reason
    assert "operator" in decision.hint


def test_a_missing_rule_hints_at_what_to_declare() -> None:
    decision = decide(REQUEST, Policy(silent(REQUEST)))
    assert isinstance(decision, RequiresApproval)
    for word in ("filesystem", "modify", "/srv/none/x", "module:reports"):
        assert word in decision.hint


def test_what_an_asset_narrowed_away_is_said_in_the_reason() -> None:
    tool = MODULE.parse("tool:t")
    chain = declared(REQUEST).enter(tool, [])
    decision = decide(replace(REQUEST, subject=tool), Policy(chain))
    assert isinstance(decision, RequiresApproval)
    assert "module:reports declares" in decision.reason
    assert "tool:t does not" in decision.reason
