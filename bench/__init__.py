"""How fast Capline is on this machine: the gateway against nginx and against a bare proxy, the kernel, the replay."""
