//! This process's line to the mirror of one roster.
