"""The tools of a pipeline: files, patches, git, human review, and the reports of programs in the sandbox."""
