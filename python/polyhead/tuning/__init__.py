"""The tuner: measures tilings of a problem on this machine and keeps the best as tuning records (docs/guides/tuning.md)."""
