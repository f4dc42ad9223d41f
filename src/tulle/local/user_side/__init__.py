"""The code that runs on a user's device and sees the row."""
