"""ReLU, dropout and squash of projected features."""
