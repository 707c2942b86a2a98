"""Targets in normal form, and whether one covers another."""

from __future__ import annotations

from democrai_osguard.targets.normal import covers, normalize_target

__all__ = ["covers", "normalize_target"]
