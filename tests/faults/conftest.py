"""A helper, a network and a database server, as the tests of those parts have them."""

from approvals.conftest import postgres
from root.conftest import daemon, network

__all__ = ["daemon", "network", "postgres"]
