"""Calibration of noise and further accountants. A plan is proved a second time in `tulle.trusted`."""
