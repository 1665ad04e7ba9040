"""A real Qwen3 of about 1M parameters, built and warm-started here, for machines without a GPU and without --model.

It is no medical model: it learned from made-up demonstrations, by a deliberately flawed demonstrator, how to call the
SQL tool and to copy what came back. GRPO then corrects the demonstrator's faults. See build.py for the command.
"""
