"""Lets `python -I -m democrai_osguard_helper` do what `democrai-osguard-helper` does."""

from .main import run

run()
