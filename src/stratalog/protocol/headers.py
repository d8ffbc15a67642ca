"""The headers before requests and responses."""
