//! Who takes work, and who of them has room: read from the mirror, and from the ledger while there is none.

#[cfg_attr(not(test), expect(dead_code, reason = "the reads that go through it come next"))]
pub(crate) mod fallback;
