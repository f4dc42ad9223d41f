"""Uses of a private teacher: students, public features, synthetic rows."""
