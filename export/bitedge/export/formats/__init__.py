"""The formats that a network is written in: one folder each, and the table of them."""
