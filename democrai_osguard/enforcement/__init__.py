"""What this host can enforce, as far as an unprivileged process can tell."""
