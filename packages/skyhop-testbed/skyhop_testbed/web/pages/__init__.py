"""Page handlers, one module per subject: functions from a `PageRequest` to a response."""
