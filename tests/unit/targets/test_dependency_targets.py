from __future__ import annotations

import pytest

from democrai_osguard import TargetError, covers, normalize_target


@pytest.mark.parametrize("name", ["git", "FFmpeg", "g++", "python3.11", "lib_x-y", "7z", ".hid"])
def test_a_bare_name_is_its_own_normal_form(name: str) -> None:
    assert normalize_target("system_dependency", name) == name


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "/usr/bin/git", "a b", "git\n", "git\0", "b\u00fc", "a;b", "$(x)", "~", "*"],
)
def test_what_is_no_bare_name_is_an_error(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("system_dependency", text)
    assert caught.value.code == "invalid_target"


def test_bytes_are_no_name() -> None:
    with pytest.raises(TargetError):
        normalize_target("system_dependency", b"git")


def test_a_name_covers_itself_only() -> None:
    assert covers("system_dependency", "git", "git")
    assert not covers("system_dependency", "git", "Git")
    assert not covers("system_dependency", "git", "git-lfs")
