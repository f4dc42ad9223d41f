"""Private preprocessing: weights and scales of columns, released with noise and billed together with the model."""

from tulle.preprocessing.private_scaler import PrivateImputer, PrivateScaler
from tulle.preprocessing.private_weights import PrivateWeights

__all__ = ["PrivateImputer", "PrivateScaler", "PrivateWeights"]
