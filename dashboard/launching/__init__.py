"""From a form to runs in the queue: the fields of a job, what the plan means, and what is done with launches.

It may import `page` and `data`. Start with `form.py`, then `queue_actions.py`.
"""
