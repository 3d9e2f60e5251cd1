"""Predict, then reveal: a question that runs its experiment only after the learner has answered.

It may import `learning`, for the answers that are kept, and the views. Start with `question.py`.
"""
