"""The pytest plug-in: collects verdicts, keeps them on disk, prints the table, writes the HTML page."""
