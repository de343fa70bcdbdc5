"""Cases: the record, its features, how they are drawn, and the tensors that are built from them."""
