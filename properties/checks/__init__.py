"""The comparisons of laws, and the words and pictures for their messages."""
