"""The code of the server of a federated study."""
