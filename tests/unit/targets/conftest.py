from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from unit.targets.path_tree import Tree, build_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Return the tree that the path tables speak of. Tests only read it."""
    return build_tree(str(tmp_path_factory.mktemp("paths")))


@pytest.fixture
def hidden(tree: Tree) -> Iterator[str]:
    """Return a folder that this process may not search, as long as the test runs."""
    folder, uid = f"{tree.root}/hidden", os.geteuid()
    os.chmod(folder, 0)
    if uid == 0:  # root searches everything, so it becomes somebody else for a while
        os.seteuid(NOBODY)
    yield folder
    os.seteuid(uid)
    os.chmod(folder, 0o700)
