"""What runs a turn: its loop, its transactions, its tools."""
