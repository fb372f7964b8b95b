"""The log, as the engine writes it. Begin with `journal`; `retry_store` waits out short outages."""
