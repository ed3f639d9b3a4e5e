"""`python -m tradewind` is the command `tradewind`."""

from tradewind.entry import main

if __name__ == "__main__":
    main()
