"""The sharded layers and the collectives that their forward and backward need."""
