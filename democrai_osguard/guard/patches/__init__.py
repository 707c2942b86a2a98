"""What the guard intercepts, as tables: one row for each call, one file for each area."""
