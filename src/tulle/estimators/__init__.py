"""The scikit-learn estimators, and how they are bounded, saved and checked."""
