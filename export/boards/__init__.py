"""Networks in C on emulated microcontrollers: build, run, count instructions."""
