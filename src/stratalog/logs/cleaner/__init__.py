"""Compaction: which log (`choice`), what of it (`cleaning`, `transactions`), when and by whom (`manager`, `states`)."""
