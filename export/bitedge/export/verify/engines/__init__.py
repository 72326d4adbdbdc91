"""The engines that run an artifact: one file each, and the table of them."""
