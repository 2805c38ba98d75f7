"""One program in a sandbox: no network, a copy of the files, limited memory, time, processes and output."""
