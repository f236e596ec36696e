"""Everything that calls RDKit on molecules of users: featurizers, tasks, and the processes that perform them."""
