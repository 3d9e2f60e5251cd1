"""How this machine is measured: what its processes time, and the device and link that explain it."""
