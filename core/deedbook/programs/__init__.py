"""Programs in other processes: supervisor, process, workers, threads."""
