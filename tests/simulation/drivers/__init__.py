"""Who does things in a simulation. A new domain joins by a module with a ``Driver`` here and a line in ``ALL_DRIVERS``."""
