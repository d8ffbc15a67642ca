"""The broker as a value: routes requests to the cores and their effects to the ports.  No sockets, no threads."""
