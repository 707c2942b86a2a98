"""Permissions of tools: named profiles, looking ahead at a tool's input, and who is asked."""
