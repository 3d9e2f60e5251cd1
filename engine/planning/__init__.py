"""The planner's parts: which plans are legal, what each holds and takes, and why one wins."""
