from __future__ import annotations

import pytest

from democrai_osguard_helper.cgroups import NoCgroups, Tree, find_mount, inside_sandbox

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1 = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
HYBRID = V1 + "32 23 0:28 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n"
ODD = "32 23 0:28 / /mnt/a\\040b rw shared:1 master:2 - cgroup2 none rw\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [(UNIFIED, "/sys/fs/cgroup"), (HYBRID, "/sys/fs/cgroup/unified"), (ODD, "/mnt/a b")],
)
def test_the_v2_tree_is_found_wherever_it_is(text: str, place: str) -> None:
    assert find_mount(text) == place


@pytest.mark.parametrize("text", ["", V1])
def test_a_host_with_v1_only_says_so(text: str) -> None:
    with pytest.raises(NoCgroups, match="no cgroup v2"):
        find_mount(text)


@pytest.mark.parametrize(
    ("membership", "inside"),
    [
        ("0::/\n", False),
        ("0::/user.slice/x.scope\n", False),
        ("2:cpu:/democrai-osguard-main/x\n0::/user.slice\n", False),
        ("0::/democrai-osguard-main/0123456789ab\n", True),
        ("0::/democrai-osguard-other/0123456789ab/below\n", True),
        ("0::/docker/0/democrai-osguard-main/0123456789ab/below\n", True),
        ("0::/system.slice/democrai-osguard-helper.service\n", False),
        ("0::/system.slice/democrai-osguard-demo/service\n", False),
        ("1:cpu:/\n", True),  # nobody can say: closed
        ("", True),
    ],
)
def test_who_is_inside_a_sandbox_is_read_from_the_v2_line(membership: str, inside: bool) -> None:
    assert inside_sandbox(membership) is inside


@pytest.mark.parametrize("path", ["", "/..", "/../elsewhere", "/a/../../b", "a"])
def test_a_cgroup_outside_of_what_we_see_is_none(path: str) -> None:
    tree = Tree("/sys/fs/cgroup", "x")
    assert tree.at("/a/b").path == "/sys/fs/cgroup/a/b"
    assert tree.at("/").path == "/sys/fs/cgroup"
    with pytest.raises(FileNotFoundError):
        tree.at(path)
