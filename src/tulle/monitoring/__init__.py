"""Logs, counters and health pages for those who run tulle: numbers and names that are public, nothing of the rows."""
