"""The same answers in less time: compiled loops, noise drawn on demand. TULLE_PLAIN=1 switches all of it off."""
