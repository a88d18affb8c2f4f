//! The reference store: everything in memory.
