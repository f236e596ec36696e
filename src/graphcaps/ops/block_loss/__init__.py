"""Loss of an assignment of nodes to parts: the likelihood of the edges under a stochastic block model."""
