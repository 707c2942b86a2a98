"""What the launcher saw of a run: read, told in sentences, and folded into a manifest."""
