"""`python -m bitedge.cli`, which is how torchrun starts a verb."""

from bitedge.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
