"""The shots study: compare the ROS3 drivers of HDF5 1.14 and 2.x on files with one tokamak shot (discharge) each."""
