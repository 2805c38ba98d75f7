"""From the Markdown files of workflows to compiled cycles; every fault has its file, line and column."""
