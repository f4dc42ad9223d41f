"""Experiments: many fits on known rows, in parallel, that survive an interruption. Nothing in here is for release.

`tulle.experiments.cell_runner` runs cells, `tulle.experiments.comparison` compares methods on one table, and
`tulle.experiments.catalogue` holds tables and figures of papers, one TOML file each, which
`tulle.experiments.reproduction` runs again.
"""
