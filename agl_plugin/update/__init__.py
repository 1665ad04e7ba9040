"""From rollouts to an optimizer step: rows, advantages, the update and what is measured in it."""
