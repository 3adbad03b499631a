"""What must always be true. A new domain joins by a module with a ``Checker`` here and a line in ``all_checkers``."""
