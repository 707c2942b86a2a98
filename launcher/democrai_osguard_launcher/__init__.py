"""The launcher: it gives rights up, one layer after the other, and then becomes the command."""
