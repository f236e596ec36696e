"""The loss of a whole network on small graphs, with its gradients."""
