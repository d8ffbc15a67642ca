"""A replicated state machine: a shard decides and replays, a runtime keeps it on a log and answers once committed."""
