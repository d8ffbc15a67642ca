"""The process: the only home of sockets, event loop, threads, the real clock and the real disk."""
