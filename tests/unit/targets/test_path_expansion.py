from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from democrai_osguard import TargetError, normalize_target

if TYPE_CHECKING:
    from unit.targets.path_tree import Tree

TOKENS = ("data_dir", "cache_dir", "temp_dir")


@pytest.fixture(autouse=True)
def application_folders(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the home and the application's folders into the tree."""
    monkeypatch.setenv("HOME", f"{tree.root}/dir")
    for token in TOKENS:
        monkeypatch.setenv(f"DEMOCRAI_{token.upper()}", f"{tree.root}/dir/{token}")


def test_a_tilde_is_the_home_folder(tree: Tree) -> None:
    assert normalize_target("filesystem", "~") == f"{tree.root}/dir"
    assert normalize_target("filesystem", "~/") == f"{tree.root}/dir"
    assert normalize_target("filesystem", "~/sub/../x") == f"{tree.root}/dir/x"


def test_a_tilde_before_a_user_is_that_home_folder() -> None:
    user = pwd.getpwuid(os.getuid())
    home = os.path.realpath(user.pw_dir)
    assert normalize_target("filesystem", f"~{user.pw_name}/x") == f"{home}/x"


def test_a_home_that_is_a_link_is_resolved(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", f"{tree.root}/out")
    assert normalize_target("filesystem", "~/x") == f"{tree.outside}/x"


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_is_the_applications_folder(tree: Tree, token: str) -> None:
    folder = f"{tree.root}/dir/{token}"
    assert normalize_target("filesystem", f"{{{token}}}") == folder
    assert normalize_target("filesystem", f"{{{token}}}/x/") == f"{folder}/x"


def test_a_token_stands_for_a_whole_folder() -> None:
    with pytest.raises(TargetError, match="whole folder"):
        normalize_target("filesystem", "{data_dir}_old/x")


def test_a_token_that_is_not_in_front_is_a_name(tree: Tree) -> None:
    normal = normalize_target("filesystem", "x/{data_dir}", base=tree.root)
    assert normal == f"{tree.root}/x/{{data_dir}}"


def test_a_token_cannot_be_climbed_out_of_while_it_is_missing() -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("filesystem", "{data_dir}/../x")
    assert caught.value.code == "unsafe_path"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("models", "$T/models"),
        ("./models", "$T/models"),
        (".", "$T"),
        ("..", "$O/.."),
        ("../outside", "$O"),
        ("in/deep", "$T/dir/sub/deep"),
        ("out", "$O"),
        (" x", "$T/ x"),
        ("./~", "$T/~"),
        ("./{data_dir}", "$T/{data_dir}"),
        ("$T/dir2", "$T/dir2"),
        ("~/x", "$T/dir/x"),
        ("{data_dir}/x", "$T/dir/data_dir/x"),
    ],
)
def test_a_relative_path_is_relative_to_its_base(tree: Tree, text: str, normal: str) -> None:
    expected = os.path.normpath(tree.fill(normal))
    assert normalize_target("filesystem", tree.fill(text), base=tree.root) == expected


def test_a_base_that_is_a_link_is_resolved(tree: Tree) -> None:
    assert normalize_target("filesystem", "deep", base=f"{tree.root}/in") == (
        f"{tree.root}/dir/sub/deep"
    )


def test_the_working_directory_never_counts(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree.root)
    with pytest.raises(TargetError, match="relative"):
        normalize_target("filesystem", "dir")
    assert normalize_target("filesystem", "dir", base="/srv/none") == "/srv/none/dir"


@pytest.mark.parametrize("base", ["", "relative", "./x"])
def test_a_base_that_is_not_absolute_is_an_error(base: str) -> None:
    with pytest.raises(TargetError):
        normalize_target("filesystem", "x", base=base)


def test_a_path_that_grows_too_long_by_its_base_is_an_error() -> None:
    with pytest.raises(TargetError, match="4096"):
        normalize_target("filesystem", "b" * 2048, base="/" + "a" * 2046)


@pytest.mark.parametrize("text", ["~/x", "{data_dir}/x"])
@pytest.mark.parametrize("base", [None, "/srv/none"])
def test_a_home_or_token_that_is_relative_is_an_error(
    text: str, base: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "relative")
    monkeypatch.setenv("DEMOCRAI_DATA_DIR", "relative")
    with pytest.raises(TargetError):
        normalize_target("filesystem", text, base=base)


def test_an_empty_home_is_not_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "")
    home = os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    try:
        normal = normalize_target("filesystem", "~")
    except TargetError:
        return
    assert normal == home
