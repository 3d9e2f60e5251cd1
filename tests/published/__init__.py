"""Published tables as data, each module named for its paper, and what the lab says about the same plans."""
