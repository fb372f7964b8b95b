"""OpenAI's chat completions, which many servers speak. Begin with `client`; `body` and `answer` are pure."""
