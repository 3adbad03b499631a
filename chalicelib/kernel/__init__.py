"""Words that every package shares: ids, clock, errors, paging, canonical text, limits.

Imports nothing of ours. Start reading at ``errors.py`` (what a user sees when something is wrong)
and ``limits.py`` (how large anything may become).
"""
