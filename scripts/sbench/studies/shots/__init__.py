"""The shots study: HDF5 1.14's against 2.x's ROS3 driver on single-shot files."""
