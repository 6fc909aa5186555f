"""What every room uses: arguments, files, functional calls, linear algebra, tracing, networks."""
