"""The code of the server of a local study. It sees randomised answers only."""
