"""The machinery of the suite: daemon, fault proxy, driver, and the world of a case."""
