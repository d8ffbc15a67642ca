"""The coordinators: state machines on internal topics.  `group` tracks offsets and classic consumer groups."""
