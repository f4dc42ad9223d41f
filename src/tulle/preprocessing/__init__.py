"""Private preprocessing: weights, scales, categories and words, released with noise and billed with the model."""

from tulle.preprocessing.private_columns import PrivateCategories, PrivateColumns, PrivateVocabulary
from tulle.preprocessing.private_scaler import PrivateImputer, PrivateScaler
from tulle.preprocessing.private_weights import PrivateWeights

__all__ = [
    "PrivateCategories",
    "PrivateColumns",
    "PrivateImputer",
    "PrivateScaler",
    "PrivateVocabulary",
    "PrivateWeights",
]
