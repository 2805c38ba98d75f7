"""What is done with ledgers beside writing them: old ones taken in, events said otherwise, erased, or taken out."""
