"""The judge that needs no model: facts of the answer against facts of the reference."""
