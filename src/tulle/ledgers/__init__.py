"""Ledgers: budgets that are shared by many fits."""
