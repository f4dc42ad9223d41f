"""The report of a fit, as text and as pages."""
