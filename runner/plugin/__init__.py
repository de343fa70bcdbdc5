"""The pytest plug-in: collects verdicts, saves them, prints the table, writes the page."""
