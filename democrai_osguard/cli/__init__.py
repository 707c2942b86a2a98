"""The `democrai-osguard` command line."""
