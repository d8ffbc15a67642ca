"""The controller: topics, brokers, configurations, features, quotas, producer ids.  Handlers make records, replay
applies them, replies wait for the commit."""
