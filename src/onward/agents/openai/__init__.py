"""OpenAI's chat completions, which many servers speak. Begin with `format`; all of it is pure."""
