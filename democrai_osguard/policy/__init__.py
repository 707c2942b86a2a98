"""Policy: rules compiled, chains of subjects, profiles, and the decision itself."""
