"""Interfaces for operators: the approval page, and the live screen of the command line."""
