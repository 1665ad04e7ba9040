"""Train, calibrate and serve a reward model. Stands alone: nothing here imports sql_agent or agl_plugin."""
