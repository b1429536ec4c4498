"""A rule for each kind of step: how it is described, and how its rows follow from those of its inputs."""
