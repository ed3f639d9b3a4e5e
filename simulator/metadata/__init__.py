"""The metadata servers of the nodes, as Google's machines have them: where the notice of a preemption is first seen."""
