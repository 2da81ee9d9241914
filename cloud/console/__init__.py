"""The labelling page: a small local web server for people who look at frames."""
