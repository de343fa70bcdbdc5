"""CuTe DSL in the emulator."""
