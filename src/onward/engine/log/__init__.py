"""The log, as the engine reads (`reader`) and writes it (`journal`). A holder has an `appender`."""
