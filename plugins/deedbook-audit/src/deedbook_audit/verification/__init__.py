"""The checks of a verification, one file each."""
