"""The trusted code: everything whose error could silently break the printed epsilon of a fit in memory."""
