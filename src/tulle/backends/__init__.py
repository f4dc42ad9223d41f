"""Rows that are not in one array: on disk, or on a Dask cluster."""
