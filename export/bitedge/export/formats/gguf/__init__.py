"""The packed file of the C++ core."""
