"""A regular package, so that `tests.fakes` wins over the `tests` package which verl installs in site-packages."""
