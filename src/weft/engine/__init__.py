"""The engine: any cell at the speed of the machine."""
