"""Measurements: ratios between things that are run side by side, in one run."""
