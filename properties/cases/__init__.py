"""Cases: their record and features, how they are drawn, and the tensors built from them."""
