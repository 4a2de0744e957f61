"""Adapters of other libraries: PEERS names the ways in which a library does a kind of case, make() prepares one of them."""
