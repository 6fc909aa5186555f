"""Shared utilities: arguments, files, functional calls, linear algebra, tracing, networks."""
