"""`bitedge bench kernels`: every kernel of the core over the layers of the three networks, against the bare loop."""
