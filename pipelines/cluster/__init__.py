"""Stages spread over the machines of a Dask cluster; results meet in the shared store."""
