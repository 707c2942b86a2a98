from __future__ import annotations

import pytest
from unit.targets.address_vectors import NORMAL_ADDRESSES, REFUSED_ADDRESSES
from unit.targets.host_vectors import NORMAL_HOSTS, REFUSED_HOSTS
from unit.targets.url_vectors import NORMAL_URLS, REFUSED_URLS
from unit.targets.vectors import Normal, Refused, name_of

from democrai_osguard import TargetError, normalize_target

NORMAL = (*NORMAL_HOSTS, *NORMAL_ADDRESSES, *NORMAL_URLS)
REFUSED = (*REFUSED_HOSTS, *REFUSED_ADDRESSES, *REFUSED_URLS)
FEWEST_VECTORS = 150


@pytest.mark.parametrize("row", NORMAL, ids=name_of)
def test_a_target_has_one_normal_form(row: Normal) -> None:
    assert normalize_target("network", row.text) == row.normal


@pytest.mark.parametrize("row", NORMAL, ids=name_of)
def test_a_normal_form_is_its_own_normal_form(row: Normal) -> None:
    assert normalize_target("network", row.normal) == row.normal


@pytest.mark.parametrize("row", REFUSED, ids=name_of)
def test_a_text_without_a_normal_form_is_an_error_with_its_reason(row: Refused) -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("network", row.text)
    assert caught.value.code == row.code
    assert row.word in caught.value.reason
    assert str(caught.value).startswith(row.code)


def test_an_error_names_the_value() -> None:
    with pytest.raises(TargetError, match=r"'example\.com:0'") as caught:
        normalize_target("network", "example.com:0")
    assert caught.value.value == "example.com:0"
    assert isinstance(caught.value, ValueError)


def test_an_error_about_a_long_value_stays_short() -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("network", "a" * 100_000)
    assert len(str(caught.value)) < 1000


def test_an_error_shows_control_characters_escaped() -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("network", "example.com\x1b[2J\n")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("blank", ["", " ", "\t\n", b""])
def test_a_blank_target_is_missing(blank: str | bytes) -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("network", blank)
    assert caught.value.code == "network_target_missing"


def test_bytes_are_no_network_target() -> None:
    with pytest.raises(TargetError, match="text"):
        normalize_target("network", b"example.com")


@pytest.mark.parametrize("operation", ["connect", "receive", "send"])
def test_the_operation_does_not_change_a_network_target(operation: str) -> None:
    normal = normalize_target("network", "HTTPS://Example.com/", operation=operation)
    assert normal == "https://example.com"


def test_every_spelling_of_this_machine_is_one_name() -> None:
    spellings = ("localhost", "127.0.0.1", "127.0.0.0/8", "::1", "0.0.0.0", "::", "[::1]")  # noqa: S104 - nothing binds
    assert {normalize_target("network", text) for text in spellings} == {"localhost"}


def test_the_table_has_enough_distinct_rows() -> None:
    assert len({row.text for row in (*NORMAL, *REFUSED)}) == len(NORMAL) + len(REFUSED)
    assert len(NORMAL) + len(REFUSED) >= FEWEST_VECTORS


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("https://user:hunter2@host/", "https://***@host/"),
        ("https://user:hun/ter2@host/", "https://***@host/"),
        ("https://user:hun ter2@host/", "https://***@host/"),
        ("user:hunter2@host", "***@host"),
        ("https://h ost/@scope", "https://h ost/@scope"),
    ],
)
def test_what_people_put_before_the_at_is_not_repeated(target: str, host: str) -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("network", target)
    assert f"'{host}'" in str(caught.value)
    assert "hun" not in str(caught.value)
