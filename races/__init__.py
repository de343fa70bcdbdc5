"""How schedules and memory are disturbed and watched, so that what is wrong only sometimes shows."""
