"""The world as the simulator sees it: a disk that lies, and crashes at every operation."""
