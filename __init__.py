"""At which precision every module of an LLM checkpoint really runs, why, and what it costs."""

__version__ = "0.1.0"
