"""PTX on a CPU."""
