"""Estimators of local studies."""
