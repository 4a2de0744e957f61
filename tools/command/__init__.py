"""The parts of the polyhead command; they use only the standard library, because they run before anything is installed."""
