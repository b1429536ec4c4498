"""A load like TPC-DI's: trades, and the accounts, customers and securities of their time."""
