"""A helper and a network of the tests' own, as its own tests have them."""

from root.conftest import daemon, network

__all__ = ["daemon", "network"]
