"""Choosing settings and scoring models, on the bill."""
