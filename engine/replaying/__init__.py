"""The replay's parts: a step as columns, who meets whom, what everything costs, and when it happens."""
