"""The rows that one execution of each unit writes, found on meta tensors and kept."""
