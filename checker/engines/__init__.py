"""Drivers of the real schedulers; vLLM and vllm-rbln are imported in here only, and lazily."""
