"""A regular package, so that `tests.sql_db` wins over the `tests` package which verl installs in site-packages."""
