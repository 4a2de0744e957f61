"""The parts of the polyhead command; standard library only, because they run before anything is installed."""
