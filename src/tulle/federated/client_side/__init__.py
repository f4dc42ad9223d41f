"""The code that runs at a client and sees its rows."""
