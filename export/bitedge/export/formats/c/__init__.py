"""C99 for microcontrollers: a folder with the network, its operators and its test vectors."""
