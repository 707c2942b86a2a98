from __future__ import annotations

from dataclasses import replace

import pytest
from unit.policy.verdict_cases import GET, READ

from democrai_osguard import ProfileError
from democrai_osguard.access import Operation
from democrai_osguard.policy.profile import Profile


def asked(path: str, *globs: str) -> bool:
    """Tell whether reading the path is sent to a person."""
    return Profile.of(deny_read=globs).soft_denial(replace(READ, target=path)) is not None


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("**/.env", "/srv/app/.env", True),
        ("**/.env", "/.env", True),
        (".env", "/srv/app/.env", True),
        ("**/.env", "/srv/app/.envrc", False),
        ("**/.env", "/srv/app/x.env", False),
        ("*.pem", "/srv/a/b.pem", True),
        ("*.pem", "/srv/a/.hidden.pem", True),
        ("*.pem", "/srv/a\nb/c\nd.pem", True),
        ("*.pem", "/srv/a/b.PEM", True),
        ("*.pem", "/srv/a/b.pem.txt", False),
        ("/srv/*.pem", "/srv/a.pem", True),
        ("/srv/*.pem", "/srv/a/b.pem", False),
        ("/srv/**/*.pem", "/srv/a/b/c.pem", True),
        ("/srv/secrets", "/srv/secrets", True),
        ("/srv/secrets", "/srv/secrets/deep/key", True),
        ("/srv/secrets/", "/srv/secrets/deep/key", True),
        ("/srv/secrets/**", "/srv/secrets/.git/config", True),
        ("/srv/secrets", "/srv/secrets2", False),
        ("**/.ssh/**", "/home/a/.ssh/id_rsa", True),
        ("**/{id_rsa,id_dsa}", "/home/a/.ssh/id_dsa", True),
        ("**/id_[re]*", "/home/a/.ssh/id_ed25519", True),
        ("**/id_[!r]*", "/home/a/.ssh/id_rsa", False),
        ("/srv/a?c", "/srv/abc", True),
        ("/srv/a?c", "/srv/a/c", False),
        ("/srv/\\*", "/srv/*", True),
        ("/srv/\\*", "/srv/x", False),
        ("*.key", "/srv/\udcff.key", True),
        # On file systems that fold names these are the same file.
        (".ssh", "/home/a/.SSH/x", True),
        (".ssh", "/home/a/.\u017fsh/x", True),
        (".env", "/srv/.e\u200bnv", True),
        ("caf\u00e9", "/srv/cafe\u0301", True),
        ("cafe\u0301", "/srv/caf\u00e9", True),
        ("stra\u00dfe", "/srv/STRASSE", False),
        ("/srv/{a,b{c,d}}/x", "/srv/bd/x", True),
        ("/srv/x{1..3}", "/srv/x2", True),
    ],
)
def test_a_glob_matches_normal_paths(glob: str, path: str, matches: bool) -> None:
    assert asked(path, glob) is matches


@pytest.mark.parametrize(
    "glob",
    [
        "",
        " ",
        "[a",
        "a]",
        "{a,b",
        "a}",
        "a\\",
        "a\0b",
        "/srv/../x",
        "/srv/./x",
        "/srv//x",
        "{a,b}" * 12,
        "{1..1000000}",
        "[]",
        "[z-a]",
        "~no-such-user/x",
    ],
)
def test_an_invalid_glob_is_an_error_when_the_profile_is_read(glob: str) -> None:
    with pytest.raises(ProfileError):
        Profile.of(deny_write=(glob,))
    with pytest.raises(ProfileError) as caught:
        Profile.of(deny_read=(glob,))
    assert caught.value.code == "invalid_profile"
    assert isinstance(caught.value, ValueError)


def test_an_invalid_glob_beside_valid_ones_is_an_error_too() -> None:
    with pytest.raises(ProfileError, match="oops"):
        Profile.of(deny_read=["**/.env", "[oops"])


def test_deny_read_is_about_reading_only() -> None:
    profile = Profile.of(deny_read=["/srv"])
    found = {
        operation: profile.soft_denial(replace(READ, operation=Operation(operation))) is not None
        for operation in ("read", "create", "modify", "delete")
    }
    assert found == {"read": True, "create": False, "modify": False, "delete": False}


def test_deny_write_is_about_each_write() -> None:
    profile = Profile.of(deny_write=["/srv"])
    found = {
        operation: profile.soft_denial(replace(READ, operation=Operation(operation))) is not None
        for operation in ("read", "create", "modify", "delete")
    }
    assert found == {"read": False, "create": True, "modify": True, "delete": True}


def test_globs_say_nothing_about_the_network() -> None:
    assert Profile.of(deny_read=["**"]).soft_denial(GET) is None


def test_a_glob_for_everything_matches_everything() -> None:
    assert all(asked(path, glob) for glob in ("**", "/**") for path in ("/srv", "/a/.b/c"))


@pytest.mark.parametrize(
    ("glob", "path", "asked_about"),
    [
        ("**/.git/hooks", "/srv/.git", True),
        ("**/.git/hooks", "/srv/.GIT", True),
        ("**/.git/hooks", "/srv", False),
        ("/srv/a/b", "/srv/a", True),
        ("/srv/a/b", "/srv", True),
        ("/srv/a/b", "/srv/c", False),
        ("/srv/{a,c}/b", "/srv/c", True),
        (".env", "/srv", False),
    ],
)
def test_a_folder_on_the_way_is_not_moved_away_or_put_in_place(
    glob: str, path: str, asked_about: bool
) -> None:
    profile = Profile.of(deny_write=[glob])
    for operation in ("create", "delete"):
        request = replace(READ, operation=Operation(operation), target=path)
        assert (profile.soft_denial(request) is not None) is asked_about
    changed = replace(READ, operation=Operation.MODIFY, target=path)
    assert profile.soft_denial(changed) is None


def test_a_read_only_profile_lets_nothing_be_written_but_what_is_thrown_away() -> None:
    profile = Profile.of(read_only=True)
    assert profile.forbids(replace(READ, operation=Operation.MODIFY))
    assert not profile.forbids(replace(READ, operation=Operation.MODIFY, target="/dev/null"))


def test_the_paths_that_globs_name_are_told_from_the_others() -> None:
    globs = Profile.of(deny_read=["/srv/{a,b}", "*.pem", "/srv/c/*"]).deny_read
    assert globs.places == ("/srv/a", "/srv/b")
    assert globs.anywhere == ("*.pem", "/srv/c/*")
