"""Trained models in use: the model file, predictions, probabilities, the applicability domain and export."""
