"""The files of a package: libraries, header, manifest, golden vectors, source, wheel, and what lets
others use it.
"""
