"""Drafters: each proposes tokens that may come next. What they propose never changes the output, only its speed."""
