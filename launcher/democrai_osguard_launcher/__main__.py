"""Lets `python -m democrai_osguard_launcher` do what `democrai-launch` does."""

from .main import run

run()
